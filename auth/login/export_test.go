package login

import (
	"context"
	"time"
)

// Ring is what the tests put in the place of the keyring of the operating system.
type Ring = ring

// OpenWith is Open with another keyring and another patience.
func OpenWith(ctx context.Context, opts StoreOptions, r Ring, patience time.Duration) (Sessions, error) {
	return open(ctx, opts, r, patience)
}

// Tokens returns the tokens of a session.
func Tokens(s Session) (refresh, id string, idExpires time.Time) {
	t := s.tokens()
	return t.refresh, t.id, t.idExpires
}

// NewSession makes a session of tokens as they come from a provider.
func NewSession(p Provider, refresh, id string, obtained, expires time.Time) (Session, error) {
	p, err := p.check()
	if err != nil {
		return Session{}, err
	}
	return Session{Provider: p, Obtained: obtained, Expires: expires}.with(tokens{refresh: refresh, id: id}, obtained)
}

// SeedOf returns the seed of an exchange's key.
func SeedOf(x *Exchange) []byte { return x.key.Seed().Reveal() }

// The decoders that read what others wrote.
var (
	ReadClaims      = readClaims
	ParseMesh       = parseMesh
	ParseCapability = parseCapability
	ParseBearer     = parseBearer
	ParseFields     = parseFields
)

// JudgeExchange reads a refusal of an exchange.
func JudgeExchange(status int, body []byte) error {
	return refused(answer{status: status, body: body}, "ada")
}

// WithoutIDToken is a session whose id token is gone.
func WithoutIDToken(s Session) Session {
	t := s.tokens()
	t.id, t.idExpires = "", time.Time{}
	return s.holding(t)
}
