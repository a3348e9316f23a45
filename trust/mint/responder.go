package mint

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Responder is what a callout service answers with. It is safe for concurrent use, and to print. Get one from
// [Authority.CalloutResponder].
type Responder struct {
	mint    *Authority
	space   wire.Space
	account string
	xkey    *curve
}

// CalloutResponder returns what answers for the callout account of a space. It keeps the curve key for as long as it is used.
//
// Errors: not-found for an unknown space; failed-precondition for a space without a callout account and for a record or seed
// that cannot be trusted.
func (a *Authority) CalloutResponder(ctx context.Context, s wire.Space) (*Responder, error) {
	rec, err := a.withCallout(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("answer for callout account of space %q: %w", s, err)
	}
	name := trust.CalloutXKey(s)
	xkey, err := a.curve(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("answer for callout account of space %q: %w", s, needed(name, err))
	}
	if xkey.public != rec.Callout.XKey {
		return nil, fmt.Errorf("answer for callout account of space %q: %w", s, foreignSeed(name, trust.AccountKey(s)))
	}
	return &Responder{mint: a, space: s, account: rec.Callout.Public, xkey: xkey}, nil
}

// Account returns the public key (A…) of the callout account.
func (r *Responder) Account() string { return r.account }

// XKey returns the public curve key (X…) to which brokers seal their questions.
func (r *Responder) XKey() string { return r.xkey.public }

// Open returns what the server with a public curve key (X…) sealed to the account. Its error has code bad-request: somebody else
// sealed it, or to somebody else, or it was changed.
func (r *Responder) Open(sealed []byte, serverXKey string) ([]byte, error) {
	plain, err := r.xkey.open(sealed, serverXKey)
	if err != nil {
		return nil, fmt.Errorf("open question of a broker: %w", err)
	}
	return plain, nil
}

// Seal returns plain so that only that server can read it, and knows that it comes from the account. Its error has code
// bad-request for what is not a curve key.
func (r *Responder) Seal(plain []byte, serverXKey string) ([]byte, error) {
	sealed, err := r.xkey.seal(plain, serverXKey)
	if err != nil {
		return nil, fmt.Errorf("seal answer to a broker: %w", err)
	}
	return sealed, nil
}

// SignResponse signs an answer: Subject is the user key of the question, Audience the id of the server that asked (N…), and either
// Jwt or Error says what was decided. It fills in the issuer's account. Seal what it returns.
//
// Errors: bad-request for an answer that a broker would not read; those of [Authority.CalloutResponder]; those of the
// signer.
func (r *Responder) SignResponse(ctx context.Context, c *jwt.AuthorizationResponseClaims) (string, error) {
	token, err := r.signResponse(ctx, c)
	if err != nil {
		return "", fmt.Errorf("sign answer of space %q: %w", r.space, err)
	}
	return token, nil
}

func (r *Responder) signResponse(ctx context.Context, c *jwt.AuthorizationResponseClaims) (string, error) {
	c.IssuerAccount = r.account
	var vr jwt.ValidationResults
	c.Validate(&vr)
	if !vr.IsEmpty() {
		return "", wire.Errorf(wire.CodeBadRequest, "%s", vr.Issues[0].Description)
	}
	key, _, err := r.mint.recentSigner(ctx, r.space, trust.CalloutSigningKey(r.space, trust.CalloutResponder), func(rec trust.AccountRecord) ([]string, error) {
		if rec.Callout == nil || rec.Callout.Public != r.account || rec.Callout.XKey != r.xkey.public {
			return nil, wire.Errorf(wire.CodeFailedPrecondition, "the space has another callout account now; begin again")
		}
		return rec.Callout.KeysOf(trust.CalloutResponder), nil
	})
	if err != nil {
		return "", err
	}
	return sign(ctx, c, key)
}

func (r *Responder) describe() string { return fmt.Sprintf("[responder of space %q]", r.space) }

// Format writes for which space it answers, whatever the verb.
func (r Responder) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.describe()) }

// LogValue returns for which space it answers.
func (r Responder) LogValue() slog.Value { return slog.StringValue(r.describe()) }
