package trust_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// records are real ones, with what signs them.
type records struct {
	store   *memstore.Store
	broker  trust.BrokerRecord
	account trust.AccountRecord
	raw     struct{ broker, account []byte }
}

func newRecords(t testing.TB) records {
	t.Helper()
	r := records{store: memstore.New()}
	a, err := mint.Init(t.Context(), r.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.account, err = a.AddSpace(t.Context(), space, nil); err != nil {
		t.Fatal(err)
	}
	if r.broker, err = a.Broker(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.raw.broker, err = r.store.Get(t.Context(), trust.BrokerKey); err != nil {
		t.Fatal(err)
	}
	if r.raw.account, err = r.store.Get(t.Context(), trust.AccountKey(space)); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r records) key(t testing.TB, name string) nkeys.KeyPair {
	t.Helper()
	seed, err := r.store.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// resign changes the claims of the account and signs them again with the given key.
func (r records) resign(t testing.TB, pair nkeys.KeyPair, edit func(c *jwt.AccountClaims)) []byte {
	t.Helper()
	claims, err := jwt.DecodeAccountClaims(r.account.JWT)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(claims)
	}
	rec := r.account
	if rec.JWT, err = claims.Encode(pair); err != nil {
		t.Fatal(err)
	}
	return encode(t, rec)
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRecordsRoundTrip(t *testing.T) {
	r := newRecords(t)
	broker, err := trust.DecodeBrokerRecord(r.raw.broker)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.broker, broker); diff != "" {
		t.Errorf("broker record (-want +got):\n%s", diff)
	}
	account, err := trust.DecodeAccountRecord(r.raw.account, space, broker)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.account, account); diff != "" {
		t.Errorf("account record (-want +got):\n%s", diff)
	}
	for _, data := range [][]byte{r.raw.broker, r.raw.account} {
		signertest.CheckHidden(t, string(data))
	}
}

func TestAccountRecordIsRefused(t *testing.T) {
	r, foreign := newRecords(t), newRecords(t)
	operator := r.key(t, trust.OperatorSigningKey(r.broker.Signs(trust.KeyCurrent)))
	identity := r.key(t, trust.OperatorKey)
	stranger := foreign.key(t, trust.OperatorSigningKey(foreign.broker.Signs(trust.KeyCurrent)))
	extra, err := signer.Generate(signer.Account)
	if err != nil {
		t.Fatal(err)
	}
	text := string(r.raw.account)
	agentKey := r.account.KeysOf(trust.Agent)[0]
	for name, data := range map[string][]byte{
		"nothing":                nil,
		"half":                   r.raw.account[:len(r.raw.account)/2],
		"not JSON":               []byte("SUAHUSH"),
		"unknown field":          []byte(strings.Replace(text, `{`, `{"note":"x",`, 1)),
		"doubled field":          []byte(strings.Replace(text, `"version":1`, `"version":9,"version":1`, 1)),
		"later version":          []byte(strings.Replace(text, `"ver":1`, `"ver":2`, 1)),
		"another space":          []byte(strings.Replace(text, `"space":"main"`, `"space":"Main"`, 1)),
		"a foreign account":      foreign.raw.account,
		"no limits":              []byte(strings.Replace(text, `"connections":4096`, `"connections":-1`, 1)),
		"no keys":                encode(t, func() trust.AccountRecord { a := r.account; a.Keys = nil; return a }()),
		"a key less":             encode(t, func() trust.AccountRecord { a := r.account; a.Keys = a.Keys[1:]; return a }()),
		"a foreign signature":    r.resign(t, stranger, nil),
		"signed by the identity": r.resign(t, identity, nil),
		"an unscoped key":        r.resign(t, operator, func(c *jwt.AccountClaims) { c.SigningKeys.Add(agentKey) }),
		"an extra unscoped key":  r.resign(t, operator, func(c *jwt.AccountClaims) { c.SigningKeys.Add(extra.Public()) }),
		"a key of nobody": r.resign(t, operator, func(c *jwt.AccountClaims) {
			c.SigningKeys.Remove(agentKey)
			scope := jwt.NewUserScope()
			scope.Key = extra.Public()
			c.SigningKeys.AddScopedSigner(scope)
		}),
	} {
		got, err := trust.DecodeAccountRecord(data, space, r.broker)
		checkRefusal(t, name, trust.AccountKey(space), err)
		if len(got.Keys) > 0 {
			t.Errorf("%s: what was refused is still returned", name)
		}
	}
	if _, err := trust.DecodeAccountRecord(r.resign(t, operator, nil), space, r.broker); err != nil {
		t.Errorf("the record signed again by the right key: %v", err)
	}
}

func TestBrokerRecordIsRefused(t *testing.T) {
	r, foreign := newRecords(t), newRecords(t)
	text := string(r.raw.broker)
	edit := func(change func(b *trust.BrokerRecord)) []byte {
		b, err := trust.DecodeBrokerRecord(r.raw.broker)
		if err != nil {
			t.Fatal(err)
		}
		change(&b)
		return encode(t, b)
	}
	for name, data := range map[string][]byte{
		"nothing":                nil,
		"half":                   r.raw.broker[:len(r.raw.broker)/2],
		"unknown field":          []byte(strings.Replace(text, `{`, `{"note":"x",`, 1)),
		"later version":          []byte(strings.Replace(text, `"ver":1`, `"ver":2`, 1)),
		"a foreign operator JWT": edit(func(b *trust.BrokerRecord) { b.OperatorJWT = foreign.broker.OperatorJWT }),
		"a foreign operator": edit(func(b *trust.BrokerRecord) {
			b.Operator, b.OperatorJWT = foreign.broker.Operator, foreign.broker.OperatorJWT
		}),
		"a foreign system":        edit(func(b *trust.BrokerRecord) { b.System = foreign.broker.System }),
		"a foreign system JWT":    edit(func(b *trust.BrokerRecord) { b.System.JWT = foreign.broker.System.JWT }),
		"an account as system":    edit(func(b *trust.BrokerRecord) { b.System.JWT = r.account.JWT }),
		"a signing key less":      edit(func(b *trust.BrokerRecord) { b.Signing = b.Signing[:1] }),
		"two current keys":        edit(func(b *trust.BrokerRecord) { b.Signing[1].State = trust.KeyCurrent }),
		"a foreign signing key":   edit(func(b *trust.BrokerRecord) { b.Signing[0].Public = foreign.broker.Signing[0].Public }),
		"a system key less":       edit(func(b *trust.BrokerRecord) { b.System.Keys = b.System.Keys[1:] }),
		"a system key of no kind": edit(func(b *trust.BrokerRecord) { b.System.Keys[0].Kind = "root" }),
		"no generation":           edit(func(b *trust.BrokerRecord) { b.Generation = 0 }),
		"a space twice":           edit(func(b *trust.BrokerRecord) { b.Spaces = append(b.Spaces, b.Spaces[0]) }),
		"a space in no state":     edit(func(b *trust.BrokerRecord) { b.Spaces[0].State = "gone" }),
		"a space of no account":   edit(func(b *trust.BrokerRecord) { b.Spaces[0].Public = "x" }),
	} {
		_, err := trust.DecodeBrokerRecord(data)
		checkRefusal(t, name, trust.BrokerKey, err)
	}
}

// checkRefusal wants an error that names the record and shows nothing of it.
func checkRefusal(t *testing.T, name, record string, err error) {
	t.Helper()
	switch {
	case !errors.Is(err, wire.ErrPrecondition):
		t.Errorf("%s: %v, want failed-precondition", name, err)
	case !strings.Contains(err.Error(), record):
		t.Errorf("%s: the error does not name the record: %v", name, err)
	case strings.Contains(err.Error(), "eyJ") || strings.Contains(err.Error(), "HUSH"):
		t.Errorf("%s: the error shows content: %v", name, err)
	}
}

func TestLimits(t *testing.T) {
	var none *trust.Limits
	d := none.WithDefaults()
	if err := d.Validate(); err != nil {
		t.Errorf("default limits: %v", err)
	}
	for _, n := range []int64{d.Connections, d.Subscriptions, d.Payload, d.Memory, d.Disk, d.Streams, d.Consumers} {
		if n <= 0 {
			t.Errorf("a default limit of %+v is not stated", d)
		}
	}
	custom := (&trust.Limits{Connections: 7}).WithDefaults()
	if custom.Connections != 7 || custom.Disk != d.Disk {
		t.Errorf("limits with one field set = %+v", custom)
	}
	for _, bad := range []trust.Limits{{Connections: -1}, {Payload: 1000}, {Payload: 1 << 40}, {Disk: -5}} {
		if err := bad.WithDefaults().Validate(); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("limits %+v: %v, want a bad request", bad, err)
		}
	}
}

// TestKeyNames pins the names of records and seeds: they are in stores that exist.
func TestKeyNames(t *testing.T) {
	for want, got := range map[string]string{
		"auth/broker.json":                            trust.BrokerKey,
		"auth/operator.nk":                            trust.OperatorKey,
		"auth/operator.sign.OX.nk":                    trust.OperatorSigningKey("OX"),
		"auth/system.sign.system-node.nk":             trust.SystemSigningKey(trust.SystemNode),
		"auth/account.4d61696e2d31.json":              trust.AccountKey("Main-1"),
		"auth/space.4d61696e2d31/sign.provisioner.nk": trust.SigningKey("Main-1", trust.Provisioner),
		"space.4d61696e2d31/delivery.creds":           trust.DaemonKey("Main-1", "delivery"),

		"auth/space.4d61696e2d31/callout.nk":                trust.CalloutUserKey("Main-1"),
		"auth/space.4d61696e2d31/callout.xkey.nk":           trust.CalloutXKey("Main-1"),
		"auth/space.4d61696e2d31/sign.callout-responder.nk": trust.CalloutSigningKey("Main-1", trust.CalloutResponder),
		"auth/space.4d61696e2d31/sign.callout-sentinel.nk":  trust.CalloutSigningKey("Main-1", trust.CalloutSentinel),
	} {
		if got != want {
			t.Errorf("name %q, want %q", got, want)
		}
	}
}
