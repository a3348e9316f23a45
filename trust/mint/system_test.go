package mint_test

import (
	"slices"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
)

// Records from before there was a kind of system credential, and whose system account has other templates than this build,
// come up: a start lists a key for the kind and signs the account anew; the next start writes nothing.
func TestInitCompletesOlderRecords(t *testing.T) {
	_, store := withSpace(t)
	older(t, store)
	before := record(t, store)
	if len(before.System.KeysOf(trust.SystemWatcher)) != 0 {
		t.Fatal("the older record lists a key of the new kind")
	}
	a, err := mint.Init(t.Context(), store, nil)
	if err != nil {
		t.Fatalf("Init over older records: %v", err)
	}
	after := record(t, store)
	if after.System.Version <= before.System.Version || after.System.Public != before.System.Public || a.SystemJWT() != after.System.JWT {
		t.Errorf("system account %q at version %d, was %q at %d", after.System.Public, after.System.Version, before.System.Public, before.System.Version)
	}
	for _, kind := range trust.SystemKinds() {
		if want := before.System.KeysOf(kind); kind != trust.SystemWatcher && !slices.Equal(after.System.KeysOf(kind), want) {
			t.Errorf("keys of %s = %q, want those from before, %q", kind, after.System.KeysOf(kind), want)
		}
	}
	r := run(t, a)
	for _, kind := range trust.SystemKinds() {
		creds, err := a.SystemUser(t.Context(), systemRequest(t, a, kind))
		if err != nil {
			t.Fatal(err)
		}
		r.accepted(string(kind), creds)
	}
	if err := a.CheckSeeds(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := mint.Init(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	if again := record(t, store); again.Generation != after.Generation {
		t.Errorf("a second start wrote generation %d after %d, want nothing written", again.Generation, after.Generation)
	}
}

func record(t testing.TB, store *memstore.Store) trust.BrokerRecord {
	t.Helper()
	data, err := store.Get(t.Context(), trust.BrokerKey)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := trust.DecodeBrokerRecord(data)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// older makes the records what a build without the watcher would have written.
func older(t testing.TB, store *memstore.Store) {
	t.Helper()
	rec := record(t, store)
	claims, err := jwt.DecodeAccountClaims(rec.System.JWT)
	if err != nil {
		t.Fatal(err)
	}
	rec.System.Keys = slices.DeleteFunc(rec.System.Keys, func(k trust.SystemKeyRecord) bool {
		if k.Kind != trust.SystemWatcher {
			return false
		}
		delete(claims.SigningKeys, k.Public)
		return true
	})
	for key, scope := range claims.SigningKeys {
		s, ok := scope.(*jwt.UserScope)
		if !ok {
			t.Fatalf("key %q is not scoped", key)
		}
		s.Template.Sub.Allow = slices.DeleteFunc(s.Template.Sub.Allow, func(subject string) bool { return subject == "$SYS.ACCOUNT.*.CONNECT" })
	}
	rec.System.JWT = signedByOperator(t, store, rec, claims)
	data, err := rec.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for key, put := range map[string]func() error{
		trust.BrokerKey: func() error { return store.Put(t.Context(), trust.BrokerKey, data) },
		trust.SystemSigningKey(trust.SystemWatcher): func() error { return store.Delete(t.Context(), trust.SystemSigningKey(trust.SystemWatcher)) },
	} {
		if err := put(); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
}

// signedByOperator signs claims with the seed of the current operator key.
func signedByOperator(t testing.TB, store *memstore.Store, rec trust.BrokerRecord, claims *jwt.AccountClaims) string {
	t.Helper()
	seed, err := store.Get(t.Context(), trust.OperatorSigningKey(rec.Signs(trust.KeyCurrent)))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	token, err := claims.Encode(pair)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
