package mint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// calloutActor is who answers for the callout account, under the local owner.
const calloutActor = string(trust.Callout)

// EnsureCallout gives a space its callout account, with the keys of those who answer for it, and returns the record, to be pushed:
// first the account of the space, then the callout account (trust.AccountRecord.Accounts). It is idempotent: what is there
// keeps its keys, and is signed anew when its templates are older than this build. It completes what an interrupted call began.
//
// Errors: not-found for an unknown space, or one whose creation was not completed; failed-precondition for a record or seed that
// cannot be trusted.
func (a *Authority) EnsureCallout(ctx context.Context, s wire.Space) (trust.AccountRecord, error) {
	return a.ensureCallout(ctx, s, a.addCallout)
}

// SwitchToCallout is EnsureCallout for a space that may have handed out credentials: the write that lists the callout account also
// refuses every credential issued until then. So nothing is issued between the two, and what is issued later was asked for by
// somebody who saw the callout account, or can look for it once more. Nothing can be minted in the rest of that second.
//
// Errors: as of [Authority.EnsureCallout].
func (a *Authority) SwitchToCallout(ctx context.Context, s wire.Space) (trust.AccountRecord, error) {
	return a.ensureCallout(ctx, s, func(ctx context.Context, rec *trust.AccountRecord) error {
		if rec.Callout == nil {
			all, err := resolve([]Revocation{{UserKey: trust.AllUsers}}, time.Now())
			if err != nil {
				return err
			}
			rec.Revocations = merge(rec.Revocations, all)
		}
		return a.addCallout(ctx, rec)
	})
}

// AwaitSwitch returns once what is issued is not refused by a [Authority.SwitchToCallout] of before, whose second has to pass, or with the error
// of ctx.
func AwaitSwitch(ctx context.Context) error {
	return pause.For(ctx, time.Until(time.Now().Truncate(time.Second).Add(1100*time.Millisecond)))
}

func (a *Authority) ensureCallout(ctx context.Context, s wire.Space, change func(context.Context, *trust.AccountRecord) error) (trust.AccountRecord, error) {
	broker, _, err := a.loadBroker(ctx)
	if err == nil {
		if entry, ok := broker.Space(s); !ok || entry.State != trust.SpaceActive {
			err = wire.Errorf(wire.CodeNotFound, "no such space, or half made: add it first")
		}
	}
	var rec trust.AccountRecord
	if err == nil {
		rec, err = a.updateAccount(ctx, s, change)
	}
	if err != nil {
		return trust.AccountRecord{}, fmt.Errorf("ensure callout account of space %q: %w", s, err)
	}
	return rec, nil
}

// addCallout lists a callout account unless there is one, and what it lacks.
func (a *Authority) addCallout(ctx context.Context, rec *trust.AccountRecord) error {
	if rec.Callout == nil {
		public, err := discardedAccount()
		if err != nil {
			return err
		}
		user, err := a.ensureLocal(ctx, trust.CalloutUserKey(rec.Space), signer.User)
		if err == nil {
			err = checkKind(user, nkeys.PrefixByteUser)
		}
		if err != nil {
			return err
		}
		xkey, err := a.ensureCurve(ctx, trust.CalloutXKey(rec.Space))
		if err != nil {
			return err
		}
		rec.Callout = &trust.CalloutRecord{Public: public, XKey: xkey.public, User: user.Public()}
	}
	return a.addMissingCalloutKeys(ctx, rec)
}

// addMissingCalloutKeys lists a key for every kind that has none.
func (a *Authority) addMissingCalloutKeys(ctx context.Context, rec *trust.AccountRecord) error {
	if rec.Callout == nil {
		return nil
	}
	for _, kind := range trust.CalloutKinds() {
		if len(rec.Callout.KeysOf(kind)) > 0 {
			continue
		}
		key, err := a.ensureSigner(ctx, trust.CalloutSigningKey(rec.Space, kind), signer.Account)
		if err == nil {
			err = checkKind(key, nkeys.PrefixByteAccount)
		}
		if err != nil {
			return err
		}
		rec.Callout.Keys = append(rec.Callout.Keys, trust.CalloutKey{Kind: kind, Public: key.Public(), Created: now()})
	}
	return nil
}

// calloutClaims makes the claims of the callout account from the record alone. They do not carry the record's version: a
// revocation in the space changes nothing about who decides, and leaves the JWT as it is.
func calloutClaims(rec trust.AccountRecord) (*jwt.AccountClaims, error) {
	co := rec.Callout
	c := jwt.NewAccountClaims(co.Public)
	c.Name = string(rec.Space) + " callout"
	c.Tags = jwt.TagList{"space:" + string(rec.Space)}
	c.DefaultPermissions = denyAll()
	c.Limits = jwt.OperatorLimits{
		NatsLimits:    jwt.NatsLimits{Subs: 8, Data: jwt.NoLimit, Payload: trust.MaxCalloutPayload},
		AccountLimits: jwt.AccountLimits{Conn: trust.MaxUndecided},
	}
	c.Authorization = jwt.ExternalAuthorization{
		AuthUsers: jwt.StringList{co.User}, AllowedAccounts: jwt.StringList{rec.Public}, XKey: co.XKey,
	}
	for _, k := range co.Keys {
		template, err := trust.CalloutTemplate(k.Kind)
		if err != nil {
			return nil, err
		}
		addScope(c, k.Public, "callout-"+string(k.Kind), template)
	}
	return c, nil
}

// signCallout writes the JWT of the callout account unless it says what it should.
func signCallout(ctx context.Context, rec *trust.AccountRecord, broker trust.BrokerRecord, s signer.Signer) error {
	if rec.Callout == nil || calloutCurrent(*rec, broker) {
		return nil
	}
	c, err := calloutClaims(*rec)
	if err != nil {
		return err
	}
	rec.Callout.JWT, err = sign(ctx, c, s)
	return err
}

// calloutCurrent reports whether the JWT of the callout account, if there is one, says what this build would say, signed by the
// current operator key.
func calloutCurrent(rec trust.AccountRecord, broker trust.BrokerRecord) bool {
	if rec.Callout == nil {
		return true
	}
	want, err := calloutClaims(rec)
	if err != nil {
		return false
	}
	have, err := jwt.DecodeAccountClaims(rec.Callout.JWT)
	return err == nil && have.Issuer == broker.Signs(trust.KeyCurrent) && same(want, have)
}

// CalloutUser makes a credential of the service that answers for the callout account of a space. Its user key is always the same, so that
// replicas share it and brokers need not learn of another. A ttl of 0 means the default of profile trust.Callout. The seed of
// that key is always in the store, never with Options.Signer.
//
// Errors: bad-request for a lifetime outside the limits; not-found for an unknown space; failed-precondition for a space
// without a callout account and for a record or seed that cannot be trusted.
func (a *Authority) CalloutUser(ctx context.Context, s wire.Space, ttl time.Duration) (*trust.Credentials, error) {
	creds, err := a.calloutUser(ctx, s, ttl)
	if err != nil {
		return nil, fmt.Errorf("mint callout credential of space %q: %w", s, err)
	}
	return creds, nil
}

func (a *Authority) calloutUser(ctx context.Context, s wire.Space, ttl time.Duration) (*trust.Credentials, error) {
	rec, err := a.withCallout(ctx, s)
	if err != nil {
		return nil, err
	}
	name := trust.CalloutUserKey(s)
	user, err := a.local(ctx, name)
	if err != nil {
		return nil, needed(name, err)
	}
	if user.Public() != rec.Callout.User {
		return nil, foreignSeed(name, trust.AccountKey(s))
	}
	uid := wire.NewUID()
	id := trust.Identity{
		Space: s, Profile: trust.Callout, Inbox: string(uid),
		Lifecycle: wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: calloutActor}, UID: uid},
	}
	return a.issue(ctx, id, ttl, user, rec.Callout.Public, func() (signer.Signer, error) {
		return a.calloutSigner(ctx, rec, trust.CalloutResponder)
	})
}

// Sentinel makes the public credential of a space that signs people in: a bearer JWT of a key that nobody has, which permits
// nothing and about whose holders brokers ask the callout. A ttl of 0 means no end, and is what a mesh hands out: nats-server (2.15)
// starts a timer for the end of a sentinel, forgets it when the callout lets the connection in, and so keeps what belongs to the
// connection, some 80 KB, until then, however soon it is closed.
//
// Errors are those of [Authority.CalloutUser].
func (a *Authority) Sentinel(ctx context.Context, s wire.Space, ttl time.Duration) (string, error) {
	token, err := a.sentinel(ctx, s, ttl)
	if err != nil {
		return "", fmt.Errorf("mint sentinel of space %q: %w", s, err)
	}
	return token, nil
}

func (a *Authority) sentinel(ctx context.Context, s wire.Space, ttl time.Duration) (string, error) {
	if ttl != 0 && ttl < time.Second || ttl > trust.MaxLifetime {
		return "", wire.Errorf(wire.CodeBadRequest, "lifetime %s of a sentinel outside %s to %s", ttl, time.Second, trust.MaxLifetime)
	}
	rec, err := a.withCallout(ctx, s)
	if err != nil {
		return "", err
	}
	key, err := a.calloutSigner(ctx, rec, trust.CalloutSentinel)
	if err != nil {
		return "", err
	}
	nobody, err := userKey()
	if err != nil {
		return "", err
	}
	claims := scopedUser(nobody.Public(), rec.Callout.Public, time.Now().Add(ttl))
	if ttl == 0 {
		claims.Expires = 0
	}
	claims.Name = "sentinel"
	claims.Tags = jwt.TagList{"profile:sentinel", "space:" + string(s)}
	return sign(ctx, claims, key)
}

// withCallout is the record of a space that has a callout account.
func (a *Authority) withCallout(ctx context.Context, s wire.Space) (trust.AccountRecord, error) {
	if err := s.Validate(); err != nil {
		return trust.AccountRecord{}, err
	}
	_, rec, _, err := a.account(ctx, s)
	if err == nil && rec.Callout == nil {
		err = noCallout(s)
	}
	return rec, err
}

func noCallout(s wire.Space) error {
	return trust.Deny(wire.CodeFailedPrecondition, trust.ReasonStaticMode, "space %q has no callout account: it does not sign people in", s)
}

func (a *Authority) calloutSigner(ctx context.Context, rec trust.AccountRecord, kind trust.CalloutKind) (signer.Signer, error) {
	return a.profileSigner(ctx, trust.CalloutSigningKey(rec.Space, kind), trust.AccountKey(rec.Space), rec.Callout.KeysOf(kind))
}

// checkCallout is CheckSeeds for a callout account; check compares a seed that signs.
func (a *Authority) checkCallout(ctx context.Context, rec trust.AccountRecord, check func(key, record string, listed ...string) error) error {
	co, record := rec.Callout, trust.AccountKey(rec.Space)
	if co == nil {
		return nil
	}
	for _, k := range co.Keys {
		if err := check(trust.CalloutSigningKey(rec.Space, k.Kind), record, co.KeysOf(k.Kind)...); err != nil {
			return err
		}
	}
	name := trust.CalloutUserKey(rec.Space)
	user, err := a.local(ctx, name)
	switch {
	case err != nil && !errors.Is(err, secret.ErrNotFound):
		return err
	case err == nil && user.Public() != co.User:
		return foreignSeed(name, record)
	}
	name = trust.CalloutXKey(rec.Space)
	xkey, err := a.curve(ctx, name)
	switch {
	case err != nil && !errors.Is(err, secret.ErrNotFound):
		return err
	case err == nil && xkey.public != co.XKey:
		return foreignSeed(name, record)
	}
	return nil
}

// calloutSeeds names every seed of a callout account.
func calloutSeeds(s wire.Space) []string {
	out := []string{trust.CalloutUserKey(s), trust.CalloutXKey(s)}
	for _, kind := range trust.CalloutKinds() {
		out = append(out, trust.CalloutSigningKey(s, kind))
	}
	return out
}

// ConnectionRequest asks for the credential of one connection that a callout has decided about.
type ConnectionRequest struct {
	// UserRequest is who connects and with which lists. UID is required; TTL must be zero; Space may be empty.
	UserRequest
	// UserKey is the public key (U…) that the broker made for the connection.
	UserKey string
	// Expires is the end of the connection, cut to the second.
	Expires time.Time
}

// ConnectionJWT makes the user JWT of one connection: for the key that the broker named, which is also its name, signed by the key
// of the profile, with tags and nothing else. It reads the records and the seed from the store at most every 25 ms for all connections of a space together;
// what this Authority changes itself is seen at once.
//
// Brokers do not look at the revocations of an account when a callout lets somebody in. ConnectionJWT refuses while everything
// issued until now is revoked; whoever revokes must wait out trust.AuthTimeout and then end what came in meanwhile.
//
// Errors: bad-request for a name, pattern, key or end outside the grammar or the limits of the profile; expired for an end that
// has come; permission-denied for a command that is never granted; resource-exhausted for a list that is too long;
// not-found for an unknown space; failed-precondition for a space without a callout account, while everything is revoked,
// and for a record or seed that cannot be trusted.
func (a *Authority) ConnectionJWT(ctx context.Context, s wire.Space, r ConnectionRequest) (string, error) {
	token, err := a.connectionJWT(ctx, s, r)
	if err != nil {
		return "", fmt.Errorf("mint connection of %q in space %q: %w", r.Principal, s, err)
	}
	return token, nil
}

func (a *Authority) connectionJWT(ctx context.Context, s wire.Space, r ConnectionRequest) (string, error) {
	if r.Space == "" {
		r.Space = s
	}
	id := r.identity()
	switch {
	case r.Space != s:
		return "", wire.Errorf(wire.CodeBadRequest, "the request is for space %q", r.Space)
	case r.TTL != 0:
		return "", wire.Errorf(wire.CodeBadRequest, "a connection has an end, not a lifetime")
	case !nkeys.IsValidPublicUserKey(r.UserKey):
		return "", wire.Errorf(wire.CodeBadRequest, "%.64q is not the public key of a user", r.UserKey)
	}
	if _, err := trust.ParseProfile(string(id.Profile)); err != nil {
		return "", err
	}
	if err := id.Validate(); err != nil {
		return "", err
	}
	if err := checkEnd(id.Profile, r.Expires, time.Now()); err != nil {
		return "", err
	}
	key, account, err := a.recentSigner(ctx, s, trust.SigningKey(s, id.Profile), func(rec trust.AccountRecord) ([]string, error) {
		if rec.Callout == nil {
			return nil, noCallout(s)
		}
		return rec.KeysOf(id.Profile), allRevoked(rec)
	})
	if err != nil {
		return "", err
	}
	claims := scopedUser(r.UserKey, account.Public, r.Expires)
	// The broker lists such a connection under the name in place of its key, so the name is the key: that tells one connection
	// from another of the same life. Whose it is stands in the tags.
	claims.Name = r.UserKey
	claims.Tags = id.Tags()
	return sign(ctx, claims, key)
}

// checkEnd refuses an end that has come, or is further away than credentials of the profile may live.
func checkEnd(p trust.Profile, end, now time.Time) error {
	switch limit := p.Lifetime().Max; {
	case end.Unix() <= now.Unix():
		return wire.Errorf(wire.CodeExpired, "it would end at %s, which has come", end.UTC().Format(time.RFC3339))
	case end.Sub(now) > limit:
		return wire.Errorf(wire.CodeBadRequest, "it would end in %s, profile %q lives %s", end.Sub(now).Round(time.Second), p, limit)
	}
	return nil
}
