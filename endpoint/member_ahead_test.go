package endpoint_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

var dan = wire.Principal{Owner: wire.LocalOwner, Actor: "dan"}

// ahead is a member that delivery refuses, so that it shows what comes live, and whose handler waits at "slow".
type ahead struct {
	*member
	k     *keeper
	gate  chan struct{}
	marks *journal[string]
}

func newAhead(t *testing.T, change ...func(*endpoint.Options)) *ahead {
	t.Helper()
	k := newKeeper(newOpenWorld(t))
	k.store(bob, "missed", false)
	k.set(func() { k.gen, k.fail[wire.CommandJoin] = 1, wire.Errorf(wire.CodePermissionDenied, "no") })
	a := &ahead{k: k, gate: make(chan struct{}), marks: newJournal[string]()}
	a.member = k.member(nil, func(d *endpoint.Delivery) {
		if d.Message.Text() == "slow" {
			<-a.gate
		}
	}, change...)
	must(a.ep.Listen(t.Context(), "mark", func(d *endpoint.Delivery) { a.marks.add(d.Message.ID) }))(t)
	k.store(ada, "slow", true)
	a.wait(t, "slow")
	return a
}

// arrived returns when everything that was published came to the endpoint.
func (a *ahead) arrived(t *testing.T, mark string) {
	t.Helper()
	a.k.w.liveCopy(ada, "mark", 1<<32+uint64(len(a.marks.list())), 0, encode(t, ada, "mark", mark, mark))
	a.marks.waitFor(t, mark, func(all []string) bool { return slices.Contains(all, mark) })
}

// cut ends the member's connection and returns when it is back.
func (a *ahead) cut(t *testing.T) {
	t.Helper()
	before := countEvents[endpoint.EventConnected](a.events)
	conns := must(a.k.w.srv.Connz(nil))(t)
	for _, c := range conns.Conns {
		if c.Name == a.ep.Principal().String() {
			check(t, "disconnect", a.k.w.srv.DisconnectClientByID(c.Cid), nil)
		}
	}
	a.events.waitFor(t, "a new connection", func([]endpoint.Event) bool { return countEvents[endpoint.EventConnected](a.events) > before })
}

// TestDroppedWhileAhead: live copies that are dropped while others wait before them are not taken for shown.
func TestDroppedWhileAhead(t *testing.T) {
	a := newAhead(t, func(o *endpoint.Options) { o.LiveBacklog = 2 })
	a.k.store(bob, "waits", true)
	a.k.store(ada, "dropped", true)
	a.arrived(t, "1")
	close(a.gate)
	a.wait(t, "waits")
	a.k.store(dan, "first of its sender", true)
	a.wait(t, "first of its sender")
	a.k.set(func() { clear(a.k.fail) })
	a.cut(t) // so it asks again
	a.wait(t, "dropped")
	a.want(t, "slow waits first of its sender missed dropped")
	a.k.wantFloor(t, 5)
}

// TestTwoPanicsWhileAhead: a live message is handled again though the handler panics at a stored one before that.
func TestTwoPanicsWhileAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(nil, func(d *endpoint.Delivery) {
			if text := d.Message.Text(); (text == "live" || text == "missed") && d.Attempt == 1 {
				panic("bug")
			}
		}, func(o *endpoint.Options) { o.RequestTimeout = time.Hour })
		time.Sleep(2 * time.Second)
		k.set(func() { k.fail[wire.CommandPull], k.fail[wire.CommandAck] = errAway, errAway })
		k.store(bob, "missed", false)
		k.store(bob, "tells", true)
		time.Sleep(20 * time.Second)
		wantEvent(t, m.events, func(ev endpoint.EventBackstop) bool { return ev.Ahead })
		m.want(t, "tells")
		gate := make(chan struct{})
		k.set(func() { clear(k.fail); k.hold[wire.CommandPull] = gate })
		time.Sleep(time.Minute) // now it asks
		k.store(ada, "live", true)
		synctest.Wait()
		close(gate)
		time.Sleep(time.Minute)
		m.want(t, "tells live live missed missed")
		k.wantFloor(t, 3)
	})
}
