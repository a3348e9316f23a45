package dial_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/wire"
)

// listener is a broker that takes everybody, and says when it did.
func listener(t *testing.T, at string) (url string, taken <-chan net.Conn, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan net.Conn, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
			go func() {
				_, _ = fmt.Fprint(c, "INFO {\"max_payload\":1024,\"proto\":1}\r\n")
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					if lines.Text() == "PING" {
						_, _ = fmt.Fprint(c, "PONG\r\n")
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	return "nats://" + l.Addr().String(), conns, func() {
		_ = l.Close()
		<-done
	}
}

type dialerTo struct{ at *dial.Locator }

// Dial implements nats.CustomDialer.
func (d dialerTo) Dial(network, address string) (net.Conn, error) {
	address, err := d.at.Address(address)
	if err != nil {
		return nil, err
	}
	return net.Dial(network, address)
}

// TestMovedBrokerEndsThePause: the pause between two attempts, here of an hour, ends when the broker is known to be elsewhere, once and
// again.
func TestMovedBrokerEndsThePause(t *testing.T) {
	var at atomic.Pointer[string]
	know := func(s string) { at.Store(&s) }
	url, taken, end := listener(t, "127.0.0.1:0")
	know(url)
	locator := dial.NewLocator(url, func() string { return *at.Load() })
	watched := make(chan struct{})
	back := make(chan struct{}, 16)
	paused := make(chan struct{}, 16)
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.Timeout(time.Minute), nats.SetCustomDialer(dialerTo{locator}),
		nats.CustomReconnectDelay(func(int) time.Duration {
			paused <- struct{}{}
			return time.Hour
		}),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	go func() {
		locator.Watch(nc)
		close(watched)
	}()
	for range 3 {
		c := <-taken
		end()
		know("") // nowhere
		_ = c.Close()
		<-paused
		url, taken, end = listener(t, "127.0.0.1:0")
		know(url)
		<-back
		if !nc.IsConnected() || locator.Server("") != url {
			t.Fatalf("connected: %t, to %s, want %s", nc.IsConnected(), locator.Server(""), url)
		}
	}
	end()
	_ = (<-taken).Close()
	<-paused
	nc.Close()
	<-watched // it ends with the connection
}

// TestEndlessGreeting: a stranger that greets without end costs a bounded part of memory, and is no broker.
func TestEndlessGreeting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan int, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			sent <- 0
			return
		}
		defer func() { _ = c.Close() }()
		n, piece := 0, bytes.Repeat([]byte("x"), 64<<10)
		for n < 1<<30 {
			m, err := c.Write(piece)
			if n += m; err != nil {
				break
			}
		}
		sent <- n
	}()
	_, err = dial.Connect(t.Context(), dial.Options{URL: "nats://" + l.Addr().String(), Name: "test", Timeout: time.Minute})
	if wire.CodeOf(err) != wire.CodeUnavailable || !strings.Contains(err.Error(), "first line is longer") {
		t.Errorf("Connect = %v, want unavailable", err)
	}
	_ = l.Close()
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

// TestFollowsABrokerThatNamesOthers: the other servers of a cluster are tried when the first is gone.
func TestFollowsABrokerThatNamesOthers(t *testing.T) {
	other, taken, _ := listener(t, "127.0.0.1:0")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(c, "INFO {\"max_payload\":1024,\"proto\":1,\"connect_urls\":[%q]}\r\n", strings.TrimPrefix(other, "nats://"))
		lines := bufio.NewScanner(c)
		for lines.Scan() && lines.Text() != "PING" {
		}
		_, _ = fmt.Fprint(c, "PONG\r\n")
		<-end
		_ = l.Close()
		_ = c.Close()
	}()
	nc, err := dial.Connect(t.Context(), dial.Options{URL: "nats://" + l.Addr().String(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	close(end)
	<-taken
}
