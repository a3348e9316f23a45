package target

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Source is the session of the person at the identity provider of the space, whether there is one or not, and where it is or
// would be sealed.
//
// Errors: failed-precondition for a machine without a folder; those of [login.Open].
func (p *People) Source(ctx context.Context) (src *login.Source, kind string, err error) {
	if p.source != nil {
		return p.source, p.kind, nil
	}
	dir := p.t.Config.Machine.SessionDir()
	if dir == "" {
		return nil, "", config.NoHome()
	}
	sessions, err := login.Open(ctx, &login.StoreOptions{Dir: dir, Prefer: p.t.env.Getenv(config.EnvSessions)})
	if err != nil {
		return nil, "", err
	}
	hc, err := p.HTTP()
	if err != nil {
		return nil, "", err
	}
	key := login.Key{Mesh: p.Record.Mesh(), Issuer: p.Record.Issuer}
	p.source, p.kind = login.NewSource(sessions, key, dir, &login.SourceOptions{HTTP: hc}), sessions.Kind()
	return p.source, p.kind, nil
}

// Session is the session of the person.
//
// Errors: unauthenticated with the command that signs in when there is none; those of [People.Source].
func (p *People) Session(ctx context.Context) (login.Session, error) {
	src, _, err := p.Source(ctx)
	if err != nil {
		return login.Session{}, err
	}
	s, err := src.Session(ctx)
	if errors.Is(err, wire.ErrNotFound) {
		return s, trust.Deny(wire.CodeUnauthenticated, trust.ReasonUserMode, "space %q signs people in: run %s", p.Record.Space, p.LoginCommand())
	}
	return s, err
}

// SessionDir is the folder of the session.
func (p *People) SessionDir() string { return p.t.Config.Machine.SessionDir() }

// Save remembers the space on this machine.
func (p *People) Save() error { return p.t.Config.Machine.SaveSignIn(p.Record) }

// Forget does not remember it any more.
func (p *People) Forget() error { return p.t.Config.Machine.ForgetSignIn(p.Record) }

// Person hands out what somebody who signed in connects with. It is a Source of package endpoint.
type Person struct {
	p    *People
	view trust.View

	mu       sync.Mutex // guards the rest
	actor    string     // what was asked for, then what the mesh chose
	exchange *login.Exchange
	at       string // address of exchange
	server   string // of the broker, as the mesh says
}

// Person is the person at the terminal with a view, under the name that --name or the sign-in chose.
//
// Errors: those of [People.Session].
func (p *People) Person(ctx context.Context, view trust.View) (*Person, error) {
	if _, err := p.Session(ctx); err != nil {
		return nil, err
	}
	who := &Person{p: p, view: view, actor: p.Record.Actor}
	if name := p.t.Config.Name; name.Flagged() { // COTAL_NAME is for those who mint
		who.actor = name.Value
	}
	return who, nil
}

// Bearer asks the exchange anew.
//
// Errors: those of the exchange and of the session, each one sentence that says what to do; with a reason when it was a refusal.
func (w *Person) Bearer(ctx context.Context) (login.Bearer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, err := w.reach(ctx)
	if err != nil {
		return login.Bearer{}, err
	}
	src, _, err := w.p.Source(ctx)
	if err != nil {
		return login.Bearer{}, err
	}
	req := login.HumanRequest{Actor: w.actor, View: w.view}
	b, err := login.HumanSource(x, src, req).Bearer(ctx)
	if wire.CodeOf(err) == wire.CodeUnavailable && !w.p.Record.Remote() {
		// The process that was chosen may have ended since, and another one serve.
		if other, rerr := w.reach(ctx); rerr == nil && other != x {
			b, err = login.HumanSource(other, src, req).Bearer(ctx)
		}
	}
	if err != nil {
		return b, w.p.denied(w.actor, err)
	}
	w.actor, w.server = b.Actor, b.Server // a grant that comes later must not make it somebody else
	return b, nil
}

// Credentials implements endpoint.Source.
func (w *Person) Credentials(ctx context.Context) (*trust.Credentials, error) {
	b, err := w.Bearer(ctx)
	if err != nil {
		return nil, err
	}
	return b.Credentials()
}

// reach returns the client of the exchange. A node that starts again may listen elsewhere.
func (w *Person) reach(ctx context.Context) (*login.Exchange, error) {
	hc, err := w.p.HTTP()
	if err != nil {
		return nil, err
	}
	o := login.ExchangeOptions{URL: w.p.Record.Exchange, HTTP: hc}
	if !w.p.Record.Remote() {
		c, file, err := w.p.capability(ctx)
		if err != nil {
			return nil, err
		}
		o.URL = c.URL
		o.Capability = func(context.Context) (string, error) {
			now, err := login.ReadCapability(file)
			if err != nil {
				return "", err
			}
			return now.Cap(), nil
		}
	}
	if w.exchange != nil && w.at == o.URL {
		return w.exchange, nil
	}
	x, err := login.NewExchange(&o)
	if err == nil {
		w.exchange, w.at = x, o.URL
	}
	return x, err
}

// denied is a refusal of the exchange without the words about how it was asked for, and with what a person can do about it.
func (p *People) denied(actor string, err error) error {
	err = Unverified(err)
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || len(command.Hints(err)) > 0 {
		return err
	}
	out := *e
	out.Message = strings.TrimPrefix(err.Error(), fmt.Sprintf("exchange token for %q: ", actor))
	if e.Code == wire.CodeBadRequest && actor == "" {
		return command.Hint(&out, "for one command: --name <actor>", "for all of them: "+p.LoginCommand()+" --as <actor>")
	}
	if r := trust.ReasonOf(err); r == trust.ReasonAudience || r == trust.ReasonIssuer {
		return command.Hint(&out, "sign in again: "+p.LoginCommand())
	}
	return &out
}

// join connects as the person.
func (p *People) join(ctx context.Context, why Purpose, o *endpoint.Options) (*endpoint.Endpoint, error) {
	t := p.t
	if err := t.Running(); err != nil {
		return nil, err
	}
	who, err := p.Person(ctx, why.view())
	if err != nil {
		return nil, untouched(ctx, err)
	}
	first, err := who.Credentials(ctx)
	if err != nil {
		return nil, untouched(ctx, err)
	}
	if err := p.reachBroker(who); err != nil {
		return nil, err
	}
	if o.TLS, err = t.TLS(); err != nil {
		return nil, err
	}
	o.Locate = t.locate()
	ep, err := endpoint.Connect(ctx, t.Config.Server.Value, following(first, who), o)
	if wire.CodeOf(err) == wire.CodeUnauthenticated {
		// The broker only says no. What was decided is with the exchange: it says why, or that something changed meanwhile.
		if first, err = who.Credentials(ctx); err == nil {
			if ep, err = endpoint.Connect(ctx, t.Config.Server.Value, following(first, who), o); wire.CodeOf(err) == wire.CodeUnauthenticated {
				return nil, p.undecided()
			}
		}
	}
	if err != nil {
		return nil, untouched(ctx, t.Explain(err))
	}
	id := ep.Identity()
	t.as = &id
	return ep, nil
}

// undecided is what is known when the exchange gives tokens and the broker refuses them: the broker does not say why.
func (p *People) undecided() error {
	server := p.t.Config.Server.Value
	hints := []string{"what decides there may be away or have no room for more: cotal status, and the log of the mesh, say so"}
	if p.Record.Remote() {
		hints[0] = "what decides there may be away or have no room for more: ask its operator"
	}
	return command.Hint(wire.Errorf(wire.CodeUnavailable, "you are signed in at space %q, and the broker at %s refused you twice without a reason", p.Record.Space, server),
		append(hints, "or that broker is of another mesh: name the right one with --server")...)
}

// reachBroker takes the address of the broker of a mesh elsewhere from what that says now.
func (p *People) reachBroker(who *Person) error {
	c := p.t.Config
	if !p.Record.Remote() || c.Server.Explicit() {
		return nil
	}
	if who.server != "" {
		server, err := config.ServerURL(who.server)
		if err != nil {
			return wire.Errorf(wire.CodeFailedPrecondition, "the mesh at %s names a broker that cannot be used: %v", p.Where(), err)
		}
		c.Server.Value = server
	} else if p.Record.Server == "" {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "the mesh at %s does not say where its broker is", p.Where()),
			"name it: --server tls://host:port", "its operator makes it say that: cotal up --advertise tls://host:port")
	}
	return nil
}

// following hands out first once, then what who gets.
func following(first *trust.Credentials, who *Person) endpoint.Source {
	return endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
		if first != nil {
			out := first
			first = nil
			return out, nil
		}
		return who.Credentials(ctx)
	})
}
