package attack_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// second is an authority in another process: another client of the broker over the same records.
func (w *town) second(t testing.TB) *auth.Authority {
	t.Helper()
	c, err := cotal.DialNode(t.Context(), w.URL(), w.Store(), &cotal.DialOptions{By: "second"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Authority()
}

// TestRow6TwoAuthoritiesOneOrder: two authorities change one grant at the same time, and one of them takes it away. Every change
// that was said to be made is in the record, in one order; a change that rests on what was there before is refused; and whoever
// was revoked does not come back through the change of somebody who had read the grant before.
func TestRow6TwoAuthoritiesOneOrder(t *testing.T) {
	t.Parallel()
	w := newTown(t, &cotaltest.Options{Listen: true})
	p := pair{w, w.authority(), w.second(t)}
	t.Run("no_change_is_lost", p.noChangeIsLost)
	t.Run("what_rests_on_the_past_is_refused", p.thePastIsRefused)
	t.Run("nobody_comes_back", p.nobodyComesBack)
}

// pair is a town with two authorities.
type pair struct {
	w        *town
	one, two *auth.Authority
}

func (p pair) noChangeIsLost(t *testing.T) {
	w, one, two, s := p.w, p.one, p.two, p.w.Space()
	g := w.grant(t, "ada", "lost", nil)
	var mu sync.Mutex
	made := map[string]int{}
	var wg sync.WaitGroup
	for _, who := range []struct {
		name string
		a    *auth.Authority
		edit func(r *auth.GrantRequest, i int)
	}{
		{"one", one, func(r *auth.GrantRequest, i int) {
			r.Subscribe = []string{"general", "team.>", fmt.Sprintf("one.%d", i)}
		}},
		{"two", two, func(r *auth.GrantRequest, i int) { r.Publish = []string{"general", "team.>", fmt.Sprintf("two.%d", i)} }},
	} {
		wg.Go(func() {
			for i := range 20 {
				req := auth.GrantRequest{Space: s, Owner: g.Owner, Actor: g.Actor}
				who.edit(&req, i)
				_, err := who.a.Grant(t.Context(), req)
				switch {
				case errors.Is(err, wire.ErrConflict):
				case err != nil:
					t.Errorf("%s: %v", who.name, err)
				default:
					mu.Lock()
					made[who.name]++
					made[who.name+" last"] = i
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	now := must[auth.Inspection](t)(two.Inspect(t.Context(), s, g.Principal())).Grant
	if changes := made["one"] + made["two"]; now.Epoch != g.Epoch+uint64(changes) || changes == 0 {
		t.Errorf("%d changes were made, and the grant went from epoch %d to %d", changes, g.Epoch, now.Epoch)
	}
	for who, last := range map[string]string{"one": now.AllowSubscribe[2], "two": now.AllowPublish[2]} {
		if want := fmt.Sprintf("%s.%d", who, made[who+" last"]); made[who] > 0 && last != want {
			t.Errorf("the grant holds %q, want the last change of %s, %q", last, who, want)
		}
	}
}

func (p pair) thePastIsRefused(t *testing.T) {
	w, one, two, s := p.w, p.one, p.two, p.w.Space()
	grants := space.NewGrants(serviceJS(t, w.Mesh, trust.Authority), s)
	for _, state := range []trust.GrantState{trust.GrantActive, trust.GrantRetiring} {
		g := w.grant(t, "ada", "stale_"+string(state), nil)
		read, rev, err := grants.Get(t.Context(), g.Principal())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := two.Revoke(t.Context(), s, g.Principal()); err != nil {
			t.Fatal(err)
		}
		read.State, read.Epoch, read.Scope = state, read.Epoch+1, []string{trust.ScopeAdmin}
		if _, err := grants.Update(t.Context(), read, rev); !errors.Is(err, wire.ErrConflict) {
			t.Errorf("a write on what was there before the revocation: %v, want conflict", err)
		}
		if _, err := one.AdmitPerson(t.Context(), s, auth.PersonRequest{Owner: g.Owner, Actor: g.Actor}); trust.ReasonOf(err) != trust.ReasonRevoked {
			t.Errorf("after it: %v, want grant-revoked", err)
		}
	}
	// The twin: what rests on the present is taken.
	g := w.grant(t, "ada", "fresh", nil)
	read, rev, err := grants.Get(t.Context(), g.Principal())
	if err != nil {
		t.Fatal(err)
	}
	read.Epoch++
	if _, err := grants.Update(t.Context(), read, rev); err != nil {
		t.Errorf("a write on what is there: %v", err)
	}
}

func (p pair) nobodyComesBack(t *testing.T) {
	w, one, two, s := p.w, p.one, p.two, p.w.Space()
	for i, actor := range actorIDs("back", 10) {
		g := w.grant(t, "ada", actor, nil)
		creds := w.credentials(t, "ada", actor)
		grant, revoke := one, two
		if i%2 == 1 {
			grant, revoke = two, one
		}
		both(t, func(ctx context.Context) error {
			_, err := grant.Grant(ctx, auth.GrantRequest{Space: s, Owner: g.Owner, Actor: actor, Scope: []string{trust.ScopeSpawn, trust.ScopeAdmin}})
			return err
		}, func(ctx context.Context) error {
			_, err := revoke.Revoke(ctx, s, g.Principal())
			return err
		})
		in := must[auth.Inspection](t)(one.Inspect(t.Context(), s, g.Principal()))
		switch {
		case in.Grant.State == trust.GrantRetired: // the revocation came last, or the grant was refused
		case in.Grant.State == trust.GrantActive && in.Grant.UID != g.UID: // the name was granted anew after it, to a life of its own
		case in.Grant.State == trust.GrantRetiring: // both saw the other's step and stopped: the next revoke finishes it
		default:
			t.Errorf("%s: grant %+v after a revocation beside a grant; life %s must be over", actor, in.Grant, g.UID)
		}
		if err := w.knock(t, creds); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("%s: the life that was revoked connects: %v", actor, err)
		}
	}
}

// both does two things at once. Either may lose to the other, with conflict or because the other has ended what it was about.
func both(t *testing.T, fns ...func(context.Context) error) {
	t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, fn := range fns {
		wg.Go(func() {
			<-start
			err := fn(t.Context())
			if code := wire.CodeOf(err); err != nil && code != wire.CodeConflict && code != wire.CodeFailedPrecondition {
				t.Errorf("beside the other: %v", err)
			}
		})
	}
	close(start)
	wg.Wait()
}
