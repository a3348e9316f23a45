package race_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

var (
	seed  = flag.Uint64("order.seed", 0, "seed of the operations; 0 draws one")
	lasts = flag.Duration("order.for", 8*time.Second, "how long clients begin operations")
	most  = flag.Int("order.ops", 150, "how many operations a client does at most")
)

// who is a principal that the clients fight over.
type who struct {
	sub, actor string
	parent     *who

	mu     sync.Mutex // guards the fields below
	life   wire.Lifecycle
	secret string // of an agent's last start, as far as it is known
	bearer []held // of the last exchanges
}

type held struct {
	creds *trust.Credentials
	epoch uint64
	scope []string
}

func (p *who) lives() (wire.Lifecycle, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life, p.secret
}

// client does one operation after the other.
type client struct {
	w     *world
	t     *testing.T
	name  string
	rand  *rand.Rand
	xs    [2]*login.Exchange
	crowd []*who
	conns []*nats.Conn
}

// TestManyClientsOnTwoAuthoritiesSeeOneOrder lets eight clients grant, narrow, widen, revoke, exchange and connect on seven
// principals, parents and children among them, at two authorities that know of each other only through the records, and then
// looks for one order that explains all that each was told.
func TestManyClientsOnTwoAuthoritiesSeeOneOrder(t *testing.T) {
	w := newWorld(t)
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("to draw the same operations: -order.seed=%d", s)
	ada, bob := &who{sub: "user-1", actor: "ada"}, &who{sub: "user-2", actor: "bob"}
	child := &who{sub: "user-1", actor: "child", parent: ada}
	grand := &who{sub: "user-1", actor: "grandchild", parent: child}
	crowd := []*who{ada, bob, child, grand, {sub: "user-1", actor: "second", parent: ada}, {sub: "user-2", actor: "helper", parent: bob}, {sub: "user-3", actor: "carol"}}
	ctx, cancel := context.WithTimeout(t.Context(), *lasts)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		c := &client{w: w, t: t, name: fmt.Sprintf("c%d", i), rand: rand.New(rand.NewPCG(s, uint64(i))), crowd: crowd}
		for j, o := range w.offices {
			c.xs[j] = o.exchange(t)
		}
		wg.Go(func() {
			for n := 0; n < *most && ctx.Err() == nil; n++ {
				c.act(n)
			}
		})
	}
	wg.Wait()
	if err := w.list(t.Context()); err != nil {
		t.Error(err)
	}
	w.run.versions = w.history(t)
	w.report(t)
	for _, wrong := range w.run.check() {
		t.Error(wrong)
	}
	w.settle(t)
}

// act does the n-th operation of a client.
func (c *client) act(n int) {
	p, office := c.crowd[c.rand.IntN(len(c.crowd))], c.rand.IntN(2)
	id := fmt.Sprintf("%s-%d", c.name, n)
	switch k := c.rand.IntN(100); {
	case k < 25:
		c.exchange(p, office)
	case k < 45:
		c.knock(p)
	case k < 70:
		c.exchange(p, office)
		c.knock(p)
	case k < 97:
		c.grant(p, office, id)
	default:
		c.revoke(p, office, id)
	}
}

func (c *client) principal(p *who) wire.Principal {
	return wire.Principal{Owner: c.w.owner(p.sub), Actor: p.actor}
}

// pick draws one of several lists.
func pick(r *rand.Rand, lists ...[]string) []string { return lists[r.IntN(len(lists))] }

// grant writes what somebody may do: now more, now less, now something that nobody above them has.
func (c *client) grant(p *who, office int, id string) {
	o := &op{kind: opGrant, id: id, principal: c.principal(p), request: auth.GrantRequest{
		Space: c.w.Space(), Owner: c.w.owner(p.sub), Actor: p.actor, By: id,
	}}
	req := &o.request
	if life, _ := p.lives(); life.UID == "" || c.rand.IntN(3) > 0 {
		req.Subscribe = pick(c.rand, []string{"team.>"}, []string{"team.a"}, []string{"team.a", "team.b"})
		req.Scope = pick(c.rand, []string{trust.ScopeSpawn}, []string{trust.ScopeSpawn, "role:reviewer"})
	}
	if c.rand.IntN(2) == 0 {
		req.Publish = pick(c.rand, []string{"team.>"}, []string{"team.a"}, []string{})
	}
	a, renewed := c.w.offices[office].auth, c.rand.IntN(2) == 0
	var secret string
	o.begin = time.Now()
	switch above, _ := p.parentLife(); {
	case p.parent == nil:
		o.change, o.err = a.Grant(c.t.Context(), *req)
	case above.UID == "":
		return
	case renewed || p.unknown():
		req.Parent = &above
		var agent *authtest.Agent
		o.hash = secretUnknown
		if agent, o.err = authtest.Grant(c.t.Context(), a, *req); o.err == nil {
			secret = agent.Secret()
			o.hash = hashOf(secret)
			o.change = auth.GrantChange{Created: true, Changed: true, Grant: trust.Grant{Owner: agent.Owner, Actor: agent.Actor, UID: agent.UID}}
		}
	default:
		req.Kind = trust.KindManaged
		req.Parent = &above
		o.change, o.err = a.Grant(c.t.Context(), *req)
	}
	o.end = time.Now()
	c.w.note(o)
	if o.err == nil {
		p.mu.Lock()
		p.life = o.change.Grant.Lifecycle()
		if o.hash != "" {
			p.secret = secret
		}
		p.mu.Unlock()
	}
	if o.err == nil && o.change.Narrowed {
		c.list()
	}
}

func (p *who) parentLife() (wire.Lifecycle, string) {
	if p.parent == nil {
		return wire.Lifecycle{}, ""
	}
	return p.parent.lives()
}

func (p *who) unknown() bool {
	_, secret := p.lives()
	return secret == ""
}

func (c *client) revoke(p *who, office int, id string) {
	o := &op{kind: opRevoke, id: id, principal: c.principal(p), begin: time.Now()}
	_, o.err = c.w.offices[office].auth.Revoke(c.t.Context(), c.w.Space(), o.principal)
	o.end = time.Now()
	c.w.note(o)
	if o.err == nil {
		c.list()
	}
}

func (c *client) list() {
	if err := c.w.list(c.t.Context()); err != nil {
		c.t.Errorf("list connections: %v", err)
	}
}

// exchange asks for a bearer.
func (c *client) exchange(p *who, office int) {
	_, secret := p.lives()
	o := &op{kind: opExchange, id: c.name, principal: c.principal(p), agent: p.parent != nil, hash: hashOf(secret)}
	var b login.Bearer
	o.begin = time.Now()
	if o.agent {
		if secret == "" {
			return
		}
		b, o.err = c.xs[office].Agent(c.t.Context(), login.AgentRequest{Owner: o.principal.Owner, Actor: p.actor, ActorToken: func() string { return secret }})
	} else {
		b, o.err = c.xs[office].Human(c.t.Context(), login.HumanRequest{IDToken: func() string { return p.sub }, Actor: p.actor})
	}
	o.end = time.Now()
	if o.err == nil {
		epoch, err := epochOf(b.Reveal())
		creds, cerr := b.Credentials()
		if err = errors.Join(err, cerr); err != nil {
			c.t.Errorf("bearer of %s: %v", o.principal, err)
			return
		}
		o.given = trust.Grant{UID: b.UID, Epoch: epoch, AllowSubscribe: b.Subscribe, AllowPublish: b.Publish, Scope: b.Scope}
		p.mu.Lock()
		p.bearer = append(p.bearer[max(0, len(p.bearer)-3):], held{creds, epoch, b.Scope})
		p.mu.Unlock()
	}
	c.w.note(o)
}

// knock connects with one of the last bearers.
func (c *client) knock(p *who) { c.knockWith(p, c.rand.IntN(2)) }

// knockWith connects with the last bearer, or one that is as much older.
func (c *client) knockWith(p *who, older int) {
	p.mu.Lock()
	n := len(p.bearer)
	if n == 0 {
		p.mu.Unlock()
		return
	}
	h := p.bearer[max(0, n-1-older)]
	p.mu.Unlock()
	o := &op{kind: opKnock, id: c.name, principal: c.principal(p), life: h.creds.Identity().Lifecycle, epoch: h.epoch, begin: time.Now()}
	nc, err := dial.Connect(c.t.Context(), dial.Options{URL: c.w.URL(), Creds: h.creds, Name: c.name})
	o.end, o.err = time.Now(), err
	c.w.note(o)
	if err != nil {
		return
	}
	nc.SetDisconnectErrHandler(func(nc *nats.Conn, _ error) { nc.Close() })
	c.t.Cleanup(nc.Close)
	c.conns = append(c.conns, nc)
	if len(c.conns) > 4 { // some go by themselves
		c.conns[0].Close()
		c.conns = c.conns[1:]
	}
}

// report says how much of what happened.
func (w *world) report(t *testing.T) {
	t.Helper()
	count := map[string]int{}
	for _, o := range w.run.ops {
		what := "ok"
		if o.err != nil {
			what = string(trust.ReasonOf(o.err))
			if what == "" {
				what = string(wire.CodeOf(o.err))
			}
		} else if o.kind == opGrant {
			what = "same"
			if o.change.Changed || o.change.Narrowed {
				what = grantAction(o.change)
			}
		}
		count[o.kind+" "+what]++
	}
	var lines []string
	for k, n := range count {
		lines = append(lines, fmt.Sprintf("%4d %s", n, k))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[5:], b[5:]) })
	versions := 0
	for _, all := range w.run.versions {
		versions += len(all)
	}
	t.Logf("%d operations, %d versions of grants, %d listings:\n%s", len(w.run.ops), versions, len(w.run.listings), strings.Join(lines, "\n"))
}

func grantAction(c auth.GrantChange) string {
	switch {
	case c.Created:
		return "created"
	case c.Narrowed:
		return "narrowed"
	}
	return "widened"
}

// settle finishes what was told to be unfinished, and then wants every name in a legal state, nothing of a life that ended, and
// nobody whose parent has gone to be let in.
func (w *world) settle(t *testing.T) {
	t.Helper()
	ctx, s, a := t.Context(), w.Space(), w.offices[0].auth
	last := map[wire.Principal]trust.Grant{}
	for p, all := range w.run.versions {
		last[p] = all[len(all)-1].grant
	}
	for p, g := range last {
		if g.State != trust.GrantRetiring && g.Refusing == 0 {
			continue
		}
		if !slices.ContainsFunc(w.run.ops, func(o *op) bool { return (o.kind == opRevoke || o.kind == opGrant) && o.err != nil }) {
			t.Errorf("%s is left %s with mark %d, and nobody was told", p, g.State, g.Refusing)
		}
		if g.State == trust.GrantRetiring {
			if _, err := a.Revoke(ctx, s, p); err != nil && !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("finish the revocation of %s: %v", p, err)
			}
		}
	}
	alive := map[string]bool{}
	for p, all := range w.history(t) {
		g := all[len(all)-1].grant
		switch g.State {
		case trust.GrantActive:
			alive[wire.DirectDurable(g.Lifecycle())] = true
			if parent, _ := wire.ParsePrincipal(g.Parent); g.Parent != "" && last[parent].UID != g.ParentUID {
				t.Errorf("%s is active under %s, whose life ended", p, g.Parent)
			}
		case trust.GrantRetiring:
			t.Errorf("%s is still being retired", p)
		}
	}
	st, err := w.js.Stream(ctx, wire.DirectStream(s))
	if err != nil {
		t.Fatal(err)
	}
	names := st.ConsumerNames(ctx)
	for name := range names.Name() {
		if !alive[name] {
			t.Errorf("queue %s is of no life", name)
		}
	}
	if names.Err() != nil {
		t.Error(names.Err())
	}
	entries, _, err := a.Audit(ctx, s, space.AuditQuery{Action: space.ActionRevoke, Outcome: space.OutcomeOK, Limit: space.MaxAuditPage})
	if err != nil {
		t.Fatal(err)
	}
	for p, all := range w.run.versions {
		for _, v := range all {
			if v.grant.State == trust.GrantRetired && !slices.ContainsFunc(entries, func(e space.AuditEntry) bool { return e.UID == v.grant.UID }) {
				t.Errorf("the audit stream does not tell of the end of %s, life %s", p, v.grant.UID)
			}
		}
	}
}
