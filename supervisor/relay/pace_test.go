package relay_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/supervisor/relay"
)

// counted is a stage that counts what it wrote, as far as the test lets it.
type counted struct {
	*stage
	mu           sync.Mutex
	end, written uint64
	broken       error
	more         chan struct{} // closed when there is news
}

var _ relay.Pacer = (*counted)(nil)

func newCounted() *counted { return &counted{stage: newStage(80, 24), more: make(chan struct{})} }

func (c *counted) Type(ctx context.Context, data []byte) (uint64, error) {
	if err := c.Input(ctx, data); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end += uint64(len(data))
	return c.end, nil
}

func (c *counted) Written(ctx context.Context, end uint64) (uint64, error) {
	for {
		c.mu.Lock()
		n, more, err := c.written, c.more, c.broken
		c.mu.Unlock()
		if n >= end || err != nil {
			return n, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// wrote lets n bytes in all be written; err is of what follows.
func (c *counted) wrote(n uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written, c.broken = n, err
	close(c.more)
	c.more = make(chan struct{})
}

// follow takes what there is.
func (g *glass) follow(t *testing.T, s *endpoint.Session) {
	t.Helper()
	for {
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		ev, err := s.Next(ctx)
		cancel()
		if err != nil {
			return
		}
		g.take(ev)
	}
}

func TestPaceTellsWhatWasWritten(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, link := w.viewer(t, "ada")
		p := newCounted()
		if _, err := p.Type(t.Context(), []byte("of another")); err != nil {
			t.Fatal(err)
		}
		p.wrote(10, nil)
		s := open(t, ada, w.offer(t, ada, p, true, 0, 0), &endpoint.SessionOptions{Pace: true})
		if !s.Paced() {
			t.Fatal("the session keeps no pace")
		}
		var g glass
		typed := func(text string) {
			t.Helper()
			if err := s.Input([]byte(text)); err != nil {
				t.Fatal(err)
			}
			g.follow(t, s)
		}
		expect := func(what string, n uint64) {
			t.Helper()
			g.follow(t, s)
			if g.written != n || g.dropped != 0 {
				t.Errorf("%s: %d bytes were said to be written and %d dropped, want %d and 0", what, g.written, g.dropped, n)
			}
		}
		typed("abcd")
		if _, err := p.Type(t.Context(), []byte("of another")); err != nil {
			t.Fatal(err)
		}
		typed("efghij")
		typed("kl")
		expect("nothing", 0)
		p.wrote(14, nil)
		expect("the first", 4)
		p.wrote(29, nil)
		expect("another's and a part", 4)
		p.wrote(30, nil)
		expect("the second", 10)
		// What was written while nobody could be told is told afterwards, in the next turn.
		link.cut(true)
		time.Sleep(time.Second)
		p.wrote(32, nil)
		link.mend()
		time.Sleep(10 * time.Second)
		expect("the third", 12)
		typed("m")
		p.wrote(33, nil)
		expect("the fourth", 13)
		if g.lost != 1 {
			t.Errorf("the connection was lost %d times, want 1", g.lost)
		}
		typed("no")
		p.wrote(33, errors.New("it writes no more"))
		g.follow(t, s)
		if g.written != 13 || g.dropped != 2 {
			t.Errorf("%d bytes were said to be written and %d dropped, want 13 and 2", g.written, g.dropped)
		}
	})
}

// TestPaceTellsWhatNeverCame types while the supervisor does not hear it. The next turn makes that void, and counts it once.
func TestPaceTellsWhatNeverCame(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, _ := w.viewer(t, "ada")
		p := newCounted()
		p.wrote(1000, nil)
		s := open(t, ada, w.offer(t, ada, p, true, 0, 0), &endpoint.SessionOptions{Pace: true})
		var g glass
		typed := func(text string) {
			t.Helper()
			if err := s.Input([]byte(text)); err != nil {
				t.Fatal(err)
			}
			g.follow(t, s)
		}
		typed("abc")
		for range 2 {
			w.relay.RemoveConn(w.nc)
			typed("lost")
			if err := w.relay.AddConn(t.Context(), w.nc); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := s.Repaint(); err != nil {
					t.Fatal(err)
				}
				g.follow(t, s)
			}
			typed("d")
		}
		if g.written != 5 || g.dropped != 8 || string(p.typed) != "abcdd" {
			t.Errorf("typed %q; %d bytes were said to be written and %d dropped, want 5 and 8", p.typed, g.written, g.dropped)
		}
	})
}

// TestNoPaceUnlessAskedAndKnown tells nothing to a viewer that did not ask, as one of an earlier build, to one that only looks, and at a
// terminal that does not count.
func TestNoPaceUnlessAskedAndKnown(t *testing.T) {
	for name, c := range map[string]struct {
		pace, drive bool
		at          func() relay.Terminal
	}{
		"not_asked":      {false, true, func() relay.Terminal { return newCounted() }},
		"looks":          {true, false, func() relay.Terminal { return newCounted() }},
		"does_not_count": {true, true, func() relay.Terminal { return newStage(80, 24) }},
		"neither":        {false, true, func() relay.Terminal { return newStage(80, 24) }},
	} {
		t.Run(name, func(t *testing.T) {
			cotaltest.Bubble(t, func(t *testing.T) {
				w := newWorld(t, nil)
				ada, _ := w.viewer(t, "ada")
				s := open(t, ada, w.offer(t, ada, c.at(), c.drive, 0, 0), &endpoint.SessionOptions{Pace: c.pace})
				if err := errors.Join(s.Input([]byte("typed")), s.Repaint()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				var g glass
				g.follow(t, s)
				if s.Paced() || g.told > 0 || g.snapshots == 0 {
					t.Errorf("paced %v, told %d times, %d snapshots", s.Paced(), g.told, g.snapshots)
				}
			})
		})
	}
}
