package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// answers are the replies of delivery that have arrived, whoever they are for.
type answers struct {
	m       *mesh
	arrived chan *nats.Msg
	from    map[string]int // by instance
	nonces  map[string]int
}

func (m *mesh) countAnswers(t *testing.T) *answers {
	t.Helper()
	a := &answers{m: m, arrived: make(chan *nats.Msg, 1<<14), from: map[string]int{}, nonces: map[string]int{}}
	sub, err := m.nc.ChanSubscribe(lab.Prefix()+".ep.reply.>", a.arrived)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	m.flush(t)
	return a
}

// check wants answers to so many requests, none of them twice, and returns how many came from an instance.
func (a *answers) check(t *testing.T, requests int, instance string) int {
	t.Helper()
	a.m.flush(t)
	for range len(a.arrived) {
		r, err := wire.ParseReplySubject((<-a.arrived).Subject)
		if err == nil {
			a.from[r.Instance]++
			a.nonces[r.Nonce]++
		}
	}
	if len(a.nonces) != requests {
		t.Errorf("%d requests were answered, want %d", len(a.nonces), requests)
	}
	for nonce, n := range a.nonces {
		if n != 1 {
			t.Errorf("request %s was answered %d times", nonce, n)
		}
	}
	return a.from[instance]
}

// crowdOf asks from many callers at once, n requests each, and fails the test for each that is not answered.
func (m *mesh) crowdOf(t *testing.T, callers, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range callers {
		l := lifecycle(fmt.Sprintf("caller%d", i))
		c := m.caller(t, l)
		wg.Go(func() {
			for range n {
				if _, err := try[wire.RosterReply](t, c, wire.CommandRoster, nil); err != nil {
					t.Errorf("roster for %q: %v", l.Principal, err)
				}
			}
		})
	}
	wg.Wait()
}

// Two instances share the requests; when one stops in order while many ask, nobody notices.
func TestAnInstanceLeaves(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	stop := m.serve(t, &delivery.Options{Instance: "one"})
	m.serve(t, &delivery.Options{Instance: "two"})
	counted := m.countAnswers(t)
	const callers, each = 8, 100
	m.crowdOf(t, callers, each)
	for _, name := range []string{"one", "two"} {
		if n := counted.check(t, callers*each, name); n < callers*each/10 {
			t.Errorf("instance %s answered %d of %d", name, n, callers*each)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { m.crowdOf(t, callers, 3*each) })
	stop()
	wg.Wait()
	counted.check(t, 4*callers*each, "one")
}

// A write is done once and answered once, whichever instance gets it, and what one wrote the other sees.
func TestInstancesWriteOnce(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, &delivery.Options{Instance: "one"})
	m.serve(t, &delivery.Options{Instance: "two"})
	counted := m.countAnswers(t)
	c := m.caller(t, lifecycle("boss"))
	revision := uint64(0)
	const writes = 40
	for i := range writes {
		in := wire.ChannelSetRequest{Channel: "general", Config: &wire.ChannelConfig{Description: fmt.Sprint(i)}, Revision: space.Revision(revision)}
		revision = ask[wire.ChannelSetReply](t, c, wire.CommandChannelSet, in).Revision // a write done twice would be a conflict
	}
	if n := counted.check(t, writes, "one"); n == 0 || n == writes {
		t.Errorf("instance one answered %d of %d", n, writes)
	}
}

// An instance whose way to the broker is cut gets no request any more; when the way is back it serves again, with a roster
// that is right, and takes part in everything.
func TestAnInstanceIsCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		way := &cutter{srv: m.srv}
		m.serveOn(t, dial(t, m.srv, nats.InProcessServer(way)), &delivery.Options{Instance: "cut"})
		stop := m.serve(t, &delivery.Options{Instance: "steady"})
		ada, bob, carol := lifecycle("ada"), lifecycle("bob"), lifecycle("carol")
		for _, l := range []wire.Lifecycle{ada, bob, carol} {
			m.grant(t, l, ">")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		alive := func(ctx context.Context, l wire.Lifecycle) {
			for ctx.Err() == nil {
				m.beat(t, l, wire.StatusIdle, "")
				time.Sleep(wire.HeartbeatInterval)
			}
		}
		wg.Go(func() { alive(ctx, ada) })
		bobCtx, bobLeaves := context.WithCancel(ctx)
		defer bobLeaves()
		wg.Go(func() { alive(bobCtx, bob) })
		time.Sleep(10 * time.Second)
		for round := range 3 {
			way.off()
			counted := m.countAnswers(t)
			m.crowdOf(t, 4, 25)
			if n := counted.check(t, 100, "cut"); n != 0 {
				t.Errorf("round %d: the instance that is cut off answered %d", round, n)
			}
			m.mention(t, ada, "general", "carol")
			time.Sleep(20 * time.Second)
			bobLeaves() // nobody tells the one that is cut off
			way.on()
			time.Sleep(20 * time.Second)
			health, err := m.caller(t, lifecycle("probe")).Health(t.Context(), wire.DeliveryEndpoint, time.Second, 2)
			if err != nil || !health[0].Ready || !health[1].Ready {
				t.Errorf("round %d: health = %+v, %v, want two that are ready", round, health, err)
			}
		}
		stop()
		page := ask[wire.RosterReply](t, m.caller(t, carol), wire.CommandRoster, nil)
		var online []string
		for _, e := range page.Entries {
			if e.Presence.Status != wire.StatusOffline {
				online = append(online, e.Principal)
			}
		}
		if page.Instance != "cut" || page.StaleSince != 0 || !slices.Equal(online, []string{"local.ada"}) {
			t.Errorf("roster of %q, stale since %d = %q, want ada", page.Instance, page.StaleSince, online)
		}
		m.mention(t, ada, "general", "carol")
		m.settle(t, ada)
		equal(t, "pointers of carol", len(m.pointed(t, carol)), 4)
		cancel()
		wg.Wait()
		time.Sleep(time.Minute)
	})
}
