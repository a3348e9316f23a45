package mint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func TestInitIsIdempotent(t *testing.T) {
	store := memstore.New()
	first := newMint(t, store)
	again := newMint(t, store)
	if first.OperatorJWT() != again.OperatorJWT() || first.SystemJWT() != again.SystemJWT() {
		t.Error("a second Init made other trust")
	}
	opened, err := mint.Open(t.Context(), store, nil)
	if err != nil || opened.SystemPublic() != first.SystemPublic() {
		t.Errorf("Open = %v, want the same trust", err)
	}
	keys, err := store.List(t.Context(), "")
	if err != nil || len(keys) != 4+len(trust.SystemKinds()) {
		t.Errorf("the store holds %q, %v, want the record, three operator keys and one per system kind", keys, err)
	}
}

func TestOpenWithoutRecords(t *testing.T) {
	if _, err := mint.Open(t.Context(), memstore.New(), nil); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Open of an empty store = %v, want not-found", err)
	}
	if _, err := mint.Open(t.Context(), secret.Refuse{}, nil); errors.Is(err, wire.ErrNotFound) || !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("Open of a store that refuses = %v, want unavailable: a store that fails is not an empty one", err)
	}
	if _, err := mint.Init(t.Context(), secret.Refuse{}, nil); !errors.Is(err, secret.ErrRefused) {
		t.Errorf("Init of a store that refuses = %v", err)
	}
}

func TestConcurrentInit(t *testing.T) {
	store := memstore.New()
	all := make([]*mint.Authority, 8)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			var err error
			if all[i], err = mint.Init(t.Context(), store, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, a := range all {
		if a == nil || a.OperatorJWT() != all[0].OperatorJWT() {
			t.Fatal("two calls of Init made two operators")
		}
	}
	keys, err := store.List(t.Context(), "auth/operator.sign.")
	if err != nil || len(keys) != 2 {
		t.Errorf("operator signing seeds: %q, %v, want the two that the record lists", keys, err)
	}
}

func TestInitRefusesOrphans(t *testing.T) {
	a, store := withSpace(t)
	_ = a
	if err := store.Delete(t.Context(), trust.BrokerKey); err != nil {
		t.Fatal(err)
	}
	if _, err := mint.Init(t.Context(), store, nil); !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), trust.BrokerKey) {
		t.Errorf("Init over accounts without their operator = %v, want a refusal that names the record", err)
	}
}

func TestAddSpaceIsIdempotent(t *testing.T) {
	a, _ := withSpace(t)
	first, err := a.Account(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.AddSpace(t.Context(), lab, nil)
	if err != nil || again.JWT != first.JWT || again.Version != 1 {
		t.Errorf("AddSpace again: version %d, %v, want the same account", again.Version, err)
	}
	wider, err := a.AddSpace(t.Context(), lab, &mint.Limits{Connections: 9})
	if err != nil || wider.Version != 2 || wider.Limits.Connections != 9 || wider.Public != first.Public {
		t.Errorf("AddSpace with limits: %+v, %v, want version 2 of the same account", wider.Limits, err)
	}
	kept, err := a.AddSpace(t.Context(), lab, nil)
	if err != nil || kept.Limits.Connections != 9 {
		t.Errorf("AddSpace without limits: %+v, %v, want those it had", kept.Limits, err)
	}
	for _, bad := range []wire.Space{"", "a.b", ">", wire.Space(strings.Repeat("x", 65))} {
		if _, err := a.AddSpace(t.Context(), bad, nil); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("AddSpace(%q) = %v, want a bad request", bad, err)
		}
	}
	if _, err := a.AddSpace(t.Context(), "other", &mint.Limits{Disk: -1}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("AddSpace with an unlimited disk = %v, want a bad request", err)
	}
}

func TestConcurrentAddSpace(t *testing.T) {
	store := memstore.New()
	newMint(t, store)
	records := make([]trust.AccountRecord, 6)
	var wg sync.WaitGroup
	for i := range records {
		wg.Go(func() {
			a, err := mint.Open(t.Context(), store, nil)
			if err == nil {
				records[i], err = a.AddSpace(t.Context(), lab, nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range records {
		if r.Public != records[0].Public {
			t.Fatal("two calls of AddSpace made two accounts")
		}
	}
	user(t, newMint(t, store)) // the seeds are those of the record
}

// TestAccountClaims reads the JWT as a broker does.
func TestAccountClaims(t *testing.T) {
	a, _ := withSpace(t)
	rec, err := a.Account(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	c, err := jwt.DecodeAccountClaims(rec.JWT)
	if err != nil {
		t.Fatal(err)
	}
	vr := jwt.CreateValidationResults()
	c.Validate(vr)
	if !vr.IsEmpty() {
		t.Errorf("the library complains: %v", vr.Issues)
	}
	l := c.Limits
	if l.Conn <= 0 || l.Subs <= 0 || l.Payload <= 0 || l.DiskStorage <= 0 || l.MemoryStorage <= 0 || l.Streams <= 0 || l.Consumer <= 0 {
		t.Errorf("limits %+v, want every one stated", l)
	}
	if l.LeafNodeConn != 0 || l.Imports != 0 || l.Exports != 0 || !l.DisallowBearer || len(c.Imports)+len(c.Exports) > 0 {
		t.Errorf("limits %+v: leaf nodes, imports, exports and bearer tokens are not for spaces", l)
	}
	if len(c.SigningKeys) != len(trust.Profiles()) {
		t.Errorf("%d signing keys, want one per profile", len(c.SigningKeys))
	}
	for key, scope := range c.SigningKeys {
		if scope == nil {
			t.Errorf("signing key %s is not scoped", key)
		}
	}
	op, err := jwt.DecodeOperatorClaims(a.OperatorJWT())
	if err != nil {
		t.Fatal(err)
	}
	if !op.DidSign(c) || c.Issuer == op.Subject || !op.StrictSigningKeyUsage {
		t.Error("an operator signing key signs accounts, never the operator's identity")
	}
	t.Logf("account JWT of a fresh space: %d bytes", len(rec.JWT))
}

// faulty is a store that fails at one write, before or after doing it.
type faulty struct {
	secret.Store
	writes  atomic.Int64
	failAt  int64
	written bool // the write happens, its answer is lost
}

var errFault = errors.New("disk gone")

func (f *faulty) write(do func() error) error {
	if f.writes.Add(1) != f.failAt {
		return do()
	}
	if f.written {
		if err := do(); err != nil {
			return err
		}
	}
	return errFault
}

func (f *faulty) Put(ctx context.Context, k string, v []byte) error {
	return f.write(func() error { return f.Store.Put(ctx, k, v) })
}

func (f *faulty) Create(ctx context.Context, k string, v []byte) error {
	return f.write(func() error { return f.Store.Create(ctx, k, v) })
}

func (f *faulty) CompareAndSwap(ctx context.Context, k string, o, n []byte) error {
	return f.write(func() error { return f.Store.CompareAndSwap(ctx, k, o, n) })
}

func (f *faulty) Delete(ctx context.Context, k string) error {
	return f.write(func() error { return f.Store.Delete(ctx, k) })
}

// TestInterruptedCallsAreCompleted stops every call at every write, and repeats it.
func TestInterruptedCallsAreCompleted(t *testing.T) {
	steps := []struct {
		name string
		call func(ctx context.Context, store secret.Store) error
	}{
		{"init", func(ctx context.Context, s secret.Store) error { _, err := mint.Init(ctx, s, nil); return err }},
		{"add", with(func(ctx context.Context, a *mint.Authority) error { _, err := a.AddSpace(ctx, lab, nil); return err })},
		{"callout", with(func(ctx context.Context, a *mint.Authority) error { _, err := a.EnsureCallout(ctx, lab); return err })},
		{"rotate_operator", with(func(ctx context.Context, a *mint.Authority) error { return a.RotateOperatorKey(ctx) })},
		{"rotate_signing", with(func(ctx context.Context, a *mint.Authority) error {
			_, err := a.RotateSigningKey(ctx, lab, trust.Agent, nil)
			return err
		})},
		{"rotate_system", with(func(ctx context.Context, a *mint.Authority) error { return a.RotateSystem(ctx, nil) })},
		{"remove", with(func(ctx context.Context, a *mint.Authority) error {
			err := a.RemoveSpace(ctx, lab)
			if errors.Is(err, wire.ErrNotFound) { // done by Init, or by the first try
				return nil
			}
			return err
		})},
		{"add_again", with(func(ctx context.Context, a *mint.Authority) error { _, err := a.AddSpace(ctx, lab, nil); return err })},
	}
	before := memstore.New() // what the steps so far have made
	for _, step := range steps {
		for _, written := range []bool{false, true} {
			for at, more := int64(1), true; more && at < 40; at++ {
				what := fmt.Sprintf("%s stopped at write %d (written %v)", step.name, at, written)
				store := clone(t, before)
				f := &faulty{Store: store, failAt: at, written: written}
				if err := step.call(t.Context(), f); err != nil {
					if err := step.call(t.Context(), store); err != nil {
						t.Fatalf("%s: repeated: %v", what, err)
					}
				}
				checkWhole(t, what, store)
				more = f.writes.Load() >= at
			}
		}
		if err := step.call(t.Context(), before); err != nil {
			t.Fatal(err)
		}
	}
}

func clone(t testing.TB, s *memstore.Store) *memstore.Store {
	t.Helper()
	keys, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	out := memstore.New()
	for _, k := range keys {
		v, err := s.Get(t.Context(), k)
		if err == nil {
			err = out.Put(t.Context(), k, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func with(do func(ctx context.Context, a *mint.Authority) error) func(context.Context, secret.Store) error {
	return func(ctx context.Context, s secret.Store) error {
		a, err := mint.Init(ctx, s, nil)
		if err != nil {
			return err
		}
		return do(ctx, a)
	}
}

// checkWhole wants every profile and kind to mint, under keys that the records list, after a start and an AddSpace.
func checkWhole(t *testing.T, what string, store secret.Store) {
	t.Helper()
	a := newMint(t, store)
	rec, err := a.AddSpace(t.Context(), lab, nil)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := a.CheckSeeds(t.Context()); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if rec.Callout != nil {
		_, user := a.CalloutUser(t.Context(), lab, 0)
		_, sentinel := a.Sentinel(t.Context(), lab, 0)
		_, responder := a.CalloutResponder(t.Context(), lab)
		if err := errors.Join(user, sentinel, responder); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, p := range trust.Profiles() {
		if _, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: p, Principal: ada}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, k := range trust.SystemKinds() {
		if _, err := a.SystemUser(t.Context(), systemRequest(t, a, k)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRemoveSpaceLeavesNothing(t *testing.T) {
	a, store := withSpace(t)
	before, err := a.Account(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), trust.DaemonKey(lab, "delivery"), user(t, a).Reveal()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.EnsureCallout(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	if err := a.RemoveSpace(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	keys, err := store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if strings.Contains(k, "space.") || strings.Contains(k, "account.") {
			t.Errorf("%s is left", k)
		}
	}
	if _, err := a.Account(t.Context(), lab); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Account = %v, want not-found", err)
	}
	if err := a.RemoveSpace(t.Context(), lab); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("RemoveSpace again = %v, want not-found", err)
	}
	after, err := a.AddSpace(t.Context(), lab, nil)
	if err != nil {
		t.Fatal(err)
	}
	if after.Public == before.Public || after.KeysOf(trust.Agent)[0] == before.KeysOf(trust.Agent)[0] {
		t.Error("a space of the same name inherited keys")
	}
}

func TestDamagedRecordsMintNothing(t *testing.T) {
	for name, damage := range map[string]struct {
		key   string
		value func(old []byte) []byte // nil deletes
	}{
		"broker record half":        {trust.BrokerKey, func(b []byte) []byte { return b[:len(b)/2] }},
		"account record half":       {trust.AccountKey(lab), func(b []byte) []byte { return b[:len(b)/2] }},
		"account record missing":    {trust.AccountKey(lab), nil},
		"account record empty":      {trust.AccountKey(lab), func([]byte) []byte { return nil }},
		"signing seed missing":      {trust.SigningKey(lab, trust.Agent), nil},
		"signing seed unreadable":   {trust.SigningKey(lab, trust.Agent), func(b []byte) []byte { return b[:20] }},
		"signing seed of a user":    {trust.SigningKey(lab, trust.Agent), func([]byte) []byte { return fresh(t, signer.User) }},
		"signing seed of a foreign": {trust.SigningKey(lab, trust.Agent), func([]byte) []byte { return fresh(t, signer.Account) }},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			a, store := withSpace(t)
			old, err := store.Get(t.Context(), damage.key)
			if err != nil {
				t.Fatal(err)
			}
			if damage.value == nil {
				err = store.Delete(t.Context(), damage.key)
			} else {
				err = store.Put(t.Context(), damage.key, damage.value(old))
			}
			if err != nil {
				t.Fatal(err)
			}
			creds, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: trust.Agent, Principal: ada})
			if !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), damage.key) {
				t.Errorf("User = %v, %v, want failed-precondition that names %q", creds, err, damage.key)
			}
			if err != nil {
				signertest.CheckHidden(t, err.Error())
			}
		})
	}
}

func fresh(t testing.TB, kind signer.Kind) []byte {
	t.Helper()
	l, err := signer.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return l.Seed().Reveal()
}

// TestSwappedAccountRecord: the record of one space in place of another's, or an older one of the same operator, is foreign.
func TestSwappedAccountRecord(t *testing.T) {
	a, store := withSpace(t)
	if _, err := a.AddSpace(t.Context(), "other", nil); err != nil {
		t.Fatal(err)
	}
	foreign, err := store.Get(t.Context(), trust.AccountKey("other"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), trust.AccountKey(lab), foreign); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Account(t.Context(), lab); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("Account = %v, want a refusal", err)
	}
	if _, err := a.Revoke(t.Context(), lab, mint.Revocation{UserKey: trust.AllUsers}); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("Revoke = %v, want a refusal", err)
	}
}

func TestSpaces(t *testing.T) {
	a, _ := withSpace(t)
	for _, s := range []wire.Space{"zoo", "Alpha"} {
		if _, err := a.AddSpace(t.Context(), s, nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.Spaces(t.Context())
	if err != nil || fmt.Sprint(got) != "[Alpha lab zoo]" {
		t.Errorf("Spaces = %v, %v, want them sorted", got, err)
	}
}
