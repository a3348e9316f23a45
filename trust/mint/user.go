package mint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

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
	// Spawns lets an agent ask a supervisor for agents, and command those that were started under it.
	Spawns bool
	// Instance is as which a supervisor serves.
	Instance string
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
	id := r.identity()
	if err := r.Space.Validate(); err != nil {
		return nil, err
	}
	if _, err := trust.ParseProfile(string(r.Profile)); err != nil {
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
	return a.issue(ctx, id, r.TTL, nil, rec.Public, func() (signer.Signer, error) {
		return a.profileSigner(ctx, key, trust.AccountKey(r.Space), rec.KeysOf(r.Profile))
	})
}

// UserJWT makes the user JWT of a credential whose key somebody else keeps: userKey is its public half (U…). TTL must be zero; it is cut
// to the second that expires names.
//
// Errors: those of [Authority.User]; bad-request for a key that is none; expired for an end that has come; permission-denied for a key
// that the account refuses already, of which a later JWT would be good again.
func (a *Authority) UserJWT(ctx context.Context, r UserRequest, userKey string, expires time.Time) (string, error) {
	token, err := a.userJWT(ctx, r, userKey, expires)
	if err != nil {
		return "", fmt.Errorf("mint %s credential of %q in space %q: %w", r.Profile, r.Principal, r.Space, err)
	}
	return token, nil
}

func (a *Authority) userJWT(ctx context.Context, r UserRequest, userKey string, expires time.Time) (string, error) {
	id := r.identity()
	switch {
	case r.TTL != 0:
		return "", wire.Errorf(wire.CodeBadRequest, "the end of the credential is given, and so no lifetime")
	case !nkeys.IsValidPublicUserKey(userKey):
		return "", wire.Errorf(wire.CodeBadRequest, "%.64q is not the public key of a user", userKey)
	}
	if err := r.Space.Validate(); err != nil {
		return "", err
	}
	if _, err := trust.ParseProfile(string(r.Profile)); err != nil {
		return "", err
	}
	if err := id.Validate(); err != nil {
		return "", err
	}
	if err := checkEnd(r.Profile, expires, time.Now()); err != nil {
		return "", err
	}
	_, rec, _, err := a.account(ctx, r.Space)
	if err != nil {
		return "", err
	}
	if err := allRevoked(rec); err != nil {
		return "", err
	}
	if slices.ContainsFunc(rec.Revocations, func(v trust.Revocation) bool { return v.UserKey == userKey }) {
		return "", trust.Deny(wire.CodePermissionDenied, trust.ReasonRevoked, "the credential of key %q is revoked; make another key", userKey)
	}
	key, err := a.profileSigner(ctx, trust.SigningKey(r.Space, r.Profile), trust.AccountKey(r.Space), rec.KeysOf(r.Profile))
	if err != nil {
		return "", err
	}
	claims := scopedUser(userKey, rec.Public, expires)
	claims.Name = id.Principal.String()
	claims.Tags = id.Tags()
	return sign(ctx, claims, key)
}

// identity is what the request asks for; it shares the lists.
func (r UserRequest) identity() trust.Identity {
	return trust.Identity{
		Space: r.Space, Profile: r.Profile, Lifecycle: wire.Lifecycle{Principal: r.Principal, UID: r.UID}, Inbox: string(r.UID),
		Role: r.Role, Subscribe: r.Subscribe, Publish: r.Publish, Commands: r.Commands, Spawns: r.Spawns, Instance: r.Instance,
	}
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

// issue makes the credential of an identity once it is valid: for the given key, or a new one.
func (a *Authority) issue(ctx context.Context, id trust.Identity, ttl time.Duration, key *signer.Local, account string, find func() (signer.Signer, error)) (*trust.Credentials, error) {
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
	if key == nil {
		if key, err = userKey(); err != nil {
			return nil, err
		}
	}
	claims := scopedUser(key.Public(), account, expires)
	claims.Name = id.Principal.String()
	claims.Tags = id.Tags()
	token, err := sign(ctx, claims, s)
	if err != nil {
		return nil, err
	}
	return trust.NewCredentials(token, key.Seed().Reveal())
}

// scopedUser begins the claims of a user that has no permission and no limit of its own: the template of the signing key is
// all it has.
func scopedUser(public, account string, expires time.Time) *jwt.UserClaims {
	claims := jwt.NewUserClaims(public)
	claims.SetScoped(true)
	claims.IssuerAccount = account
	claims.Expires = expires.Unix()
	return claims
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
	return a.issue(ctx, id, r.TTL, nil, rec.System.Public, func() (signer.Signer, error) {
		return a.profileSigner(ctx, trust.SystemSigningKey(r.Kind), trust.BrokerKey, rec.System.KeysOf(r.Kind))
	})
}
