package relay_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/wire"
)

// TestTypingIntoSilence types for long at an agent that shows nothing: the manager is there, and is asked.
func TestTypingIntoSilence(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, _ := w.viewer(t, "ada")
		s := newStage(80, 24)
		v := open(t, ada, w.offer(t, ada, s, true, 80, 24), nil)
		for i := range 60 {
			if err := v.Input([]byte("x")); err != nil {
				t.Fatalf("after %d s: %v", i, err)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestSessionsAreBounded asks for more than one life, one terminal and one supervisor may have.
func TestSessionsAreBounded(t *testing.T) {
	w := newWorld(t, &relay.Options{Sessions: 8, PerCaller: 4, PerAgent: 6})
	s := newStage(80, 24)
	ada, _ := w.viewer(t, "ada")
	bob, _ := w.viewer(t, "bob")
	eve, _ := w.viewer(t, "eve")
	other := wire.NewUID()
	for _, step := range []struct {
		ep      *endpoint.Endpoint
		at      wire.UID
		fits    int
		allowed int
	}{{ada, agent, 4, 4}, {bob, agent, 2, 6}, {bob, other, 2, 4}, {eve, other, 0, 8}} {
		for i := range 6 {
			_, err := w.relay.Offer(t.Context(), relay.Caller{Life: step.ep.Lifecycle()}, step.at, s, wire.AttachRequest{UID: step.at})
			e, _ := errors.AsType[*wire.Error](err)
			switch {
			case i < step.fits && err != nil:
				t.Errorf("offer %d of %s: %v", i, step.ep.Principal(), err)
			case i >= step.fits && (e == nil || e.Code != wire.CodeResourceExhausted || e.Details["used"] != step.allowed || e.Details["allowed"] != step.allowed || e.Outcome != wire.OutcomeNotExecuted):
				t.Errorf("offer %d of %s: %v, want resource-exhausted with %d of %[4]d", i, step.ep.Principal(), err, step.allowed)
			}
		}
	}
}

// TestManyOffersLeaveLittle makes and ends a thousand at one moment: what is over does not keep the connection's subscriptions.
func TestManyOffersLeaveLittle(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		s := newStage(80, 24)
		ada, _ := w.viewer(t, "ada")
		for range 1000 {
			w.offer(t, ada, s, false, 0, 0)
			w.relay.End(agent, wire.Errorf(wire.CodeUnavailable, "it is enough"))
		}
		if n := w.nc.NumSubscriptions(); n > 200 {
			t.Errorf("%d subscriptions", n)
		}
	})
}
