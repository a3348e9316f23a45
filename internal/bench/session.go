package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/creack/pty"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/wire"
)

// echoes measures a keystroke until its echo is seen: over the mesh, at the terminal of a seat, beside a bare pseudo-terminal.
func echoes() pair {
	return pair{
		name: "echo", program: true,
		series: []series{{name: "p50", unit: "µs", smaller: true}, {name: "p99", unit: "µs", smaller: true, limit: 20_000}},
		setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
			var c closers
			t, err := l.terminal(ctx, &c)
			if err != nil {
				c.close()
				return nil, nil, nil, err
			}
			s, err := t.attach(ctx)
			if err != nil {
				c.close()
				return nil, nil, nil, err
			}
			c.add(func() { _ = s.Close() })
			raw, err := barePty(&c)
			if err != nil {
				c.close()
				return nil, nil, nil, err
			}
			n := l.singles()
			return keystrokes(n, func(ctx context.Context, key byte) error {
				if err := s.Input([]byte{key}); err != nil {
					return err
				}
				return sees(ctx, s, key)
			}), keystrokes(n, raw), c.close, nil
		},
	}
}

// attaches measures an attach until the first paint is there: the offer, the session and its snapshot.
func attaches() pair {
	return pair{
		name: "attach", program: true, series: []series{{name: "first paint p50", unit: "µs", limit: 100_000}},
		setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
			var c closers
			t, err := l.terminal(ctx, &c)
			if err != nil {
				c.close()
				return nil, nil, nil, err
			}
			return func(ctx context.Context) ([]float64, error) {
				took := make([]time.Duration, 20)
				for i := range took {
					began := time.Now()
					s, err := t.attach(ctx)
					if err == nil {
						_, err = s.Next(ctx)
					}
					if err != nil {
						return nil, err
					}
					took[i] = time.Since(began)
					_ = s.Close()
				}
				return []float64{quantile(took, 0.5)}, nil
			}, nil, c.close, nil
		},
	}
}

// benchTerminal is a seat with a relay before it, and a viewer.
type benchTerminal struct {
	relay *relay.Relay
	term  relay.Terminal
	ep    *endpoint.Endpoint
	uid   wire.UID
}

// terminal starts a seat whose agent echoes what is typed.
func (l *lab) terminal(ctx context.Context, c *closers) (*benchTerminal, error) {
	t := &benchTerminal{uid: wire.NewUID()}
	dir := filepath.Join(l.dir, "seat-"+string(t.uid)[:8])
	seat, err := supervisor.RealSeats{Program: l.opts.Executable, Args: []string{"seat"}}.Start(ctx, dir, supervisor.SeatSpec{
		ID: t.uid, Space: benchSpace, Principal: "local.echo", Argv: []string{"/bin/cat"}, Env: []string{"PATH=" + os.Getenv("PATH"), "TERM=xterm-256color"},
		Dir: l.dir, Cols: 120, Rows: 32, Grace: time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("start seat: %w", err)
	}
	c.add(func() {
		ctx := context.WithoutCancel(ctx)
		_, _ = seat.Stop(ctx, time.Second)
		_ = seat.Close(ctx, true)
	})
	t.term = seat.Terminal()
	nc, err := nats.Connect(l.open.URL())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.add(nc.Close)
	t.relay = relay.New(nc, benchSpace, "bench", nil)
	run, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = t.relay.Run(run) // returns nil
	}()
	c.add(func() {
		cancel()
		<-done
	})
	actor := fmt.Sprintf("viewer_%d", l.names.Add(1))
	t.ep, err = endpoint.Connect(ctx, l.open.URL(), nil, &endpoint.Options{Name: actor, Quiet: true, Open: &endpoint.Open{Space: benchSpace, Actor: actor}})
	if err != nil {
		return nil, err
	}
	c.add(func() { _ = t.ep.Close() })
	return t, nil
}

func (t *benchTerminal) attach(ctx context.Context) (*endpoint.Session, error) {
	offer, err := t.relay.Offer(ctx, relay.Caller{Life: t.ep.Lifecycle()}, t.uid, t.term, wire.AttachRequest{UID: t.uid, Drive: true, Cols: 120, Rows: 32})
	if err != nil {
		return nil, err
	}
	return t.ep.Session(ctx, offer, &endpoint.SessionOptions{Cols: 120, Rows: 32})
}

// sees waits until the echo of a key comes.
func sees(ctx context.Context, s *endpoint.Session, key byte) error {
	for {
		ev, err := s.Next(ctx)
		switch {
		case err != nil:
			return err
		case ev.Kind == endpoint.SessionOutput && bytes.IndexByte(ev.Data, key) >= 0:
			return nil
		case ev.Kind == endpoint.SessionEnded, ev.Kind == endpoint.SessionDropped:
			return errors.New("the terminal does not take keys")
		}
	}
}

// keystrokes times single keys, each line of which is ended before the terminal's line is full.
func keystrokes(n int, press func(context.Context, byte) error) measure {
	return func(ctx context.Context) ([]float64, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		took := make([]time.Duration, n)
		for i := range took {
			key := byte('a' + i%26)
			if i%80 == 79 {
				key = '\n'
			}
			began := time.Now()
			if err := press(ctx, key); err != nil {
				return nil, err
			}
			took[i] = time.Since(began)
		}
		return []float64{quantile(took, 0.5), quantile(took, 0.99)}, nil
	}
}

// barePty is the same program on a pseudo-terminal of this process.
func barePty(c *closers) (func(context.Context, byte) error, error) {
	cmd := exec.Command("/bin/cat")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 120, Rows: 32})
	if err != nil {
		return nil, fmt.Errorf("start a bare terminal: %w", err)
	}
	c.add(func() {
		_ = f.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	buf := make([]byte, 4096)
	return func(_ context.Context, key byte) error {
		if _, err := f.Write([]byte{key}); err != nil {
			return err
		}
		for {
			n, err := f.Read(buf)
			if err != nil {
				return err
			}
			if bytes.IndexByte(buf[:n], key) >= 0 {
				return nil
			}
		}
	}, nil
}
