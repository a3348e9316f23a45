package mint_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

const lab wire.Space = "lab"

var ada = wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}

func newMint(t testing.TB, store secret.Store) *mint.Authority {
	t.Helper()
	a, err := mint.Init(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// withSpace is an authority in memory with space lab.
func withSpace(t testing.TB) (*mint.Authority, *memstore.Store) {
	t.Helper()
	store := memstore.New()
	a := newMint(t, store)
	if _, err := a.AddSpace(t.Context(), lab, nil); err != nil {
		t.Fatal(err)
	}
	return a, store
}

func user(t testing.TB, a *mint.Authority) *trust.Credentials {
	t.Helper()
	creds, err := a.User(t.Context(), mint.UserRequest{Space: lab, Profile: trust.Agent, Principal: ada})
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// running is a broker that trusts an authority, and the control over it.
type running struct {
	t    testing.TB
	mint *mint.Authority
	srv  *broker.Server
	ctl  *broker.Control
}

func run(t testing.TB, a *mint.Authority) *running {
	t.Helper()
	r := &running{t: t, mint: a}
	var err error
	r.srv, err = broker.Start(t.Context(), r.trust(), &broker.Options{NoListen: true, StoreDir: filepath.Join(t.TempDir(), "broker")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.srv.Shutdown)
	creds, err := a.SystemUser(t.Context(), mint.SystemRequest{Kind: mint.SystemControl})
	if err != nil {
		t.Fatal(err)
	}
	if r.ctl, err = r.srv.Control(t.Context(), broker.Static(creds), &broker.DialOptions{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.ctl.Close() })
	return r
}

// trust is what the records say now.
func (r *running) trust() broker.Trust {
	r.t.Helper()
	out := broker.Trust{OperatorJWT: r.mint.OperatorJWT(), SystemPublic: r.mint.SystemPublic(), SystemJWT: r.mint.SystemJWT(), Accounts: map[string]string{}}
	spaces, err := r.mint.Spaces(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range spaces {
		rec, err := r.mint.Account(r.t.Context(), s)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, account := range rec.Accounts() {
			out.Accounts[account.Public] = account.JWT
		}
	}
	return out
}

func (r *running) push(ctx context.Context, rec trust.AccountRecord) error {
	return r.ctl.PutAccount(ctx, rec.Public, rec.JWT)
}

// connect connects with a credential; closed is closed when the connection ends.
func (r *running) connect(c *trust.Credentials) (nc *nats.Conn, closed <-chan struct{}, err error) {
	ended := make(chan struct{})
	nc, err = nats.Connect("", nats.InProcessServer(r.srv.InProcess()), nats.NoReconnect(), nats.Timeout(time.Minute), nats.CustomInboxPrefix(wire.InboxPrefix(c.Identity().Inbox)),
		nats.UserJWT(func() (string, error) { return c.JWT(), nil }, c.Sign), nats.ClosedHandler(func(*nats.Conn) { close(ended) }))
	if err == nil {
		r.t.Cleanup(nc.Close)
	}
	return nc, ended, err
}

func (r *running) accepted(what string, c *trust.Credentials) {
	r.t.Helper()
	if _, _, err := r.connect(c); err != nil {
		r.t.Errorf("%s: connect = %v, want a connection", what, err)
	}
}

func (r *running) refused(what string, c *trust.Credentials) {
	r.t.Helper()
	nc, _, err := r.connect(c)
	if !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrAuthRevoked) {
		nc.Close()
		r.t.Errorf("%s: connect = %v, want a refusal", what, err)
	}
}
