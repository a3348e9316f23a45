package endpoint_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

var (
	ada = wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}
	bob = wire.Principal{Owner: wire.LocalOwner, Actor: "bob"}
)

// liveCopy publishes what the broker would republish, in a world where anyone may.
func (w *openWorld) liveCopy(from wire.Principal, channel string, seq, last uint64, data []byte, extra ...string) {
	w.tb.Helper()
	w.liveCopyAt(from, channel, seq, last, time.Unix(1700000000, int64(seq)), data, extra...)
}

func (w *openWorld) liveCopyAt(from wire.Principal, channel string, seq, last uint64, at time.Time, data []byte, extra ...string) {
	w.tb.Helper()
	subject := must(wire.LiveSubject(lab, from, channel))(w.tb)
	h := nats.Header{}
	for i := 0; i+1 < len(extra); i += 2 {
		h.Add(extra[i], extra[i+1]) // what the publisher sent comes before what the broker adds
	}
	h.Add("Nats-Sequence", strconv.FormatUint(seq, 10))
	h.Add("Nats-Last-Sequence", strconv.FormatUint(last, 10))
	h.Add("Nats-Time-Stamp", at.UTC().Format(time.RFC3339Nano))
	if err := w.nc.PublishMsg(&nats.Msg{Subject: subject, Header: h, Data: data}); err != nil {
		w.tb.Fatal(err)
	}
}

// text is the text of a delivery, for comparing whole lists.
func texts(all []*endpoint.Delivery) string {
	var s []string
	for _, d := range all {
		s = append(s, d.Message.Text())
	}
	return strings.Join(s, " ")
}

func TestLiveGapsAndDuplicates(t *testing.T) {
	w := newOpenWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	ep := w.connect("carol", &endpoint.Options{OnEvent: events.add})
	if _, err := ep.Listen(t.Context(), "team.>", got.add); err != nil {
		t.Fatal(err)
	}
	send := func(from wire.Principal, channel string, seq, last uint64, id, text string, extra ...string) {
		w.liveCopy(from, channel, seq, last, encode(t, from, channel, id, text), extra...)
	}
	send(ada, "team.a", 10, 3, "1", "first")                             // 3 was before the join: no gap
	send(ada, "team.a", 11, 10, "2", "second")                           // in order
	send(ada, "team.a", 11, 10, "2", "repeated")                         // the same again
	send(ada, "team.a", 20, 15, "3", "third")                            // 15 was missed
	send(bob, "team.a", 21, 9, "3", "same-id-other-sender")              // surfaces; 9 was before the join
	send(ada, "team.b", 22, 0, "3", "same-id-again")                     // a duplicate by sender and id
	send(bob, "team.b", 30, 25, "4", "unknown-before")                   // 25 came after the join and was missed
	send(ada, "team.a", 31, 20, "5", "forged", "Nats-Sequence", "99999") // the broker's value is the last one
	send(ada, "team.a", 32, 31, "6", "last")
	all := got.waitFor(t, "the last message", func(all []*endpoint.Delivery) bool {
		return len(all) > 0 && all[len(all)-1].Message.Text() == "last"
	})
	if got, want := texts(all), "first second third same-id-other-sender unknown-before forged last"; got != want {
		t.Errorf("surfaced %q, want %q", got, want)
	}
	want := []endpoint.EventGap{
		{Sender: ada, Channel: "team.a", From: 12, To: 15},
		{Sender: bob, Channel: "team.b", From: 11, To: 25},
	}
	events.waitFor(t, fmt.Sprintf("gaps %v", want), func(all []endpoint.Event) bool {
		var gaps []endpoint.EventGap
		for _, ev := range all {
			if g, ok := ev.(endpoint.EventGap); ok {
				gaps = append(gaps, g)
			}
		}
		return slices.Equal(gaps, want)
	})
}

// TestForgottenSenders has more senders than a subscription remembers: no gap is told that is none, and one that is one
// is told still.
func TestForgottenSenders(t *testing.T) {
	w := newOpenWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	ep := w.connect("carol", &endpoint.Options{OnEvent: events.add})
	must(ep.Listen(t.Context(), "team", got.add))(t)
	const senders = 9000
	who := func(i int) wire.Principal { return wire.Principal{Owner: wire.LocalOwner, Actor: fmt.Sprint("s", i)} }
	seq := uint64(0)
	for round := range uint64(2) {
		for i := range senders {
			seq++
			last := uint64(0)
			if round > 0 {
				last = seq - senders
			}
			w.liveCopy(who(i), "team", seq, last, encode(t, who(i), "team", fmt.Sprint(seq), "x"))
		}
	}
	w.liveCopy(who(1), "team", seq+1000, seq+500, encode(t, who(1), "team", "late", "x"))
	got.waitFor(t, "every message", func(all []*endpoint.Delivery) bool { return len(all) == 2*senders+1 })
	gap := wantEvent[endpoint.EventGap](t, events, nil)
	if gap.Sender != who(1) || gap.To != seq+500 || countEvents[endpoint.EventGap](events) != 1 {
		t.Errorf("events %v", events.list())
	}
}

func TestEmptyIDNeverDeduplicates(t *testing.T) {
	w := newOpenWorld(t)
	got := newJournal[*endpoint.Delivery]()
	ep := w.connect("carol", nil)
	if _, err := ep.Listen(t.Context(), "team", got.add); err != nil {
		t.Fatal(err)
	}
	data := []byte(strings.Replace(string(encode(t, ada, "team", "X", "hello")), `"id":"X"`, `"id":""`, 1))
	w.liveCopy(ada, "team", 1, 0, data)
	w.liveCopy(ada, "team", 2, 1, data)
	got.waitLen(t, 2)
}

func TestStreamMadeAnew(t *testing.T) {
	w := newOpenWorld(t)
	got, events := newJournal[*endpoint.Delivery](), newJournal[endpoint.Event]()
	ep := w.connect("carol", &endpoint.Options{OnEvent: events.add})
	if _, err := ep.Listen(t.Context(), "team", got.add); err != nil {
		t.Fatal(err)
	}
	w.liveCopy(ada, "team", 500, 499, encode(t, ada, "team", "1", "before"))
	subject := must(wire.LiveSubject(lab, ada, "team"))(t)
	again := nats.Header{"Nats-Sequence": {"1"}, "Nats-Last-Sequence": {"0"}, "Nats-Time-Stamp": {"2030-01-01T00:00:00Z"}}
	if err := w.nc.PublishMsg(&nats.Msg{Subject: subject, Header: again, Data: encode(t, ada, "team", "2", "after")}); err != nil {
		t.Fatal(err)
	}
	if got := texts(got.waitLen(t, 2)); got != "before after" {
		t.Errorf("surfaced %q", got)
	}
	if n := countEvents[endpoint.EventGap](events); n > 0 {
		t.Errorf("%d gaps in a new stream", n)
	}
}

func TestLiveDropsWhatIsNoMessage(t *testing.T) {
	w := newOpenWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	ep := w.connect("carol", &endpoint.Options{OnEvent: events.add})
	if _, err := ep.Listen(t.Context(), ">", got.add); err != nil {
		t.Fatal(err)
	}
	good := encode(t, ada, "team", "1", "hello")
	w.liveCopy(ada, "team", 1, 0, []byte(`{"id":`))
	w.liveCopy(ada, "team", 2, 1, []byte(`{"stream":"CHAT_lab","seq":7}`))
	w.liveCopy(bob, "team", 3, 0, good)                                         // from.id is ada
	w.liveCopy(ada, "other", 4, 0, good)                                        // channel is team
	if err := w.nc.Publish("cotal.lab.live.local.ada.team", good); err != nil { // no position: not from the broker
		t.Fatal(err)
	}
	if err := w.nc.Publish("cotal.lab.live.UABCDEF.ada.team", good); err != nil { // an owner of no known form
		t.Fatal(err)
	}
	w.liveCopy(ada, "team", 5, 2, encode(t, ada, "team", "2", "end"))
	if got := texts(got.waitLen(t, 1)); got != "end" {
		t.Errorf("surfaced %q", got)
	}
	counts := map[wire.Reason]int{}
	events.waitFor(t, "six drops", func(all []endpoint.Event) bool {
		clear(counts)
		for _, ev := range all {
			if d, ok := ev.(endpoint.EventDropped); ok {
				counts[d.Reason]++
			}
		}
		return counts[wire.ReasonJSON] == 2 && counts[wire.ReasonSender] == 2 && counts[wire.ReasonSubject] == 2
	})
}

func TestSlowHandlerLosesAndIsTold(t *testing.T) {
	w := newWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	block := make(chan struct{})
	sender := w.connect(w.user("ada"), nil)
	slow := w.connect(w.user("bob"), &endpoint.Options{OnEvent: events.add, LiveBacklog: 8})
	if _, err := slow.Listen(t.Context(), "team", func(d *endpoint.Delivery) {
		got.add(d)
		<-block
	}); err != nil {
		t.Fatal(err)
	}
	post := func(n int) (last uint64) {
		for range n {
			last = must(sender.Post(t.Context(), "team", endpoint.Text("x")))(t).Sequence
		}
		return last
	}
	post(1)
	got.waitLen(t, 1)
	post(100)
	wantEvent[endpoint.EventOverflow](t, events, nil)
	close(block)
	got.waitLen(t, 8)
	var all []*endpoint.Delivery
	for last := uint64(0); len(all) == 0 || all[len(all)-1].Sequence < last; all = got.list() { // copies may still be on their way
		last = post(1)
	}
	// What was received and what was reported missing are together everything, and nothing is both.
	known := map[uint64]string{}
	for _, d := range all {
		known[d.Sequence] += "received "
	}
	events.waitFor(t, "gaps that explain every missing message", func(evs []endpoint.Event) bool {
		explained := maps.Clone(known)
		for _, ev := range evs {
			if g, ok := ev.(endpoint.EventGap); ok {
				for seq := g.From; seq <= g.To; seq++ {
					explained[seq] += "missed "
				}
			}
		}
		for seq := uint64(1); seq <= all[len(all)-1].Sequence; seq++ {
			if explained[seq] != "received " && explained[seq] != "missed " {
				return false
			}
		}
		return true
	})
}

func TestLeave(t *testing.T) {
	w := newWorld(t)
	ep := w.connect(w.user("ada"), nil)
	left, stays := newJournal[*endpoint.Delivery](), newJournal[*endpoint.Delivery]()
	sub := must(ep.Listen(t.Context(), "team", left.add))(t)
	must(ep.Listen(t.Context(), "team", stays.add))(t)
	must(ep.Post(t.Context(), "team", endpoint.Text("one")))(t)
	left.waitLen(t, 1)
	if err := sub.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(ep.Post(t.Context(), "team", endpoint.Text("two")))(t)
	stays.waitLen(t, 2)
	if got := texts(left.list()); got != "one" {
		t.Errorf("after leaving: %q", got)
	}
	if err := sub.Leave(t.Context()); err != nil {
		t.Errorf("leaving again: %v", err)
	}
}

func TestHandlerPanicIsSurvived(t *testing.T) {
	w := newWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	ep := w.connect(w.user("ada"), &endpoint.Options{OnEvent: events.add})
	must(ep.Listen(t.Context(), "team", func(d *endpoint.Delivery) {
		if d.Message.Text() == "boom" {
			panic("handler bug")
		}
		got.add(d)
	}))(t)
	must(ep.Post(t.Context(), "team", endpoint.Text("boom")))(t)
	must(ep.Post(t.Context(), "team", endpoint.Text("fine")))(t)
	got.waitLen(t, 1)
	ev := wantEvent[endpoint.EventPanic](t, events, nil)
	if ev.Value != "handler bug" || ev.Sender != ep.Principal() || len(ev.Stack) == 0 {
		t.Errorf("event = %v", ev)
	}
}

// TestBrokerMadeDeliveries lets an agent use the broker to write where it may not: a pull request and a publish whose
// answer goes to somebody else's subscription.
func TestBrokerMadeDeliveries(t *testing.T) {
	w := newWorld(t)
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	victimCreds, malloryCreds := w.user("bob"), w.user("mallory")
	w.durables(victimCreds)
	w.durables(malloryCreds)
	victim := w.connect(victimCreds, &endpoint.Options{OnEvent: events.add})
	must(victim.Listen(t.Context(), "team", got.add))(t)
	if err := victim.HandleDirect(t.Context(), got.add); err != nil {
		t.Fatal(err)
	}
	// The worst case: the attacker knows every subscription of the victim.
	subs := w.subscriptions(victim)
	mallory := w.raw(malloryCreds)
	defer shut(mallory)
	next := "$JS.API.CONSUMER.MSG.NEXT.DM_lab." + wire.DirectDurable(malloryCreds.Identity().Lifecycle)
	toSelf := must(wire.DirectSubject(lab, malloryCreds.Identity().Principal, malloryCreds.Identity().Principal))(t)
	chat := must(wire.ChannelSubject(lab, malloryCreds.Identity().Principal, "other"))(t)
	for i, sub := range subs {
		target := strings.NewReplacer("*", "x", ">", "x").Replace(sub)
		w.publish(mallory, toSelf, nil, []byte("stored bytes"))
		if err := mallory.PublishRequest(next, target, []byte(`{"batch":1,"expires":20000000000}`)); err != nil {
			t.Fatal(err)
		}
		events.waitFor(t, "a drop on "+sub, func(all []endpoint.Event) bool {
			n := 0
			for _, ev := range all {
				if d, ok := ev.(endpoint.EventDropped); ok && d.Subject == toSelf {
					n++
				}
			}
			return n == i+1
		})
		if err := mallory.PublishRequest(chat, target, []byte("whatever")); err != nil { // a PubAck goes to target
			t.Fatal(err)
		}
		if err := mallory.PublishRequest(next, target, []byte(`{"batch":1,"no_wait":true}`)); err != nil { // a status too
			t.Fatal(err)
		}
	}
	sender := w.connect(w.user("ada"), nil)
	must(sender.Direct(t.Context(), victim.Principal(), endpoint.Text("direct")))(t)
	got.waitLen(t, 1)
	must(sender.Post(t.Context(), "team", endpoint.Text("live")))(t)
	if got := texts(got.waitLen(t, 2)); got != "direct live" {
		t.Errorf("surfaced %q", got)
	}
	// The attacker's message was neither acknowledged nor terminated in its name.
	js, done := w.jetstream("authority")
	defer done()
	info := must(must(js.Consumer(t.Context(), "DM_lab", wire.DirectDurable(malloryCreds.Identity().Lifecycle)))(t).Info(t.Context()))(t)
	if info.NumAckPending != len(subs) {
		t.Errorf("unacknowledged messages of the attacker = %d, want %d", info.NumAckPending, len(subs))
	}
}

// subscriptions lists what an endpoint subscribes to.
func (w *world) subscriptions(ep *endpoint.Endpoint) []string {
	w.tb.Helper()
	rec := must(w.mint.Account(w.tb.Context(), lab))(w.tb)
	for _, c := range must(w.ctl.Connections(w.tb.Context(), rec.Public, broker.WithSubscriptions()))(w.tb) {
		if c.Name == ep.Principal().String() {
			return c.Subscriptions
		}
	}
	w.tb.Fatalf("no connection of %v", ep.Principal())
	return nil
}
