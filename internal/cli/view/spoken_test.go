package view_test

import (
	"io"
	"testing"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// A person is told what an event means; a program keeps the words of the contract.
func TestSpoken(t *testing.T) {
	away := wire.Errorf(wire.CodeUnavailable, "x")
	for _, tt := range []struct {
		ev   endpoint.Event
		want string
	}{
		{endpoint.EventDisconnected{Err: io.EOF}, "the mesh is gone; reconnecting"},
		{endpoint.EventConnected{Server: "nats://x"}, "the mesh is there"},
		{endpoint.EventBackstop{Pattern: "general", Err: away}, "delivery does not answer: you see what is posted to #general some seconds late, and what you miss will not wait for you; trying again"},
		{endpoint.EventBackstop{Pattern: "general", Established: true}, "what you miss of #general is kept for you"},
		{endpoint.EventBackstop{Pattern: "general", Err: wire.Errorf(wire.CodePermissionDenied, "no")}, `joined channels "general" live, backstop unestablished: no`},
	} {
		if got := view.Spoken(tt.ev); got != tt.want {
			t.Errorf("Spoken(%T) = %q, want %q", tt.ev, got, tt.want)
		}
	}
	if got := view.EventText(endpoint.EventBackstop{Pattern: "general", Err: away}); got != `joined channels "general" live, backstop unestablished: x` {
		t.Errorf("text for a program = %q", got)
	}
}

// TestCalmSaysARefusalOnce: whoever was revoked reads why, and not every attempt.
func TestCalmSaysARefusalOnce(t *testing.T) {
	var calm view.Calm
	why := trust.Deny(wire.CodePermissionDenied, trust.ReasonRevoked, `exchange token for "ada": the grant of "x.ada" was revoked`)
	want := `not let in: the grant of "x.ada" was revoked; trying again, with growing pauses`
	for i, step := range []struct {
		ev   endpoint.Event
		want string
	}{
		{endpoint.EventRenewalFailed{Err: why, Attempt: 1}, want},
		{endpoint.EventRenewalFailed{Err: why, Attempt: 2}, ""},
		{endpoint.EventDisconnected{}, "the mesh is gone; reconnecting"},
		{endpoint.EventRenewalFailed{Err: why, Attempt: 3}, ""},
		{endpoint.EventConnected{}, "the mesh is there"},
		{endpoint.EventRenewalFailed{Err: why, Attempt: 1}, want},
	} {
		if got := calm.Spoken(step.ev); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
