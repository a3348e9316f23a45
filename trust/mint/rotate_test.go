package mint_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func TestRotateSigningKey(t *testing.T) {
	a, _ := withSpace(t)
	r := run(t, a)
	old := user(t, a)
	_, dropped, err := r.connect(old)
	if err != nil {
		t.Fatal(err)
	}
	before, err := a.Account(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	var during *trust.Credentials
	rec, err := a.RotateSigningKey(t.Context(), lab, trust.Agent, func(ctx context.Context, rec trust.AccountRecord) error {
		during = user(t, a) // while the brokers learn of the new key, the old one signs
		return r.push(ctx, rec)
	})
	if err != nil {
		t.Fatal(err)
	}
	fresh := user(t, a)
	r.accepted("signed by the old key", old)
	r.accepted("signed meanwhile", during)
	r.accepted("signed by the new key", fresh)
	if got := rec.KeysOf(trust.Agent); len(got) != 2 || got[0] != before.KeysOf(trust.Agent)[0] {
		t.Errorf("keys %q, want the old and the new one", got)
	}
	if issuer(t, during) != before.KeysOf(trust.Agent)[0] || issuer(t, fresh) != rec.KeysOf(trust.Agent)[1] {
		t.Error("the new key signed before it was published, or not after")
	}
	if _, err := a.RetireSigningKey(t.Context(), lab, rec.KeysOf(trust.Agent)[1]); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("retiring the key that signs = %v, want failed-precondition", err)
	}
	rec, err = a.RetireSigningKey(t.Context(), lab, before.KeysOf(trust.Agent)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := r.push(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	select {
	case <-dropped:
	case <-time.After(5 * time.Second):
		t.Error("a connection of the retired key still lives")
	}
	r.refused("signed by the retired key", old)
	r.accepted("signed by the new key after the retirement", fresh)
	again, err := a.RetireSigningKey(t.Context(), lab, before.KeysOf(trust.Agent)[0])
	if err != nil || again.Version != rec.Version {
		t.Errorf("retiring again: version %d, %v, want %d", again.Version, err, rec.Version)
	}
}

func issuer(t testing.TB, c *trust.Credentials) string {
	t.Helper()
	claims, err := jwt.DecodeUserClaims(c.JWT())
	if err != nil {
		t.Fatal(err)
	}
	return claims.Issuer
}

func TestRotationThatIsNotPublished(t *testing.T) {
	a, _ := withSpace(t)
	before, err := a.Account(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("broker away")
	_, err = a.RotateSigningKey(t.Context(), lab, trust.Agent, func(context.Context, trust.AccountRecord) error { return lost })
	if !errors.Is(err, lost) {
		t.Errorf("RotateSigningKey = %v, want the cause", err)
	}
	after, err := a.Account(t.Context(), lab)
	if err != nil || len(after.KeysOf(trust.Agent)) != 1 || after.KeysOf(trust.Agent)[0] != before.KeysOf(trust.Agent)[0] {
		t.Errorf("keys %q, %v, want the old one alone", after.KeysOf(trust.Agent), err)
	}
	user(t, a)
}

func TestRotationsAreBounded(t *testing.T) {
	a, _ := withSpace(t)
	for i := range 7 {
		if _, err := a.RotateSigningKey(t.Context(), lab, trust.Probe, nil); err != nil {
			t.Fatalf("rotation %d: %v", i, err)
		}
	}
	if _, err := a.RotateSigningKey(t.Context(), lab, trust.Probe, nil); !errors.Is(err, wire.ErrExhausted) {
		t.Errorf("one more = %v, want resource-exhausted", err)
	}
	if _, err := a.RotateSigningKey(t.Context(), lab, "root", nil); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("unknown profile: %v, want a bad request", err)
	}
}

func TestConcurrentRotations(t *testing.T) {
	a, _ := withSpace(t)
	results := make([]error, 4)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { _, results[i] = a.RotateSigningKey(t.Context(), lab, trust.Agent, nil) })
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
		} else if !errors.Is(err, wire.ErrConflict) {
			t.Errorf("rotation = %v, want a conflict", err)
		}
	}
	rec, err := a.Account(t.Context(), lab)
	if err != nil || won == 0 || len(rec.KeysOf(trust.Agent)) != won+1 {
		t.Errorf("%d won, %d keys, %v, want one new key for each that won", won, len(rec.KeysOf(trust.Agent)), err)
	}
	user(t, a)
}

// TestLostSeedIsRotated: a signing seed that is gone is replaced by a rotation, not by hand.
func TestLostSeedIsRotated(t *testing.T) {
	a, store := withSpace(t)
	if err := store.Delete(t.Context(), trust.SigningKey(lab, trust.Agent)); err != nil {
		t.Fatal(err)
	}
	rec, err := a.RotateSigningKey(t.Context(), lab, trust.Agent, nil)
	if err != nil || len(rec.KeysOf(trust.Agent)) != 2 {
		t.Fatalf("RotateSigningKey = %q, %v", rec.KeysOf(trust.Agent), err)
	}
	user(t, a)
	if _, err := a.RetireSigningKey(t.Context(), lab, rec.KeysOf(trust.Agent)[0]); err != nil {
		t.Errorf("retiring the key whose seed is lost: %v", err)
	}
}

func TestRotateSystem(t *testing.T) {
	a, _ := withSpace(t)
	r := run(t, a)
	system := func() *trust.Credentials {
		t.Helper()
		creds, err := a.SystemUser(t.Context(), mint.SystemRequest{Kind: mint.SystemControl})
		if err != nil {
			t.Fatal(err)
		}
		return creds
	}
	old := system()
	if err := a.RotateSystem(t.Context(), r.ctl.PutAccount); err != nil {
		t.Fatal(err)
	}
	fresh := system()
	if issuer(t, fresh) == issuer(t, old) {
		t.Error("the old key still signs")
	}
	r.accepted("signed by the old key", old)
	r.accepted("signed by the new key", fresh)
	public, token, err := a.RetireSystem(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctl, err := r.srv.Control(t.Context(), broker.Static(fresh), nil) // the other connection is about to be cut off
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ctl.Close() }()
	if err := ctl.PutAccount(t.Context(), public, token); err != nil {
		t.Fatal(err)
	}
	r.refused("signed by the retired key", old)
	r.accepted("signed by the new key after the retirement", fresh)
}

// TestRotateOperatorKey rotates under a running broker that is not restarted, and then restarts it.
func TestRotateOperatorKey(t *testing.T) {
	a, store := withSpace(t)
	if _, err := a.AddSpace(t.Context(), "other", nil); err != nil {
		t.Fatal(err)
	}
	r := run(t, a)
	creds := user(t, a)
	nc, _, err := r.connect(creds)
	if err != nil {
		t.Fatal(err)
	}
	before, err := a.Broker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.RotateOperatorKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := a.Broker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.Signs(trust.KeyCurrent) != before.Signs(trust.KeyNext) || len(after.Signing) != 2 || after.Operator != before.Operator {
		t.Errorf("signing keys %v, want the next one current and a fresh next one", after.Signing)
	}
	if _, err := store.Get(t.Context(), trust.OperatorSigningKey(before.Signs(trust.KeyCurrent))); err == nil {
		t.Error("the seed of the old key is still there")
	}
	for _, s := range []wire.Space{lab, "other"} {
		rec, err := a.Account(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.push(t.Context(), rec); err != nil {
			t.Fatalf("push of %s under the new key, to a broker that was not restarted: %v", s, err)
		}
	}
	if err := r.ctl.PutAccount(t.Context(), a.SystemPublic(), a.SystemJWT()); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(time.Minute); err != nil {
		t.Errorf("a live connection did not survive the rotation: %v", err)
	}
	r.accepted("a credential from before", creds)
	r.accepted("a credential from after", user(t, a))
	if err := r.srv.Restart(t.Context(), r.trust()); err != nil {
		t.Fatal(err)
	}
	r.accepted("a credential from before, after a restart", creds)
}

// TestOperatorRotationAmongRevocations rotates while others revoke: nothing is lost and everything ends under the new key.
func TestOperatorRotationAmongRevocations(t *testing.T) {
	a, _ := withSpace(t)
	const revokers, each = 4, 5
	var wg sync.WaitGroup
	for range revokers {
		wg.Go(func() {
			for range each {
				key, err := nkeys.CreateUser()
				if err != nil {
					t.Error(err)
					return
				}
				public, _ := key.PublicKey()
				if _, err := a.Revoke(t.Context(), lab, mint.Revocation{UserKey: public}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		if err := a.RotateOperatorKey(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := a.AddSpace(t.Context(), "beside", nil); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	broker, err := a.Broker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []wire.Space{lab, "beside"} {
		rec, err := a.Account(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := jwt.DecodeAccountClaims(rec.JWT)
		if err != nil || claims.Issuer != broker.Signs(trust.KeyCurrent) {
			t.Errorf("space %s is signed by %q, want the current key %q", s, claims.Issuer, broker.Signs(trust.KeyCurrent))
		}
		if s == lab && len(rec.Revocations) != revokers*each {
			t.Errorf("%d revocations, want %d", len(rec.Revocations), revokers*each)
		}
	}
}

func TestDeleteToken(t *testing.T) {
	a, _ := withSpace(t)
	r := run(t, a)
	creds := user(t, a)
	_, dropped, err := r.connect(creds)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := a.Account(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	token, err := a.DeleteToken(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.ctl.RemoveAccount(t.Context(), rec.Public, token); err != nil {
		t.Fatal(err)
	}
	select {
	case <-dropped:
	case <-time.After(5 * time.Second):
		t.Error("a connection of the removed account still lives")
	}
	r.refused("a credential of the removed account", creds)
	if _, err := a.DeleteToken(t.Context(), "nowhere"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("DeleteToken of an unknown space = %v, want not-found", err)
	}
}
