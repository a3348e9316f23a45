package endpoint_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// dead is what the broker notes about a message that it gives up to deliver.
type dead struct {
	Stream     string `json:"stream"`
	Sequence   uint64 `json:"stream_seq"`
	Deliveries int    `json:"deliveries"`
	Reason     string `json:"reason"`
}

// buried returns the broker's notices about dead messages.
func (w *world) buried() []dead {
	w.tb.Helper()
	js, done := w.jetstream(trust.Undertaker)
	defer done()
	s := must(js.Stream(w.tb.Context(), wire.DeadStream(lab)))(w.tb)
	var all []dead
	for seq := s.CachedInfo().State.FirstSeq; seq > 0 && seq <= s.CachedInfo().State.LastSeq; seq++ {
		var d dead
		m := must(s.GetMsg(w.tb.Context(), seq))(w.tb)
		if err := json.Unmarshal(m.Data, &d); err != nil {
			w.tb.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// stored counts the messages of a stream.
func (w *world) stored(stream string) uint64 {
	w.tb.Helper()
	js, done := w.jetstream(trust.Undertaker)
	defer done()
	return must(js.Stream(w.tb.Context(), stream))(w.tb).CachedInfo().State.Msgs
}

// since collects when something happened, in seconds.
type since struct {
	start time.Time
	at    []time.Duration
}

func (s *since) add() int {
	s.at = append(s.at, time.Since(s.start).Round(time.Second))
	return len(s.at)
}

func TestDirectIsGivenUp(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		events, tries := newJournal[endpoint.Event](), &since{start: time.Now()}
		sender := w.connect(w.user("ada"), nil)
		ep := w.connect(creds, &endpoint.Options{OnEvent: events.add})
		if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			if n := tries.add(); d.Attempt != n {
				t.Errorf("try %d says attempt %d", n, d.Attempt)
			}
			if d.Attempt%2 == 0 {
				panic("of no use")
			}
			check(t, "nak", d.NakReason(t.Context(), 5*time.Second, "busy"), nil)
		}); err != nil {
			t.Fatal(err)
		}
		sent := must(sender.Direct(t.Context(), bob, endpoint.Text("x")))(t)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		// A panic waits longer each time, a Nak as long as it says, whatever the broker waits for a silent handler.
		if want := "[0s 5s 7s 12s 20s 25s 57s 1m2s 2m2s 2m7s]"; fmt.Sprint(tries.at) != want {
			t.Errorf("tries at %v, want %s", tries.at, want)
		}
		const why = "gave up after 10 attempts: its handler panicked"
		up := wantEvent[endpoint.EventGaveUp](t, events, nil)
		if want := (endpoint.EventGaveUp{Kind: wire.KindDirect, Sender: sender.Principal(), ID: sent.ID, Attempts: 10, Reason: why}); up != want {
			t.Errorf("event %+v, want %+v", up, want)
		}
		if got, want := fmt.Sprint(w.buried()), fmt.Sprint([]dead{{"DM_lab", sent.Sequence, 10, why}}); got != want {
			t.Errorf("dead letters %s, want %s", got, want)
		}
		if n := w.stored("DM_lab"); n != 1 {
			t.Errorf("%d direct messages stored, want the dead one", n)
		}
	})
}

func TestRoleWorkIsGivenUpAndKept(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob", role("reviewer"))
		w.durables(creds)
		events, tries := newJournal[endpoint.Event](), &since{start: time.Now()}
		sender := w.connect(w.user("ada"), nil)
		ep := w.connect(creds, &endpoint.Options{OnEvent: events.add, MaxAttempts: 3})
		if err := ep.HandleRole(t.Context(), func(d *endpoint.Delivery) {
			if d.Message.Text() == "good" {
				check(t, "ack", d.Ack(t.Context()), nil)
				return
			}
			tries.add()
			check(t, "nak", d.Nak(t.Context(), 10*time.Second), nil)
		}); err != nil {
			t.Fatal(err)
		}
		sent := must(sender.Ask(t.Context(), "reviewer", endpoint.Text("bad")))(t)
		must(sender.Ask(t.Context(), "reviewer", endpoint.Text("good")))(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := "[0s 10s 20s]"; fmt.Sprint(tries.at) != want {
			t.Errorf("tries at %v, want %s", tries.at, want)
		}
		up := wantEvent[endpoint.EventGaveUp](t, events, nil)
		if n := countEvents[endpoint.EventGaveUp](events); n != 1 || up.ID != sent.ID || up.Attempts != 3 || up.Reason != "gave up after 3 attempts" {
			t.Errorf("%d events, the first %+v", n, up)
		}
		// The job stays in its queue, and the broker offers it to nobody.
		if got, want := fmt.Sprint(w.buried()), fmt.Sprint([]dead{{"TASK_lab", sent.Sequence, wire.MaxDeliveries, ""}}); got != want {
			t.Errorf("dead letters %s, want %s", got, want)
		}
		if n := w.stored("TASK_lab"); n != 1 {
			t.Errorf("%d jobs stored, want the dead one", n)
		}
		if n := w.queueInfo("TASK_lab", wire.RoleDurable("reviewer")).NumAckPending; n != 0 {
			t.Errorf("%d jobs handed out, want none", n)
		}
	})
}

// A job that one holder gave up can be done by another.
func TestRoleWorkGoesToAnotherHolder(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, two := w.user("one", role("reviewer")), w.user("two", role("reviewer"))
		w.durables(one)
		w.durables(two)
		sender := w.connect(w.user("ada"), nil)
		tried := 0
		if err := w.connect(one, &endpoint.Options{MaxAttempts: 2}).HandleRole(t.Context(), func(d *endpoint.Delivery) {
			tried++
			panic("cannot")
		}); err != nil {
			t.Fatal(err)
		}
		must(sender.Ask(t.Context(), "reviewer", endpoint.Text("x")))(t)
		time.Sleep(3 * time.Second)
		done := newJournal[*endpoint.Delivery]()
		if err := w.connect(two, nil).HandleRole(t.Context(), func(d *endpoint.Delivery) {
			check(t, "ack", d.Ack(t.Context()), nil)
			done.add(d)
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(done.list()); tried != 2 || n != 1 || done.list()[0].Attempt != 1 {
			t.Errorf("the first tried %d times, the second did %d; want 2 and 1", tried, n)
		}
		if all := w.buried(); len(all) != 0 {
			t.Errorf("dead letters %v, want none", all)
		}
	})
}

// What was only fetched, and given back by Close, was not tried.
func TestFetchedAheadIsNoAttempt(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		sender := w.connect(w.user("ada"), nil)
		const all = 60
		for i := range all {
			must(sender.Direct(t.Context(), bob, endpoint.Text(fmt.Sprint(i))))(t)
		}
		shown, given := 0, 0
		for round := 0; shown < all && round < all; round++ {
			ep, err := endpoint.Connect(t.Context(), "", endpoint.Static(creds), w.inProcess(nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
				time.Sleep(15 * time.Millisecond) // slow enough that some wait behind it, fetched
				check(t, "ack", d.Ack(t.Context()), nil)
				shown++
				if d.Redelivered {
					given++
				}
				if d.Attempt != 1 {
					t.Errorf("round %d: %q is attempt %d, want 1", round, d.Message.Text(), d.Attempt)
				}
			}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
			check(t, "close", ep.Close(), nil)
		}
		if shown != all || given == 0 {
			t.Errorf("%d of %d shown, %d of them given back before; want all, and some", shown, all, given)
		}
	})
}

func TestRequeuedShowsAgain(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		sender := w.connect(w.user("ada"), nil)
		got := newJournal[*endpoint.Delivery]()
		ep := w.connect(creds, nil)
		if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			got.add(d)
			check(t, "term", d.Term(t.Context(), "no"), nil)
		}); err != nil {
			t.Fatal(err)
		}
		must(sender.Direct(t.Context(), bob, endpoint.Draft{ID: "again", Parts: []wire.Part{wire.Text("x")}}))(t)
		raw := w.raw(w.user("ada")) // whoever puts it back does that under the name of its sender
		defer shut(raw)
		subject := must(wire.DirectSubject(lab, bob, ada))(t)
		body := must((&wire.Message{
			ID: "again", TS: 1, Space: lab, From: wire.EndpointRef{ID: ada.String(), Name: "ada"}, To: bob.String(), Parts: []wire.Part{wire.Text("x")},
		}).AppendJSON(nil))(t)
		put := func(header string, value ...string) {
			h := nats.Header{}
			if header != "" {
				h[header] = value
			}
			w.publish(raw, subject, h, body)
			synctest.Wait()
		}
		put("")                           // sent twice: known
		put(wire.HeaderRequeued, "1")     // put back
		put(wire.HeaderRequeued, "1")     // the same, twice
		put(wire.HeaderRequeued, "99")    // no sequence that it can have had
		put(wire.HeaderRequeued, "x")     // none at all
		put("cotal-requeued", "1")        // another header
		put(wire.HeaderRequeued, "3")     // put back again
		put(wire.HeaderRequeued, "", "3") // the first one counts
		var list []string
		for _, d := range got.list() {
			list = append(list, fmt.Sprintf("%d %t %d", d.Sequence, d.Requeued, d.Attempt))
		}
		if want := "1 false 1, 3 true 1, 8 true 1"; strings.Join(list, ", ") != want {
			t.Errorf("shown %s, want %s", strings.Join(list, ", "), want)
		}
	})
}
