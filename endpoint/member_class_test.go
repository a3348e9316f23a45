package endpoint_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// TestLiveChannelInADurablePattern: of a channel that delivery does not keep for members, what a membership missed is told,
// and what it heard while it read the others is shown.
func TestLiveChannelInADurablePattern(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	m := k.member(nil, nil)
	k.store(bob, "0", true)
	k.store(ada, "1", true)
	m.wait(t, "1")
	k.store(ada, "2", false)
	k.store(ada, "3", false)
	k.set(func() { k.all = nil }) // of the class live
	k.w.liveCopy(ada, "team", 5, 4, encode(t, ada, "team", "id5", "4"))
	k.set(func() { k.end, k.lasts[ada] = 5, 5 })
	m.wait(t, "4")
	k.store(ada, "5", true)
	k.store(bob, "6", true)
	m.wait(t, "6")
	m.want(t, "0 1 4 5 6")
	gap := wantEvent[endpoint.EventGap](t, m.events, nil)
	if gap.Sender != ada || gap.Channel != "team" || gap.From != 3 || gap.To != 4 || gap.Possible {
		t.Errorf("event %v", gap)
	}
	if n := countEvents[endpoint.EventGap](m.events); n != 1 {
		t.Errorf("%d gaps: %v", n, m.events.list())
	}
}

// TestLiveMemberSeesItsChannelBecomeDurable without a new connection.
func TestLiveMemberSeesItsChannelBecomeDurable(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.class = "live"
		m := k.member(nil, nil)
		k.store(ada, "1", true)
		time.Sleep(time.Hour)
		if n := k.called(wire.CommandJoin); n < 12 || n > 25 {
			t.Errorf("asked %d times in an hour", n)
		}
		k.set(func() { k.class = "durable" })
		time.Sleep(6 * time.Minute)
		if s := m.Status(); !s.Durable || !s.Established {
			t.Errorf("status %+v", s)
		}
		k.store(ada, "2", false)
		k.store(ada, "3", true)
		synctest.Wait()
		m.want(t, "1 2 3")
		time.Sleep(2 * time.Second)
		k.wantFloor(t, 3)
	})
}

// TestMentionOutlivesAFailedHandler: what a member of a live channel could not handle is not counted as shown before its
// next try, so that a mention of it is neither lost with the process nor shown twice.
func TestMentionOutlivesAFailedHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.class = "live"
		m := k.member(nil, func(d *endpoint.Delivery) {
			if d.Attempt < 2 {
				panic("bug")
			}
		})
		mentioned := newJournal[*endpoint.Delivery]()
		check(t, "handle", m.ep.HandleMentions(t.Context(), mentioned.add), nil)
		synctest.Wait()
		seq := k.store(ada, "1", true, mentioning)
		synctest.Wait()
		k.point(m.ep, seq, true)
		time.Sleep(10 * time.Second)
		if s := texts(mentioned.list()); s != "1" {
			t.Errorf("mentions %q", s)
		}
		m.want(t, "1")
		k.store(ada, "2", true)
		time.Sleep(10 * time.Second)
		m.want(t, "1 2 2")
	})
}
