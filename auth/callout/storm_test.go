package callout_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/trust"
)

// Beyond, row 15: good logins come through a storm of bad ones, none of which reaches the records.
func TestStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const storm = 5000
		m := newMesh(t, "main")
		w := m.worlds["main"]
		var admitted atomic.Int64
		told := make(chan struct{}, 4*storm)
		d := m.serve(t, w, func(o *callout.Options) {
			o.OnDecision = func(_ context.Context, dec callout.Decision) {
				if dec.OK {
					admitted.Add(1)
				}
				told <- struct{}{}
			}
		})
		eve := newPerson(t, "eve")
		stolen := w.bearer(t, eve, true, time.Minute)
		bad := []string{"junk", swapLast(stolen), "a.b.c", stolen, stolen[:len(stolen)-8]} // the fourth without its key
		thief := newPerson(t, "eve")

		left := make(chan string, storm)
		for i := range storm {
			left <- bad[i%len(bad)]
		}
		close(left)
		var attack sync.WaitGroup
		for range 64 {
			attack.Go(func() {
				for token := range left {
					nc, err := m.connect(w, token, thief.key)
					if err == nil {
						nc.Close()
						t.Error("a bad bearer connected")
					}
				}
			})
		}
		over := make(chan struct{})
		go func() {
			attack.Wait()
			close(over)
		}()
		good := m.logins(t, w, over)
		<-over
		for range storm + good {
			<-told // a client is let in a moment before that is counted
		}

		s := d.Stats()
		var denied uint64
		for _, n := range s.Denied {
			denied += n
		}
		if good == 0 || s.Admitted != uint64(good) || admitted.Load() != int64(good) || len(w.records.asked()) != good {
			t.Errorf("admitted %d, told %d, decided %d, want %d, and some", s.Admitted, admitted.Load(), len(w.records.asked()), good)
		}
		if denied != uint64(storm) || s.Taken != s.Admitted+denied {
			t.Errorf("denied %d of %d bad ones, stats %+v", denied, storm, s)
		}
		if s.Denied[trust.ReasonBusy] != 0 {
			t.Errorf("%d were refused for load", s.Denied[trust.ReasonBusy])
		}
		t.Logf("%d bad connects, %d of them refused without content; %d good logins", storm, s.Bare, good)
		m.end(t, d)
	})
}

// logins makes logins one after the other until over is closed, and returns how many. Each must succeed.
func (m *mesh) logins(t *testing.T, w *world, over <-chan struct{}) (n int) {
	t.Helper()
	p := newPerson(t, "ada")
	token := w.bearer(t, p, true, bearer.MaxHumanLife)
	for {
		select {
		case <-over:
			return n
		default:
		}
		nc, err := m.connect(w, token, p.key)
		if err != nil {
			t.Errorf("good login: %v", err)
			return n
		}
		n++
		nc.Close()
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := callout.NewHosts()
	for i := range callout.SuspectAt {
		if h.Suspect("2001:db8::1", now) {
			t.Errorf("suspect after %d", i)
		}
		h.Blame(fmt.Sprintf("2001:db8::%x", i+1), now) // one network
	}
	for host, want := range map[string]bool{
		"2001:db8::ffff": true, "2001:db8:0:1::1": false, "203.0.113.1": false, "": false, strings.Repeat("x", 1<<10): false,
	} {
		if got := h.Suspect(host, now); got != want {
			t.Errorf("suspect(%.20q) = %v, want %v", host, got, want)
		}
	}
	if h.Suspect("2001:db8::1", now.Add(2*time.Second)) {
		t.Error("still suspect after two quiet seconds")
	}
	for range 10 * callout.MaxHosts { // it can be made no worse than a minute
		h.Blame("203.0.113.1", now)
	}
	if !h.Suspect("::ffff:203.0.113.1", now.Add(40*time.Second)) || h.Suspect("203.0.113.1", now.Add(time.Minute)) {
		t.Error("the worst address must be suspect for more than 40 s and less than a minute")
	}
	for i := range 2 * callout.MaxHosts {
		h.Blame(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), now)
	}
	if n := h.Len(); n > callout.MaxHosts {
		t.Errorf("%d addresses are remembered, limit %d", n, callout.MaxHosts)
	}
	if !h.Suspect("203.0.113.1", now) {
		t.Error("the worst address was forgotten before the best")
	}
}
