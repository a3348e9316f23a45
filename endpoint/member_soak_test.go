package endpoint_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
)

// TestMemberInAStorm posts without a pause while the member's connection is cut, moved and given up, its handler panics and
// its process starts anew: every message is shown once and in stored order.
func TestMemberInAStorm(t *testing.T) {
	mesh := cotaltest.New(t, &cotaltest.Options{Listen: true})
	p := newProxy(t, strings.TrimPrefix(mesh.URL(), "nats://"))
	creds := mesh.Credentials(t, "carol", nil)
	var mu sync.Mutex
	var seqs []uint64
	shown := make(chan struct{}, 1)
	failed := map[uint64]bool{}
	handle := func(d *endpoint.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		if n := rand.IntN(2000); n < 2 && !failed[d.Sequence] && len(failed) < 3 { // each costs a second
			failed[d.Sequence] = true
			if n == 0 {
				runtime.Goexit()
			}
			panic("bug")
		}
		seqs = append(seqs, d.Sequence)
		select {
		case shown <- struct{}{}:
		default:
		}
	}
	var ep *endpoint.Endpoint
	var m *endpoint.Membership
	start := func() {
		ep = must(endpoint.Connect(t.Context(), "nats://"+p.ln.Addr().String(), endpoint.Static(creds), &endpoint.Options{LiveBacklog: 64, RequestTimeout: time.Minute}))(t)
		m = must(ep.Join(t.Context(), "team", handle, nil))(t)
	}
	start()
	stop, posted := make(chan struct{}), make(chan []uint64)
	ada := mesh.Endpoint(t, "ada", nil)
	go func() {
		var all []uint64
		for {
			select {
			case <-stop:
				posted <- all
				return
			default:
				r, err := ada.Post(t.Context(), "team", endpoint.Text("x"))
				check(t, "post", err, nil)
				all = append(all, r.Sequence)
			}
		}
	}()
	var steps []string
	for i := range 16 {
		mu.Lock()
		last := uint64(0)
		if len(seqs) > 0 {
			last = seqs[len(seqs)-1]
		}
		steps = append(steps, fmt.Sprint(i%4, "@", last))
		mu.Unlock()
		switch i % 4 {
		case 0:
			p.cut()
		case 1:
			next, err := mesh.Node().Authority().Issue(t.Context(), auth.Request{Space: mesh.Space(), Actor: "carol", Renew: true, TTL: time.Duration(i+2) * time.Hour})
			check(t, "issue", err, nil)
			check(t, "renew", ep.Renew(t.Context(), next), nil)
		case 2:
			check(t, "stop", m.Stop(t.Context()), nil)
			m = must(ep.Join(t.Context(), "team", handle, nil))(t)
		case 3:
			check(t, "stop", m.Stop(t.Context()), nil)
			check(t, "close", ep.Close(), nil)
			start()
		}
		must(ada.Post(t.Context(), "noise", endpoint.Text("x")))(t)
	}
	close(stop)
	want := <-posted
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seqs) > 0 && seqs[len(seqs)-1] == want[len(want)-1]
	}
	late := time.After(30 * time.Second)
	for !done() {
		select {
		case <-shown:
		case <-late:
			t.Fatalf("the last message is not shown: %+v", m.Status())
		}
	}
	check(t, "close", ep.Close(), nil)
	if !slices.Equal(seqs, want) {
		i := 0
		for i < min(len(seqs), len(want)) && seqs[i] == want[i] {
			i++
		}
		t.Errorf("%d messages shown of %d; from the %dth on %d instead of %d", len(seqs), len(want), i, seqs[i:min(len(seqs), i+5)], want[i:min(len(want), i+5)])
		t.Log(steps)
	}
	t.Logf("%d messages, %d panics", len(seqs), len(failed))
}

// TestHandlerOfAMemberEndsItsGoroutine, in the live path and while it catches up: the message is shown again.
func TestHandlerOfAMemberEndsItsGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		for i := range 3 {
			k.store(ada, fmt.Sprint(i), false)
		}
		k.set(func() { k.gen = 1 })
		m := k.member(nil, func(d *endpoint.Delivery) {
			if text := d.Message.Text(); (text == "1" || text == "4") && d.Attempt < 3 {
				runtime.Goexit()
			}
		})
		time.Sleep(10 * time.Second)
		for i := range 3 {
			k.store(ada, fmt.Sprint(i+3), true)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		m.want(t, "0 1 1 1 2 3 4 4 4 5")
		k.wantFloor(t, 6)
	})
}
