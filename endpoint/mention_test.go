package endpoint_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// point keeps a pointer to a stored message for an endpoint; live says whether it hears of it.
func (k *keeper) point(to *endpoint.Endpoint, stored uint64, live bool) {
	k.w.tb.Helper()
	k.mu.Lock()
	k.pointer++
	seq := k.pointer
	for _, m := range k.all {
		if m.Sequence == stored && m.Stored == 0 {
			m.Sequence, m.Stored = seq, stored
			k.all = append(k.all, m)
			break
		}
	}
	k.mu.Unlock()
	if live {
		k.hear(to, seq, fmt.Sprintf(`{"v":1,"channel":"team","sequence":%d,"sender":"local.ada"}`, stored))
	}
}

func (k *keeper) hear(to *endpoint.Endpoint, seq uint64, body string) {
	k.w.tb.Helper()
	h := nats.Header{"Nats-Sequence": {fmt.Sprint(seq)}, "Nats-Last-Sequence": {fmt.Sprint(seq - 1)}, "Nats-Time-Stamp": {"2026-01-01T00:00:00Z"}}
	subject := must(wire.MentionSubject(lab, to.Lifecycle()))(k.w.tb)
	if err := k.w.nc.PublishMsg(&nats.Msg{Subject: subject, Header: h, Data: []byte(body)}); err != nil {
		k.w.tb.Fatal(err)
	}
}

func mentioning(m *wire.Message) { m.Mentions = []string{"carol"} }

func TestMentions(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
		ep := k.w.connect("carol", &endpoint.Options{OnEvent: events.add})
		k.point(ep, k.store(ada, "1", false, mentioning), false) // while nobody listens
		panicked := false
		check(t, "handle", ep.HandleMentions(t.Context(), func(d *endpoint.Delivery) {
			got.add(d)
			if d.Message.Text() == "2" && !panicked {
				panicked = true
				panic("bug")
			}
		}), nil)
		wantError(t, ep.HandleMentions(t.Context(), func(*endpoint.Delivery) {}), wire.CodeAlreadyExists, "")
		synctest.Wait()
		k.point(ep, k.store(ada, "2", false, mentioning), true)
		k.point(ep, k.store(ada, "3", false, mentioning), true)
		time.Sleep(5 * time.Second)
		all := got.list()
		if s := texts(all); s != "1 2 2 3" {
			t.Fatalf("shown %q", s)
		}
		if d := all[0]; !d.Replayed || !d.Mentioned || d.Sequence != 1 || d.Channel != "team" {
			t.Errorf("first %+v", d)
		}
		if d := all[3]; d.Replayed || !d.Mentioned || d.Sequence != 3 {
			t.Errorf("last %+v", d)
		}
		if last := k.acks.list(); !last[len(last)-1].Mentions || last[len(last)-1].Floor != 3 {
			t.Errorf("reports %v", last)
		}
		k.point(ep, k.store(ada, "4", false, mentioning), false)
		time.Sleep(5 * time.Minute) // nothing tells
		if s := texts(got.list()); s != "1 2 2 3 4" {
			t.Errorf("shown %q", s)
		}
	})
}

// TestMentionsAreShownOnce: a message that mentions and is on a joined channel comes by one way only.
func TestMentionsAreShownOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(nil, nil)
		mentioned := newJournal[string]()
		check(t, "handle", m.ep.HandleMentions(t.Context(), func(d *endpoint.Delivery) { mentioned.add(d.Message.Text()) }), nil)
		synctest.Wait()
		k.point(m.ep, k.store(ada, "live first", true, mentioning), false)
		synctest.Wait()
		k.point(m.ep, k.store(ada, "mention first", false, mentioning), true)
		synctest.Wait()
		k.store(ada, "last", true)
		time.Sleep(3 * time.Second)
		m.want(t, "live first last")
		if got := fmt.Sprint(mentioned.list()); got != "[mention first]" {
			t.Errorf("mentions %s", got)
		}
		k.set(func() {
			if k.pointed != 2 || k.floor != 3 {
				t.Errorf("reported: mentions %d, channel %d", k.pointed, k.floor)
			}
		})
	})
}

func TestMentionsOfWhatIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		events := newJournal[endpoint.Event]()
		ep := k.w.connect("carol", &endpoint.Options{OnEvent: events.add})
		check(t, "handle", ep.HandleMentions(t.Context(), func(*endpoint.Delivery) {}), nil)
		synctest.Wait()
		before := k.called(wire.CommandPull)
		k.hear(ep, 1, "{}")
		subject := must(wire.MentionSubject(lab, ep.Lifecycle()))(t)
		check(t, "publish", k.w.nc.Publish(subject, []byte(`{"v":1,"channel":"team","sequence":1,"sender":"local.ada"}`)), nil)
		synctest.Wait()
		if n := countEvents[endpoint.EventDropped](events); n != 2 {
			t.Errorf("%d drops", n)
		}
		if n := k.called(wire.CommandPull); n != before {
			t.Error("what is no pointer made it read")
		}
	})
}

func TestMentionsWithoutDelivery(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.set(func() { k.fail[wire.CommandPull] = errAway })
		events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
		ep := k.w.connect("carol", &endpoint.Options{OnEvent: events.add})
		check(t, "handle", ep.HandleMentions(t.Context(), got.add), nil)
		time.Sleep(10 * time.Minute)
		if n := countEvents[endpoint.EventQueueLost](events); n != 1 {
			t.Errorf("told %d times", n)
		}
		k.point(ep, k.store(ada, "1", false, mentioning), true)
		k.set(func() { clear(k.fail) })
		time.Sleep(2 * time.Minute)
		if s := texts(got.list()); s != "1" {
			t.Errorf("shown %q", s)
		}
	})
}

// TestMentionsWithoutTheRight has a credential that may not hear of mentions: they are looked for.
func TestMentionsWithoutTheRight(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newOpenWorld(t, func(o *server.Options) {
			o.Users = []*server.User{
				{Username: "test", Password: "x"},
				{Username: "old", Password: "x", Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"cotal.lab.dlv.>"}}}},
			}
		})
		k := newKeeper(w)
		events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
		ep := w.connect("carol", &endpoint.Options{OnEvent: events.add, Open: &endpoint.Open{User: "old", Password: "x"}})
		check(t, "handle", ep.HandleMentions(t.Context(), got.add), nil)
		time.Sleep(time.Hour)
		k.point(ep, k.store(ada, "1", false, mentioning), true)
		time.Sleep(76 * time.Second)
		if s := texts(got.list()); s != "1" {
			t.Errorf("shown %q", s)
		}
		wantEvent[endpoint.EventDenied](t, events, nil)
	})
}
