package endpoint_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// bodies are the texts of messages, and a star behind those that came before.
func bodies(all []*endpoint.Delivery) string {
	var out []string
	for _, d := range all {
		text := d.Message.Text()
		if d.Redelivered {
			text += "*"
		}
		out = append(out, text)
	}
	return fmt.Sprint(out)
}

func TestReadDirect(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		sender := w.connect(w.user("ada"), nil)
		read := func(ep *endpoint.Endpoint, limit int, want string, wantMore bool) []*endpoint.Delivery {
			t.Helper()
			start := time.Now()
			all, more, err := ep.ReadDirect(t.Context(), limit)
			if err != nil || bodies(all) != want || more != wantMore {
				t.Errorf("read %s, more %t, %v; want %s, %t", bodies(all), more, err, want, wantMore)
			}
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("reading took %v", took)
			}
			return all
		}
		first, process := w.mortal(endpoint.Static(creds), endpoint.Options{})
		read(first, 0, "[]", false)
		fill(t, sender, bob, 5)
		synctest.Wait() // what waits is counted by the queue, a moment after the stream has stored it
		for _, d := range read(first, 2, "[0 1]", true) {
			check(t, "ack", d.Ack(t.Context()), nil)
		}
		read(first, 0, "[2 3 4]", false)
		read(first, 0, "[]", false)
		synctest.Wait()
		process.kill() // before it acknowledges

		next := w.connect(creds, nil)
		read(next, 0, "[]", false) // the broker still waits for the other one
		if waiting, held, err := next.Waiting(t.Context()); waiting != 0 || held != 3 || err != nil {
			t.Errorf("%d waiting, %d held, %v; want 0 and 3", waiting, held, err)
		}
		time.Sleep(time.Minute + time.Second)
		fill(t, sender, bob, 1)
		all := read(next, 3, "[2* 3* 4*]", true)
		check(t, "ack", all[0].Ack(t.Context()), nil)
		check(t, "nak", all[1].Nak(t.Context(), 0), nil)
		check(t, "term", all[2].Term(t.Context(), "no"), nil)
		synctest.Wait()
		for _, d := range read(next, 0, "[3* 0]", false) {
			check(t, "confirm", d.Confirm(t.Context()), nil)
		}
		read(next, 0, "[]", false)
	})
}

func TestReadDirectRefusals(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		_, _, err := w.connect(creds, nil).ReadDirect(t.Context(), 0)
		wantError(t, err, wire.CodeNotFound, wire.OutcomeNotExecuted)
		w.durables(creds)
		ep := w.connect(creds, nil)
		for _, limit := range []int{-1, 257} {
			if _, _, err := ep.ReadDirect(t.Context(), limit); wire.CodeOf(err) != wire.CodeBadRequest {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
		fill(t, w.connect(w.user("ada"), nil), bob, 1001)
		for range 4 {
			if all, more, err := ep.ReadDirect(t.Context(), 250); len(all) != 250 || !more || err != nil {
				t.Fatalf("read %d, more %t, %v", len(all), more, err)
			}
		}
		_, _, err = ep.ReadDirect(t.Context(), 0)
		if wire.CodeOf(err) != wire.CodeResourceExhausted {
			t.Errorf("a full queue: %v", err)
		}
		time.Sleep(2 * time.Minute) // what was not settled comes again, full or not
		if all, more, err := ep.ReadDirect(t.Context(), 256); len(all) != 256 || !more || err != nil || !all[0].Redelivered {
			t.Errorf("after the ack wait: read %d, more %t, %v", len(all), more, err)
		}
		if err := ep.HandleDirect(t.Context(), func(*endpoint.Delivery) {}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ep.ReadDirect(t.Context(), 0); wire.CodeOf(err) != wire.CodeAlreadyExists {
			t.Errorf("beside a handler: %v", err)
		}
		check(t, "close", ep.Close(), nil)
		if _, _, err := ep.ReadDirect(t.Context(), 0); err != endpoint.ErrClosed {
			t.Errorf("closed: %v", err)
		}
	})
}

// What breaks the contract, and what was shown before, is not shown; reading goes on.
func TestReadDirectChecks(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds, mallory := w.user("bob"), w.user("mallory")
		w.durables(creds)
		events := newJournal[endpoint.Event]()
		ep := w.connect(creds, &endpoint.Options{OnEvent: events.add})
		raw := w.raw(mallory)
		defer shut(raw)
		from := mallory.Identity().Principal
		subject := must(wire.DirectSubject(lab, bob, from))(t)
		m := &wire.Message{ID: "one", TS: 1, Space: lab, From: wire.EndpointRef{ID: from.String(), Name: "x"}, To: bob.String(), Parts: []wire.Part{wire.Text("x")}}
		body := must(m.AppendJSON(nil))(t)
		w.publish(raw, subject, nil, []byte("no message"))
		w.publish(raw, subject, nil, body)
		w.publish(raw, subject, nil, body)
		synctest.Wait() // what waits is counted by the queue, a moment after the stream has stored it
		all, more, err := ep.ReadDirect(t.Context(), 0)
		if err != nil || more || bodies(all) != "[x]" {
			t.Fatalf("read %s, more %t, %v", bodies(all), more, err)
		}
		check(t, "ack", all[0].Ack(t.Context()), nil)
		wantEvent[endpoint.EventDropped](t, events, nil)
		w.publish(raw, subject, nil, body)
		synctest.Wait()
		if all, more, err := ep.ReadDirect(t.Context(), 0); err != nil || more || len(all) != 0 {
			t.Errorf("a copy: read %s, more %t, %v", bodies(all), more, err)
		}
	})
}
