package auth_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestNarrowingResumes interrupts a renewal that takes rights away after the grant is written: nothing is handed out, and the
// next renewal, whatever it asks for, refuses the credentials of before.
func TestNarrowingResumes(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	wide := m.Credentials(t, "ada", nil)
	broken := auth.New(a.Mint(), noPush{}, m.Node().Dial, nil)
	narrow := auth.Request{Space: m.Space(), Actor: "ada", Subscribe: []string{"team"}}
	creds, _, err := broken.Renew(t.Context(), narrow)
	if creds != nil || err == nil {
		t.Fatalf("renew without a broker to push to = %v, %v; want no credential and an error", creds, err)
	}
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	grants, err := a.List(t.Context(), m.Space())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(grants, func(g trust.Grant) bool { return g.Actor == "ada" })
	if g := grants[i]; !slices.Equal(g.AllowSubscribe, narrow.Subscribe) || g.Refusing == 0 {
		t.Errorf("grant after the interruption = %+v, want narrowed and marked", g)
	}
	next, done, err := a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada"})
	if err != nil || !done.Narrowed || done.Keys != 1 {
		t.Fatalf("renew again = %+v, %v; want the key of before refused", done, err)
	}
	if err := connects(t, m, wide); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("connect with the credential of before = %v, want unauthenticated", err)
	}
	if err := connects(t, m, next); err != nil {
		t.Errorf("connect with the new credential: %v", err)
	}
	if _, done, err = a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada"}); err != nil || done.Narrowed {
		t.Errorf("a third renewal = %+v, %v; want nothing left to refuse", done, err)
	}
	if err := connects(t, m, next); err != nil {
		t.Errorf("connect after a plain renewal: %v", err)
	}
}

// TestAnotherProfileRefusesTheOneBefore: a renewal under another profile refuses what was minted before, once. One that names no profile
// keeps it.
func TestAnotherProfileRefusesTheOneBefore(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	first, err := a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Profile: trust.Operator, Subscribe: []string{"team"}})
	if err != nil {
		t.Fatal(err)
	}
	renew := func(p, want trust.Profile, refused int) *trust.Credentials {
		t.Helper()
		creds, done, err := a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Profile: p})
		if err != nil {
			t.Fatalf("renew under profile %q: %v", p, err)
		}
		if got := creds.Identity().Profile; got != want || done.Narrowed != (refused > 0) || done.Keys != refused {
			t.Fatalf("renew under profile %q = profile %q, %+v; want %q and %d refused", p, got, done, want, refused)
		}
		return creds
	}
	good := func(want bool, all ...*trust.Credentials) {
		t.Helper()
		for i, c := range all {
			if err := connects(t, m, c); want && err != nil || !want && !errors.Is(err, wire.ErrUnauthenticated) {
				t.Errorf("connect with credential %d (%s): %v, want accepted: %t", i, c.Identity().Profile, err, want)
			}
		}
	}
	second := renew("", trust.Operator, 0)
	good(true, first, second)
	agent := renew(trust.Agent, trust.Agent, 2)
	good(false, first, second)
	good(true, agent)
	later := renew("", trust.Agent, 0) // what was refused is in the log still
	good(true, agent, later)
	if _, _, err := a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Profile: trust.Operator, Capabilities: []string{trust.ScopeSpawn}}); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("an operator with a capability = %v, want bad-request", err)
	}
	good(true, agent, later)
	operator := renew(trust.Operator, trust.Operator, 4) // those refused before are in the log still
	good(false, agent, later)
	good(true, operator)
}

// TestExpiredProfileIsKept: an operator whose credentials have all ended, and left the issuance log, is one again.
func TestExpiredProfileIsKept(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		a := m.Node().Authority()
		req := auth.Request{Space: m.Space(), Actor: "ada", Profile: trust.Operator}
		if _, err := a.Issue(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		creds, done, err := a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada"})
		if err != nil || creds.Identity().Profile != trust.Operator || done.Narrowed {
			t.Errorf("renew after an hour = %v, %+v, %v; want an operator and nothing refused", creds, done, err)
		}
	})
}

// TestGrantWithoutAProfile is one of an earlier version: a renewal has to name the profile, and refuses what was minted before.
func TestGrantWithoutAProfile(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	before := m.Credentials(t, "ada", nil)
	service, err := a.ServiceCredential(t.Context(), m.Space(), trust.Authority, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	grants := space.NewGrants(as(t, m, service), m.Space())
	g, rev, err := grants.Get(t.Context(), wire.Principal{Owner: wire.LocalOwner, Actor: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	g.Profile = ""
	if _, err := grants.Update(t.Context(), g, rev); err != nil {
		t.Fatal(err)
	}
	req := auth.Request{Space: m.Space(), Actor: "ada"}
	if _, _, err := a.Renew(t.Context(), req); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("renew without a profile = %v, want bad-request", err)
	}
	if err := connects(t, m, before); err != nil {
		t.Errorf("connect after the refusal: %v", err)
	}
	req.Profile = trust.Agent
	next, done, err := a.Renew(t.Context(), req)
	if err != nil || !done.Narrowed {
		t.Fatalf("renew as an agent = %+v, %v; want what was before refused", done, err)
	}
	if err := connects(t, m, before); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("connect with the credential of before = %v, want unauthenticated", err)
	}
	if err := connects(t, m, next); err != nil {
		t.Errorf("connect with the new one: %v", err)
	}
}

// TestNarrowingRacesRenewal renews from several sides while the grant is narrowed: what was handed out under the wide one
// connects no more once that has returned, and what was handed out under the narrow one always does.
func TestNarrowingRacesRenewal(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	m.Credentials(t, "ada", nil)
	var mu sync.Mutex
	var out []*trust.Credentials
	stop := make(chan struct{})
	begun := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				creds, err := a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Renew: true})
				if err == nil {
					mu.Lock()
					out = append(out, creds)
					mu.Unlock()
				} else if !errors.Is(err, wire.ErrConflict) {
					t.Errorf("renew: %v", err)
					return
				}
				select {
				case <-stop:
					return
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	creds, _, err := a.Renew(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Subscribe: []string{"team"}})
	if err != nil {
		t.Fatal(err)
	}
	close(stop)
	wg.Wait()
	wide := 0
	for _, c := range append(out, creds) {
		err := connects(t, m, c)
		if slices.Equal(c.Identity().Subscribe, []string{"team"}) {
			if err != nil {
				t.Errorf("a credential of the narrow grant does not connect: %v", err)
			}
		} else if wide++; !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("a credential of the wide grant connects: %v", err)
		}
	}
	if wide == 0 {
		t.Error("no credential of the wide grant was handed out")
	}
}
