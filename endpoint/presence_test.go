package endpoint_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// presence reads a principal's record as the delivery service would, nil when there is none.
func (w *world) presence(p wire.Principal) *wire.Presence {
	w.tb.Helper()
	js, done := w.jetstream(trust.Delivery)
	defer done()
	kv := must(js.KeyValue(w.tb.Context(), wire.PresenceBucket(lab)))(w.tb)
	entry, err := kv.Get(w.tb.Context(), p.String())
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		w.tb.Fatalf("read presence of %v: %v", p, err)
	}
	return must(wire.DecodePresence(p.String(), entry.Value()))(w.tb)
}

func TestPresence(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("ada", role("writer"))
		ep, err := endpoint.Connect(t.Context(), "", endpoint.Static(creds), w.inProcess(&endpoint.Options{
			Name: "Ada L.", Kind: "endpoint", Description: "writes", Tags: []string{"x"}, Meta: map[string]any{"model": "m"},
			Skills: []wire.Skill{{ID: "go", Name: "Go"}},
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		p := w.presence(ada) // there as soon as Connect returned
		if p == nil || p.Status != wire.StatusIdle || p.Card.Name != "Ada L." || p.Card.Kind != "endpoint" || p.Card.Role != "writer" ||
			p.Card.Description != "writes" || p.LifecycleUID != creds.Identity().UID || p.Card.ProtocolVersion != wire.ProtocolVersion ||
			len(p.Card.Skills) != 1 || p.Card.Meta["model"] != "m" {
			t.Fatalf("presence = %+v", p)
		}
		time.Sleep(time.Minute + time.Second) // ten times as long as a record stands
		if p = w.presence(ada); p == nil || time.Since(time.UnixMilli(p.TS)) > wire.HeartbeatInterval {
			t.Fatalf("presence after a minute = %+v", p)
		}
		check(t, "status", ep.SetStatus(t.Context(), wire.StatusWorking, "thinking"), nil)
		check(t, "attention", ep.SetAttention(t.Context(), wire.AttentionFocus), nil)
		if p = w.presence(ada); p.Status != wire.StatusWorking || p.Activity != "thinking" || p.Attention != "focus" {
			t.Errorf("presence = %+v", p)
		}
		for _, err := range []error{
			ep.SetStatus(t.Context(), "bored", ""), ep.SetStatus(t.Context(), wire.StatusOffline, ""), ep.SetAttention(t.Context(), "loud"),
		} {
			if wire.CodeOf(err) != wire.CodeBadRequest {
				t.Errorf("bad status: %v", err)
			}
		}
		time.Sleep(10 * time.Second)
		if p = w.presence(ada); p == nil || p.Status != wire.StatusWorking || p.Activity != "thinking" {
			t.Errorf("presence after bad changes = %+v", p)
		}
		check(t, "close", ep.Close(), nil)
		if p = w.presence(ada); p == nil || p.Status != wire.StatusOffline || p.Activity != "" {
			t.Errorf("presence after close = %+v", p)
		}
		time.Sleep(7 * time.Second)
		if p = w.presence(ada); p != nil {
			t.Errorf("offline record stands: %+v", p)
		}
	})
}

func TestQuiet(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		quiet := w.connect(w.user("ada"), &endpoint.Options{Quiet: true})
		observer := w.connect(w.user("bob", func(r *mint.UserRequest) { r.Profile, r.Subscribe, r.Publish = trust.Observer, nil, nil }), nil)
		time.Sleep(3 * time.Second)
		if w.presence(ada) != nil || w.presence(bob) != nil {
			t.Error("a quiet endpoint is in the roster")
		}
		for _, ep := range []*endpoint.Endpoint{quiet, observer} {
			if err := ep.SetStatus(t.Context(), wire.StatusIdle, ""); wire.CodeOf(err) != wire.CodeFailedPrecondition {
				t.Errorf("status of a quiet endpoint: %v", err)
			}
		}
	})
}

func TestNoBucketNoEndpoint(t *testing.T) {
	w := newWorld(t)
	js, done := w.jetstream(trust.Teardown)
	if err := js.DeleteStream(t.Context(), "KV_"+wire.PresenceBucket(lab)); err != nil {
		t.Fatal(err)
	}
	done()
	_, err := endpoint.Connect(t.Context(), "", endpoint.Static(w.user("ada")), w.inProcess(nil))
	wantError(t, err, wire.CodeUnavailable, wire.OutcomeNotExecuted)
}
