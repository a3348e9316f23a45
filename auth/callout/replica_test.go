package callout_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Replicas share the work, and one that stops in order loses no login.
func TestReplicaStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		var stopped atomic.Bool
		halfway := make(chan struct{})
		one, two := m.serve(t, w), m.serve(t, w)
		var wg sync.WaitGroup
		var done atomic.Int64
		for i := range 8 {
			p := newPerson(t, fmt.Sprintf("p%d", i))
			token := w.bearer(t, p, true, time.Minute)
			wg.Go(func() {
				for after := 0; after < 5; {
					if stopped.Load() {
						after++
					}
					nc, err := m.connect(w, token, p.key)
					if err != nil {
						t.Errorf("connect %q: %v", p.Actor, err)
						return
					}
					nc.Close()
					if done.Add(1) == 40 {
						close(halfway)
					}
				}
			})
		}
		<-halfway
		if err := one.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		stopped.Store(true)
		wg.Wait()
		a, b := one.Stats(), two.Stats()
		if a.Admitted == 0 || b.Admitted == 0 || int64(a.Admitted+b.Admitted) != done.Load() {
			t.Errorf("admitted %d and %d of %d", a.Admitted, b.Admitted, done.Load())
		}
	})
}

// A replica that dies with a login in its hands loses it for the time that the broker waits; the next attempt is answered by another.
func TestReplicaDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		hold := newTurnstile(w)
		one := m.serve(t, w)
		ada := newPerson(t, "ada")
		token := w.bearer(t, ada, true, time.Minute)
		failed := make(chan error, 1)
		go func() {
			nc, err := m.connect(w, token, ada.key)
			if err == nil {
				nc.Close()
			}
			failed <- err
		}()
		<-hold.came
		one.nc.Close()
		two := m.serve(t, w)
		if err := <-failed; err == nil {
			t.Error("connected through a replica that died")
		}
		close(hold.open)
		nc, err := m.connect(w, token, ada.key)
		if err != nil {
			t.Errorf("second attempt: %v", err)
		} else {
			nc.Close()
		}
		if err := one.stop(); wire.CodeOf(err) != wire.CodeUnavailable {
			t.Errorf("Run of the dead one: %v, want %q", err, wire.CodeUnavailable)
		}
		m.end(t, two)
	})
}
