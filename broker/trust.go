package broker

import (
	"maps"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/wire"
)

// Trust is what an embedded broker needs to know who may connect: signed claims only, no seed.
type Trust struct {
	// OperatorJWT is the self-signed claim of the operator.
	OperatorJWT string
	// SystemPublic and SystemJWT are the system account, over which the broker is controlled.
	SystemPublic, SystemJWT string
	// Accounts maps the public key of every account to its JWT.
	Accounts map[string]string
}

func (t Trust) empty() bool {
	return t.OperatorJWT == "" && t.SystemPublic == "" && t.SystemJWT == "" && len(t.Accounts) == 0
}

// issuers is who may sign accounts under one operator.
type issuers struct {
	operator *jwt.OperatorClaims
	keys     map[string]bool
}

// newIssuers reads the operator's claim.
func newIssuers(operatorJWT string, now time.Time) (*issuers, error) {
	op, err := jwt.DecodeOperatorClaims(operatorJWT)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read operator claim: %v", err)
	}
	if op.Subject != op.Issuer {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "operator claim of %q is signed by %q, not by itself", op.Subject, op.Issuer)
	}
	if expired(op.Expires, now) {
		return nil, wire.Errorf(wire.CodeExpired, "operator claim of %q expired at %s", op.Subject, stamp(op.Expires))
	}
	keys := map[string]bool{op.Subject: !op.StrictSigningKeyUsage}
	for _, k := range op.SigningKeys {
		keys[k] = true
	}
	return &issuers{operator: op, keys: keys}, nil
}

// owner is what a store directory is marked with.
func (i *issuers) owner() string {
	if i == nil {
		return openOwner
	}
	return i.operator.Subject
}

// signed reports whether a claim found on disk was signed under this operator, expired or not.
func (i *issuers) signed(public, token string) bool {
	if i == nil {
		return false
	}
	claim, err := jwt.DecodeAccountClaims(token)
	return err == nil && claim.Subject == public && i.keys[claim.Issuer]
}

// account checks that token is a valid claim of account public under this operator. The broker itself accepts, stores
// and then fails on claims that are not, so they are stopped here.
func (i *issuers) account(public, token string, now time.Time) (*jwt.AccountClaims, error) {
	claim, err := decodeAccount(public, token, now)
	if err != nil {
		return nil, err
	}
	if !i.keys[claim.Issuer] {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "account %q is signed by %q, which is no key of operator %q", public, claim.Issuer, i.operator.Subject)
	}
	return claim, nil
}

// decodeAccount checks what can be checked without the operator.
func decodeAccount(public, token string, now time.Time) (*jwt.AccountClaims, error) {
	if !nkeys.IsValidPublicAccountKey(public) {
		return nil, wire.Errorf(wire.CodeBadRequest, "%q is not the public key of an account", public)
	}
	claim, err := jwt.DecodeAccountClaims(token)
	switch {
	case err != nil:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read claim of account %q: %v", public, err)
	case claim.Subject != public:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "claim of account %q is about account %q", public, claim.Subject)
	case expired(claim.Expires, now):
		return nil, wire.Errorf(wire.CodeExpired, "claim of account %q expired at %s", public, stamp(claim.Expires))
	}
	var vr jwt.ValidationResults
	claim.Validate(&vr)
	if vr.IsBlocking(true) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "claim of account %q is not valid: %v", public, vr.Errors())
	}
	return claim, nil
}

// check verifies that everything in t belongs together.
func (t Trust) check(now time.Time) (*issuers, error) {
	is, err := newIssuers(t.OperatorJWT, now)
	if err != nil {
		return nil, err
	}
	system, err := is.account(t.SystemPublic, t.SystemJWT, now)
	if err != nil {
		return nil, err
	}
	if named := is.operator.SystemAccount; named != "" && named != t.SystemPublic {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "operator %q names system account %q, not %q", is.operator.Subject, named, t.SystemPublic)
	}
	if system.Limits.IsJSEnabled() {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "system account %q must not have JetStream", t.SystemPublic)
	}
	for _, public := range slices.Sorted(maps.Keys(t.Accounts)) {
		if public == t.SystemPublic {
			return nil, wire.Errorf(wire.CodeFailedPrecondition, "system account %q is listed as a data account", public)
		}
		if _, err := is.account(public, t.Accounts[public], now); err != nil {
			return nil, err
		}
	}
	return is, nil
}

// claims is everything the account directory must hold.
func (t Trust) claims() map[string]string {
	all := maps.Clone(t.Accounts)
	if all == nil {
		all = map[string]string{}
	}
	all[t.SystemPublic] = t.SystemJWT
	return all
}

func expired(unix int64, now time.Time) bool { return unix != 0 && now.Unix() >= unix }

func stamp(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }
