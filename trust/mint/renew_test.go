package mint_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// TestRenew: the same holder and key, and only what the records vouch for.
func TestRenew(t *testing.T) {
	a, _ := withSpace(t)
	r := run(t, a)
	old := user(t, a)
	next, err := a.Renew(t.Context(), old, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	was, is := old.Identity(), next.Identity()
	if is.UserKey != was.UserKey || is.Lifecycle != was.Lifecycle || is.Inbox != was.Inbox || !is.Expires.Before(was.Expires) {
		t.Errorf("renewed %+v, want the holder and key of %+v for an hour", is, was)
	}
	r.accepted("the renewed credential", next)
	r.accepted("the one before", old)
	stranger, _ := withSpace(t)
	if _, err := a.Renew(t.Context(), user(t, stranger), 0); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("of another operator: %v, want failed-precondition", err)
	}
	if _, err := a.Revoke(t.Context(), lab, mint.Revocation{UserKey: was.UserKey}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Renew(t.Context(), old, 0); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("a revoked key: %v, want failed-precondition", err)
	}
	if err := a.Vouches(t.Context(), old); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("Vouches of a revoked key: %v, want failed-precondition", err)
	}
	system, err := a.SystemUser(t.Context(), systemRequest(t, a, mint.SystemControl))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Renew(t.Context(), system, 0); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("a system credential: %v, want bad-request", err)
	}
}

func TestCurrent(t *testing.T) {
	a, _ := withSpace(t)
	if ok, err := a.Current(t.Context(), lab); !ok || err != nil {
		t.Errorf("Current = %v, %v", ok, err)
	}
	if ok, err := a.SystemCurrent(t.Context()); !ok || err != nil {
		t.Errorf("SystemCurrent = %v, %v", ok, err)
	}
	if _, err := a.EnsureCallout(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	if ok, err := a.Current(t.Context(), lab); !ok || err != nil {
		t.Errorf("Current of a space of people = %v, %v", ok, err)
	}
	if _, err := a.Current(t.Context(), "nowhere"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Current of no space = %v, want not-found", err)
	}
}
