package mint

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Renew makes a later credential for the same holder and the same key, which only a credential is for that the records vouch for:
// one of the account of its space, signed by a key that the account lists for its profile. TTL 0 means the default of the
// profile. Whoever holds the key goes on under the same name; nothing of the credential before is refused.
//
// Errors: failed-precondition for a credential of another account, of a signing key that was retired, whose key is revoked, or
// that expired so long ago that a revocation of its key would be forgotten: such a holder needs a new key; bad-request for one that is
// no file; those of [Authority.User].
func (a *Authority) Renew(ctx context.Context, creds *trust.Credentials, ttl time.Duration) (*trust.Credentials, error) {
	next, err := a.renew(ctx, creds, ttl)
	if err != nil {
		id := creds.Identity()
		return nil, fmt.Errorf("renew %s credential of %q in space %q: %w", id.Profile, id.Principal, id.Space, err)
	}
	return next, nil
}

func (a *Authority) renew(ctx context.Context, creds *trust.Credentials, ttl time.Duration) (*trust.Credentials, error) {
	id := creds.Identity()
	if creds.Token() != "" {
		return nil, wire.Errorf(wire.CodeBadRequest, "it is a bearer, which its exchange renews")
	}
	if err := id.Space.Validate(); err != nil {
		return nil, err
	}
	if _, err := trust.ParseProfile(string(id.Profile)); err != nil {
		return nil, err
	}
	_, rec, _, err := a.account(ctx, id.Space)
	if err != nil {
		return nil, err
	}
	if err := vouched(creds, rec, time.Now()); err != nil {
		return nil, err
	}
	key, err := keyOf(creds)
	if err != nil {
		return nil, err
	}
	find := func() (signer.Signer, error) {
		return a.profileSigner(ctx, trust.SigningKey(id.Space, id.Profile), trust.AccountKey(id.Space), rec.KeysOf(id.Profile))
	}
	return a.issue(ctx, id, ttl, key, rec.Public, find)
}

// Vouches returns nil for a credential that [Authority.Renew] would renew, and else why not. It asks no broker.
func (a *Authority) Vouches(ctx context.Context, creds *trust.Credentials) error {
	id := creds.Identity()
	_, rec, _, err := a.account(ctx, id.Space)
	if err == nil {
		err = vouched(creds, rec, time.Now())
	}
	if err != nil {
		return fmt.Errorf("check %s credential of %q in space %q: %w", id.Profile, id.Principal, id.Space, err)
	}
	return nil
}

// vouched says why the records do not vouch for a credential.
func vouched(creds *trust.Credentials, rec trust.AccountRecord, now time.Time) error {
	id := creds.Identity()
	claims, err := jwt.DecodeUserClaims(creds.JWT()) // checks the signature
	if err != nil {
		return wire.Errorf(wire.CodeBadRequest, "it is not a user JWT")
	}
	switch {
	case claims.IssuerAccount != rec.Public:
		return wire.Errorf(wire.CodeFailedPrecondition, "it is of another account than record %q names", trust.AccountKey(rec.Space))
	case !slices.Contains(rec.KeysOf(id.Profile), claims.Issuer):
		return wire.Errorf(wire.CodeFailedPrecondition, "it was signed by a key that record %q does not list for the profile: the key was retired, or the credential is not ours",
			trust.AccountKey(rec.Space))
	case now.Sub(id.Expires) > trust.MaxLifetime:
		return wire.Errorf(wire.CodeFailedPrecondition, "it expired at %s, longer ago than revocations are kept", id.Expires.UTC().Format(time.RFC3339))
	}
	for _, r := range rec.Revocations {
		if (r.UserKey == id.UserKey || r.UserKey == trust.AllUsers) && !id.IssuedAt.After(r.At) {
			return wire.Errorf(wire.CodeFailedPrecondition, "its key is revoked")
		}
	}
	return nil
}

// keyOf takes the key out of a credentials file.
func keyOf(creds *trust.Credentials) (*signer.Local, error) {
	pair, err := jwt.ParseDecoratedUserNKey(creds.Reveal())
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "it holds no seed")
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "it holds no seed")
	}
	key, err := signer.FromSeed(signer.NewSeed(seed))
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "it holds no seed")
	}
	return key, nil
}
