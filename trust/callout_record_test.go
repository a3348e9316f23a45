package trust_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// newPeopleRecords are the records of a space that signs people in.
func newPeopleRecords(t testing.TB) records {
	t.Helper()
	r := newRecords(t)
	a, err := mint.Open(t.Context(), r.store, nil)
	if err == nil {
		r.account, err = a.EnsureCallout(t.Context(), space)
	}
	if err == nil {
		r.raw.account, err = r.store.Get(t.Context(), trust.AccountKey(space))
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCalloutRecordRoundTrips(t *testing.T) {
	r := newPeopleRecords(t)
	got, err := trust.DecodeAccountRecord(r.raw.account, space, r.broker)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.account, got); diff != "" {
		t.Errorf("account record (-want +got):\n%s", diff)
	}
	signertest.CheckHidden(t, string(r.raw.account))
	copied := got.Clone()
	copied.Callout.Keys[0].Public, copied.Callout.User = "x", "y"
	if diff := cmp.Diff(r.account, got); diff != "" {
		t.Errorf("a change of a copy changed the record:\n%s", diff)
	}
}

func TestCalloutRecordIsRefused(t *testing.T) {
	r, foreign := newPeopleRecords(t), newPeopleRecords(t)
	operator := r.key(t, trust.OperatorSigningKey(r.broker.Signs(trust.KeyCurrent)))
	identity := r.key(t, trust.OperatorKey)
	stranger := foreign.key(t, trust.OperatorSigningKey(foreign.broker.Signs(trust.KeyCurrent)))
	unknown, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	extra, _ := unknown.PublicKey()
	edit := func(change func(c *trust.CalloutRecord)) []byte {
		a := r.account.Clone()
		change(a.Callout)
		return encode(t, a)
	}
	resign := func(pair nkeys.KeyPair, change func(c *jwt.AccountClaims)) []byte {
		return edit(func(co *trust.CalloutRecord) {
			claims, err := jwt.DecodeAccountClaims(co.JWT)
			if err != nil {
				t.Fatal(err)
			}
			if change != nil {
				change(claims)
			}
			if co.JWT, err = claims.Encode(pair); err != nil {
				t.Fatal(err)
			}
		})
	}
	for name, data := range map[string][]byte{
		"nothing in it":          edit(func(c *trust.CalloutRecord) { *c = trust.CalloutRecord{} }),
		"the space's account":    edit(func(c *trust.CalloutRecord) { c.Public, c.JWT = r.account.Public, r.account.JWT }),
		"a foreign account":      edit(func(c *trust.CalloutRecord) { *c = *foreign.account.Callout }),
		"a foreign JWT":          edit(func(c *trust.CalloutRecord) { c.JWT = foreign.account.Callout.JWT }),
		"no JWT":                 edit(func(c *trust.CalloutRecord) { c.JWT = "" }),
		"no user":                edit(func(c *trust.CalloutRecord) { c.User = "" }),
		"another user":           edit(func(c *trust.CalloutRecord) { c.User = foreign.account.Callout.User }),
		"an account as user":     edit(func(c *trust.CalloutRecord) { c.User = r.account.Public }),
		"no curve key":           edit(func(c *trust.CalloutRecord) { c.XKey = "" }),
		"another curve key":      edit(func(c *trust.CalloutRecord) { c.XKey = foreign.account.Callout.XKey }),
		"a user as curve key":    edit(func(c *trust.CalloutRecord) { c.XKey = c.User }),
		"a key less":             edit(func(c *trust.CalloutRecord) { c.Keys = c.Keys[1:] }),
		"a key twice":            edit(func(c *trust.CalloutRecord) { c.Keys = append(slices.Clone(c.Keys), c.Keys[0]) }),
		"a key of no kind":       edit(func(c *trust.CalloutRecord) { c.Keys[0].Kind = "agent" }),
		"a foreign signature":    resign(stranger, nil),
		"signed by the identity": resign(identity, nil),
		"an unscoped key":        resign(operator, func(c *jwt.AccountClaims) { c.SigningKeys.Add(r.account.Callout.Keys[0].Public) }),
		"an extra key":           resign(operator, func(c *jwt.AccountClaims) { c.SigningKeys.Add(extra) }),
		"nobody is asked":        resign(operator, func(c *jwt.AccountClaims) { c.Authorization = jwt.ExternalAuthorization{} }),
		"a second responder": resign(operator, func(c *jwt.AccountClaims) {
			c.Authorization.AuthUsers = append(c.Authorization.AuthUsers, foreign.account.Callout.User)
		}),
		"into another account": resign(operator, func(c *jwt.AccountClaims) { c.Authorization.AllowedAccounts = jwt.StringList{foreign.account.Public} }),
		"into every account":   resign(operator, func(c *jwt.AccountClaims) { c.Authorization.AllowedAccounts = jwt.StringList{jwt.AnyAccount} }),
		"nothing is sealed":    resign(operator, func(c *jwt.AccountClaims) { c.Authorization.XKey = "" }),
	} {
		_, err := trust.DecodeAccountRecord(data, space, r.broker)
		checkRefusal(t, name, trust.AccountKey(space), err)
	}
	if _, err := trust.DecodeAccountRecord(resign(operator, nil), space, r.broker); err != nil {
		t.Errorf("the record signed again by the right key: %v", err)
	}
}

func TestCalloutTemplates(t *testing.T) {
	for _, kind := range trust.CalloutKinds() {
		l, err := trust.CalloutTemplate(kind)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(l.Pub.Deny, jwt.StringList{">"}) || len(l.Pub.Allow) > 0 || len(l.Sub.Allow)+len(l.Sub.Deny) == 0 || l.Subs <= 0 || l.Payload <= 0 {
			t.Errorf("%s: %+v leaves a list or a limit open", kind, l)
		}
		if l.BearerToken != (kind == trust.CalloutSentinel) || (l.Resp != nil) != (kind == trust.CalloutResponder) {
			t.Errorf("%s: bearer %v, responses %v", kind, l.BearerToken, l.Resp)
		}
	}
	if _, err := trust.CalloutTemplate("agent"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("CalloutTemplate of no kind = %v, want a bad request", err)
	}
}
