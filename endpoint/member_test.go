package endpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

func TestMemberIsShownWhatItMissed(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	k.store(ada, "before", false)
	m := k.member(nil, nil)
	k.store(ada, "one", true)
	m.wait(t, "one")
	if s := m.Status(); !s.Established || !s.Durable || s.Class != "durable" || s.Joined != 1 || s.Err != nil {
		t.Errorf("status %+v", s)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.wantFloor(t, 2)
	for i := range 250 { // several pages
		k.store(ada, fmt.Sprint("away", i), false)
		k.skip(1)
	}
	m.join(t, nil, nil)
	m.wait(t, "away249")
	k.store(bob, "live", true)
	all := m.wait(t, "live")
	want := "one"
	for i := range 250 {
		want += fmt.Sprint(" away", i)
	}
	m.want(t, want+" live")
	if all[1].Replayed != true || all[len(all)-1].Replayed {
		t.Error("replayed is not what was read")
	}
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.wantFloor(t, k.end)
	if s := m.Status(); s.Behind || s.Floor != k.end {
		t.Errorf("status %+v, want floor %d", s, k.end)
	}
	if n := countEvents[endpoint.EventGap](m.events); n > 0 {
		t.Errorf("%d gaps", n)
	}
}

// TestMemberFillsGaps loses live copies: what is missed is shown in order before what showed the gap.
func TestMemberFillsGaps(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	m := k.member(nil, nil)
	k.store(ada, "1", true)
	k.store(ada, "2", false)
	k.store(bob, "3", false)
	k.store(ada, "4", true)
	k.store(bob, "5", true)
	m.wait(t, "5")
	m.want(t, "1 2 3 4 5")
}

// TestMemberFillsGapsItHasPassed loses a live copy of one sender and is told only after another one was heard.
func TestMemberFillsGapsItHasPassed(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	m := k.member(nil, nil)
	k.store(ada, "1", true)
	k.store(ada, "2", false)
	k.store(bob, "3", true)
	m.wait(t, "3")
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.store(ada, "4", true)
	k.store(bob, "5", true)
	m.wait(t, "5")
	m.want(t, "1 3 2 4 5")
}

// TestMemberHoldsBackWhatIsLive lets live messages come while a page is on its way.
func TestMemberHoldsBackWhatIsLive(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	k.store(ada, "0", false)
	k.set(func() { k.gen = 1 })
	gate := make(chan struct{})
	k.hold[wire.CommandPull] = gate
	m := k.member(nil, nil)
	for i := range 9 {
		k.store(ada, fmt.Sprint(i+1), true)
	}
	close(gate)
	m.wait(t, "9")
	m.want(t, "0 1 2 3 4 5 6 7 8 9")
}

// TestMemberSlowerThanItsMessages overflows everything that holds messages: none is lost and none shown twice.
func TestMemberSlowerThanItsMessages(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	block := make(chan struct{})
	m := k.member(nil, func(*endpoint.Delivery) { <-block }, func(o *endpoint.Options) { o.LiveBacklog = 8 })
	const n = 6000
	var want strings.Builder
	want.WriteString("0")
	k.store(ada, "0", true)
	m.got.waitLen(t, 1)
	for i := range n {
		k.store(ada, fmt.Sprint(i+1), true)
		fmt.Fprint(&want, " ", i+1)
	}
	close(block)
	m.got.waitLen(t, n+1)
	m.want(t, want.String())
	if c := countEvents[endpoint.EventOverflow](m.events) + countEvents[endpoint.EventGap](m.events); c > 0 {
		t.Errorf("%d events about losses that are none", c)
	}
}

func TestMemberOfALiveChannel(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	k.class = "live"
	m := k.member(nil, nil)
	k.store(ada, "1", true)
	k.store(ada, "2", false)
	k.store(ada, "3", true)
	m.wait(t, "3")
	m.want(t, "1 3")
	wantEvent[endpoint.EventGap](t, m.events, nil)
	if s := m.Status(); !s.Established || s.Durable || s.Class != "live" || s.Behind {
		t.Errorf("status %+v", s)
	}
	if err := m.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	if k.called(wire.CommandAck)+k.called(wire.CommandPull)+k.called(wire.CommandLeave) > 0 {
		t.Errorf("calls %v", k.calls)
	}
}

// TestMemberTwice: one process joins a pattern once.
func TestMemberTwice(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	m := k.member(nil, nil)
	_, err := m.ep.Join(t.Context(), "team", func(*endpoint.Delivery) {}, nil)
	wantError(t, err, wire.CodeAlreadyExists, "")
	if err := m.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k.gen != 0 {
		t.Error("the membership was not ended")
	}
	m.join(t, nil, nil)
	k.store(ada, "1", true)
	m.wait(t, "1")
}
