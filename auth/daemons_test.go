package auth_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// daemons is a mesh whose store holds the credential of one daemon.
type daemons struct {
	t     *testing.T
	m     *cotaltest.Mesh
	a     *auth.Authority
	store *memstore.Store
	key   string
}

func newDaemons(t *testing.T) *daemons {
	t.Helper()
	d := &daemons{t: t, store: memstore.New()}
	d.m = cotaltest.New(t, &cotaltest.Options{Store: d.store})
	d.a = d.m.Node().Authority()
	var err error
	if d.key, err = d.a.WriteDaemon(t.Context(), d.store, d.m.Space(), trust.Delivery); err != nil {
		t.Fatal(err)
	}
	return d
}

// later lets time go by while nothing runs, which a simulated day is long for.
func (d *daemons) later(by time.Duration) {
	d.t.Helper()
	d.m.Stop()
	time.Sleep(by)
	d.m.Restart(d.t)
	d.a = d.m.Node().Authority()
}

func (d *daemons) file() []byte {
	d.t.Helper()
	raw, err := d.store.Get(d.t.Context(), d.key)
	if err != nil {
		d.t.Fatal(err)
	}
	return raw
}

func (d *daemons) creds() *trust.Credentials {
	d.t.Helper()
	creds, err := trust.ParseCredentials(d.file())
	if err != nil {
		d.t.Fatal(err)
	}
	return creds
}

// renew renews through a store and returns the result of the one file.
func (d *daemons) renew(store secret.Store, opts *auth.RenewOptions) auth.DaemonResult {
	d.t.Helper()
	out, err := d.a.RenewDaemons(d.t.Context(), store, d.m.Space(), opts)
	if err != nil || len(out) != 1 {
		d.t.Fatalf("RenewDaemons = %+v, %v; want one result", out, err)
	}
	if out[0].Key != d.key || out[0].Role != string(trust.Delivery) {
		d.t.Errorf("the result is of %q, role %q", out[0].Key, out[0].Role)
	}
	return out[0]
}

// unchanged checks that a renewal ended as it should and left the file as it was.
func (d *daemons) unchanged(before []byte, got auth.DaemonResult, state auth.DaemonState, says string) {
	d.t.Helper()
	if got.State != state || !strings.Contains(got.Error, says) {
		d.t.Errorf("state %q, error %q; want %q and %q in it", got.State, got.Error, state, says)
	}
	if !bytes.Equal(before, d.file()) {
		d.t.Error("the file was changed")
	}
}

func TestADaemonCredentialIsRenewedForTheSameKey(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		d := newDaemons(t)
		first := d.creds()
		if _, err := d.a.WriteDaemon(t.Context(), d.store, d.m.Space(), trust.Delivery); !errors.Is(err, wire.ErrExists) {
			t.Errorf("writing it twice = %v, want already-exists", err)
		}
		if _, err := d.a.WriteDaemon(t.Context(), d.store, d.m.Space(), trust.Operator); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("the credential of a person as a daemon's = %v, want bad-request", err)
		}
		d.unchanged(d.file(), d.renew(d.store, nil), auth.DaemonFresh, "")
		d.later(19 * time.Hour) // of 24
		if all, err := d.a.Daemons(t.Context(), d.store, d.m.Space()); err != nil || len(all) != 1 || all[0].State != auth.DaemonDue {
			t.Errorf("Daemons = %+v, %v; want one that is due", all, err)
		}
		got := d.renew(d.store, nil)
		next := d.creds()
		was, is := first.Identity(), next.Identity()
		if got.State != auth.DaemonRenewed || !got.Expires.Equal(is.Expires) || !is.Expires.After(was.Expires) {
			t.Errorf("result %+v, the file expires at %s, before it %s", got, is.Expires, was.Expires)
		}
		if is.UserKey != was.UserKey || is.Lifecycle != was.Lifecycle || is.Profile != was.Profile {
			t.Errorf("renewed %+v, want the holder and key of %+v", is, was)
		}
		if err := connects(t, d.m, next); err != nil {
			t.Errorf("the new credential: %v", err)
		}
		records, _, err := d.a.Audit(t.Context(), d.m.Space(), audited("renew"))
		if err != nil || len(records) != 1 || records[0].Target != is.Principal.String() {
			t.Errorf("audit = %+v, %v; want one renewal", records, err)
		}
		if got := d.renew(d.store, &auth.RenewOptions{Force: true}); got.State != auth.DaemonRenewed {
			t.Errorf("forced: %+v", got)
		}
	})
}

// TestTwoRenewAtOnce lets many find the same file due: one writes it, the others see that.
func TestTwoRenewAtOnce(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		d := newDaemons(t)
		d.later(19 * time.Hour)
		const many = 8
		ready := make(chan struct{}, many)
		gate := make(chan struct{})
		var mu sync.Mutex
		states := map[auth.DaemonState]int{}
		var wg sync.WaitGroup
		for range many {
			wg.Go(func() {
				got := d.renew(d.store, &auth.RenewOptions{Preflight: func(context.Context, *trust.Credentials) error {
					ready <- struct{}{}
					<-gate // every one has read the file by now
					return nil
				}})
				mu.Lock()
				defer mu.Unlock()
				states[got.State]++
			})
		}
		for range many {
			<-ready
		}
		close(gate)
		wg.Wait()
		if states[auth.DaemonRenewed] != 1 || states[auth.DaemonFresh] != many-1 {
			t.Errorf("states %v, want one renewed and the others fresh", states)
		}
		if err := connects(t, d.m, d.creds()); err != nil {
			t.Error(err)
		}
	})
}

// TestTheLastGoodCredentialIsNeverReplacedByADeadOne goes through what can be wrong with the candidate and with the file.
func TestTheLastGoodCredentialIsNeverReplacedByADeadOne(t *testing.T) {
	t.Parallel()
	force := &auth.RenewOptions{Force: true}
	answer := func(err error) *auth.RenewOptions {
		return &auth.RenewOptions{Force: true, Preflight: func(context.Context, *trust.Credentials) error { return err }}
	}
	down := answer(wire.Errorf(wire.CodeUnavailable, "nothing answers"))
	for name, c := range map[string]struct {
		prepare func(d *daemons) secret.Store // nil, or another store to renew through
		opts    *auth.RenewOptions
		state   auth.DaemonState
		says    string
	}{
		"the broker does not know the signing key": {rotated, force, auth.DaemonKept, "does not accept"},
		"the broker says no":                       {nil, answer(wire.Errorf(wire.CodeUnauthenticated, "no")), auth.DaemonKept, "does not accept"},
		"no broker, and another signing key":       {rotated, down, auth.DaemonKept, "another key"},
		"the preflight panics": {nil, &auth.RenewOptions{Force: true, Preflight: func(context.Context, *trust.Credentials) error { panic("hidden") }},
			auth.DaemonFailed, "this is a bug"},
		"the store fails":       {brokenStore, force, auth.DaemonFailed, "disk on fire"},
		"a damaged file":        {put(func([]byte) []byte { return []byte("rubbish") }), force, auth.DaemonFailed, "remove it"},
		"half a file":           {put(func(raw []byte) []byte { return raw[:len(raw)/2] }), force, auth.DaemonFailed, "remove it"},
		"a file of a stranger":  {foreign, force, auth.DaemonFailed, "another account"},
		"a file of another":     {otherRole, force, auth.DaemonFailed, "not that of this daemon"},
		"of another space":      {otherSpace, force, auth.DaemonFailed, `of space "lab"`},
		"of a revoked key":      {revokedKey, force, auth.DaemonFailed, "revoked"},
		"everything is revoked": {revokedAll, force, auth.DaemonFailed, "revoked"},
		"of a retired key":      {retiredKey, force, auth.DaemonFailed, "retired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemons(t)
			var store secret.Store = d.store
			if c.prepare != nil {
				if other := c.prepare(d); other != nil {
					store = other
				}
			}
			before := d.file()
			got := d.renew(store, c.opts)
			d.unchanged(before, got, c.state, c.says)
			if strings.Contains(got.Error, "hidden") || strings.Contains(got.Error, "SU") {
				t.Errorf("error %q shows what it must not", got.Error)
			}
		})
	}
}

// rotated lists a new signing key that the broker is not told of.
func rotated(d *daemons) secret.Store {
	if _, err := d.a.Mint().RotateSigningKey(d.t.Context(), d.m.Space(), trust.Delivery, nil); err != nil {
		d.t.Fatal(err)
	}
	return nil
}

func retiredKey(d *daemons) secret.Store {
	rotated(d)
	if _, err := d.a.RetireKeys(d.t.Context(), d.m.Space(), trust.Delivery); err != nil {
		d.t.Fatal(err)
	}
	return nil
}

func revokedKey(d *daemons) secret.Store {
	if err := d.a.RevokeKey(d.t.Context(), d.m.Space(), d.creds().Identity().UserKey); err != nil {
		d.t.Fatal(err)
	}
	return nil
}

func revokedAll(d *daemons) secret.Store {
	if _, err := d.a.Mint().Revoke(d.t.Context(), d.m.Space(), mint.Revocation{UserKey: trust.AllUsers}); err != nil {
		d.t.Fatal(err)
	}
	return nil
}

// put changes the file.
func put(change func([]byte) []byte) func(*daemons) secret.Store {
	return func(d *daemons) secret.Store {
		if err := d.store.Put(d.t.Context(), d.key, change(d.file())); err != nil {
			d.t.Fatal(err)
		}
		return nil
	}
}

func putCreds(d *daemons, creds *trust.Credentials, err error) secret.Store {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	return put(func([]byte) []byte { return creds.Reveal() })(d)
}

// foreign is the credential of the same daemon at another operator.
func foreign(d *daemons) secret.Store {
	a, err := mint.Init(d.t.Context(), memstore.New(), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := a.AddSpace(d.t.Context(), d.m.Space(), nil); err != nil {
		d.t.Fatal(err)
	}
	creds, err := a.User(d.t.Context(), mint.UserRequest{
		Space: d.m.Space(), Profile: trust.Delivery, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: string(trust.Delivery)},
	})
	return putCreds(d, creds, err)
}

func otherRole(d *daemons) secret.Store {
	creds, err := d.a.ServiceCredential(d.t.Context(), d.m.Space(), trust.Authority, 0)
	return putCreds(d, creds, err)
}

func otherSpace(d *daemons) secret.Store {
	if err := d.a.AddSpace(d.t.Context(), "lab", nil); err != nil {
		d.t.Fatal(err)
	}
	creds, err := d.a.ServiceCredential(d.t.Context(), "lab", trust.Delivery, 0)
	return putCreds(d, creds, err)
}

// failing is a store that does not answer when something is to be replaced.
type failing struct{ *memstore.Store }

func (failing) CompareAndSwap(context.Context, string, []byte, []byte) error {
	return errors.New("disk on fire")
}

func brokenStore(d *daemons) secret.Store { return failing{d.store} }

// blind is a store that cannot list.
type blind struct{ secret.Store }

func TestDaemonsAreRenewedWithoutABroker(t *testing.T) {
	t.Parallel()
	d := newDaemons(t)
	d.m.Stop()
	before := d.creds().Identity()
	got := d.renew(blind{d.store}, &auth.RenewOptions{Force: true})
	if after := d.creds().Identity(); got.State != auth.DaemonRenewed || after.UserKey != before.UserKey {
		t.Errorf("result %+v, key %s, before %s", got, after.UserKey, before.UserKey)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.a.RenewDaemons(ended, d.store, d.m.Space(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	d.m.Restart(t)
	if err := connects(t, d.m, d.creds()); err != nil {
		t.Errorf("the credential that was renewed without a broker: %v", err)
	}
}

// TestAnExpiredDaemonIsRenewed: what has expired is not accepted, so there is nothing to lose; but a key whose revocation may be
// forgotten gets no new life.
func TestAnExpiredDaemonIsRenewed(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		d := newDaemons(t)
		d.m.Stop()
		time.Sleep(48 * time.Hour)
		if got := d.renew(d.store, nil); got.State != auth.DaemonRenewed {
			t.Errorf("expired for a day: %+v", got)
		}
		time.Sleep(trust.MaxLifetime + 48*time.Hour)
		d.unchanged(d.file(), d.renew(d.store, nil), auth.DaemonFailed, "longer ago than revocations are kept")
	})
}

func TestDaemonsOfOneFileDoNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	d := newDaemons(t)
	if _, err := d.a.WriteDaemon(t.Context(), d.store, d.m.Space(), trust.Authority); err != nil {
		t.Fatal(err)
	}
	put(func([]byte) []byte { return nil })(d)
	if err := d.store.Put(t.Context(), trust.DaemonPrefix(d.m.Space())+"notes.txt", []byte("x")); err != nil {
		t.Fatal(err)
	}
	all, err := d.a.RenewDaemons(t.Context(), d.store, d.m.Space(), &auth.RenewOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		got = append(got, r.Role+" "+string(r.State))
	}
	if want := []string{"authority renewed", "delivery failed"}; !slices.Equal(got, want) {
		t.Errorf("results %q, want %q", got, want)
	}
}

func audited(action string) space.AuditQuery { return space.AuditQuery{Action: action} }
