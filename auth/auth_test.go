package auth_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func ada(m *cotaltest.Mesh) auth.Request {
	return auth.Request{Space: m.Space(), Actor: "ada", Subscribe: []string{"general"}, Publish: []string{"general"}}
}

func connects(t *testing.T, m *cotaltest.Mesh, creds *trust.Credentials) error {
	t.Helper()
	nc, err := dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: "probe"})
	if err == nil {
		nc.Close()
	}
	return err
}

func TestIssue(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	first, err := a.Issue(t.Context(), ada(m))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue(t.Context(), ada(m)); !errors.Is(err, wire.ErrExists) {
		t.Errorf("issue of an active name = %v, want already-exists", err)
	}
	renew := auth.Request{Space: m.Space(), Actor: "ada", Renew: true}
	again, err := a.Issue(t.Context(), renew)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.Identity().UID, first.Identity().UID; got != want {
		t.Errorf("renewed uid = %q, want %q", got, want)
	}
	if got := again.Identity().Subscribe; len(got) != 1 || got[0] != "general" {
		t.Errorf("renewed read list = %q, want that of the grant", got)
	}
	renew.Subscribe = []string{"team.>"}
	if again, err = a.Issue(t.Context(), renew); err != nil {
		t.Fatal(err)
	}
	if got := again.Identity().Subscribe; len(got) != 1 || got[0] != "team.>" {
		t.Errorf("renewed read list = %q, want the new one", got)
	}
	for name, req := range map[string]auth.Request{
		"renew_unknown": {Space: m.Space(), Actor: "nobody", Renew: true},
		"unknown_space": {Space: "nowhere", Actor: "ada"},
	} {
		if _, err := a.Issue(t.Context(), req); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("%s = %v, want not-found", name, err)
		}
	}
	for name, req := range map[string]auth.Request{
		"name":     {Space: m.Space(), Actor: "a-b"},
		"space":    {Space: "a.b", Actor: "ada"},
		"pattern":  {Space: m.Space(), Actor: "bob", Subscribe: []string{"a.>.b"}},
		"role":     {Space: m.Space(), Actor: "bob", Role: "a b"},
		"lifetime": {Space: m.Space(), Actor: "bob", TTL: 365 * 24 * time.Hour},
		"profile":  {Space: m.Space(), Actor: "bob", Profile: "root"},
	} {
		if _, err := a.Issue(t.Context(), req); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("bad %s = %v, want bad-request", name, err)
		}
	}
	grants, err := a.List(t.Context(), m.Space())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range grants {
		if g.Actor != "ada" {
			t.Errorf("a refused request left the grant of %q", g.Principal())
		}
	}
}

// TestRevokeRacesRenewal renews from several sides while the principal is revoked: whatever was handed out, nothing of
// it connects once Revoke has returned.
func TestRevokeRacesRenewal(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	for round := range 5 {
		req := auth.Request{Space: m.Space(), Actor: fmt.Sprintf("racer_%d", round)}
		if _, err := a.Issue(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		req.Renew = true
		var mu sync.Mutex
		var out []*trust.Credentials
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					creds, err := a.Issue(ctx, req)
					if err != nil {
						continue
					}
					mu.Lock()
					out = append(out, creds)
					mu.Unlock()
				}
			})
		}
		for n := 0; n < 8; {
			mu.Lock()
			n = len(out)
			mu.Unlock()
		}
		if _, err := a.Revoke(t.Context(), m.Space(), wire.Principal{Owner: wire.LocalOwner, Actor: req.Actor}); err != nil {
			t.Fatal(err)
		}
		cancel()
		wg.Wait()
		for _, creds := range out {
			if err := connects(t, m, creds); !errors.Is(err, wire.ErrUnauthenticated) {
				t.Fatalf("round %d: a credential handed out around the revocation connects: %v", round, err)
			}
		}
	}
}

// TestRevokeResumes interrupts a revocation after its first step and finishes it by running it again.
func TestRevokeResumes(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	creds, err := a.Issue(t.Context(), ada(m))
	if err != nil {
		t.Fatal(err)
	}
	p := creds.Identity().Principal
	broken := auth.New(a.Mint(), noPush{}, m.Node().Dial, nil)
	if _, err := broken.Revoke(t.Context(), m.Space(), p); err == nil {
		t.Fatal("revoke without a broker to push to: no error")
	}
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Renew: true}); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("renew while retiring = %v, want failed-precondition", err)
	}
	if _, err := a.Issue(t.Context(), ada(m)); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("issue while retiring = %v, want failed-precondition", err)
	}
	if _, err := a.Revoke(t.Context(), m.Space(), p); err != nil {
		t.Fatalf("revoke again: %v", err)
	}
	if err := connects(t, m, creds); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("connect after revocation = %v, want unauthenticated", err)
	}
	next, err := a.Issue(t.Context(), ada(m))
	if err != nil {
		t.Fatal(err)
	}
	if next.Identity().UID == creds.Identity().UID {
		t.Error("the next life has the uid of the last one")
	}
}

type noPush struct{}

func (noPush) PutAccount(context.Context, string, string) error { return wire.ErrUnavailable }

func (noPush) RemoveAccount(context.Context, string, string) error { return wire.ErrUnavailable }

func (noPush) EvictKeys(context.Context, string, ...string) (int, error) {
	return 0, wire.ErrUnavailable
}

func (noPush) EvictTagged(context.Context, string, ...string) (int, error) {
	return 0, wire.ErrUnavailable
}

func TestRevokeKey(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	one, err := a.Issue(t.Context(), ada(m))
	if err != nil {
		t.Fatal(err)
	}
	two, err := a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Renew: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.RevokeKey(t.Context(), m.Space(), one.Identity().UserKey); err != nil {
		t.Fatal(err)
	}
	if err := connects(t, m, one); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("revoked key connects: %v", err)
	}
	if err := connects(t, m, two); err != nil {
		t.Errorf("other key of the same principal: %v", err)
	}
	if err := a.RevokeKey(t.Context(), m.Space(), "not a key"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("revoke of a non-key = %v, want bad-request", err)
	}
}

// TestPersonalAtOnce has the first commands of a person run at the same time, before the name was granted and after it was revoked: each
// gets a credential, and all are of one life.
func TestPersonalAtOnce(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	for round := range 10 {
		name := fmt.Sprintf("rex_%d", round/2)
		var mu sync.Mutex
		lives := map[wire.UID]int{}
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range 8 {
			wg.Go(func() {
				<-begin
				creds, err := a.Personal(t.Context(), m.Space(), trust.Operator, name, 0)
				if err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				lives[creds.Identity().UID]++
			})
		}
		close(begin)
		wg.Wait()
		if len(lives) != 1 {
			t.Errorf("round %d: lives %v, want one", round, lives)
		}
		if round%2 == 0 {
			if _, err := a.Revoke(t.Context(), m.Space(), wire.Principal{Owner: wire.LocalOwner, Actor: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestPersonal shows that a person keeps one life over many short credentials, and never takes over a name that was
// granted otherwise.
func TestPersonal(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	one, err := a.Personal(t.Context(), m.Space(), trust.Operator, "rex", 0)
	if err != nil {
		t.Fatal(err)
	}
	two, err := a.Personal(t.Context(), m.Space(), trust.Observer, "rex", 0)
	if err != nil {
		t.Fatal(err)
	}
	if one.Identity().UID != two.Identity().UID {
		t.Error("a person's second command got another lifecycle")
	}
	if _, err := a.Issue(t.Context(), ada(m)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Personal(t.Context(), m.Space(), trust.Operator, "ada", 0); !errors.Is(err, wire.ErrExists) {
		t.Errorf("personal credential over an agent's name = %v, want already-exists", err)
	}
}

// TestExpiryOnFakeTime shows that a credential ends with its lifetime, at the broker.
func TestExpiryOnFakeTime(t *testing.T) {
	dir := t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: dir})
		req := ada(m)
		req.TTL = time.Hour
		creds, err := m.Node().Authority().Issue(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		nc, err := dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if !nc.IsConnected() {
			t.Error("disconnected before the credential expired")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if nc.IsConnected() {
			t.Error("connected after the credential expired")
		}
		if err := connects(t, m, creds); !errors.Is(err, wire.ErrExpired) {
			t.Errorf("connect with an expired credential = %v, want expired", err)
		}
		m.Stop()
	})
}

// TestIdleAuthorityIsQuiet lets a mesh stand idle for longer than the authority's own credentials live: it neither tries
// to come back with an expired one nor fails the next call.
func TestIdleAuthorityIsQuiet(t *testing.T) {
	dir := t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		var out lockedBuffer
		m := cotaltest.New(t, &cotaltest.Options{StateDir: dir, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if _, err := m.Node().Authority().Issue(t.Context(), ada(m)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if _, err := m.Node().Authority().Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "bob"}); err != nil {
			t.Error(err)
		}
		m.Stop()
		if got := out.String(); got != "" {
			t.Errorf("an idle mesh warned:\n%s", got)
		}
	})
}

// lockedBuffer is a buffer for a logger of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
