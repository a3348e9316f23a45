package mint_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// withCallout is an authority in memory with space lab, which signs people in.
func withCallout(t testing.TB) (*mint.Authority, *memstore.Store, trust.AccountRecord) {
	t.Helper()
	a, store := withSpace(t)
	rec, err := a.EnsureCallout(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	return a, store, rec
}

func connection(t testing.TB) mint.ConnectionRequest {
	t.Helper()
	return mint.ConnectionRequest{
		UserRequest: mint.UserRequest{Profile: trust.Agent, Principal: ada, UID: wire.NewUID(), Subscribe: []string{"general", "Team.>"}, Publish: []string{"general"}},
		UserKey:     someUser(t), Expires: time.Now().Add(5 * time.Minute),
	}
}

func someUser(t testing.TB) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return public
}

func TestEnsureCalloutIsIdempotent(t *testing.T) {
	a, store, rec := withCallout(t)
	again, err := a.EnsureCallout(t.Context(), lab)
	if err != nil || again.Version != rec.Version || again.Callout.JWT != rec.Callout.JWT || again.JWT != rec.JWT {
		t.Errorf("EnsureCallout again: version %d, %v, want the same accounts of version %d", again.Version, err, rec.Version)
	}
	added, err := a.AddSpace(t.Context(), lab, &mint.Limits{Connections: 7})
	if err != nil || added.Callout == nil || added.Callout.JWT != rec.Callout.JWT || added.Version != rec.Version+1 {
		t.Errorf("AddSpace with other limits: %+v, %v, want the callout account as it was", added.Callout, err)
	}
	if _, err := a.EnsureCallout(t.Context(), "nowhere"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("EnsureCallout of an unknown space = %v, want not-found", err)
	}
	for _, key := range []string{
		"auth/space.6c6162/callout.nk", "auth/space.6c6162/callout.xkey.nk", "auth/space.6c6162/sign.callout-responder.nk", "auth/space.6c6162/sign.callout-sentinel.nk",
	} {
		if _, err := store.Get(t.Context(), key); err != nil {
			t.Errorf("seed %s: %v", key, err)
		}
	}
}

func TestConcurrentEnsureCallout(t *testing.T) {
	_, store := withSpace(t)
	records := make([]trust.AccountRecord, 6)
	var wg sync.WaitGroup
	for i := range records {
		wg.Go(func() {
			a, err := mint.Open(t.Context(), store, nil)
			if err == nil {
				records[i], err = a.EnsureCallout(t.Context(), lab)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range records {
		if r.Callout == nil || r.Callout.Public != records[0].Callout.Public || r.Version != records[0].Version {
			t.Fatal("two calls of EnsureCallout made two accounts")
		}
	}
	checkWhole(t, "after all of them", store)
}

// TestCalloutAccountClaims reads the JWT as a broker does.
func TestCalloutAccountClaims(t *testing.T) {
	_, _, rec := withCallout(t)
	c, err := jwt.DecodeAccountClaims(rec.Callout.JWT)
	if err != nil {
		t.Fatal(err)
	}
	vr := jwt.CreateValidationResults()
	c.Validate(vr)
	if !vr.IsEmpty() {
		t.Errorf("the library complains: %v", vr.Issues)
	}
	if c.Name != "lab callout" || c.Subject != rec.Callout.Public {
		t.Errorf("name %q, subject %q", c.Name, c.Subject)
	}
	au := c.Authorization
	if !slices.Equal(au.AuthUsers, jwt.StringList{rec.Callout.User}) || !slices.Equal(au.AllowedAccounts, jwt.StringList{rec.Public}) || au.XKey != rec.Callout.XKey {
		t.Errorf("authorization %+v, want the responder, the space and the curve key alone", au)
	}
	l := c.Limits
	if l.Conn != trust.MaxUndecided || l.Subs <= 0 || l.Payload <= 0 || l.IsJSEnabled() || l.LeafNodeConn != 0 || l.Imports != 0 || l.Exports != 0 || l.DisallowBearer {
		t.Errorf("limits %+v", l)
	}
	if len(c.SigningKeys) != 2 {
		t.Errorf("%d signing keys, want two", len(c.SigningKeys))
	}
	for key, scope := range c.SigningKeys {
		if scope == nil {
			t.Errorf("signing key %s is not scoped", key)
		}
	}
	data, err := jwt.DecodeAccountClaims(rec.JWT)
	if err != nil || data.HasExternalAuthorization() || !data.Limits.DisallowBearer {
		t.Errorf("the account of the space asks a callout, or takes bearers: %v", err)
	}
}

func TestCalloutUser(t *testing.T) {
	a, store, rec := withCallout(t)
	first, err := a.CalloutUser(t.Context(), lab, 0)
	if err != nil {
		t.Fatal(err)
	}
	replica := newMint(t, store)
	second, err := replica.CalloutUser(t.Context(), lab, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id := first.Identity()
	if id.UserKey != rec.Callout.User || second.Identity().UserKey != rec.Callout.User {
		t.Errorf("keys %s and %s, want the one that the account names", id.UserKey, second.Identity().UserKey)
	}
	if id.Profile != trust.Callout || id.Space != lab || id.Expires.Sub(id.IssuedAt) < trust.Callout.Lifetime().Default {
		t.Errorf("identity %+v", id)
	}
	parsed, err := trust.ParseCredentials(first.Reveal())
	if err != nil || parsed.Identity().UserKey != id.UserKey {
		t.Errorf("the credential does not survive a file: %v", err)
	}
	for name, do := range map[string]func() error{
		"too long":       func() error { _, err := a.CalloutUser(t.Context(), lab, 72*time.Hour); return err },
		"sentinel":       func() error { _, err := a.Sentinel(t.Context(), lab, trust.MaxLifetime+time.Second); return err },
		"sentinel short": func() error { _, err := a.Sentinel(t.Context(), lab, time.Millisecond); return err },
		"as a profile": func() error {
			_, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: trust.Callout, Principal: ada})
			return err
		},
	} {
		if err := do(); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, want a bad request", name, err)
		}
	}
}

func TestSentinel(t *testing.T) {
	a, _, rec := withCallout(t)
	one, err := a.Sentinel(t.Context(), lab, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := jwt.DecodeUserClaims(one)
	if err != nil {
		t.Fatal(err)
	}
	if c.IssuerAccount != rec.Callout.Public || c.Issuer != rec.Callout.KeysOf(trust.CalloutSentinel)[0] || !c.HasEmptyPermissions() || c.Subject == rec.Callout.User {
		t.Errorf("sentinel %+v", c)
	}
	if c.Expires != 0 {
		t.Errorf("the sentinel ends at %s: the broker would keep every connection until then", time.Unix(c.Expires, 0))
	}
	two, err := a.Sentinel(t.Context(), lab, time.Hour)
	if err != nil || two == one {
		t.Errorf("the second sentinel is the first: %v", err)
	}
	if c, err = jwt.DecodeUserClaims(two); err != nil || time.Until(time.Unix(c.Expires, 0)).Round(time.Minute) != time.Hour {
		t.Errorf("the sentinel of an hour: %+v, %v", c, err)
	}
}

// TestStaticSpacesHaveNoCallout: nothing of a callout comes out of a space that does not sign people in.
func TestStaticSpacesHaveNoCallout(t *testing.T) {
	a, _ := withSpace(t)
	_, user := a.CalloutUser(t.Context(), lab, 0)
	_, sentinel := a.Sentinel(t.Context(), lab, 0)
	_, responder := a.CalloutResponder(t.Context(), lab)
	_, conn := a.ConnectionJWT(t.Context(), lab, connection(t))
	for name, err := range map[string]error{"CalloutUser": user, "Sentinel": sentinel, "CalloutResponder": responder, "ConnectionJWT": conn} {
		if !errors.Is(err, wire.ErrPrecondition) || trust.ReasonOf(err) != trust.ReasonStaticMode {
			t.Errorf("%s = %v, want failed-precondition, reason static-mode", name, err)
		}
	}
}

func TestConnectionJWT(t *testing.T) {
	a, _, rec := withCallout(t)
	r := connection(t)
	token, err := a.ConnectionJWT(t.Context(), lab, r)
	if err != nil {
		t.Fatal(err)
	}
	c, err := jwt.DecodeUserClaims(token)
	if err != nil {
		t.Fatal(err)
	}
	id := trust.Identity{Space: lab, Profile: trust.Agent, Lifecycle: wire.Lifecycle{Principal: ada, UID: r.UID}, Inbox: string(r.UID), Subscribe: r.Subscribe, Publish: r.Publish}
	switch {
	case c.Subject != r.UserKey, c.IssuerAccount != rec.Public, c.Issuer != rec.KeysOf(trust.Agent)[0], c.Name != r.UserKey:
		t.Errorf("claims %+v", c)
	case c.Expires != r.Expires.Unix():
		t.Errorf("it ends at %d, want %d", c.Expires, r.Expires.Unix())
	case !c.HasEmptyPermissions():
		t.Error("it carries permissions of its own")
	case !slices.Equal(c.Tags, jwt.TagList(id.Tags())):
		t.Errorf("tags %q, want %q", c.Tags, id.Tags())
	}
	for name, edit := range map[string]struct {
		want error
		edit func(r *mint.ConnectionRequest)
	}{
		"no key":           {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.UserKey = "" }},
		"an account's key": {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.UserKey = rec.Public }},
		"another space":    {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.Space = "other" }},
		"no uid":           {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.UID = "" }},
		"a lifetime":       {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.TTL = time.Minute }},
		"no end":           {wire.ErrExpired, func(r *mint.ConnectionRequest) { r.Expires = time.Time{} }},
		"ended":            {wire.ErrExpired, func(r *mint.ConnectionRequest) { r.Expires = time.Now() }},
		"too long":         {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.Expires = time.Now().Add(trust.MaxLifetime + time.Minute) }},
		"system profile":   {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.Profile = trust.SystemControl.Profile() }},
		"callout profile":  {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.Profile = trust.Callout }},
		"view with lists":  {wire.ErrBadRequest, func(r *mint.ConnectionRequest) { r.Profile = trust.Purger }},
		"reserved command": {wire.ErrPermissionDenied, func(r *mint.ConnectionRequest) { r.Commands = []string{"delivery.enrol"} }},
		"too many":         {wire.ErrExhausted, func(r *mint.ConnectionRequest) { r.Publish = make([]string, trust.MaxPatterns+1) }},
	} {
		r := connection(t)
		edit.edit(&r)
		if _, err := a.ConnectionJWT(t.Context(), lab, r); !errors.Is(err, edit.want) {
			t.Errorf("%s: %v, want %v", name, err, edit.want)
		}
	}
	if _, err := a.ConnectionJWT(t.Context(), "nowhere", connection(t)); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("unknown space: %v, want not-found", err)
	}
}

// TestConnectionJWTSeesChanges: what is remembered between two connects hides no change of ours, and none of another process for long.
func TestConnectionJWTSeesChanges(t *testing.T) {
	a, store, _ := withCallout(t)
	other := newMint(t, store)
	mintOne := func() (string, error) { return a.ConnectionJWT(t.Context(), lab, connection(t)) }
	issuerOf := func(token string) string {
		t.Helper()
		c, err := jwt.DecodeUserClaims(token)
		if err != nil {
			t.Fatal(err)
		}
		return c.Issuer
	}
	if _, err := mintOne(); err != nil {
		t.Fatal(err)
	}
	rec, err := a.RotateSigningKey(t.Context(), lab, trust.Agent, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := mintOne()
	if err != nil || issuerOf(token) != rec.KeysOf(trust.Agent)[1] {
		t.Errorf("after a rotation of ours the old key signed: %v", err)
	}
	rec, err = other.RotateSigningKey(t.Context(), lab, trust.Agent, nil)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the key that another process rotated to", func() bool {
		token, err := mintOne()
		return err == nil && issuerOf(token) == rec.KeysOf(trust.Agent)[2]
	})
	whole, err := store.Get(t.Context(), trust.SigningKey(lab, trust.Agent))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), trust.SigningKey(lab, trust.Agent)); err != nil {
		t.Fatal(err)
	}
	await(t, "a refusal without the seed", func() bool {
		_, err := mintOne()
		return errors.Is(err, wire.ErrPrecondition) && strings.Contains(err.Error(), trust.SigningKey(lab, trust.Agent))
	})
	if err := store.Put(t.Context(), trust.SigningKey(lab, trust.Agent), whole); err != nil {
		t.Fatal(err)
	}
	if _, err := mintOne(); err != nil {
		t.Errorf("with the seed again: %v", err)
	}
	if _, err := other.Revoke(t.Context(), lab, mint.Revocation{UserKey: trust.AllUsers, At: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	await(t, "a refusal while everything is revoked", func() bool {
		_, err := mintOne()
		return errors.Is(err, wire.ErrPrecondition)
	})
	if err := other.RemoveSpace(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	await(t, "not-found for a removed space", func() bool {
		_, err := mintOne()
		return errors.Is(err, wire.ErrNotFound)
	})
}

// await asks until it is so. What is waited for is bounded by a time of milliseconds.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); !so(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never came: %s", what)
		}
	}
}

// TestOfflineIdentity: the seed of the operator's identity may be kept away; the signing key alone makes spaces and their callouts.
func TestOfflineIdentity(t *testing.T) {
	store := memstore.New()
	newMint(t, store)
	if err := store.Delete(t.Context(), trust.OperatorKey); err != nil {
		t.Fatal(err)
	}
	a := newMint(t, store)
	if _, err := a.AddSpace(t.Context(), lab, nil); err != nil {
		t.Fatalf("AddSpace without the operator's identity: %v", err)
	}
	rec, err := a.EnsureCallout(t.Context(), lab)
	if err != nil {
		t.Fatalf("EnsureCallout without the operator's identity: %v", err)
	}
	if err := a.CheckSeeds(t.Context()); err != nil {
		t.Errorf("CheckSeeds without the operator's identity: %v", err)
	}
	if _, err := a.Revoke(t.Context(), lab, mint.Revocation{UserKey: someUser(t)}); err != nil {
		t.Errorf("Revoke without the operator's identity: %v", err)
	}
	checkWhole(t, "without the operator's identity", store)
	if err := a.RotateOperatorKey(t.Context()); err == nil {
		t.Error("the operator JWT was signed without its key")
	}
	after, err := a.Account(t.Context(), lab)
	if err != nil || after.Callout.JWT != rec.Callout.JWT {
		t.Errorf("the callout account changed: %v", err)
	}
}

// TestOperatorRotationCoversTheCallout also under a running broker.
func TestOperatorRotationCoversTheCallout(t *testing.T) {
	a, _, before := withCallout(t)
	r := run(t, a)
	if err := a.RotateOperatorKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	broker, err := a.Broker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rec, err := a.Account(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range rec.Accounts() {
		claims, err := jwt.DecodeAccountClaims(account.JWT)
		if err != nil || claims.Issuer != broker.Signs(trust.KeyCurrent) {
			t.Errorf("account %s is signed by %q, want the current key", claims.Name, claims.Issuer)
		}
		if err := r.ctl.PutAccount(t.Context(), account.Public, account.JWT); err != nil {
			t.Errorf("push of %s: %v", claims.Name, err)
		}
	}
	if rec.Callout.Public != before.Callout.Public || rec.Callout.User != before.Callout.User {
		t.Error("the rotation changed who answers")
	}
	creds, err := a.CalloutUser(t.Context(), lab, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.accepted("the responder after the rotation", creds)
}

// TestDeleteTokenCoversTheCallout: one claim makes a broker forget both accounts.
func TestDeleteTokenCoversTheCallout(t *testing.T) {
	a, _, rec := withCallout(t)
	r := run(t, a)
	creds, err := a.CalloutUser(t.Context(), lab, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.accepted("the responder", creds)
	token, err := a.DeleteToken(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range slices.Backward(rec.Accounts()) {
		if err := r.ctl.RemoveAccount(context.WithoutCancel(t.Context()), account.Public, token); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ctl.Lookup(t.Context(), account.Public); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("the broker still knows %s: %v", account.Public, err)
		}
	}
	r.refused("the responder of a removed space", creds)
}
