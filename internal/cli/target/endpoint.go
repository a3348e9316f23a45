package target

import (
	"context"
	"errors"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Purpose is what a command joins the space for. It decides how much a credential that is minted for it may do.
type Purpose int

// The purposes, from least to most.
const (
	// Looking reads channels, the roster and history, and says nothing.
	Looking Purpose = iota
	// Speaking sends messages.
	Speaking
	// Listening also receives the person's own direct messages.
	Listening
	// Joining takes part: it is present in the roster, reads, sends and receives.
	Joining
	// Configuring changes the settings of channels.
	Configuring
	// Auditing looks into what is not the person's own: anybody's message, anybody's inbox.
	Auditing
	// Managing asks supervisors for agents.
	Managing
)

// profile is what is minted for the purpose in a space of credential files.
func (p Purpose) profile() trust.Profile {
	switch p {
	case Looking:
		return trust.Observer
	case Speaking, Configuring, Auditing, Managing:
		return trust.Operator
	}
	return trust.Agent
}

// view is what a person asks for beyond their grant.
func (p Purpose) view() trust.View {
	switch p {
	case Configuring:
		return trust.ViewChannelWriter
	case Auditing:
		return trust.ViewAdmin
	case Managing:
		return trust.ViewDeployer
	}
	return trust.ViewNone
}

// shortLife is the life of a credential that one command mints for itself and throws away. Longer commands renew.
const shortLife = 15 * time.Minute

// Option adjusts the endpoint that a command joins with.
type Option func(*endpoint.Options)

// WithEvents tells the command what happens to its connection.
func WithEvents(fn func(endpoint.Event)) Option {
	return func(o *endpoint.Options) { o.OnEvent = fn }
}

// Foreign reports whether the command brought its own credential, is an agent's, works in an open mesh or in one elsewhere, so that the records
// of a project play no part.
func (t *Target) Foreign() bool {
	return t.creds != nil || t.Config.Open || t.Config.Remote != nil || t.launch != nil
}

// Endpoint joins the space as the person. The caller closes it.
func (t *Target) Endpoint(ctx context.Context, why Purpose, opts ...Option) (*endpoint.Endpoint, error) {
	c := t.Config
	o := &endpoint.Options{Kind: "endpoint", Quiet: why != Joining, Space: t.Space(), Logger: t.env.Quiet()}
	for _, f := range opts {
		f(o)
	}
	if t.launch != nil {
		return t.joinLaunched(ctx, o)
	}
	if err := t.Running(); err != nil {
		return nil, err
	}
	if t.creds == nil {
		people, err := t.People(ctx)
		if err != nil {
			return nil, untouched(ctx, err)
		}
		if people != nil {
			return people.join(ctx, why, o)
		}
	}
	tc, err := t.TLS()
	if err != nil {
		return nil, err
	}
	o.TLS, o.Locate = tc, t.locate()
	var src endpoint.Source
	switch {
	case t.creds != nil:
		if c.Name.Flagged() { // COTAL_NAME is for those who mint; a credential names its holder
			o.Principal = &wire.Principal{Owner: wire.LocalOwner, Actor: c.Name.Value}
		}
		src = endpoint.File(c.Creds.Value)
	case c.Open, t.link != nil && !t.trusted():
		if err := t.needName(); err != nil {
			return nil, err
		}
		o.Open = &endpoint.Open{Space: t.Space(), Actor: c.Name.Value}
		if l := t.link; l != nil {
			o.Open.Token, o.Open.User, o.Open.Password = l.Token(), l.User, l.Password()
		}
	default:
		if src, err = t.mint(ctx, why); err != nil {
			return nil, untouched(ctx, err)
		}
	}
	ep, err := endpoint.Connect(ctx, c.Server.Value, src, o)
	if err != nil {
		return nil, untouched(ctx, t.refused(ctx, err))
	}
	return ep, nil
}

// refused explains why there is no connection. Credential files of a space that began to sign people in are worth nothing.
func (t *Target) refused(ctx context.Context, err error) error {
	if t.creds == nil || wire.CodeOf(err) != wire.CodeUnauthenticated {
		return t.Explain(err)
	}
	people, perr := t.People(ctx)
	if perr != nil || people == nil {
		return t.Explain(err)
	}
	return command.Hint(trust.Deny(wire.CodeUnauthenticated, trust.ReasonUserMode,
		"space %q signs people in and takes no credential files: leave --creds away and run %s", t.Space(), people.LoginCommand()))
}

// untouched is an error of the way to the mesh: a person who ended the command there has changed nothing.
func untouched(ctx context.Context, err error) error {
	if ctx.Err() != context.Canceled {
		return err
	}
	stop := wire.Errorf(wire.CodeCancelled, "cancelled before the mesh was reached")
	stop.Outcome = wire.OutcomeNotExecuted
	return stop
}

// trusted reports whether the target has records to mint from.
func (t *Target) trusted() bool { return t.Config.Project != nil && t.Config.Project.Trusted() }

func (t *Target) needName() error {
	if t.Config.Name.Value != "" {
		return nil
	}
	return command.Hint(wire.Errorf(wire.CodeBadRequest, "the login name of this session is not known"), "say who speaks: --name <name>, or COTAL_NAME")
}

// mint is a source of short credentials for the person, made from the project's records.
func (t *Target) mint(ctx context.Context, why Purpose) (endpoint.Source, error) {
	if err := t.needName(); err != nil {
		return nil, err
	}
	node, err := t.Node(ctx)
	if err != nil {
		return nil, err
	}
	first, err := t.personal(ctx, node, why)
	if err != nil {
		return nil, err
	}
	return endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
		if first != nil {
			out := first
			first = nil
			return out, nil
		}
		return t.personal(ctx, node, why)
	}), nil
}

func (t *Target) personal(ctx context.Context, node *cotal.NodeClient, why Purpose) (*trust.Credentials, error) {
	name := t.Config.Name.Value
	creds, err := node.Authority().Personal(ctx, t.Space(), why.profile(), name, shortLife)
	switch {
	case errors.Is(err, wire.ErrExists):
		return nil, command.Hint(err, "that name belongs to somebody who holds its credential: use it with --creds <file>, or speak under another with --name <name>")
	case errors.Is(err, wire.ErrNotFound):
		return nil, t.noSpace()
	case err != nil:
		if full := t.unstored(ctx, err); full != nil {
			return nil, full
		}
		return nil, t.Explain(err)
	}
	return creds, nil
}
