package cotal

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// PeopleOptions says how spaces sign people in. The zero value serves the spaces that do, on loopback alone.
type PeopleOptions struct {
	// Provider makes the spaces of [Options.Spaces] spaces of people who sign in there. It is kept with the records of a space;
	// another one later is refused. Nil changes no space.
	Provider *oidc.Pin
	// Port is the port of the loopback face. Default: the system chooses. With several spaces of people it must be 0.
	Port int
	// PublicPort opens the public face on loopback, to be put behind a proxy that speaks TLS; 0: no public face. PublicURL is
	// the address that the proxy has, TrustedProxy believes its X-Forwarded-For. One space of people alone can have them.
	PublicPort   int
	PublicURL    string
	TrustedProxy bool
	// MountedURL returns the address under which the program itself serves [Node.ExchangeHandler] of a space, in place of a port;
	// nil, or an empty address, for none.
	MountedURL func(space string) string
	// Server is the address of the broker that people are told. Default: that of the node.
	Server string
	// CapabilityFile is where the address and the capability of the loopback face of a space are left, for this user alone.
	// Default: <StateDir>/authority.<hex of the space>.json.
	CapabilityFile func(space string) string
	// RequireKeyProof refuses clients that do not bind their tokens to a key.
	RequireKeyProof bool
	// HTTP asks the identity provider. Nil means a client of its own.
	HTTP *http.Client
	// Identity, when not nil, verifies identity tokens in place of the pinned provider.
	Identity func(space string) exchange.Identity
	// Grants, when not nil, decides in place of the grants of the space.
	Grants func(space string) PeopleGrants
	// Elsewhere leaves signing in to other processes, see [NodeClient.ServeAuthority].
	Elsewhere bool
}

// PeopleGrants decides who may act as whom. An *auth.Authority is it, bound to a space.
type PeopleGrants interface {
	exchange.Authority
	callout.Authority
}

// grantsOf binds an authority to a space.
type grantsOf struct {
	*auth.Authority
	space wire.Space
}

// AdmitPerson implements exchange.Authority.
func (g grantsOf) AdmitPerson(ctx context.Context, req auth.PersonRequest) (auth.Admission, error) {
	return g.Authority.AdmitPerson(ctx, g.space, req)
}

// AdmitAgent implements exchange.Authority.
func (g grantsOf) AdmitAgent(ctx context.Context, req auth.AgentRequest) (auth.Admission, error) {
	return g.Authority.AdmitAgent(ctx, g.space, req)
}

// people makes what signs people in at a space. One value serves all spaces of a node.
type people struct {
	mint   *mint.Authority
	auth   *auth.Authority
	store  secret.Store
	dial   func(ctx context.Context, creds *trust.Credentials, refused func()) (*nats.Conn, error)
	server func() string                               // address of the broker that clients are told
	ids    func(ctx context.Context) ([]string, error) // of the brokers whose requests are answered
	tls    bool                                        // clients must not connect to the broker in the clear
	file   func(space string) string                   // default of PeopleOptions.CapabilityFile
	holder string                                      // of the lease
	wait   bool                                        // for the lease while another holds it
	opts   PeopleOptions
	log    *slog.Logger
}

const (
	// sentinelEvery is how often the sentinel is made anew: it has no end, and the key that signs it may be replaced.
	sentinelEvery = 24 * time.Hour
	// gateBoot bounds how long signing in may take to start.
	gateBoot = 30 * time.Second
)

// gate is what signs people in at one space: the callout, the exchange and the work that one process does for all.
type gate struct {
	p     *people
	space wire.Space
	pin   oidc.Pin
	log   *slog.Logger
	away  bool          // other processes sign people in: nothing runs here
	again chan struct{} // somebody asked to start again what is down

	run    context.Context // ends with the gate
	cancel context.CancelFunc
	stop   context.CancelFunc // ends what works under the gate
	lane   *lane              // of the callout
	wg     sync.WaitGroup
	keys   *bearer.Keys
	close  func()

	mu       sync.Mutex // guards the fields below
	server   *exchange.Server
	err      error // of the exchange, while it is down
	sentinel string
	renew    time.Time
	jobs     *auth.Jobs
}

// recordProvider notes who signs people in at a space, and what their owners are derived from. It comes before anybody can be granted anything:
// who people are rests on it, so that a lost one is never made anew. It reports whether the space is one of people already.
func (r *running) recordProvider(ctx context.Context, s wire.Space, pin oidc.Pin) (people bool, err error) {
	rec, err := r.mint.Account(ctx, s)
	if err != nil {
		return false, err
	}
	if _, err := oidc.EnsurePin(ctx, r.n.store, s, pin); err != nil || rec.Callout != nil {
		return rec.Callout != nil, err
	}
	_, err = trust.EnsureOwnerSecret(ctx, r.n.store, s)
	return false, err
}

// recordPeople makes a space one of people in the records, before anything serves. Credential files of a space that was there before are refused
// from then on: a mode never falls back to the other.
func (r *running) recordPeople(ctx context.Context, s wire.Space, pin oidc.Pin, before bool) error {
	people, err := r.recordProvider(ctx, s, pin)
	switch {
	case people || err != nil:
		return err
	case !before:
		_, err = r.mint.EnsureCallout(ctx, s)
		return err
	}
	if _, err := r.mint.SwitchToCallout(ctx, s); err != nil {
		return err
	}
	return mint.AwaitSwitch(ctx)
}

// SignIn makes a space one of people, who sign in at the pinned provider, while everything else goes on. It is idempotent.
// Credential files that were handed out before are refused from then on.
//
// Errors: not-found for an unknown space; bad-request for a pin that is none; failed-precondition in open mode, and for a space
// that has another provider; [ErrNotReady] before Ready.
func (n *Node) SignIn(ctx context.Context, name string, pin oidc.Pin) error {
	s, err := wire.ParseSpace(name)
	if err != nil {
		return err
	}
	r := n.running()
	if r == nil {
		return ErrNotReady
	}
	if n.opts.Open {
		return wire.Errorf(wire.CodeFailedPrecondition, "sign people in at space %q: an open node asks nobody who they are", name)
	}
	n.changes.Lock()
	defer n.changes.Unlock()
	if _, err := r.recordProvider(ctx, s, pin); err != nil {
		return err
	}
	if _, err := r.auth.EnsurePeople(ctx, s); err != nil {
		return err
	}
	return r.serve(ctx, s)
}

// servePeople starts signing people in at s, if it is a space of people and nobody does yet.
func (r *running) servePeople(ctx context.Context, s wire.Space) error {
	n := r.n
	n.mu.Lock()
	_, ok := n.gates[s]
	n.mu.Unlock()
	if ok || n.opts.Open {
		return nil
	}
	rec, err := r.mint.Account(ctx, s)
	if err != nil || rec.Callout == nil {
		return err
	}
	if n.opts.People.Elsewhere {
		return r.leavePeople(ctx, s)
	}
	p := &people{
		mint: r.mint, auth: r.auth, store: n.store, dial: n.dial, server: n.URL, tls: strings.HasPrefix(n.URL(), "tls:"),
		ids:    func(context.Context) ([]string, error) { return []string{r.srv.ID()}, nil },
		file:   capabilityFile(n.opts.StateDir),
		holder: "node", wait: true, opts: n.opts.People, log: n.log,
	}
	g, err := p.begin(r.ctx, ctx, s)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.gates[s] = g
	n.mu.Unlock()
	r.wg.Go(func() { r.keepGate(p, g) })
	return nil
}

// keepGate watches over what signs people in at a space until that is ended. When the secret store is lost, nobody is let in on
// what is remembered of it: signing in stops, the status says why, and begins again once the store answers.
func (r *running) keepGate(p *people, g *gate) {
	n := r.n
	for {
		g.watch(p.store)
		if g.run.Err() != nil {
			return
		}
		for attempt := 0; ; attempt++ {
			if g.pause(attempt) != nil {
				return
			}
			next, err := p.begin(r.ctx, g.run, g.space)
			if err != nil {
				g.note(err)
				continue
			}
			n.mu.Lock()
			mine := n.gates[g.space] == g
			if mine {
				n.gates[g.space] = next
			}
			n.mu.Unlock()
			if !mine {
				next.end()
				return
			}
			g.log.Info("signing in again")
			g = next
			break
		}
	}
}

// begin starts signing in at a space, and returns once it serves.
func (p *people) begin(parent, ctx context.Context, s wire.Space) (*gate, error) {
	ctx, done := context.WithTimeout(ctx, gateBoot)
	defer done()
	g := &gate{
		p: p, space: s, log: p.log.With(logkey.Component, "authority", logkey.Space, string(s)), close: func() {}, again: make(chan struct{}, 1),
	}
	g.run, g.cancel = context.WithCancel(parent)
	run, stop := context.WithCancel(g.run)
	g.stop = stop
	fail := func(err error) (*gate, error) {
		g.end()
		return nil, fmt.Errorf("sign people in at space %q: %w", s, err)
	}
	opts, err := g.exchangeOptions(ctx)
	if err != nil {
		return fail(err)
	}
	if err := g.beginCallout(run, ctx); err != nil {
		return fail(err)
	}
	if g.jobs, err = p.auth.BeginJobs(ctx, s, p.holder, p.wait); err != nil {
		return fail(err)
	}
	g.wg.Go(func() { g.jobs.Run(run, g.keep) })
	if err := g.beginExchange(run, ctx, opts); err != nil {
		return fail(err)
	}
	return g, nil
}

// end stops everything of the gate and waits for it.
func (g *gate) end() {
	g.cancel()
	g.down()
}

// down stops what works under the gate and waits for it.
func (g *gate) down() {
	g.stop()
	if g.lane != nil && g.lane.done != nil {
		g.lane.end()
	}
	g.wg.Wait()
	g.close()
}

// fail stops what works under the gate, which stays to say why.
func (g *gate) fail(err error) {
	g.down()
	g.set(nil, err)
}

// note replaces what the status says is wrong.
func (g *gate) note(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

// exchangeOptions loads what the exchange stands on.
func (g *gate) exchangeOptions(ctx context.Context) (exchange.Options, error) {
	p, name := g.p, string(g.space)
	pin, err := oidc.LoadPin(ctx, p.store, g.space)
	if err != nil {
		return exchange.Options{}, err
	}
	g.pin = pin
	owners, err := trust.LoadOwnerSecret(ctx, p.store, g.space)
	if err != nil {
		return exchange.Options{}, err
	}
	if g.keys, err = bearer.EnsureKeys(ctx, p.store, g.space); err != nil {
		return exchange.Options{}, err
	}
	var identity exchange.Identity
	if p.opts.Identity != nil {
		identity = p.opts.Identity(name)
	} else {
		set := oidc.NewKeySet(pin.JWKSURI, &oidc.KeySetOptions{HTTP: p.opts.HTTP, Log: g.log})
		g.close = func() { _ = set.Close() }
		if identity, err = oidc.NewVerifier(pin, set, nil); err != nil {
			return exchange.Options{}, err
		}
	}
	file := p.file
	if p.opts.CapabilityFile != nil {
		file = p.opts.CapabilityFile
	}
	return exchange.Options{
		Space: g.space, Authority: p.grants(g.space), Identity: identity, Owner: owners.Owner,
		Bearers: bearer.NewIssuer(g.space, g.keys), Keys: g.keys, RequireKeyProof: p.opts.RequireKeyProof, Proofs: bearer.NewProofChecker(nil), Sentinel: g.freshSentinel,
		Mesh: g.mesh(pin), Loopback: loopback(p.opts.Port), Public: public(p.opts.PublicPort), PublicURL: p.publicURL(name), Mounted: p.mounted(name),
		TrustedProxy: p.opts.TrustedProxy, CapabilityFile: file(name), Logger: g.log, OnDecision: g.exchanged,
	}, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func public(port int) string {
	if port == 0 {
		return ""
	}
	return loopback(port)
}

// mounted reports whether the program serves the public face of a space itself.
func (p *people) mounted(space string) bool {
	return p.opts.PublicPort == 0 && p.opts.MountedURL != nil && p.opts.MountedURL(space) != ""
}

func (p *people) publicURL(space string) string {
	if p.mounted(space) {
		return p.opts.MountedURL(space)
	}
	return p.opts.PublicURL
}

func (p *people) grants(s wire.Space) PeopleGrants {
	if p.opts.Grants != nil {
		return p.opts.Grants(string(s))
	}
	return grantsOf{p.auth, s}
}

// exchanged puts a decision of the exchange into the audit stream.
func (g *gate) exchanged(ctx context.Context, d exchange.Decision) {
	e := auth.Entry{Action: space.ActionExchange, Life: d.Lifecycle, From: d.Peer, View: d.View}
	if d.Code != "" {
		e.Denied = trust.Deny(d.Code, d.Reason, "%s", d.Message)
	}
	g.p.auth.NoteEntry(ctx, g.space, e)
}

// connected puts a decision of the callout into the audit stream.
func (g *gate) connected(ctx context.Context, d callout.Decision) {
	e := auth.Entry{Action: space.ActionConnect, Life: d.Lifecycle, From: d.Host}
	if !d.OK {
		e.Denied = trust.Deny(wire.CodePermissionDenied, d.Reason, "connection %q refused: %s", d.ConnectionName, d.Reason)
	}
	g.p.auth.NoteEntry(ctx, g.space, e)
}

// mesh describes the space to people who have only its address.
func (g *gate) mesh(pin oidc.Pin) func() exchange.WellKnown {
	return func() exchange.WellKnown {
		server := g.p.opts.Server
		if server == "" {
			server = g.p.server()
		}
		return exchange.WellKnown{Server: server, TLSRequired: g.p.tls, UserAuth: exchange.UserAuth{IDP: exchange.IDPOf(pin)}}
	}
}

// freshSentinel returns the public credential that leads to the callout.
func (g *gate) freshSentinel(ctx context.Context) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sentinel != "" && time.Now().Before(g.renew) {
		return g.sentinel, nil
	}
	token, err := g.p.mint.Sentinel(ctx, g.space, 0)
	if err != nil {
		return "", err
	}
	g.sentinel, g.renew = token, time.Now().Add(sentinelEvery)
	return token, nil
}

// beginCallout starts answering the broker, on connections that are replaced before their credential expires.
func (g *gate) beginCallout(run, ctx context.Context) error {
	p := g.p
	responder, err := p.mint.CalloutResponder(ctx, g.space)
	if err != nil {
		return err
	}
	g.lane = &lane{
		space: g.space, log: g.log, dial: p.dial,
		creds: func(ctx context.Context) (*trust.Credentials, error) {
			return p.mint.CalloutUser(ctx, g.space, serviceLifetime)
		},
		build: func(nc *nats.Conn, _ *trust.Credentials) role {
			s, err := callout.New(nc, callout.Options{
				Space: g.space, Responder: responder, Validator: bearer.NewValidator(g.space, g.keys, nil), Authority: p.grants(g.space),
				Servers: p.ids, RequireKeyProof: p.opts.RequireKeyProof, Logger: g.log,
				OnDecision: g.connected,
			})
			if err != nil {
				return failed{err}
			}
			return s
		},
	}
	return g.lane.begin(run, ctx)
}

// failed is a role that could not be made.
type failed struct{ err error }

func (f failed) Run(context.Context) error { return f.err }
func (failed) Ready() <-chan struct{}      { return nil }
func (failed) Instance() string            { return "" }

// keep is the work that one process does for all who serve the space: the keys that sign bearers are replaced in time.
func (g *gate) keep(ctx context.Context) error {
	rotated, err := bearer.Maintain(ctx, g.p.store, g.space)
	if rotated {
		g.log.Info("key that signs bearers replaced")
	}
	return err
}
