package login

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Bearer is what an exchange gave: a token of minutes, bound to the key of the [Exchange], and what it says. It prints, logs and encodes
// without the token. It never changes.
type Bearer struct {
	Space        wire.Space
	Owner, Actor string
	UID          wire.UID
	Profile      trust.Profile
	View         trust.View
	Role         string
	Scope        []string
	Subscribe    []string // channel patterns
	Publish      []string
	IssuedAt     time.Time
	Expires      time.Time
	Server       string // where the broker is reached, or empty when the exchange does not say
	UserKey      string // the public nkey that the token is bound to
	token        func() string
	sentinel     func() string
	seed         func() []byte
	inbox        string
}

// exchangeAnswer is the body of a granted request.
type exchangeAnswer struct {
	Token     string   `json:"token"`
	Owner     string   `json:"owner"`
	Actor     string   `json:"actor"`
	UID       string   `json:"uid"`
	Expires   int64    `json:"exp"`
	IssuedAt  int64    `json:"iat"`
	Scope     []string `json:"scope"`
	View      string   `json:"view"`
	Sentinel  string   `json:"sentinel"`
	Inbox     string   `json:"inbox"`
	Role      string   `json:"role"`
	Subscribe []string `json:"allowSubscribe"`
	Publish   []string `json:"allowPublish"`
	Profile   string   `json:"profile"`
	Space     string   `json:"space"`
	Server    string   `json:"server"`
}

// read makes a bearer of an answer, and refuses one that is not the answer to the request.
func (x *Exchange) read(a answer, req exchangeRequest) (Bearer, error) {
	b, err := parseBearer(a.body)
	if err != nil {
		return Bearer{}, wire.Errorf(wire.CodeUnavailable, "exchange token for %q: %q is no exchange of ours, or one of another version: %w",
			clip(req.Actor), shown(x.url), err)
	}
	now := time.Now()
	switch {
	case req.Actor != "" && b.Actor != req.Actor || req.Owner != "" && b.Owner != req.Owner || string(b.View) != req.View:
		return Bearer{}, wire.Errorf(wire.CodeUnavailable, "exchange token for %q: %q answered for %q with view %q, which is not used",
			clip(req.Actor), shown(x.url), b.Owner+"."+b.Actor, b.View)
	case !now.Before(b.Expires):
		return Bearer{}, trust.Deny(wire.CodeExpired, trust.ReasonExpired,
			"exchange token for %q: the bearer ended %s ago by the clock of this machine: set the clock", clip(req.Actor), now.Sub(b.Expires).Round(time.Second))
	}
	b.UserKey = x.UserKey()
	key := x.key
	b.seed = func() []byte { return key.Seed().Reveal() }
	return b, nil
}

// parseBearer reads and checks an answer by itself. Its errors quote no token.
func parseBearer(data []byte) (Bearer, error) {
	var d exchangeAnswer
	if err := wire.Decode(data, &d, maxAnswer); err != nil {
		return Bearer{}, wire.Errorf(wire.CodeBadRequest, "the answer does not decode")
	}
	switch {
	case d.Token == "" || len(d.Token) > maxToken || d.Sentinel == "" || len(d.Sentinel) > maxToken:
		return Bearer{}, wire.Errorf(wire.CodeBadRequest, "the answer has no token or no sentinel")
	case d.IssuedAt <= 0 || d.Expires <= d.IssuedAt || d.Expires-d.IssuedAt > int64(24*time.Hour/time.Second):
		return Bearer{}, wire.Errorf(wire.CodeBadRequest, "the bearer's life is %d to %d", d.IssuedAt, d.Expires)
	}
	b := Bearer{
		Space: wire.Space(d.Space), Owner: d.Owner, Actor: d.Actor, UID: wire.UID(d.UID), Profile: trust.Profile(d.Profile), View: trust.View(d.View),
		Role: d.Role, Scope: slices.Clone(d.Scope), Subscribe: slices.Clone(d.Subscribe), Publish: slices.Clone(d.Publish),
		IssuedAt: numericDate(float64(d.IssuedAt)), Expires: numericDate(float64(d.Expires)), Server: d.Server, inbox: d.Inbox,
		token: func() string { return d.Token }, sentinel: func() string { return d.Sentinel },
	}
	if err := b.identity().Validate(); err != nil {
		return Bearer{}, err
	}
	if _, err := trust.ParseView(d.View); err != nil {
		return Bearer{}, err
	}
	return b, nil
}

// Identity returns what the bearer says about its holder.
func (b Bearer) Identity() trust.Identity { return b.identity() }

func (b Bearer) identity() trust.Identity {
	id := trust.Identity{
		Space: b.Space, Profile: b.Profile, Lifecycle: wire.Lifecycle{Principal: wire.Principal{Owner: b.Owner, Actor: b.Actor}, UID: b.UID},
		Inbox: b.inbox, UserKey: b.UserKey, IssuedAt: b.IssuedAt, Expires: b.Expires,
	}
	if b.Profile == trust.Agent { // a view has the rights of its profile and no lists
		id.Role, id.Subscribe, id.Publish, id.Commands = b.Role, slices.Clone(b.Subscribe), slices.Clone(b.Publish), trust.ScopeCommands(b.Scope)
		id.Spawns = trust.Spawns(b.Scope)
	}
	return id
}

// Credentials returns what to connect with: the sentinel, the token and the key that it is bound to. It is bad-request when the exchange gave
// a sentinel or token that cannot be connected with.
func (b Bearer) Credentials() (*trust.Credentials, error) {
	if b.seed == nil {
		return nil, wire.Errorf(wire.CodeUnauthenticated, "connect with a bearer: there is none")
	}
	return trust.NewBearerCredentials(trust.Bearer{Sentinel: b.sentinel(), Token: b.token(), Seed: b.seed(), Identity: b.identity()})
}

// Reveal returns the token. Whoever has it and the key of the exchange is its holder.
func (b Bearer) Reveal() string {
	if b.token == nil {
		return ""
	}
	return b.token()
}

func (b Bearer) describe() string {
	if b.token == nil {
		return "[no bearer]"
	}
	return fmt.Sprintf("[bearer of %s.%s, profile %s, space %q]", b.Owner, b.Actor, b.Profile, b.Space)
}

// Format writes who the bearer is for, whatever the verb.
func (b Bearer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.describe()) }

// LogValue returns who the bearer is for.
func (b Bearer) LogValue() slog.Value { return slog.StringValue(b.describe()) }

// Proof is where a person's id token comes from; [Source] is one.
type Proof interface {
	// IDToken returns an id token and when it ends.
	IDToken(ctx context.Context) (token string, expires time.Time, err error)
}

// CredentialSource hands out a credential made of a new bearer each time. It keeps nothing: a call that failed has no effect on the
// next. It is a Source of package endpoint.
type CredentialSource struct {
	fetch func(ctx context.Context) (Bearer, error)
}

// HumanSource returns the credentials of a person. The IDToken of req is not used: proof gives one each time.
func HumanSource(x *Exchange, proof Proof, req HumanRequest) *CredentialSource {
	return &CredentialSource{fetch: func(ctx context.Context) (Bearer, error) {
		token, _, err := proof.IDToken(ctx)
		if err != nil {
			return Bearer{}, err
		}
		req := req
		req.IDToken = func() string { return token }
		return x.Human(ctx, req)
	}}
}

// AgentSource returns the credentials of an agent.
func AgentSource(x *Exchange, req AgentRequest) *CredentialSource {
	return &CredentialSource{fetch: func(ctx context.Context) (Bearer, error) { return x.Agent(ctx, req) }}
}

// Bearer fetches a new bearer, for a program that hands it on: one for each thing it delegates, so that none is old when it is used.
func (c *CredentialSource) Bearer(ctx context.Context) (Bearer, error) { return c.fetch(ctx) }

// Next fetches a new bearer and returns it as a credential. Errors are those of [Exchange.Human] and of the proof, with their reasons.
func (c *CredentialSource) Next(ctx context.Context) (*trust.Credentials, error) {
	b, err := c.fetch(ctx)
	if err != nil {
		return nil, err
	}
	return b.Credentials()
}

// Credentials is [CredentialSource.Next] under the name that package endpoint asks for.
func (c *CredentialSource) Credentials(ctx context.Context) (*trust.Credentials, error) {
	return c.Next(ctx)
}
