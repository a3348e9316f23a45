package auth_test

import (
	"errors"
	"testing"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestRotateEveryKey rotates each kind of key while a peer talks, retires the old ones, and restarts on what is left.
func TestRotateEveryKey(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	old := m.Credentials(t, "ada", nil)
	ep := m.Connect(t, old, nil)
	talk := func(when string, ep *endpoint.Endpoint) {
		t.Helper()
		if _, err := ep.Post(t.Context(), "general", endpoint.Draft{Parts: []wire.Part{wire.Text(when)}}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if _, err := ep.Roster(t.Context()); err != nil {
			t.Errorf("%s: roster: %v", when, err)
		}
	}
	for _, p := range trust.Profiles() {
		if err := a.RotateKey(t.Context(), m.Space(), p); err != nil {
			t.Fatal(err)
		}
	}
	talk("after rotating the keys of every profile", ep)
	if err := a.RotateOperatorKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	talk("after rotating the operator's key", ep)
	if err := a.RotateSystem(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.RetireSystem(t.Context()); err != nil {
		t.Fatal(err)
	}
	talk("after rotating the system account's keys", ep)

	fresh, err := a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Renew: true})
	if err != nil {
		t.Fatal(err)
	}
	n, err := a.RetireKeys(t.Context(), m.Space(), trust.Agent)
	if err != nil || n != 1 {
		t.Fatalf("retire = %d, %v, want 1", n, err)
	}
	if err := connects(t, m, old); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("credential of a retired key connects: %v", err)
	}
	talk("with a credential of the new key", m.Connect(t, fresh, nil))
	// The roles of the node itself lose the keys that signed their credentials, and come back by themselves.
	for _, p := range trust.Profiles() {
		if _, err := a.RetireKeys(t.Context(), m.Space(), p); err != nil {
			t.Fatal(err)
		}
	}
	late := m.Connect(t, fresh, nil)
	for {
		_, err := late.Roster(t.Context())
		if err == nil {
			break
		}
		if !errors.Is(err, wire.ErrUnavailable) && !errors.Is(err, wire.ErrDeadline) || t.Context().Err() != nil {
			t.Fatalf("roster after the delivery key was retired: %v", err)
		}
	}
	m.Restart(t)
	talk("after a restart", m.Connect(t, fresh, nil))
	if err := connects(t, m, old); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("credential of a retired key connects after a restart: %v", err)
	}
	if _, err := m.Node().Authority().Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "bob"}); err != nil {
		t.Errorf("issue after a restart: %v", err)
	}
}
