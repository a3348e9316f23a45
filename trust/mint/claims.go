package mint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// minServer is the oldest broker that an operator JWT of ours admits: older ones lack what the templates rely on.
const minServer = "2.15.0"

// sign encodes claims through a signer and checks what came back from one that is kept elsewhere, so that a signer that
// misbehaves is found before its work is used.
func sign(ctx context.Context, claims jwt.Claims, s signer.Signer) (string, error) {
	pair, err := nkeys.FromPublicKey(s.Public())
	if err != nil {
		return "", wire.Errorf(wire.CodeFailedPrecondition, "sign: the signer has no public key")
	}
	token, err := claims.EncodeWithSigner(pair, func(_ string, payload []byte) ([]byte, error) { return s.Sign(ctx, payload) })
	if err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("sign: %w", ctx.Err())
		}
		return "", wire.Errorf(wire.CodeUnavailable, "sign: %w", err)
	}
	if _, ok := s.(*signer.Local); ok {
		return token, nil
	}
	if err := verifies(claims, token); err != nil {
		return "", wire.Errorf(wire.CodeFailedPrecondition, "sign: the signature of key %q does not verify", s.Public())
	}
	return token, nil
}

// verifies checks the signature that came back. The library checks generic claims, which have no version, elsewhere.
func verifies(claims jwt.Claims, token string) error {
	if _, ok := claims.(*jwt.GenericClaims); ok {
		_, err := jwt.DecodeGeneric(token)
		return err
	}
	_, err := jwt.Decode(token)
	return err
}

// signOperator writes the operator JWT of the record's keys. The operator's identity signs nothing else.
func (a *Authority) signOperator(ctx context.Context, rec *trust.BrokerRecord) error {
	identity, err := a.signerOf(ctx, trust.OperatorKey)
	if err != nil {
		return err
	}
	if identity.Public() != rec.Operator {
		return wire.Errorf(wire.CodeFailedPrecondition, "seed %q is not that of the operator in record %q", trust.OperatorKey, trust.BrokerKey)
	}
	c := jwt.NewOperatorClaims(rec.Operator)
	c.Name = wire.Root
	c.SystemAccount = rec.System.Public
	c.StrictSigningKeyUsage = true
	c.AssertServerVersion = minServer
	for _, k := range rec.Signing {
		c.SigningKeys = append(c.SigningKeys, k.Public)
	}
	rec.OperatorJWT, err = sign(ctx, c, identity)
	return err
}

// errMoved says that a rotation replaced the operator key between reading the record and reading the seed.
var errMoved = errors.New("operator key was rotated meanwhile")

// operatorSigner returns the key that signs accounts now, or errMoved.
func (a *Authority) operatorSigner(ctx context.Context, rec trust.BrokerRecord) (signer.Signer, error) {
	public := rec.Signs(trust.KeyCurrent)
	s, err := a.signerOf(ctx, trust.OperatorSigningKey(public))
	if errors.Is(err, secret.ErrNotFound) {
		if newer, _, lerr := a.loadBroker(ctx); lerr == nil && newer.Generation != rec.Generation {
			return nil, errMoved
		}
	}
	if err != nil {
		return nil, err
	}
	if s.Public() != public {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "seed %q is of another key", trust.OperatorSigningKey(public))
	}
	return s, checkKind(s, nkeys.PrefixByteOperator)
}

// systemClaims makes the claims of the system account from its record alone.
func systemClaims(rec trust.SystemRecord) (*jwt.AccountClaims, error) {
	c := jwt.NewAccountClaims(rec.Public)
	c.Name = "SYS"
	c.Tags = jwt.TagList{fmt.Sprintf("version:%d", rec.Version)}
	c.DefaultPermissions = denyAll()
	c.Limits = jwt.OperatorLimits{
		NatsLimits:    jwt.NatsLimits{Subs: trust.MaxSystemSubscriptions, Data: jwt.NoLimit, Payload: 8 << 20},
		AccountLimits: jwt.AccountLimits{Conn: 1024, DisallowBearer: true},
	}
	for _, k := range rec.Keys {
		template, err := trust.SystemTemplate(k.Kind)
		if err != nil {
			return nil, err
		}
		addScope(c, k.Public, string(k.Kind), template)
	}
	return c, nil
}

// signSystem writes the JWT of the system account.
func (a *Authority) signSystem(ctx context.Context, rec *trust.BrokerRecord) error {
	c, err := systemClaims(rec.System)
	if err != nil {
		return err
	}
	s, err := a.operatorSigner(ctx, *rec)
	if err != nil {
		return err
	}
	rec.System.JWT, err = sign(ctx, c, s)
	return err
}

// accountClaims makes the claims of a space from its record alone.
func accountClaims(rec trust.AccountRecord) (*jwt.AccountClaims, error) {
	c := jwt.NewAccountClaims(rec.Public)
	c.Name = string(rec.Space)
	c.Tags = jwt.TagList{"space:" + string(rec.Space), fmt.Sprintf("version:%d", rec.Version)}
	c.DefaultPermissions = denyAll()
	l := rec.Limits
	c.Limits = jwt.OperatorLimits{
		NatsLimits:    jwt.NatsLimits{Subs: l.Subscriptions, Data: jwt.NoLimit, Payload: l.Payload},
		AccountLimits: jwt.AccountLimits{Conn: l.Connections, DisallowBearer: true},
		JetStreamLimits: jwt.JetStreamLimits{
			MemoryStorage: l.Memory, DiskStorage: l.Disk, Streams: l.Streams, Consumer: l.Consumers,
		},
	}
	for _, k := range rec.Keys {
		template, err := trust.Template(k.Profile, rec.Space)
		if err != nil {
			return nil, err
		}
		addScope(c, k.Public, string(k.Profile), template)
	}
	if len(rec.Revocations) > 0 {
		c.Revocations = make(jwt.RevocationList, len(rec.Revocations))
		for _, r := range rec.Revocations {
			c.Revocations[r.UserKey] = r.At.Unix()
		}
	}
	return c, nil
}

func addScope(c *jwt.AccountClaims, public, role string, template jwt.UserPermissionLimits) {
	scope := jwt.NewUserScope()
	scope.Key, scope.Role, scope.Template = public, role, template
	c.SigningKeys.AddScopedSigner(scope)
}

// denyAll are the permissions of a user that has none of its own.
func denyAll() jwt.Permissions {
	return jwt.Permissions{Pub: jwt.Permission{Deny: jwt.StringList{">"}}, Sub: jwt.Permission{Deny: jwt.StringList{">"}}}
}

// signAccount writes the JWTs of both accounts of a space. The record must not share its callout account with another.
func (a *Authority) signAccount(ctx context.Context, rec *trust.AccountRecord, broker trust.BrokerRecord) error {
	c, err := accountClaims(*rec)
	if err != nil {
		return err
	}
	s, err := a.operatorSigner(ctx, broker)
	if err != nil {
		return err
	}
	if rec.JWT, err = sign(ctx, c, s); err != nil {
		return err
	}
	return signCallout(ctx, rec, broker, s)
}

// current reports whether the JWTs of the record say what this build would say, signed by the current operator key.
func current(rec trust.AccountRecord, broker trust.BrokerRecord) bool {
	want, err := accountClaims(rec)
	if err != nil {
		return false
	}
	have, err := jwt.DecodeAccountClaims(rec.JWT)
	if err != nil || have.Issuer != broker.Signs(trust.KeyCurrent) {
		return false
	}
	return same(want, have) && calloutCurrent(rec, broker)
}

// systemCurrent reports whether the system account's JWT says what this build would say.
func systemCurrent(rec trust.SystemRecord) bool {
	want, err := systemClaims(rec)
	if err != nil {
		return false
	}
	have, err := jwt.DecodeAccountClaims(rec.JWT)
	return err == nil && same(want, have)
}

// same reports whether a JWT that was read says what was made now.
func same(want, have *jwt.AccountClaims) bool {
	if have.Name != want.Name {
		return false
	}
	want.Type, want.GenericFields.Version = have.Type, have.GenericFields.Version
	a, errA := json.Marshal(&want.Account)
	b, errB := json.Marshal(&have.Account)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
