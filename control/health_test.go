package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

func TestHealth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		log := new(logged)
		s := newSum(&control.Options{Instance: "one", Epoch: "7", Version: "1.2.3", Logger: log.logger()})
		var fail error
		runs := 0
		s.Check("store", func(context.Context) error { runs++; return fail })
		begun := time.Now().UTC()
		run(t, s, dial(t, srv))
		c := caller(t, dial(t, srv), ada)
		health := func() control.Health {
			t.Helper()
			all, err := c.Health(t.Context(), "com.acme.math", 5*time.Second, 1)
			if err != nil {
				t.Fatal(err)
			}
			return all[0]
		}
		h := health()
		if h.Endpoint != "com.acme.math" || h.Instance != "one" || h.Epoch != "7" || h.Version != "1.2.3" || !h.Since.Equal(begun) ||
			!h.Ready || h.State != control.StateServing || len(h.Checks) != 1 || !h.Checks[0].OK {
			t.Errorf("health = %+v", h)
		}
		health()
		if runs != 1 {
			t.Errorf("two questions within a second ran the check %d times", runs)
		}
		for err, want := range map[error]string{
			errors.New("the secret cause"):                 "failed; the reason is in the log",
			wire.Errorf(wire.CodeUnavailable, "no broker"): "no broker",
		} {
			time.Sleep(time.Second)
			fail = err
			h = health()
			if h.Ready || h.State != control.StateDegraded || h.Checks[0].OK || h.Checks[0].Reason != want {
				t.Errorf("health with a check that fails = %+v, want reason %q", h, want)
			}
		}
		fail = nil
		time.Sleep(time.Second)
		// The other two rails answer the same.
		for _, instance := range []string{"", "one"} {
			var h control.Health
			target := control.Target{Endpoint: "com.acme.math", Command: control.CommandHealth, Instance: instance}
			if err := c.Call(t.Context(), target, nil, &h); err != nil || !h.Ready {
				t.Errorf("health of instance %q = %+v, %v", instance, h, err)
			}
		}
	})
}

func TestHealthDoesNotHangWithACheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		log := new(logged)
		s := newSum(&control.Options{Logger: log.logger()})
		release := make(chan struct{})
		defer close(release)
		s.Check("stuck", func(context.Context) error { <-release; return nil })
		s.Check("panics", func(context.Context) error { panic("the secret cause") })
		run(t, s, dial(t, srv))
		c := caller(t, dial(t, srv), ada)
		for _, want := range []string{"no result in time", "an earlier run has not returned"} {
			start := time.Now()
			all, err := c.Health(t.Context(), "com.acme.math", 5*time.Second, 1)
			if err != nil {
				t.Fatal(err)
			}
			checks := all[0].Checks
			if all[0].Ready || checks[0].Reason != want || checks[1].Reason != "the check panicked; see the log" {
				t.Errorf("health = %+v, want reason %q", all[0], want)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("health took %v", took)
			}
			time.Sleep(2 * time.Second)
		}
	})
}
