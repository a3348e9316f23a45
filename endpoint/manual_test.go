package endpoint_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// A mention that is not settled is reported as such, and what is settled after it does not hide it.
func TestMentionsManual(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		got := newJournal[*endpoint.Delivery]()
		ep := k.w.connect("carol", nil)
		check(t, "handle", ep.HandleMentionsManual(t.Context(), got.add), nil)
		wantError(t, ep.HandleMentions(t.Context(), func(*endpoint.Delivery) {}), wire.CodeAlreadyExists, "")
		for i := range 3 {
			k.point(ep, k.store(ada, fmt.Sprint(i+1), false, mentioning), true)
		}
		time.Sleep(5 * time.Second)
		all := got.list()
		if s := texts(all); s != "1 2 3" {
			t.Fatalf("shown %q", s)
		}
		for _, a := range k.acks.list() {
			if a.Floor > 0 || len(a.Handled) > 0 {
				t.Errorf("reported %+v before anything was settled", a)
			}
		}
		check(t, "ack", all[1].Ack(t.Context()), nil)
		time.Sleep(5 * time.Second)
		last := k.acks.list()[len(k.acks.list())-1]
		if !last.Mentions || last.Floor != 0 || len(last.Handled) != 1 || last.Handled[0] != (wire.SequenceRange{From: 2, To: 2}) {
			t.Errorf("report %+v, want floor 0 and 2 handled", last)
		}
		check(t, "ack", all[0].Ack(t.Context()), nil)
		check(t, "ack", all[2].Ack(t.Context()), nil)
		time.Sleep(5 * time.Second)
		if last = k.acks.list()[len(k.acks.list())-1]; last.Floor != 3 {
			t.Errorf("report %+v, want floor 3", last)
		}
	})
}

// With a limit no more direct messages are taken than may be unsettled; settling one takes the next.
func TestDirectLimit(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		got := newJournal[*endpoint.Delivery]()
		creds := w.user("bob")
		w.durables(creds)
		sender, ep := w.connect(w.user("ada"), nil), w.connect(creds, &endpoint.Options{DirectLimit: 4})
		for i := range 10 {
			_ = must(sender.Direct(t.Context(), ep.Principal(), endpoint.Text(fmt.Sprint(i))))(t)
		}
		check(t, "handle", ep.HandleDirect(t.Context(), got.add), nil)
		time.Sleep(time.Second)
		if n := len(got.list()); n != 4 {
			t.Fatalf("%d messages taken, want 4", n)
		}
		waiting, held, err := ep.Waiting(t.Context())
		if err != nil || waiting != 6 || held != 4 {
			t.Errorf("waiting %d, held %d, %v; want 6 and 4", waiting, held, err)
		}
		check(t, "ack", got.list()[0].Ack(t.Context()), nil)
		time.Sleep(time.Second)
		if n := len(got.list()); n != 5 {
			t.Errorf("%d messages taken after one was settled, want 5", n)
		}
	})
}

func TestCondition(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ep := w.connect(w.user("ada"), nil)
		check(t, "set", ep.SetCondition(t.Context(), &wire.Condition{Code: "rate_limit", Source: "429"}), nil)
		if p := w.presence(ada); p.Condition == nil || p.Condition.Code != "rate_limit" || p.Status != wire.StatusIdle {
			t.Errorf("presence %+v", p)
		}
		check(t, "clear", ep.SetCondition(t.Context(), nil), nil)
		if p := w.presence(ada); p.Condition != nil {
			t.Errorf("condition %+v after it was over", p.Condition)
		}
	})
}
