package endpoint_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

func TestPostAndReceive(t *testing.T) {
	w := newWorld(t)
	ada, bob := w.connect(w.user("ada"), nil), w.connect(w.user("bob"), nil)
	got := newJournal[*endpoint.Delivery]()
	if _, err := bob.Listen(t.Context(), "team.>", got.add); err != nil {
		t.Fatal(err)
	}
	r, err := ada.Post(t.Context(), "team.backend", endpoint.Text("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Stream != "CHAT_lab" || r.Sequence != 1 || r.ID == "" || r.Duplicate {
		t.Errorf("receipt = %+v", r)
	}
	d := got.waitLen(t, 1)[0]
	if d.Sender != ada.Principal() || d.Channel != "team.backend" || d.Sequence != r.Sequence || d.Message.ID != r.ID ||
		d.Message.Text() != "hello" || d.Kind != wire.KindChannel || time.Since(d.Time) > time.Minute {
		t.Errorf("delivery = %+v, message %+v", d, d.Message)
	}
}

func TestDeniedPublish(t *testing.T) {
	w := newWorld(t)
	ada := w.connect(w.user("ada", writer("team.>")), nil)
	start := time.Now()
	_, err := ada.Post(t.Context(), "ops", endpoint.Text("hello"))
	e := wantError(t, err, wire.CodePermissionDenied, wire.OutcomeNotExecuted)
	if took := time.Since(start); took > time.Second {
		t.Errorf("denial took %v", took)
	}
	for key, want := range map[string]string{"subject": "cotal.lab.chat.local.ada.ops", "principal": "local.ada", "missing": "publish ops"} {
		if e.Details[key] != want {
			t.Errorf("details[%q] = %v, want %q", key, e.Details[key], want)
		}
	}
}

func TestDeniedSubscribe(t *testing.T) {
	w := newWorld(t)
	events := newJournal[endpoint.Event]()
	ada := w.connect(w.user("ada", reader("team.>")), &endpoint.Options{OnEvent: events.add})
	_, err := ada.Listen(t.Context(), "ops", func(*endpoint.Delivery) {})
	wantError(t, err, wire.CodePermissionDenied, wire.OutcomeNotExecuted)
	if _, err := ada.Listen(t.Context(), "team.backend", func(*endpoint.Delivery) {}); err != nil {
		t.Errorf("join of a permitted channel: %v", err)
	}
	if n := countEvents[endpoint.EventDenied](events); n > 0 {
		t.Errorf("%d denials reported twice: %v", n, events.list())
	}
}
