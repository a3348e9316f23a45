package fault_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// adasOwner is the owner of a person at an identity provider.
const adasOwner = "u_g5mclrofwa6pirb3p4yeigemze"

// stage is a mesh on which lives are ended: a healthy authority, and eyes on everything that a life may leave behind.
type stage struct {
	*cotaltest.Mesh
	a       *auth.Authority
	people  bool
	where   dial.Options
	ctl     *broker.Control
	account string // of the space

	grants  *space.Grants
	members *space.Members
	cursors *space.Cursors
	js      jetstream.JetStream // as the authority
	sender  jetstream.JetStream
	from    wire.Principal

	issuer   *bearer.Issuer
	sentinel string
}

// newStage boots a mesh over the records of a store, whose space hands out credential files or signs people in. With listen it is
// reached over TCP, otherwise only in this process.
func newStage(t *testing.T, store secret.Store, people, listen bool) *stage {
	t.Helper()
	st := &stage{people: people, Mesh: cotaltest.New(t, &cotaltest.Options{
		Listen: listen, Store: store, DeliveryElsewhere: true, People: cotal.PeopleOptions{Elsewhere: true},
	})}
	ctx, s := t.Context(), st.Space()
	st.a = st.Node().Authority()
	if st.where = (dial.Options{URL: st.URL()}); !listen {
		st.where = dial.Options{InProcess: st.InProcess()}
	}
	m := st.a.Mint()
	source := func(ctx context.Context) (*trust.Credentials, error) {
		return m.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
	}
	var err error
	if st.ctl, err = broker.Dial(ctx, st.where.URL, source, &broker.DialOptions{InProcess: st.where.InProcess}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.ctl.Close() })
	rec, err := m.Account(ctx, s)
	if people && err == nil {
		rec, err = st.a.EnsurePeople(ctx, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	st.account = rec.Public
	if people {
		st.answer(t)
	}
	st.js = st.service(t, trust.Authority)
	st.grants = space.NewGrants(st.js, s)
	records := st.service(t, trust.Delivery)
	st.members, st.cursors = space.NewMembers(records, s), space.NewCursors(records, s)
	creds := st.grant(t, "sender")
	st.from = creds.Identity().Principal
	st.sender = st.jetstream(t, st.connect(t, creds))
	return st
}

// answer lets people in until the test ends.
func (st *stage) answer(t *testing.T) {
	t.Helper()
	ctx, s, m := t.Context(), st.Space(), st.a.Mint()
	keys, err := bearer.EnsureKeys(ctx, st.Store(), s)
	if err != nil {
		t.Fatal(err)
	}
	st.issuer = bearer.NewIssuer(s, keys)
	if st.sentinel, err = m.Sentinel(ctx, s, time.Hour); err != nil {
		t.Fatal(err)
	}
	responder, err := m.CalloutResponder(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := m.CalloutUser(ctx, s, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	nc := st.connect(t, creds)
	svc, err := callout.New(nc, callout.Options{
		Space: s, Responder: responder, Validator: bearer.NewValidator(s, keys, nil), Authority: st.a,
		Servers: func(ctx context.Context) ([]string, error) {
			all, err := st.ctl.Ping(ctx)
			var ids []string
			for _, srv := range all {
				ids = append(ids, srv.ID)
			}
			return ids, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := svc.Run(run); err != nil {
			t.Errorf("callout: %v", err)
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
	<-svc.Ready()
}

// connect opens a connection that does not come back once the broker has ended it.
func (st *stage) connect(t *testing.T, creds *trust.Credentials) *nats.Conn {
	t.Helper()
	nc, err := st.knock(t, creds)
	if err != nil {
		t.Fatalf("connect as %s: %v", creds.Identity().Principal, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func (st *stage) knock(t *testing.T, creds *trust.Credentials) (*nats.Conn, error) {
	o := st.where
	o.Creds, o.Name = creds, creds.Identity().Actor
	nc, err := dial.Connect(t.Context(), o)
	if err == nil {
		nc.SetDisconnectErrHandler(func(nc *nats.Conn, _ error) { nc.Close() })
	}
	return nc, err
}

func (st *stage) jetstream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// service is a connection of a role of the deployment.
func (st *stage) service(t *testing.T, p trust.Profile) jetstream.JetStream {
	t.Helper()
	creds, err := st.a.ServiceCredential(t.Context(), st.Space(), p, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return st.jetstream(t, st.connect(t, creds))
}

// grant makes somebody who is held under nobody, and returns what they connect with.
func (st *stage) grant(t *testing.T, actor string) *trust.Credentials {
	t.Helper()
	if !st.people {
		creds, err := st.a.Issue(t.Context(), auth.Request{Space: st.Space(), Actor: actor, Subscribe: []string{"team.>"}, Publish: []string{"team.>"}})
		if err != nil {
			t.Fatal(err)
		}
		return creds
	}
	c, err := st.a.Grant(t.Context(), auth.GrantRequest{
		Space: st.Space(), Owner: adasOwner, Actor: actor, Scope: []string{trust.ScopeSpawn}, Subscribe: []string{"team.>"}, Publish: []string{"team.>"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return st.bearer(t, c.Grant)
}

// bearer is what an exchange hands out under a grant.
func (st *stage) bearer(t *testing.T, g trust.Grant) *trust.Credentials {
	t.Helper()
	token, signed, err := st.issuer.Sign(t.Context(), bearer.Claims{Subject: g.Owner, Scope: g.Scope, Act: bearer.Act{
		Owner: g.Owner, Actor: g.Actor, UID: g.UID, Epoch: g.Epoch, Inbox: string(g.UID), Parent: g.Parent,
	}}, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := trust.NewBearerCredentials(trust.Bearer{Sentinel: st.sentinel, Token: token, Seed: key.Seed().Reveal(), Identity: trust.Identity{
		Space: st.Space(), Profile: trust.Agent, Lifecycle: g.Lifecycle(), Inbox: string(g.UID), Subscribe: g.AllowSubscribe, Publish: g.AllowPublish,
		IssuedAt: signed.IssuedAt, Expires: signed.Expires,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// family is a principal, and in a space of people those below it, with everything that a life has.
type family struct {
	*stage
	creds []*trust.Credentials // of the principal first
	conns []*nats.Conn
	epoch uint64 // of the principal's grant
}

func (st *stage) newFamily(t *testing.T, name string) *family {
	t.Helper()
	f := &family{stage: st, creds: []*trust.Credentials{st.grant(t, name)}, epoch: 1}
	if st.people {
		for _, actor := range []string{name + "_child", name + "_grandchild"} {
			parent := f.creds[len(f.creds)-1].Identity().Lifecycle
			agent, err := authtest.Grant(t.Context(), st.a, auth.GrantRequest{
				Space: st.Space(), Actor: actor, Parent: &parent, Scope: []string{trust.ScopeSpawn}, Subscribe: []string{"team.a"}, Publish: []string{"team.a"},
			})
			if err != nil {
				t.Fatal(err)
			}
			f.creds = append(f.creds, st.bearer(t, st.grantOf(t, agent.Principal)))
		}
	}
	for _, creds := range f.creds {
		f.conns = append(f.conns, st.connect(t, creds))
		st.furnish(t, creds.Identity().Lifecycle)
	}
	return f
}

// furnish gives a life messages that wait for it, a membership and a position.
func (st *stage) furnish(t *testing.T, l wire.Lifecycle) {
	t.Helper()
	ctx := t.Context()
	subject, err := wire.DirectSubject(st.Space(), l.Principal, st.from)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		msg := wire.Message{
			ID: wire.NewID(), TS: 1, Space: st.Space(), From: wire.EndpointRef{ID: st.from.String(), Name: "sender"}, To: l.Principal.String(),
			Parts: []wire.Part{wire.Text("hello")},
		}
		body, err := msg.AppendJSON(nil)
		if err == nil {
			_, err = st.sender.Publish(ctx, subject, body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := st.members.Put(ctx, space.Membership{Lifecycle: l, Pattern: "team.a"}.Joined(1), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := st.cursors.Put(ctx, l, "team.a", space.Cursor{Floor: 1}, 0); err != nil {
		t.Fatal(err)
	}
	if len(st.leftovers(t, l)) != 3 {
		t.Fatalf("%s has %v, want a queue, a membership and a position", l, st.leftovers(t, l))
	}
}

// leftovers is what is kept for a life.
func (st *stage) leftovers(t *testing.T, l wire.Lifecycle) (left []string) {
	t.Helper()
	ctx := t.Context()
	_, err := st.js.Consumer(ctx, wire.DirectStream(st.Space()), wire.DirectDurable(l))
	switch {
	case err == nil:
		left = append(left, "queue")
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		t.Fatal(err)
	}
	of, err := st.members.Of(ctx, l)
	if err != nil {
		t.Fatal(err)
	}
	for range of {
		left = append(left, "membership")
	}
	if err := st.cursors.Of(ctx, l, func(space.CursorKey, space.Cursor) error { left = append(left, "position"); return nil }); err != nil {
		t.Fatal(err)
	}
	return left
}

func (f *family) root() wire.Principal { return f.creds[0].Identity().Principal }

func (st *stage) grantOf(t *testing.T, p wire.Principal) trust.Grant {
	t.Helper()
	g, _, err := st.grants.Get(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// alive counts the connections of the family's lives at the broker.
func (f *family) alive(t *testing.T) int {
	t.Helper()
	all, err := f.ctl.Connections(t.Context(), f.account)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range all {
		if slices.ContainsFunc(f.creds, func(creds *trust.Credentials) bool { return c.HasTags("uid:" + string(creds.Identity().UID)) }) {
			n++
		}
	}
	return n
}

// refused says which of the family's bearers or credentials still let somebody in.
func (f *family) refused(t *testing.T) error {
	t.Helper()
	for _, creds := range f.creds {
		nc, err := f.knock(t, creds)
		if err == nil {
			nc.Close()
			return fmt.Errorf("%s was let in", creds.Identity().Principal)
		}
		if !errors.Is(err, wire.ErrUnauthenticated) {
			return fmt.Errorf("%s was not refused: %w", creds.Identity().Principal, err)
		}
	}
	return nil
}

// gone checks that nothing is left of the family but its records, and that the name is free.
func (f *family) gone(t *testing.T, what string) {
	t.Helper()
	ctx := t.Context()
	if n := f.alive(t); n != 0 {
		t.Errorf("%s: %d connections are alive", what, n)
	}
	for _, creds := range f.creds {
		l := creds.Identity().Lifecycle
		if g := f.grantOf(t, l.Principal); g.State != trust.GrantRetired || g.UID != l.UID || g.TokenHash != "" {
			t.Errorf("%s: the grant of %s is %s", what, l.Principal, g.State)
		}
		if left := f.leftovers(t, l); len(left) != 0 {
			t.Errorf("%s: left of %s: %v", what, l.Principal, left)
		}
		f.noted(t, what, l, space.ActionRevoke)
	}
	if err := f.refused(t); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	again := f.stage.grant(t, f.root().Actor)
	if again.Identity().UID == f.creds[0].Identity().UID {
		t.Errorf("%s: %s was granted with the uid of the life before", what, f.root())
	}
	nc, err := f.knock(t, again)
	if err != nil {
		t.Errorf("%s: the successor of %s: %v", what, f.root(), err)
		return
	}
	nc.Close()
	if _, err := f.a.Revoke(context.WithoutCancel(ctx), f.Space(), f.root()); err != nil && t.Failed() {
		t.Logf("%s: revoke the successor: %v", what, err)
	}
}

// noted checks that the audit stream tells of something that was done to a life.
func (f *family) noted(t *testing.T, what string, l wire.Lifecycle, action string) {
	t.Helper()
	entries, _, err := f.a.Audit(t.Context(), f.Space(), space.AuditQuery{Principal: l.Principal, Action: action, Outcome: space.OutcomeOK})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(entries, func(e space.AuditEntry) bool { return e.UID == l.UID }) {
		t.Errorf("%s: the audit stream does not tell that %s happened to %s", what, action, l.Principal)
	}
}
