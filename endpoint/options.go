package endpoint

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// Defaults of [Options].
const (
	DefaultTimeout     = 5 * time.Second
	DefaultDedup       = 1024
	DefaultLiveBacklog = 64 << 10
	DefaultRoleLimit   = 1
	DefaultMaxAttempts = 10
)

// Options shapes an endpoint. The zero value is the safe one; Connect copies it.
type Options struct {
	// Name is the display name on the card and in messages, a claim. Default: the actor.
	Name string
	// Kind is the card's kind, "agent" (default) or "endpoint".
	Kind string
	// Description, Tags, Skills and Meta are further claims on the card.
	Description string
	Tags        []string
	Skills      []wire.Skill
	Meta        map[string]any

	// Principal, when set, must be the credential's own; otherwise Connect refuses before it dials.
	Principal *wire.Principal
	// Space, when set, must be the credential's own; otherwise Connect refuses before it dials.
	Space wire.Space

	// Open connects without a credential to a broker in open mode. It excludes a Source.
	Open *Open

	// Locate says where the broker listens now, nats://host:port or tls://host:port and "" for nowhere: then no attempt is made. It is asked
	// before every attempt to connect, while the connection is away twice a second and else every five seconds, so that the endpoint finds
	// a broker that was started again on another port. An address without the encryption of the first, or with plaintext to another
	// machine, is not used; a certificate is checked for the host of the first. It may be nil, must neither block for long nor use the endpoint, and wants one address in Connect.
	Locate func() string
	// InProcess connects to a broker in this process instead of an address.
	InProcess nats.InProcessConnProvider
	// TLS is used with tls:// addresses. Nil means the system's roots, or those of CAFile.
	TLS *tls.Config
	// CAFile holds the PEM certificates that tls:// addresses are checked against, instead of the system's.
	CAFile string
	// AllowPlaintext permits addresses outside loopback without TLS. Everything, credentials' signatures
	// aside, then crosses the network readable and changeable.
	AllowPlaintext bool

	// Quiet keeps the endpoint out of the roster: no presence, no heartbeat. Profiles without the right to
	// presence are always quiet.
	Quiet bool
	// OnEvent is told what happens outside of calls, one event at a time. It may block; events beyond a
	// backlog are then counted, not kept.
	OnEvent func(Event)
	// Logger may be nil.
	Logger *slog.Logger

	// ConnectTimeout bounds one connection attempt, RequestTimeout each call whose context has no deadline,
	// CloseTimeout each stage of Close that waits for others. Default 5 s.
	ConnectTimeout, RequestTimeout, CloseTimeout time.Duration
	// DedupSize is how many message ids each subscription and queue remembers. Default 1024.
	DedupSize int
	// LiveBacklog is how many live messages wait for a slow handler before the next are dropped and reported
	// as an [EventGap]. Default 65,536.
	LiveBacklog int
	// RoleLimit is how many role messages may be unsettled after their handler returned before no more are
	// taken from the role's queue: the others are left to other holders of the role. Default 1.
	RoleLimit int
	// DirectLimit is the same of direct messages: those beyond it wait with the broker. Default 0, any number.
	DirectLimit int
	// MaxAttempts is how often a direct or role message is given to its handler before a panic or a Nak makes it a dead
	// letter. Only this endpoint's own tries count; the broker's bound of 20 deliveries, to whomever, stands above it.
	// Default 10.
	MaxAttempts int
}

// Open says how to take part in an open space, where nobody is authenticated.
type Open struct {
	// Space and Actor name the space and the participant; the owner is "local". Both are required.
	Space wire.Space
	Actor string
	// Role is the role to serve, if any.
	Role string
	// Token, or User and Password, is what the broker asks of everyone.
	Token, User, Password string
}

// Format prints the address of the participant without its secrets, whatever the verb.
func (o Open) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, o.String()) }

// String returns the participant without its secrets.
func (o Open) String() string { return string(o.Space) + "/" + wire.LocalOwner + "." + o.Actor }

// LogValue returns the participant without its secrets.
func (o Open) LogValue() slog.Value { return slog.StringValue(o.String()) }

// MarshalText returns the participant without its secrets, so that an encoder that walks into it writes nothing of use.
func (o Open) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// settled returns a checked copy with the defaults filled in.
func (o *Options) settled(src Source) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Tags, c.Skills = slices.Clone(c.Tags), slices.Clone(c.Skills)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Kind == "" {
		c.Kind = wire.CardAgent
	}
	for _, d := range []*time.Duration{&c.ConnectTimeout, &c.RequestTimeout, &c.CloseTimeout} {
		if *d == 0 {
			*d = DefaultTimeout
		}
	}
	for _, n := range []struct {
		p *int
		d int
	}{{&c.DedupSize, DefaultDedup}, {&c.LiveBacklog, DefaultLiveBacklog}, {&c.RoleLimit, DefaultRoleLimit}, {&c.MaxAttempts, DefaultMaxAttempts}} {
		if *n.p == 0 {
			*n.p = n.d
		}
	}
	if c.Open != nil {
		open := *c.Open
		c.Open = &open
	}
	return c, c.check(src)
}

func (o *Options) check(src Source) error {
	bad := func(format string, args ...any) error {
		return wire.Errorf(wire.CodeBadRequest, "check endpoint options: "+format, args...)
	}
	switch {
	case src == nil && o.Open == nil:
		return wire.Errorf(wire.CodeUnauthenticated, "check endpoint options: neither a credential nor Open")
	case src != nil && o.Open != nil:
		return bad("a credential and Open exclude each other")
	case o.Kind != wire.CardAgent && o.Kind != wire.CardEndpoint:
		return bad("kind %q is neither %q nor %q", o.Kind, wire.CardAgent, wire.CardEndpoint)
	case o.ConnectTimeout < 0 || o.RequestTimeout < 0 || o.CloseTimeout < 0:
		return bad("a timeout is negative")
	case o.DedupSize < 0 || o.LiveBacklog < 0 || o.RoleLimit < 0 || o.DirectLimit < 0 || o.MaxAttempts < 0:
		return bad("a size is negative")
	case o.TLS != nil && o.CAFile != "":
		return bad("TLS and CAFile exclude each other")
	}
	if o.Principal != nil {
		if err := o.Principal.Validate(); err != nil {
			return err
		}
	}
	if o.Open != nil {
		return o.Open.check(o.Space)
	}
	return nil
}

func (o *Open) check(want wire.Space) error {
	if _, err := wire.ParseSpace(string(o.Space)); err != nil {
		return err
	}
	if want != "" && want != o.Space {
		return wire.Errorf(wire.CodeBadRequest, "check open mode: space %q is not %q", o.Space, want)
	}
	if err := wire.ValidateActor(o.Actor); err != nil {
		return err
	}
	if o.Role != "" {
		if err := wire.ValidateRole(o.Role); err != nil {
			return err
		}
	}
	if o.Token != "" && o.User != "" || o.User == "" && o.Password != "" {
		return wire.Errorf(wire.CodeBadRequest, "check open mode: give a token, or a user with a password, not both")
	}
	return nil
}
