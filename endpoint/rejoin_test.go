package endpoint_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// reader is a process of carol's that remembers few ids, so that no message is recognised by them.
func (s *seat) reader(t *testing.T, opts *endpoint.JoinOptions, handles func(text string) bool) {
	t.Helper()
	s.ep = s.mesh.Connect(t, s.creds, &cotaltest.Peer{Options: endpoint.Options{OnEvent: s.events.add, DedupSize: 16}})
	s.m = must(s.ep.Join(t.Context(), "team", func(d *endpoint.Delivery) {
		if opts.Manual && handles(d.Message.Text()) {
			check(t, "ack", d.Ack(t.Context()), nil)
		}
		s.got.add(d.Message.Text())
	}, opts))(t)
}

// TestReplayAfterRejoin leaves with messages unhandled, twice, and joins again: each message of the channel is shown once, in
// stored order, though what is remembered of ids is less than that. What was handled out of order is not shown again.
func TestReplayAfterRejoin(t *testing.T) {
	mesh := cotaltest.New(t, nil)
	s := &seat{mesh: mesh, creds: mesh.Credentials(t, "carol", nil), got: newJournal[string](), events: newJournal[endpoint.Event]()}
	p := &poster{t: t, ep: mesh.Endpoint(t, "ada", nil)}
	var want []string
	expect := func(from, to int, handled func(string) bool) {
		for i := from; i < to; i++ {
			if text := fmt.Sprint(i); !handled(text) {
				want = append(want, text)
			}
		}
	}
	none := func(string) bool { return false }
	even := func(text string) bool { n, _ := strconv.Atoi(text); return n < 15 || n < 40 && n%2 == 0 }
	leave := func(shown int) {
		t.Helper()
		s.got.waitLen(t, shown)
		check(t, "stop", s.m.Stop(t.Context()), nil)
		s.got.take()
	}
	away := func() {
		t.Helper()
		must(s.ep.LeaveChannel(t.Context(), "team", false))(t)
		check(t, "close", s.ep.Close(), nil)
	}
	manual := &endpoint.JoinOptions{Manual: true}

	p.post(10) // 0 to 9, before the first membership
	s.reader(t, manual, even)
	p.post(40) // 10 to 49, of which up to 14 and the even ones below 40 are handled
	leave(40)
	p.post(300) // 50 to 349
	away()
	p.post(30) // 350 to 379, between memberships
	s.reader(t, manual, none)
	leave(1)
	p.post(20) // 380 to 399, in the second one
	away()
	p.post(30) // 400 to 429, between again
	expect(0, 15, none)
	expect(15, 430, even)

	s.reader(t, &endpoint.JoinOptions{Replay: true}, nil)
	p.post(5)
	expect(430, 435, none)
	if got := s.got.waitLen(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("shown %v, want %v", got, want)
	}
	check(t, "sync", s.m.Sync(t.Context()), nil)
	check(t, "leave", s.m.Leave(t.Context()), nil)
	if got := s.got.list(); len(got) != len(want) {
		t.Errorf("%d messages, want %d", len(got), len(want))
	}
}

// TestNamesOfWhatWasJoined: printing what a program holds shows what it is, and nothing of its inside.
func TestNamesOfWhatWasJoined(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(nil, nil)
		sub := must(m.ep.Listen(t.Context(), "team.>", func(*endpoint.Delivery) {}))(t)
		for want, what := range map[string]any{
			`membership of channels "team"`: m.Membership, `subscription to channels "team.>"`: sub,
			"caught up with 1 mention": endpoint.EventCaughtUp{Count: 1}, `caught up with 2 messages of channels "team"`: endpoint.EventCaughtUp{Pattern: "team", Count: 2},
		} {
			if got := fmt.Sprint(what); got != want {
				t.Errorf("printed %q, want %q", got, want)
			}
		}
	})
}

// TestLossIsToldBeforeWhatFollows: the program hears of a loss when what was before it was shown and nothing after it.
func TestLossIsToldBeforeWhatFollows(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		for i := range 6 {
			k.store(ada, fmt.Sprint(i+1), false)
		}
		k.set(func() {
			k.gen = 1
			k.all = append(k.all[:2], k.all[4:]...)
			k.losses = []wire.Loss{{
				SequenceRange: wire.SequenceRange{From: 3, To: 4}, Reason: wire.LossCleared, Channel: "team", Count: 2,
			}}
		})
		said := newJournal[string]()
		k.member(nil, func(d *endpoint.Delivery) { said.add(d.Message.Text()) }, func(o *endpoint.Options) {
			o.OnEvent = func(e endpoint.Event) {
				if _, ok := e.(endpoint.EventLoss); ok {
					said.add(e.String())
				}
			}
		})
		want := []string{"1", "2", `2 messages of channel "team" were removed unread: cleared`, "5", "6"}
		if got := said.waitLen(t, len(want)); !slices.Equal(got, want) {
			t.Errorf("said %q, want %q", got, want)
		}
	})
}
