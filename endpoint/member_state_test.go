package endpoint_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// inBubble runs a test with a keeper in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, k *keeper)) {
	t.Helper()
	bubbled(t)
	faketime.Test(t, func(t *testing.T) { fn(t, newKeeper(newOpenWorld(t))) })
}

var errAway = wire.Errorf(wire.CodeUnavailable, "away")

func TestJoinWithoutDelivery(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.set(func() { k.fail[wire.CommandJoin] = errAway })
		m := k.member(nil, nil)
		k.store(ada, "1", true)
		m.wait(t, "1")
		if ev := wantEvent[endpoint.EventBackstop](t, m.events, nil); ev.Established || ev.Err == nil {
			t.Errorf("event %v", ev)
		}
		if s := m.Status(); s.Established || s.Err == nil {
			t.Errorf("status %+v", s)
		}
		time.Sleep(10 * time.Minute)
		if n := k.called(wire.CommandJoin); n < 8 || n > 30 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		k.store(ada, "2", true)
		k.set(func() { delete(k.fail, wire.CommandJoin) })
		time.Sleep(2 * time.Minute)
		wantEvent(t, m.events, func(ev endpoint.EventBackstop) bool { return ev.Established })
		k.store(ada, "3", false)
		k.store(ada, "4", true)
		m.wait(t, "4")
		m.want(t, "1 2 3 4")
		time.Sleep(2 * time.Second)
		k.wantFloor(t, 4)
	})
}

// TestResumeWithoutDelivery shows live messages before delivery says which older ones were not handled: they are shown
// then, and none twice.
func TestResumeWithoutDelivery(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.store(ada, "1", false)
		k.store(ada, "2", false)
		k.set(func() { k.gen, k.floor, k.fail[wire.CommandJoin] = 1, 1, errAway })
		m := k.member(nil, nil)
		k.store(ada, "3", true)
		k.store(bob, "4", true)
		time.Sleep(20 * time.Second)
		k.set(func() { delete(k.fail, wire.CommandJoin) })
		time.Sleep(time.Minute)
		k.store(bob, "5", true)
		synctest.Wait()
		m.want(t, "3 4 2 5")
		time.Sleep(2 * time.Second)
		k.wantFloor(t, 5)
	})
}

func TestDeliveryGoesAndComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(nil, nil)
		k.store(ada, "1", true)
		time.Sleep(2 * time.Second)
		k.set(func() {
			k.fail[wire.CommandPull], k.fail[wire.CommandAck] = errAway, errAway
		})
		k.store(ada, "2", false) // a gap, which cannot be filled
		k.store(ada, "3", true)
		k.store(bob, "4", true)
		time.Sleep(10 * time.Second)
		m.want(t, "1") // it may come back
		time.Sleep(10 * time.Second)
		m.want(t, "1 3 4")
		k.store(bob, "5", false)
		k.store(bob, "6", true)
		wantEvent(t, m.events, func(ev endpoint.EventBackstop) bool { return !ev.Established && ev.Ahead })
		k.set(func() { clear(k.fail) })
		time.Sleep(2 * time.Minute)
		m.want(t, "1 3 4 6 2 5")
		k.store(ada, "7", true)
		time.Sleep(2 * time.Minute)
		m.want(t, "1 3 4 6 2 5 7")
		k.wantFloor(t, 7)
		if s := m.Status(); s.Behind || !s.Established {
			t.Errorf("status %+v", s)
		}
	})
}

// TestOrderWhileDeliveryRestarts: what arrives live waits for what was missed before it while delivery may come back, also
// when it gives some pages only and goes away again, and when the process is new.
func TestOrderWhileDeliveryRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		away := func() { k.set(func() { k.fail[wire.CommandJoin], k.fail[wire.CommandPull] = errAway, errAway }) }
		back := func() { k.set(func() { clear(k.fail) }) }
		want := ""
		for i := range 500 { // pages of 100
			k.store(ada, fmt.Sprint("old", i), false)
			want += fmt.Sprint("old", i, " ")
		}
		k.set(func() { k.gen = 1 })
		away()
		given := 0
		m := k.member(nil, func(d *endpoint.Delivery) {
			if given++; given%100 == 50 {
				away() // the next page was read ahead, if at all
			}
		})
		k.store(ada, "new1", true)
		k.store(bob, "new2", true)
		for len(m.got.list()) < 502 {
			time.Sleep(7 * time.Second)
			back()
			time.Sleep(7900 * time.Millisecond) // it is never away for as long as patience lasts
		}
		if got := texts(m.got.list()); got != want+"new1 new2" {
			t.Errorf("shown out of order: %.4000s", got)
		}
		for _, ev := range m.events.list() {
			if b, ok := ev.(endpoint.EventBackstop); ok && b.Ahead {
				t.Errorf("event %v", ev)
			}
		}
		k.wantFloor(t, 502)
	})
}

// TestDeniedMembership: a credential without the right to join does not ask again and again.
func TestDeniedMembership(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.set(func() { k.fail[wire.CommandJoin] = wire.Errorf(wire.CodePermissionDenied, "no") })
		m := k.member(nil, nil)
		time.Sleep(9 * time.Minute)
		if n := k.called(wire.CommandJoin); n > 2 {
			t.Errorf("asked %d times", n)
		}
		k.store(ada, "1", true)
		synctest.Wait()
		m.want(t, "1")
	})
}

// TestQuietMember looks now and then, ever more rarely, and finds what nothing told of.
func TestQuietMember(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(nil, nil)
		start := time.Now()
		time.Sleep(time.Hour)
		if n := k.called(wire.CommandPull); n < 12 || n > 25 {
			t.Errorf("looked %d times in an hour", n)
		}
		k.store(ada, "1", false)
		for len(m.got.list()) == 0 && time.Since(start) < 66*time.Minute {
			time.Sleep(time.Second)
		}
		m.want(t, "1")
		k.store(ada, "2", false)
		time.Sleep(76 * time.Second)
		m.want(t, "1 2")
		if n := k.called(wire.CommandAck); n != 2 {
			t.Errorf("reported %d times", n)
		}
	})
}

func TestPanickingMember(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		var at []time.Duration
		start := time.Now()
		m := k.member(nil, func(d *endpoint.Delivery) {
			if d.Message.Text() == "poison" {
				at = append(at, time.Since(start).Round(time.Second))
				panic("bug")
			}
			if d.Message.Text() == "twice" && d.Attempt < 2 {
				panic("bug")
			}
		})
		k.store(ada, "twice", true)
		k.store(ada, "after", true)
		time.Sleep(2 * time.Second)
		m.want(t, "twice twice after")
		start = time.Now()
		k.store(ada, "poison", true)
		k.store(bob, "later", true)
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, want := fmt.Sprint(at), "[0s 1s 3s 7s 15s 31s 1m3s 2m3s 3m3s 4m3s]"; got != want {
			t.Errorf("shown at %s, want %s", got, want)
		}
		if all := m.got.list(); all[len(all)-1].Message.Text() != "later" || !all[4].Redelivered || all[4].Attempt != 2 {
			t.Errorf("shown %s", texts(all))
		}
		if ev := wantEvent[endpoint.EventGaveUp](t, m.events, nil); ev.Attempts != 10 || ev.Kind != wire.KindChannel {
			t.Errorf("event %v", ev)
		}
		k.wantFloor(t, 4)
	})
}

// TestPoisonInTheBacklog: a panic while catching up waits, too, and what is after it keeps its place.
func TestPoisonInTheBacklog(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		for i := range 4 {
			k.store(ada, fmt.Sprint(i+1), false)
		}
		k.set(func() { k.gen = 1 })
		m := k.member(nil, func(d *endpoint.Delivery) {
			if d.Message.Text() == "2" && d.Attempt < 4 {
				panic("bug")
			}
		})
		k.store(ada, "5", true)
		time.Sleep(time.Minute)
		m.want(t, "1 2 2 2 2 3 4 5")
		k.wantFloor(t, 5)
	})
}

func TestManualMember(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(&endpoint.JoinOptions{Manual: true}, nil)
		for i := range 5 {
			k.store(ada, fmt.Sprint(i+1), true)
		}
		synctest.Wait()
		all := m.got.list()
		check(t, "ack", all[1].Ack(t.Context()), nil)
		check(t, "term", all[3].Term(t.Context(), "no"), nil)
		check(t, "in progress", all[2].InProgress(t.Context()), nil)
		check(t, "ack again", all[1].Ack(t.Context()), endpoint.ErrSettled)
		time.Sleep(2 * time.Second)
		if got, want := fmt.Sprint(k.acks.list()), "[{team false 1 0 [{2 2} {4 4}]}]"; got != want {
			t.Errorf("reported %s, want %s", got, want)
		}
		check(t, "nak", all[0].Nak(t.Context(), time.Minute), nil)
		check(t, "ack", all[2].Ack(t.Context()), nil)
		check(t, "confirm", all[4].Confirm(t.Context()), nil)
		if got := k.acks.list(); got[len(got)-1].Floor != 0 || !slices.Equal(got[len(got)-1].Handled, []wire.SequenceRange{{From: 2, To: 5}}) {
			t.Errorf("reported %v", got)
		}
		time.Sleep(time.Minute + time.Second)
		m.want(t, "1 2 3 4 5 1")
		again := m.got.list()[5]
		if !again.Redelivered || again.Attempt != 2 {
			t.Errorf("shown again as %+v", again)
		}
		check(t, "confirm", again.Confirm(t.Context()), nil)
		k.wantFloor(t, 5)
	})
}

// TestManualMemberSettlesAfterStop: what was shown before the end can be settled after it.
func TestManualMemberSettlesAfterStop(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(&endpoint.JoinOptions{Manual: true}, nil)
		for i := range 4 {
			k.store(ada, fmt.Sprint(i+1), true)
		}
		synctest.Wait()
		all := m.got.take()
		check(t, "stop", m.Stop(t.Context()), nil)
		check(t, "ack", all[0].Ack(t.Context()), nil)
		check(t, "nak", all[1].Nak(t.Context(), time.Second), nil)
		check(t, "term", all[3].Term(t.Context(), "no"), nil)
		m.join(t, nil, nil)
		time.Sleep(time.Second)
		m.want(t, "2 3")
	})
}

// TestLeftMembershipLeavesTheNextOneAlone: a process that left shows what it had missed until then, though another one of
// the same life has joined again.
func TestLeftMembershipLeavesTheNextOneAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		gate := make(chan struct{})
		m := k.member(nil, func(d *endpoint.Delivery) {
			if d.Message.Text() == "1" {
				<-gate
			}
		})
		k.store(ada, "1", true)
		synctest.Wait()
		k.store(ada, "2", false)
		must(m.ep.LeaveChannel(t.Context(), "team", false))(t)
		k.set(func() { k.gen, k.left = k.gen+1, 0 }) // joined again, with both intervals
		k.store(ada, "3", false)
		k.store(ada, "4", true)
		close(gate)
		time.Sleep(time.Minute)
		m.want(t, "1 2")
		wantEvent(t, m.events, func(ev endpoint.EventMembershipEnded) bool { return ev.Err == nil })
		k.wantFloor(t, 2) // the others are not its own to report
	})
}

// TestManualMemberIsBounded leaves everything unsettled: no more is shown than can be reported, and the rest later.
func TestManualMemberIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(&endpoint.JoinOptions{Manual: true}, nil)
		const n = 600
		for i := range n {
			k.store(ada, fmt.Sprint(i), true)
			k.skip(1)
		}
		time.Sleep(time.Minute)
		shown := len(m.got.list())
		if shown > 255 || shown < 250 {
			t.Errorf("%d shown", shown)
		}
		for i := 0; i < n; i++ {
			all := m.got.list()
			if i >= len(all) {
				time.Sleep(time.Second)
				all = m.got.list()
			}
			check(t, "ack", all[i].Ack(t.Context()), nil)
		}
		time.Sleep(time.Minute)
		if got := len(m.got.list()); got != n {
			t.Errorf("%d shown, want %d", got, n)
		}
		if last := k.acks.list(); last[len(last)-1].Floor < 2*n-1 || len(last[len(last)-1].Handled) > 0 {
			t.Errorf("reported last %v", last[len(last)-1])
		}
	})
}

func TestMembershipEndedElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(nil, nil)
		k.store(ada, "1", true)
		synctest.Wait()
		k.set(func() { k.gen = 0 })
		time.Sleep(2 * time.Second) // the report says so
		if ev := wantEvent[endpoint.EventMembershipEnded](t, m.events, nil); ev.Pattern != "team" || wire.CodeOf(ev.Err) != wire.CodeNotFound {
			t.Errorf("event %v", ev)
		}
		k.store(ada, "2", true)
		synctest.Wait()
		m.want(t, "1")
		if s := m.Status(); s.Established || s.Behind {
			t.Errorf("status %+v", s)
		}
		m.join(t, nil, nil)
		k.store(ada, "3", true)
		synctest.Wait()
		m.want(t, "1 3")
	})
}

func TestLeaveChannelShowsTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(nil, nil)
		k.store(ada, "1", true)
		k.store(ada, "2", false)
		r := must(m.ep.LeaveChannel(t.Context(), "team", false))(t)
		k.store(ada, "3", true)
		time.Sleep(time.Second)
		m.want(t, "1 2")
		if ev := wantEvent[endpoint.EventMembershipEnded](t, m.events, nil); ev.Err != nil || r.Left != 2 {
			t.Errorf("event %v, left %d", ev, r.Left)
		}
		k.wantFloor(t, 2)
	})
}

func TestMemberIsToldOfLossesOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.store(ada, "1", false)
		k.set(func() {
			k.gen, k.end = 1, 50
			k.losses = []wire.Loss{
				{SequenceRange: wire.SequenceRange{From: 2, To: 20}, Reason: wire.LossRetention},
				{SequenceRange: wire.SequenceRange{From: 30, To: 31}, Reason: wire.LossCleared, Channel: "team", Count: 2},
			}
		})
		m := k.member(nil, nil)
		time.Sleep(2 * time.Second)
		k.wantFloor(t, 50)
		k.set(func() { k.losses[0].To = 25 })
		k.store(ada, "2", true)
		time.Sleep(5 * time.Minute)
		var got []endpoint.EventLoss
		for _, ev := range m.events.list() {
			if l, ok := ev.(endpoint.EventLoss); ok {
				got = append(got, l)
			}
		}
		want := []endpoint.EventLoss{
			{Pattern: "team", From: 2, To: 20, Reason: wire.LossRetention},
			{Pattern: "team", Channel: "team", From: 30, To: 31, Reason: wire.LossCleared, Count: 2},
			{Pattern: "team", From: 21, To: 25, Reason: wire.LossRetention},
		}
		if !slices.Equal(got, want) {
			t.Errorf("losses %v, want %v", got, want)
		}
		m.want(t, "1 2")
	})
}

// TestMemberDropsWhatIsNoMessage: what delivery would never send is not shown, and does not stop what follows.
func TestMemberDropsWhatIsNoMessage(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.store(ada, "1", false)
		k.store(ada, "2", false)
		k.set(func() {
			k.gen = 1
			k.all[0].Sender = bob.String()
		})
		m := k.member(nil, nil)
		synctest.Wait()
		k.w.liveCopy(ada, "team", 3, 2, []byte("{"))
		k.set(func() { k.end, k.lasts[ada] = 3, 3 })
		k.store(ada, "4", true)
		synctest.Wait()
		m.want(t, "2 4")
		if n := countEvents[endpoint.EventDropped](m.events); n != 2 {
			t.Errorf("%d drops", n)
		}
		time.Sleep(2 * time.Second)
		k.wantFloor(t, 4)
	})
}

// TestSlowMemberReadsAgain: a page that waits for long is read again, as the right to read it may have ended.
func TestSlowMemberReadsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		for i := range 20 {
			k.store(ada, fmt.Sprint(i), false)
		}
		k.set(func() { k.gen = 1 })
		m := k.member(nil, func(d *endpoint.Delivery) { time.Sleep(4 * time.Second) })
		time.Sleep(30 * time.Second)
		k.set(func() { k.all = k.all[:15] })
		time.Sleep(5 * time.Minute)
		if n := len(m.got.list()); n != 15 {
			t.Errorf("%d shown, want the 15 that may be read", n)
		}
	})
}

func TestStreamOfMembersMadeAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(nil, nil)
		k.skip(100)
		k.store(ada, "old", true)
		time.Sleep(2 * time.Second)
		k.set(func() { k.all, k.end, k.gen, k.floor = nil, 0, 1, 0; k.joined = 0; clear(k.lasts) })
		data := encode(t, ada, "team", "new", "new")
		k.set(func() {
			k.end = 1
			k.lasts[ada] = 1
			k.all = []wire.PulledMessage{{Channel: "team", HistoryMessage: wire.HistoryMessage{Sequence: 1, TimeMS: 1900000000000, Sender: ada.String(), Message: data}}}
		})
		subject := must(wire.LiveSubject(lab, ada, "team"))(t)
		h := nats.Header{"Nats-Sequence": {"1"}, "Nats-Last-Sequence": {"0"}, "Nats-Time-Stamp": {"2030-01-01T00:00:00Z"}}
		if err := k.w.nc.PublishMsg(&nats.Msg{Subject: subject, Header: h, Data: data}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		k.store(ada, "newer", true)
		time.Sleep(time.Minute)
		m.want(t, "old new newer")
		k.wantFloor(t, 2)
	})
}

// TestCloseReports: what was handled just before the end is known afterwards.
func TestCloseReports(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	m := k.member(nil, nil)
	k.store(ada, "1", true)
	m.wait(t, "1")
	check(t, "close", m.ep.Close(), nil)
	k.wantFloor(t, 1)
	if _, err := m.ep.Join(t.Context(), "team", func(*endpoint.Delivery) {}, nil); err != endpoint.ErrClosed {
		t.Errorf("join after close: %v", err)
	}
}
