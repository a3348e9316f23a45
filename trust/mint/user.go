package mint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// UserRequest asks for a credential in a space.
type UserRequest struct {
	// Space, Profile and Principal are required.
	Space     wire.Space
	Profile   trust.Profile
	Principal wire.Principal
	// UID is the lifecycle; empty begins a new one.
	UID wire.UID
	// Role, Subscribe, Publish and Commands are what the profile's template fills in. Empty lists permit nothing.
	Role                         string
	Subscribe, Publish, Commands []string
	// TTL is the lifetime; 0 means the default of the profile.
	TTL time.Duration
}

// User makes a credential with a new key.
//
// Errors: bad-request for a name, pattern or lifetime outside the grammar or the limits of the profile;
// permission-denied for a command that is never granted; resource-exhausted for a list that is too long; not-found for
// an unknown space; failed-precondition for a record or seed that cannot be trusted.
func (a *Authority) User(ctx context.Context, r UserRequest) (*trust.Credentials, error) {
	creds, err := a.user(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("mint %s credential of %q in space %q: %w", r.Profile, r.Principal, r.Space, err)
	}
	return creds, nil
}

func (a *Authority) user(ctx context.Context, r UserRequest) (*trust.Credentials, error) {
	if r.UID == "" {
		r.UID = wire.NewUID()
	}
	id := trust.Identity{
		Space: r.Space, Profile: r.Profile, Lifecycle: wire.Lifecycle{Principal: r.Principal, UID: r.UID}, Inbox: string(r.UID),
		Role: r.Role, Subscribe: slices.Clone(r.Subscribe), Publish: slices.Clone(r.Publish), Commands: slices.Clone(r.Commands),
	}
	if err := r.Space.Validate(); err != nil {
		return nil, err
	}
	_, rec, _, err := a.account(ctx, r.Space)
	if err != nil {
		return nil, err
	}
	if err := allRevoked(rec); err != nil {
		return nil, err
	}
	key := trust.SigningKey(r.Space, r.Profile)
	return a.issue(ctx, id, r.TTL, rec.Public, func() (signer.Signer, error) {
		return a.profileSigner(ctx, key, trust.AccountKey(r.Space), rec.KeysOf(r.Profile))
	})
}

// allRevoked refuses to mint what a revocation of everything, with a time ahead of the clock, would kill at once.
func allRevoked(rec trust.AccountRecord) error {
	for _, r := range rec.Revocations {
		if r.UserKey == trust.AllUsers && !time.Now().Truncate(time.Second).After(r.At) {
			return wire.Errorf(wire.CodeFailedPrecondition, "every credential issued until %s is revoked; ask again after it", r.At.Format(time.RFC3339))
		}
	}
	return nil
}

// issue makes the credential of an identity once it is valid.
func (a *Authority) issue(ctx context.Context, id trust.Identity, ttl time.Duration, account string, find func() (signer.Signer, error)) (*trust.Credentials, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	expires, err := expiry(id.Profile, ttl)
	if err != nil {
		return nil, err
	}
	s, err := find()
	if err != nil {
		return nil, err
	}
	key, err := userKey()
	if err != nil {
		return nil, err
	}
	claims := jwt.NewUserClaims(key.Public())
	claims.SetScoped(true) // no permission and no limit of its own: the template of the signing key is all it has
	claims.Name = id.Principal.String()
	claims.IssuerAccount = account
	claims.Tags = id.Tags()
	claims.Expires = expires.Unix()
	token, err := sign(ctx, claims, s)
	if err != nil {
		return nil, err
	}
	return trust.NewCredentials(token, key.Seed().Reveal())
}

// expiry resolves a lifetime against the profile's default and maximum. Lifetimes are whole seconds, as in the JWT.
func expiry(p trust.Profile, ttl time.Duration) (time.Time, error) {
	l := p.Lifetime()
	if ttl == 0 {
		ttl = l.Default
	}
	if ttl < time.Second || ttl > l.Max {
		return time.Time{}, wire.Errorf(wire.CodeBadRequest, "lifetime %s of profile %q outside %s to %s", ttl, p, time.Second, l.Max)
	}
	return time.Now().Add(ttl), nil
}

// The kinds of system credentials, see package trust.
const (
	SystemControl  = trust.SystemControl
	SystemNode     = trust.SystemNode
	SystemObserver = trust.SystemObserver
	SystemWatcher  = trust.SystemWatcher
)

// SystemRequest asks for a credential of the broker's system account.
type SystemRequest struct {
	// Kind says which template applies; required.
	Kind trust.SystemKind
	// Account is the public key of the account that a [SystemWatcher] watches; empty for the other kinds.
	Account string
	// TTL is the lifetime; 0 means the default of the kind.
	TTL time.Duration
}

// SystemUser makes a credential of the system account. Errors are those of [Authority.User].
func (a *Authority) SystemUser(ctx context.Context, r SystemRequest) (*trust.Credentials, error) {
	creds, err := a.systemUser(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("mint %s credential: %w", r.Kind, err)
	}
	return creds, nil
}

func (a *Authority) systemUser(ctx context.Context, r SystemRequest) (*trust.Credentials, error) {
	if err := r.Kind.Validate(); err != nil {
		return nil, err
	}
	rec, _, err := a.loadBroker(ctx)
	if err != nil {
		return nil, err
	}
	uid := wire.NewUID()
	actor := strings.ReplaceAll(string(r.Kind), "-", "_")
	id := trust.Identity{
		Profile: r.Kind.Profile(), Account: r.Account, Inbox: string(uid),
		Lifecycle: wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: actor}, UID: uid},
	}
	return a.issue(ctx, id, r.TTL, rec.System.Public, func() (signer.Signer, error) {
		return a.profileSigner(ctx, trust.SystemSigningKey(r.Kind), trust.BrokerKey, rec.System.KeysOf(r.Kind))
	})
}
