package trust

import (
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/wire"
)

// AuthTimeout is how long every broker of ours lets a connection stay undecided. What asked to come in before somebody was
// refused can still come in this much later, and no more: whoever must be sure waits it out and looks again.
const AuthTimeout = 2 * time.Second

// Callout is the profile of the service that decides who may come into a space of people. Its credentials belong to the
// space's callout account and not to the account in which messages are sent, so it is none of [Profiles].
const Callout Profile = "callout"

// CalloutKind is what a scoped signing key of a callout account is for.
type CalloutKind string

// The kinds of keys of a callout account.
const (
	// CalloutResponder signs the credentials of the service that decides, and its answers.
	CalloutResponder CalloutKind = "responder"
	// CalloutSentinel signs the public credential with which people and agents knock. It permits nothing: the broker asks
	// the responder about everybody who shows it.
	CalloutSentinel CalloutKind = "sentinel"
)

// CalloutKinds returns both kinds, in a fixed order.
func CalloutKinds() []CalloutKind { return []CalloutKind{CalloutResponder, CalloutSentinel} }

// Limits of a callout account.
const (
	// MaxUndecided bounds the connections that wait to be decided, and the responders, together: about what one responder
	// decides within [AuthTimeout]. Those beyond it are refused at once and come back, instead of waiting in vain.
	MaxUndecided = 1024
	// MaxCalloutPayload bounds an answer in bytes: a credential of the largest lists inside a signed answer.
	MaxCalloutPayload = 64 << 10
	// maxResponderSubscriptions bounds the subscriptions of a responder.
	maxResponderSubscriptions = 8
	// answerWithin is how long a responder may answer a question.
	answerWithin = 5 * time.Second
)

// CalloutRecord is the callout account of a space that signs people in. Both accounts stand in one record, so that they change
// together. The JWT is made from the other fields.
type CalloutRecord struct {
	Public string `json:"public"`
	JWT    string `json:"jwt"`
	// XKey is the public curve key (X…) to which brokers seal their questions. Whoever has its seed and can answer
	// decides: brokers ask nothing else of a sealed answer.
	XKey string `json:"xkey"`
	// User is the public key (U…) of the responder's credentials, the only one about which brokers do not ask. All replicas
	// share it.
	User string       `json:"user"`
	Keys []CalloutKey `json:"keys"`
}

// CalloutKey is one scoped signing key of a callout account.
type CalloutKey struct {
	Kind    CalloutKind `json:"kind"`
	Public  string      `json:"public"`
	Created time.Time   `json:"created"`
}

// KeysOf returns the public keys of a kind, oldest first.
func (c CalloutRecord) KeysOf(kind CalloutKind) []string {
	var out []string
	for _, k := range c.Keys {
		if k.Kind == kind {
			out = append(out, k.Public)
		}
	}
	return out
}

// SignedAccount is an account as brokers take it.
type SignedAccount struct {
	Public string // A…
	JWT    string
}

// Accounts returns every account of the space in the order in which brokers should get them: the one in which messages are sent,
// then the one that lets people into it.
func (a AccountRecord) Accounts() []SignedAccount {
	out := []SignedAccount{{Public: a.Public, JWT: a.JWT}}
	if a.Callout != nil {
		out = append(out, SignedAccount{Public: a.Callout.Public, JWT: a.Callout.JWT})
	}
	return out
}

// Clone returns a copy that shares nothing with a.
func (a AccountRecord) Clone() AccountRecord {
	a.Keys, a.Revocations = slices.Clone(a.Keys), slices.Clone(a.Revocations)
	if a.Callout != nil {
		c := *a.Callout
		c.Keys = slices.Clone(c.Keys)
		a.Callout = &c
	}
	return a
}

// CalloutTemplate returns the permissions of a key of a callout account. Its error has code bad-request.
func CalloutTemplate(kind CalloutKind) (jwt.UserPermissionLimits, error) {
	nothing := jwt.Permission{Deny: jwt.StringList{">"}}
	out := jwt.UserPermissionLimits{AllowedConnectionTypes: jwt.StringList{jwt.ConnectionTypeStandard, jwt.ConnectionTypeInProcess}}
	switch kind {
	case CalloutResponder:
		// It hears questions as one of its group alone and publishes nothing but one answer to each.
		out.Pub, out.Sub = nothing, jwt.Permission{Allow: jwt.StringList{wire.CalloutSubject + " " + wire.CalloutQueue}}
		out.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: answerWithin}
		out.NatsLimits = jwt.NatsLimits{Subs: maxResponderSubscriptions, Data: jwt.NoLimit, Payload: MaxCalloutPayload}
	case CalloutSentinel:
		out.Pub, out.Sub, out.BearerToken = nothing, nothing, true
		out.AllowedConnectionTypes = append(out.AllowedConnectionTypes, jwt.ConnectionTypeWebsocket)
		out.NatsLimits = jwt.NatsLimits{Subs: 1, Data: jwt.NoLimit, Payload: 1}
	default:
		return jwt.UserPermissionLimits{}, wire.Errorf(wire.CodeBadRequest, "make template: unknown kind %.64q of a callout account", string(kind))
	}
	return out, nil
}

// checkCallout says what does not fit about the callout account of the record.
func (a AccountRecord) checkCallout(operator *jwt.OperatorClaims) string {
	c := a.Callout
	switch {
	case c.Public == a.Public:
		return "callout account: it is the account of the space itself"
	case !nkeys.IsValidPublicCurveKey(c.XKey) || !nkeys.IsValidPublicUserKey(c.User):
		return "callout account: its curve key or its user is none"
	}
	keys := map[string]jwt.UserPermissionLimits{}
	for _, k := range c.Keys {
		t, err := CalloutTemplate(k.Kind)
		if err != nil {
			return "callout account: it has a key of an unknown kind"
		}
		keys[k.Public] = t
	}
	if len(keys) != len(c.Keys) {
		return "callout account: it lists a key twice"
	}
	if why := checkAccount(c.JWT, c.Public, operator, keys); why != "" {
		return "callout account: " + why
	}
	claims, err := jwt.DecodeAccountClaims(c.JWT)
	if err != nil {
		return "callout account: its JWT is unreadable"
	}
	decides := claims.Authorization
	if !slices.Equal(decides.AuthUsers, jwt.StringList{c.User}) || !slices.Equal(decides.AllowedAccounts, jwt.StringList{a.Public}) || decides.XKey != c.XKey {
		return "callout account: its JWT names another responder, another account or another curve key"
	}
	return ""
}
