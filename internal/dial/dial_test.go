package dial_test

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/faketime"
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
