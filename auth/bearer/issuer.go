package bearer

import (
	"context"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Issuer signs the bearers of one space. It is safe for concurrent use.
type Issuer struct {
	space wire.Space
	keys  *Keys
}

// NewIssuer returns the issuer of a space. It panics when keys are nil or of another space.
func NewIssuer(s wire.Space, keys *Keys) *Issuer {
	if keys == nil || keys.space != s {
		panic(fmt.Sprintf("bearer: the issuer of space %q needs the keys of that space", s))
	}
	return &Issuer{space: s, keys: keys}
}

// Sign signs a bearer and returns it with its claims as signed. It fills Issuer, Audience, ID, IssuedAt and NotBefore,
// whatever they were. The bearer ends at c.Expires, the end of what it was given for, or after life, whichever is
// first; the zero Expires sets no end of its own. Life is at most [MaxHumanLife], and [MaxAgentLife] for an agent, which the
// caller knows.
//
// Errors: bad-request for a life that is not positive or too long, and for claims that no validator would take, with
// the reason it would give; expired when what the bearer is given for has ended; resource-exhausted when it is larger than
// [MaxToken]; unavailable when the keys cannot be read.
func (i *Issuer) Sign(ctx context.Context, c Claims, life time.Duration) (token string, signed Claims, err error) {
	if life < time.Second || life > MaxHumanLife {
		return "", Claims{}, wire.Errorf(wire.CodeBadRequest, "sign bearer: a life of %s is outside 1s to %s", life, MaxHumanLife)
	}
	now := time.Now().Truncate(time.Second)
	end := now.Add(life.Truncate(time.Second))
	if !c.Expires.IsZero() && c.Expires.Before(end) {
		end = c.Expires.Truncate(time.Second)
	}
	c.Issuer, c.Audience, c.ID = issuerOf(i.space), string(i.space), wire.NewNonce()
	c.IssuedAt, c.NotBefore, c.Expires = now, now, end
	if c.Scope == nil {
		c.Scope = []string{}
	}
	if !end.After(now) {
		return "", Claims{}, trust.Deny(wire.CodeExpired, trust.ReasonExpired,
			"sign bearer of %q: what it would be given for has expired; log in again", c.Subject)
	}
	p := payloadOf(c)
	if signed, err = p.claims(i.space); err != nil {
		return "", Claims{}, trust.Deny(wire.CodeBadRequest, trust.ReasonOf(err), "sign bearer: %v", err)
	}
	r, err := i.keys.current(ctx, refreshEvery)
	if err != nil {
		return "", Claims{}, err
	}
	if token, err = seal(r.keys[0].protected, p, r.keys[0].sign); err != nil {
		return "", Claims{}, err
	}
	if len(token) > MaxToken {
		e := wire.Errorf(wire.CodeResourceExhausted, "sign bearer of %q: %d bytes, limit %d; the grant names too much", c.Subject, len(token), MaxToken)
		e.Details = map[string]any{"used": len(token), "allowed": MaxToken}
		return "", Claims{}, e
	}
	return token, signed, nil
}
