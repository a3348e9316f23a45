package dial_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// refusing is a broker in this process that lets nobody back in, and counts the connections that are open.
type refusing struct {
	mu         sync.Mutex // guards the rest
	open, made int
}

type counted struct {
	net.Conn
	once sync.Once
	r    *refusing
}

func (c *counted) Close() error {
	c.once.Do(func() { c.r.count(-1) })
	return c.Conn.Close()
}

func (r *refusing) count(n int) (made int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open += n
	r.made += max(n, 0)
	return r.made
}

// InProcessConn implements nats.InProcessConnProvider.
func (r *refusing) InProcessConn() (net.Conn, error) {
	ours, theirs := net.Pipe()
	first := r.count(1) == 1
	go func() {
		defer func() { _ = theirs.Close() }()
		_, _ = fmt.Fprint(theirs, "INFO {\"max_payload\":1024,\"proto\":1}\r\n")
		lines := bufio.NewScanner(theirs)
		for lines.Scan() && lines.Text() != "PING" {
		}
		if first {
			_, _ = fmt.Fprint(theirs, "PONG\r\n")
			return
		}
		_, _ = fmt.Fprint(theirs, "-ERR 'Authorization Violation'\r\n")
	}()
	return &counted{Conn: ours, r: r}, nil
}

// TestRefusedAttemptsLeaveNoConnection: whoever the broker does not let back in tries for ever, and holds one connection.
func TestRefusedAttemptsLeaveNoConnection(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		r := &refusing{}
		nc, err := dial.Connect(t.Context(), dial.Options{InProcess: r, Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		r.mu.Lock()
		if r.made < 100 || r.open > 1 {
			t.Errorf("after %d attempts %d connections are open, want one at most", r.made, r.open)
		}
		r.mu.Unlock()
		nc.Close()
		synctest.Wait()
		if r.open != 0 {
			t.Errorf("%d connections are open after Close", r.open)
		}
	})
}

// slow is a broker in this process that sends the first ones away before it has looked at them.
type slow struct {
	away int
	made atomic.Int32
}

// InProcessConn implements nats.InProcessConnProvider.
func (s *slow) InProcessConn() (net.Conn, error) {
	ours, theirs := net.Pipe()
	late := int(s.made.Add(1)) <= s.away
	go func() {
		defer func() { _ = theirs.Close() }()
		_, _ = fmt.Fprint(theirs, "INFO {\"max_payload\":1024,\"proto\":1}\r\n")
		for lines := bufio.NewScanner(theirs); lines.Scan(); {
			switch {
			case lines.Text() != "PING":
			case late:
				time.Sleep(trust.AuthTimeout)
				_, _ = fmt.Fprint(theirs, "-ERR 'Authentication Timeout'\r\n")
				return
			default:
				_, _ = fmt.Fprint(theirs, "PONG\r\n")
			}
		}
	}()
	return ours, nil
}

// TestUndecidedAsksOnceMore: a broker that does not come to a credential in time is asked once more, and not for ever.
func TestUndecidedAsksOnceMore(t *testing.T) {
	for away, want := range map[int]string{1: "", 2: "did not come to the credential in time"} {
		faketime.Test(t, func(t *testing.T) {
			s := &slow{away: away}
			nc, err := dial.Connect(t.Context(), dial.Options{InProcess: s, Name: "test"})
			switch {
			case want == "" && err != nil, want != "" && (wire.CodeOf(err) != wire.CodeUnavailable || !strings.Contains(err.Error(), want)):
				t.Errorf("sent away %d times: %v, want %q", away, err, want)
			case s.made.Load() != 2:
				t.Errorf("sent away %d times it asked %d times, want 2", away, s.made.Load())
			}
			if nc != nil {
				nc.Close()
			}
			synctest.Wait()
		})
	}
}
