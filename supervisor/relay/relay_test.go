package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// same fails unless the viewer shows what the agent's terminal shows.
func same(t *testing.T, s *stage, g *glass) {
	t.Helper()
	if diff := cmp.Diff(s.screen.Grid(), g.Grid()); diff != "" {
		t.Fatalf("the viewer shows something else (-agent +viewer):\n%.4000s", diff)
	}
}

func TestSessionShowsAndTypes(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	s := newStage(80, 24)
	s.write("\x1b[31mhello\x1b[0m wörld 漢字 e\u0301\r\n")
	offer := w.offer(t, ada, s, true, 100, 30)
	if offer.Instance != instance || offer.UID != agent || offer.Cols != 80 || offer.Rows != 24 || offer.Window != relay.DefaultWindow {
		t.Errorf("offer %+v", offer)
	}
	v := open(t, ada, offer, &endpoint.SessionOptions{Cols: 100, Rows: 30})
	var g glass
	g.until(t, v, "the first paint", func() bool { return strings.Contains(g.String(), "漢字") })
	if cols, rows := g.Size(); cols != 100 || rows != 30 {
		t.Errorf("the terminal is %d by %d, the driver has 100 by 30", cols, rows)
	}
	same(t, s, &g)
	for i := range 100 {
		if err := v.Input(fmt.Appendf(nil, "%d,", i)); err != nil {
			t.Fatal(err)
		}
	}
	want := ""
	for i := range 100 {
		want += fmt.Sprintf("%d,", i)
	}
	s.until(t, "the input", func() bool { return string(s.typed) == want })
	s.write("\x1b[?1049h\x1b[2J\x1b[5;5Hfull screen")
	g.until(t, v, "the alternate screen", func() bool { return strings.Contains(g.String(), "full screen") })
	same(t, s, &g)
	if err := v.Resize(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := v.Resize(90, 20); err != nil {
		t.Fatal(err)
	}
	g.until(t, v, "the resize", func() bool { cols, rows := g.Size(); return cols == 90 && rows == 20 })
	if n := w.relay.Sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if _, err := v.Next(t.Context()); err != io.EOF {
		t.Errorf("after Close: %v", err)
	}
	if cols, rows := s.screen.Size(); cols != 90 || rows != 20 {
		t.Errorf("after the driver left the terminal is %d by %d", cols, rows)
	}
}

// TestP12SlowViewerGetsASnapshot has a viewer that takes nothing while 50 MB are written.
func TestP12SlowViewerGetsASnapshot(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	s := newStage(80, 24)
	v := open(t, ada, w.offer(t, ada, s, false, 0, 0), nil)
	line := strings.Repeat("x", 1000)
	for i := range 50_000 {
		s.write(fmt.Sprintf("%d %s\r\n", i, line))
	}
	s.write("\x1b[2J\x1b[Hthe end of it")
	var g glass
	g.until(t, v, "the end of the output", func() bool { return strings.Contains(g.String(), "the end of it") })
	same(t, s, &g)
	if g.overflows == 0 || g.exit != nil || g.lost != 0 {
		t.Errorf("%d overflows, exit %v, lost %d times", g.overflows, g.exit, g.lost)
	}
	s.write("\r\nand on")
	g.until(t, v, "what came after", func() bool { return strings.Contains(g.String(), "and on") })
	same(t, s, &g)
}

// TestLookingDisturbsNothing has two viewers of different sizes, one of which drives.
func TestLookingDisturbsNothing(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	bob, _ := w.viewer(t, "bob")
	s := newStage(80, 24)
	looks := open(t, bob, w.offer(t, bob, s, false, 200, 50), &endpoint.SessionOptions{Cols: 200, Rows: 50})
	drives := open(t, ada, w.offer(t, ada, s, true, 60, 20), &endpoint.SessionOptions{Cols: 60, Rows: 20})
	var a, b glass
	a.until(t, drives, "the size of the driver", func() bool { cols, _ := a.Size(); return cols == 60 })
	b.until(t, looks, "the same for the other", func() bool { cols, _ := b.Size(); return cols == 60 })
	if err := errors.Join(looks.Resize(10, 10), looks.Input([]byte("rm -rf"))); err != nil {
		t.Fatal(err)
	}
	b.until(t, looks, "the refusal of input", func() bool { return b.dropped == 6 })
	s.write("both see this")
	a.until(t, drives, "the output", func() bool { return strings.Contains(a.String(), "both see this") })
	b.until(t, looks, "the output", func() bool { return strings.Contains(b.String(), "both see this") })
	same(t, s, &a)
	same(t, s, &b)
	s.until(t, "nothing typed", func() bool { return len(s.typed) == 0 && len(s.sizes) == 1 })
	if err := drives.Close(); err != nil {
		t.Fatal(err)
	}
	// The last driver wins, by opening or by changing size.
	next := open(t, bob, w.offer(t, bob, s, true, 70, 22), &endpoint.SessionOptions{Cols: 70, Rows: 22})
	b.until(t, looks, "the size of the next driver", func() bool { cols, _ := b.Size(); return cols == 70 })
	_ = next
}

func TestResizeStorm(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	s := newStage(80, 24)
	v := open(t, ada, w.offer(t, ada, s, true, 80, 24), &endpoint.SessionOptions{Cols: 80, Rows: 24})
	var g glass
	for i := range 500 {
		cols, rows := 20+rand.N(150), 5+rand.N(50)
		if i == 499 {
			cols, rows = 91, 33
		}
		if err := v.Resize(cols, rows); err != nil {
			t.Fatal(err)
		}
		s.write(fmt.Sprintf("\x1b[%d;%dHx%d", 1+rand.N(50), 1+rand.N(150), i))
	}
	s.until(t, "the last size", func() bool { n := len(s.sizes); return n > 0 && s.sizes[n-1] == [2]int{91, 33} })
	s.write("\x1b[Hdone")
	g.until(t, v, "the end", func() bool { return strings.Contains(g.String(), "done") })
	same(t, s, &g)
}

// TestSessionSurvivesCuts cuts the viewer's connection while output flows.
func TestSessionSurvivesCuts(t *testing.T) {
	w := newWorld(t, nil)
	ada, link := w.viewer(t, "ada")
	s := newStage(80, 24)
	v := open(t, ada, w.offer(t, ada, s, true, 80, 24), &endpoint.SessionOptions{Cols: 80, Rows: 24})
	var g glass
	for round := range 5 {
		link.cut(true)
		g.until(t, v, "the loss of the connection", func() bool { return g.lost == round+1 })
		if err := v.Input([]byte("typed into nothing")); wire.CodeOf(err) != wire.CodeUnavailable {
			t.Errorf("input without a connection: %v", err)
		}
		s.write(fmt.Sprintf("\x1b[2J\x1b[Hround %d\r\n", round))
		link.mend()
		seen := g.snapshots
		g.until(t, v, "the next snapshot", func() bool { return g.snapshots > seen })
		same(t, s, &g)
	}
	if err := v.Input([]byte("typed")); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the input", func() bool { return len(s.typed) > 0 })
	if string(s.typed) != "typed" {
		t.Errorf("typed %q", s.typed)
	}
}

// TestSessionSurvivesTheSupervisorsLink moves a session from one connection of the supervisor to the next, under output and input.
func TestSessionSurvivesTheSupervisorsLink(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, _ := w.viewer(t, "ada")
		s := newStage(80, 24)
		v := open(t, ada, w.offer(t, ada, s, true, 80, 24), &endpoint.SessionOptions{Cols: 80, Rows: 24})
		var g glass
		want := ""
		old := w.nc
		for round := range 5 {
			next := w.supervisor(t)
			if err := w.relay.AddConn(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				text := fmt.Sprintf("%d.%d ", round, i)
				want += text
				if err := v.Input([]byte(text)); err != nil {
					t.Fatal(err)
				}
				s.write(text)
				if i == 25 {
					w.relay.RemoveConn(old)
					dial.Drain(old)
					old = next
				}
			}
		}
		s.until(t, "all input", func() bool { return len(s.typed) >= len(want) })
		if string(s.typed) != want {
			t.Errorf("typed %q, want %q", s.typed, want)
		}
		s.write("\r\nend")
		g.until(t, v, "the end", func() bool { return strings.Contains(g.String(), "end") })
		same(t, s, &g)
		if g.lost != 0 || g.dropped != 0 {
			t.Errorf("lost %d times, %d bytes dropped", g.lost, g.dropped)
		}
	})
}

func TestSessionEndsWithTheAgent(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, _ := w.viewer(t, "ada")
		s := newStage(80, 24)
		v := open(t, ada, w.offer(t, ada, s, true, 80, 24), nil)
		offer := w.offer(t, ada, s, true, 80, 24)
		s.write("last words")
		s.end(wire.SessionExit{Code: 3, LastLines: []string{"last words"}})
		var g glass
		g.until(t, v, "the exit", func() bool { return g.exit != nil })
		if g.exit.Code != 3 || !strings.Contains(g.String(), "last words") {
			t.Errorf("exit %+v, shown %s", g.exit, &g)
		}
		if _, err := v.Next(t.Context()); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		late := open(t, ada, offer, nil)
		var l glass
		l.until(t, late, "the exit for who comes late", func() bool { return l.exit != nil })
	})
}

func TestOffersAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	bob, _ := w.viewer(t, "bob")
	s := newStage(80, 24)
	refused := func(t *testing.T, ep *endpoint.Endpoint, offer wire.AttachReply, want wire.Code) {
		t.Helper()
		wait := time.Minute
		if want == wire.CodeUnavailable {
			wait = 2 * time.Second // nobody answers
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		v, err := ep.Session(ctx, offer, nil)
		if err == nil {
			_ = v.Close()
		}
		if wire.CodeOf(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	t.Run("used_twice", func(t *testing.T) {
		offer := w.offer(t, ada, s, true, 80, 24)
		v := open(t, ada, offer, nil)
		refused(t, ada, offer, wire.CodeConflict)
		s.write("still here")
		var g glass
		g.until(t, v, "the first viewer's output", func() bool { return strings.Contains(g.String(), "still here") })
		_ = v.Close()
		refused(t, ada, offer, wire.CodeConflict)
	})
	t.Run("by_another_caller", func(t *testing.T) {
		// The other's subject is another one, by his life; nobody listens there. Naming ada's life is refused by the broker.
		refused(t, bob, w.offer(t, ada, s, true, 80, 24), wire.CodeUnavailable)
	})
	t.Run("by_another_life_of_the_caller", func(t *testing.T) {
		offer := w.offer(t, ada, s, true, 80, 24)
		again, _ := w.viewer(t, "ada2")
		refused(t, again, offer, wire.CodeUnavailable)
	})
	t.Run("for_another_instance", func(t *testing.T) {
		offer := w.offer(t, ada, s, true, 80, 24)
		offer.Instance = "sup2"
		refused(t, ada, offer, wire.CodeTargetMismatch)
	})
	t.Run("for_another_agent", func(t *testing.T) {
		offer := w.offer(t, ada, s, true, 80, 24)
		offer.UID = wire.NewUID()
		refused(t, ada, offer, wire.CodeTargetMismatch)
	})
	t.Run("never_made", func(t *testing.T) {
		offer := w.offer(t, ada, s, true, 80, 24)
		offer.Session = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
		refused(t, ada, offer, wire.CodeUnavailable)
	})
	t.Run("with_a_size_that_cannot_be", func(t *testing.T) {
		_, err := w.relay.Offer(t.Context(), relay.Caller{Life: ada.Lifecycle()}, agent, s, wire.AttachRequest{UID: agent, Cols: 5000, Rows: 1})
		if wire.CodeOf(err) != wire.CodeBadRequest {
			t.Error(err)
		}
	})
	s.until(t, "nothing typed", func() bool { return len(s.typed) == 0 })
}

// TestOfferExpires spends ten seconds of fake time.
func TestOfferExpires(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, _ := w.viewer(t, "ada")
		s := newStage(80, 24)
		for _, late := range []time.Duration{relay.OfferLife + time.Millisecond, relay.OfferLife + 5*time.Second} {
			offer := w.offer(t, ada, s, true, 80, 24)
			time.Sleep(late)
			if _, err := ada.Session(t.Context(), offer, nil); wire.CodeOf(err) != wire.CodeExpired {
				t.Errorf("after %s: %v", late, err)
			}
		}
		offer := w.offer(t, ada, s, true, 80, 24)
		time.Sleep(relay.OfferLife - time.Second)
		v := open(t, ada, offer, nil)
		time.Sleep(10 * relay.Silence) // a viewer that is there does not expire
		s.write("still here")
		var g glass
		g.until(t, v, "output", func() bool { return strings.Contains(g.String(), "still here") })
		_ = ada.Close()
		time.Sleep(2 * relay.Silence)
		if n := w.relay.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

// TestSilentViewerEnds and that of a supervisor that is killed.
func TestSilence(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, link := w.viewer(t, "ada")
		bob, _ := w.viewer(t, "bob")
		s := newStage(80, 24)
		open(t, ada, w.offer(t, ada, s, true, 80, 24), nil)
		v := open(t, bob, w.offer(t, bob, s, true, 80, 24), nil)
		link.cut(true)
		time.Sleep(relay.Silence + 2*time.Second)
		if n := w.relay.Sessions(); n != 1 {
			t.Errorf("%d sessions, one viewer is silent and one is not", n)
		}
		link.mend()
		w.nc.Close() // as if the supervisor were killed
		var err error
		for err == nil {
			_, err = v.Next(t.Context())
		}
		if wire.CodeOf(err) != wire.CodeUnavailable {
			t.Errorf("after the manager went silent: %v", err)
		}
	})
}

// TestBlockedTerminal types into a terminal that takes nothing: what does not fit is told, and nothing comes twice.
func TestBlockedTerminal(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, _ := w.viewer(t, "ada")
		s := newStage(80, 24)
		s.block = make(chan struct{})
		v := open(t, ada, w.offer(t, ada, s, true, 80, 24), nil)
		sent := 0
		piece := []byte(strings.Repeat("y", 10_000))
		for range 100 {
			if err := v.Input(piece); err != nil {
				t.Fatal(err)
			}
			sent += len(piece)
		}
		var g glass
		g.until(t, v, "word of what was dropped", func() bool { return g.dropped > 0 })
		close(s.block)
		s.write("z")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { // what is dropped and what is typed come to light in any order
			for {
				ev, err := v.Next(ctx)
				if err != nil {
					return
				}
				s.mu.Lock()
				g.take(ev)
				s.tell()
				s.mu.Unlock()
			}
		})
		defer wg.Wait()
		defer cancel()
		s.until(t, "all of it, and output beside", func() bool {
			return len(s.typed) >= 250_000 && len(s.typed)+int(g.dropped) == sent && strings.Contains(g.String(), "z")
		})
	})
}

// TestSupervisorStops tells the viewers, who can go on elsewhere.
func TestSupervisorStops(t *testing.T) {
	w := newWorld(t, nil)
	ada, _ := w.viewer(t, "ada")
	s := newStage(80, 24)
	v := open(t, ada, w.offer(t, ada, s, true, 80, 24), nil)
	w.relay.Close()
	var err error
	for err == nil {
		_, err = v.Next(t.Context())
	}
	if wire.CodeOf(err) != wire.CodeUnavailable || !strings.Contains(err.Error(), "supervisor stops") {
		t.Error(err)
	}
	if _, err := w.relay.Offer(t.Context(), relay.Caller{Life: ada.Lifecycle()}, agent, s, wire.AttachRequest{}); wire.CodeOf(err) != wire.CodeUnavailable {
		t.Error(err)
	}
}

// TestSessionSurvivesRenewal replaces the viewer's credential, and with it its connection, while both sides speak.
func TestSessionSurvivesRenewal(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		first := w.Credentials(t, "ada", nil)
		id := first.Identity()
		src := &renewing{now: first}
		src.next = func(ctx context.Context) (*trust.Credentials, error) {
			return w.mint.User(ctx, mint.UserRequest{
				Space: id.Space, Profile: id.Profile, Principal: id.Principal, UID: id.UID, Subscribe: []string{">"}, Publish: []string{">"}, Spawns: true,
				TTL: 5 * time.Second,
			})
		}
		short, err := src.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		src.now = short
		renewed := make(chan struct{}, 16)
		ep, err := endpoint.Connect(t.Context(), "", src, &endpoint.Options{Quiet: true, InProcess: w.InProcess(), OnEvent: func(e endpoint.Event) {
			if _, ok := e.(endpoint.EventRenewed); ok {
				renewed <- struct{}{}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ep.Close() })
		s := newStage(80, 24)
		v := open(t, ep, w.offer(t, ep, s, true, 80, 24), nil)
		want := ""
		for done, i := 0, 0; done < 2; i++ {
			text := fmt.Sprintf("%d ", i)
			want += text
			if err := v.Input([]byte(text)); err != nil {
				t.Fatal(err)
			}
			s.write(text)
			select {
			case <-renewed:
				done++
			case <-time.After(time.Millisecond):
			}
		}
		s.until(t, "all input", func() bool { return len(s.typed) >= len(want) })
		if string(s.typed) != want {
			t.Errorf("typed something else: %d bytes of %d", len(s.typed), len(want))
		}
		s.write("\x1b[2J\x1b[Hend")
		var g glass
		g.until(t, v, "the end", func() bool { return strings.Contains(g.String(), "end") })
		same(t, s, &g)
		if g.lost != 0 || g.dropped != 0 {
			t.Errorf("lost %d times, %d bytes dropped", g.lost, g.dropped)
		}
	})
}

type renewing struct {
	now  *trust.Credentials
	next func(context.Context) (*trust.Credentials, error)
	used bool
}

func (r *renewing) Credentials(ctx context.Context) (*trust.Credentials, error) {
	if !r.used {
		r.used = true
		return r.now, nil
	}
	return r.next(ctx)
}
