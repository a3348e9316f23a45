package exchange_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/internal/faketime"
)

// piped is a listener whose connections are pipes, so that a server works on fake time.
type piped struct {
	came   chan net.Conn
	closed chan struct{}
	dialed int
}

// at is one end of a pipe that says where it comes from.
type at struct {
	net.Conn
	addr net.Addr
}

func (a at) RemoteAddr() net.Addr { return a.addr }

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.came:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *piped) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial connects from an address, and leaves the server alone with it until it waits.
func (p *piped) dial(t *testing.T, from string) net.Conn {
	t.Helper()
	p.dialed++
	ours, theirs := net.Pipe()
	p.came <- at{theirs, &net.TCPAddr{IP: net.ParseIP(from), Port: p.dialed}}
	t.Cleanup(func() { _ = ours.Close() })
	synctest.Wait()
	return ours
}

// pipe serves a face of the kit on pipes until the test ends.
func (k *kit) pipe(t *testing.T, face exchange.Face) *piped {
	t.Helper()
	p := &piped{came: make(chan net.Conn), closed: make(chan struct{})}
	t.Cleanup(k.ServeOn(face, p))
	return p
}

// begin sends a request whose body does not come, for somebody behind a proxy when hop is not empty.
func (p *piped) begin(t *testing.T, k *kit, from, hop string) net.Conn {
	t.Helper()
	c := p.dial(t, from)
	head := "POST /exchange HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + k.cap.Reveal() + "\r\n"
	if hop != "" {
		head += "X-Forwarded-For: " + hop + "\r\n"
	}
	send(t, c, head+"Content-Length: 100\r\n\r\n{")
	synctest.Wait()
	return c
}

// whole asks for a bearer and returns the status.
func (p *piped) whole(t *testing.T, k *kit, from, hop, body string) int {
	t.Helper()
	c := p.dial(t, from)
	defer c.Close()
	r := ask{body: body}.request(k, exchange.Loopback, "http://x")
	if hop != "" {
		r.Header.Set("X-Forwarded-For", hop)
	}
	r.Header.Set("Connection", "close")
	go func() { _ = r.Write(c) }()
	return status(t, c)
}

// status reads an answer.
func status(t *testing.T, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Errorf("read answer: %v", err)
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// silent reports whether a server has said nothing so far and keeps the connection.
func silent(t *testing.T, c net.Conn) bool {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	var b [1]byte
	_, err := c.Read(b[:])
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestHalfBodiesOfOnePeerKeepNobodyOut fills every place for bodies from one address. Others come in, of the same address too, because
// behind a proxy that is not trusted, and at the loopback face, all have one.
func TestHalfBodiesOfOnePeerKeepNobodyOut(t *testing.T) {
	for name, c := range map[string]struct {
		face       exchange.Face
		proxied    bool
		evil, good [2]string // address and hop
	}{
		"elsewhere":         {exchange.Public, false, [2]string{"192.0.2.1"}, [2]string{"198.51.100.7"}},
		"the same address":  {exchange.Public, false, [2]string{"127.0.0.1"}, [2]string{"127.0.0.1"}},
		"behind a proxy":    {exchange.Public, true, [2]string{"127.0.0.1", "192.0.2.1"}, [2]string{"127.0.0.1", "198.51.100.7"}},
		"at the other face": {exchange.Loopback, false, [2]string{"127.0.0.1"}, [2]string{"127.0.0.1"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				k := newKit(t, func(o *exchange.Options) { o.TrustedProxy = c.proxied })
				p := k.pipe(t, c.face)
				patient := p.begin(t, k, c.good[0], c.good[1])
				var half []net.Conn
				for range 512 {
					half = append(half, p.begin(t, k, c.evil[0], c.evil[1]))
				}
				for range 3 {
					if got := p.whole(t, k, c.good[0], c.good[1], personBody(good, "")); got != 200 {
						t.Errorf("a valid exchange beside 512 half ones = %d, want 200", got)
					}
				}
				if c.evil != c.good && !silent(t, patient) {
					t.Error("a slow one of another peer, which began first, has lost its place")
				}
				if got := status(t, half[0]); got != 503 {
					t.Errorf("the half one that began first = %d, want 503", got)
				}
				if !silent(t, half[511]) {
					t.Error("the half one that began last has lost its place")
				}
			})
		})
	}
}

// TestSlowBodiesAreRefusals: those that do not come, break off or lose their place count against their peer, which is throttled in
// the end, and the log is not warned of them.
func TestSlowBodiesAreRefusals(t *testing.T) {
	const peer = "192.0.2.1"
	for name, c := range map[string]struct {
		reason string
		three  func(t *testing.T, begin func() net.Conn) // has three bodies refused
	}{
		"late": {"unavailable", func(t *testing.T, begin func() net.Conn) {
			for _, want := range []int{503, 503, 429} {
				if got := status(t, begin()); got != want {
					t.Errorf("answer = %d, want %d", got, want)
				}
			}
		}},
		"broken off": {"malformed", func(_ *testing.T, begin func() net.Conn) {
			for range 3 {
				_ = begin().Close()
				synctest.Wait()
			}
		}},
		"crowded out": {"busy", func(t *testing.T, begin func() net.Conn) {
			var all []net.Conn
			for range 8 + 3 {
				all = append(all, begin())
			}
			for i, want := range []int{503, 503, 429} {
				if got := status(t, all[i]); got != want {
					t.Errorf("answer %d = %d, want %d", i, got, want)
				}
			}
		}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			faketime.Test(t, func(t *testing.T) {
				k := newKit(t, func(o *exchange.Options) { o.Limits.Refusals, o.Limits.InFlight = 2, 1 })
				p := k.pipe(t, exchange.Public)
				c.three(t, func() net.Conn { return p.begin(t, k, peer, "") })
				all := k.decided()
				if len(all) != 3 || all[0].Throttled || all[1].Throttled || !all[2].Throttled || string(all[0].Reason) != c.reason {
					t.Errorf("decisions = %+v, want three with reason %q, the last throttled", all, c.reason)
				}
				k.call(exchange.Public, ask{body: personBody("forged", ""), peer: peer + ":1"}).want(t, 429, "too-many-requests")
				k.call(exchange.Public, ask{body: personBody(good, ""), peer: peer + ":1"}).want(t, 200, "")
				if log := k.log.String(); strings.Contains(log, "level=WARN") || strings.Count(log, "level=INFO") != 2 {
					t.Errorf("log = %s, want two refusals at INFO and no warning", log)
				}
			})
		})
	}
}

// TestConnectionsAreBounded: of more than there is room for, the one that has waited longest for a request goes; those that are
// being answered stay.
func TestConnectionsAreBounded(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, func(o *exchange.Options) { o.Limits.InFlight = 1 })
		p := k.pipe(t, exchange.Public)
		answered := p.begin(t, k, "192.0.2.1", "")
		var idle []net.Conn
		for i := range 15 {
			idle = append(idle, p.dial(t, fmt.Sprintf("198.51.100.%d", i)))
		}
		send(t, idle[0], "GET /health HTTP/1.1\r\nHost: x\r\n\r\n") // so that it waits since now
		if got := status(t, idle[0]); got != 200 {
			t.Fatalf("health = %d", got)
		}
		synctest.Wait()
		if got := p.whole(t, k, "203.0.113.1", "", personBody(good, "")); got != 200 {
			t.Errorf("a valid exchange beside %d connections = %d, want 200", len(idle)+1, got)
		}
		for i, c := range idle {
			if got, want := silent(t, c), i != 1; got != want {
				t.Errorf("idle connection %d is open = %t, want %t", i, got, want)
			}
		}
		for range 15 {
			p.dial(t, "203.0.113.2")
		}
		if silent(t, idle[0]) {
			t.Error("a connection that was answered once is never closed")
		}
		if !silent(t, answered) {
			t.Error("a connection whose request is being answered was closed")
		}
	})
}
