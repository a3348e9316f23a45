package trust_test

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

const (
	space      wire.Space = "main"
	otherSpace wire.Space = "other"
)

var (
	ada = wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}
	bob = wire.Principal{Owner: wire.LocalOwner, Actor: "bob"}

	adaUID = wire.UID(strings.Repeat("a", 26))
	bobUID = wire.UID(strings.Repeat("b", 26))
)

// realm is a broker with two spaces, and the authority over it.
type realm struct {
	store *memstore.Store
	mint  *mint.Authority
	srv   *broker.Server
}

func newRealm(t testing.TB) *realm {
	t.Helper()
	return startRealm(t, (*mint.Authority).Account)
}

// newPeopleRealm is a realm whose spaces sign people in. Nobody answers for them yet.
func newPeopleRealm(t testing.TB) *realm {
	t.Helper()
	return startRealm(t, (*mint.Authority).EnsureCallout)
}

func startRealm(t testing.TB, record func(*mint.Authority, context.Context, wire.Space) (trust.AccountRecord, error)) *realm {
	t.Helper()
	r := &realm{store: memstore.New()}
	var err error
	if r.mint, err = mint.Init(t.Context(), r.store, nil); err != nil {
		t.Fatal(err)
	}
	accounts := map[string]string{}
	for _, s := range []wire.Space{space, otherSpace} {
		if _, err := r.mint.AddSpace(t.Context(), s, nil); err != nil {
			t.Fatal(err)
		}
		rec, err := record(r.mint, t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range rec.Accounts() {
			accounts[a.Public] = a.JWT
		}
	}
	r.srv, err = broker.Start(t.Context(), broker.Trust{
		OperatorJWT: r.mint.OperatorJWT(), SystemPublic: r.mint.SystemPublic(), SystemJWT: r.mint.SystemJWT(), Accounts: accounts,
	}, &broker.Options{NoListen: true, StoreDir: filepath.Join(t.TempDir(), "broker")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.srv.Shutdown)
	return r
}

// user mints a credential for ada with every list that the profile takes.
func (r *realm) user(t testing.TB, p trust.Profile) *trust.Credentials {
	t.Helper()
	req := mint.UserRequest{Space: space, Profile: p, Principal: ada, UID: adaUID}
	if p == trust.Supervisor {
		req.Instance = "i1"
	}
	if p.Lists() {
		req.Role, req.Commands, req.Spawns = "reviewer", []string{"com_acme_deploy.run"}, p == trust.Agent
		req.Subscribe, req.Publish = []string{"general", "team.>"}, []string{"general", "log.*"}
	}
	creds, err := r.mint.User(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// forge signs claims with the stolen signing key of a profile, whatever they say. Nothing of ours checks them.
func (r *realm) forge(t testing.TB, p trust.Profile, edit func(c *jwt.UserClaims)) forged {
	t.Helper()
	seed, err := r.store.Get(t.Context(), trust.SigningKey(space, p))
	if err != nil {
		t.Fatal(err)
	}
	stolen, err := nkeys.FromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	account, err := r.mint.Account(t.Context(), space)
	if err != nil {
		t.Fatal(err)
	}
	user, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewUserClaims(user.Public())
	claims.SetScoped(true)
	claims.IssuerAccount = account.Public
	claims.Expires = time.Now().Add(time.Hour).Unix()
	edit(claims)
	token, err := claims.Encode(stolen)
	if err != nil {
		t.Fatal(err)
	}
	return forged{token, user}
}

// unscoped signs a user with permissions of its own in an account; false when the key cannot even sign one, since it is not of an account.
func unscoped(t testing.TB, key nkeys.KeyPair, account string) (forged, bool) {
	t.Helper()
	user, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewUserClaims(user.Public())
	claims.IssuerAccount, claims.Expires = account, time.Now().Add(time.Hour).Unix()
	claims.Sub.Allow, claims.Pub.Allow = jwt.StringList{">"}, jwt.StringList{">"}
	token, err := claims.Encode(key)
	return forged{token, user}, err == nil
}

// forged is a credential that no part of this project would make.
type forged struct {
	token string
	user  *signer.Local
}

func (f forged) JWT() string                       { return f.token }
func (f forged) Sign(nonce []byte) ([]byte, error) { return f.user.Sign(context.Background(), nonce) }

type holder interface {
	JWT() string
	Sign(nonce []byte) ([]byte, error)
}

// connect returns a connection whose asynchronous errors go to the channel.
func (r *realm) connect(h holder) (*nats.Conn, <-chan error, error) {
	errs := make(chan error, 64)
	opts := []nats.Option{
		nats.InProcessServer(r.srv.InProcess()), nats.NoReconnect(),
		nats.UserJWT(func() (string, error) { return h.JWT(), nil }, h.Sign),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }),
	}
	if c, ok := h.(*trust.Credentials); ok {
		opts = append(opts, nats.CustomInboxPrefix(wire.InboxPrefix(c.Identity().Inbox)))
		if c.Token() != "" {
			opts = append(opts, nats.TokenHandler(c.Token))
		}
	}
	nc, err := nats.Connect("", opts...)
	return nc, errs, err
}

// probe is something to try: "pub" or "sub" on a subject.
type probe struct{ verb, subject string }

var violation = regexp.MustCompile(`Permissions Violation for (Publish|Subscription) to "([^"]*)"`)

// try attempts every probe over one connection and returns those that the broker let pass.
func (r *realm) try(t testing.TB, h holder, probes []probe) map[probe]bool {
	t.Helper()
	nc, errs, err := r.connect(h)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	allowed := make(map[probe]bool, len(probes))
	go func() {
		for _, p := range probes {
			attempt(nc, p)
		}
		attempt(nc, probe{"pub", "barrier"}) // no profile may; its refusal comes after all others
		_ = nc.Flush()
	}()
	for _, p := range probes {
		allowed[p] = true
	}
	timeout := time.After(30 * time.Second)
	for {
		select {
		case err := <-errs:
			m := violation.FindStringSubmatch(err.Error())
			if m == nil || !errors.Is(err, nats.ErrPermissionViolation) {
				t.Fatalf("unexpected error of the broker: %v", err)
			}
			if m[2] == "barrier" {
				return allowed
			}
			verb := map[string]string{"Publish": "pub", "Subscription": "sub"}[m[1]]
			delete(allowed, probe{verb, m[2]})
		case <-timeout:
			t.Fatal("the broker did not answer all probes in 30 s")
		}
	}
}

func attempt(nc *nats.Conn, p probe) {
	if p.verb == "pub" {
		_ = nc.Publish(p.subject, nil)
		return
	}
	if s, err := nc.SubscribeSync(p.subject); err == nil {
		_ = s.Unsubscribe()
	}
}
