package trust

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/wire"
)

// RecordVersion is the version of the records that this build reads and writes.
const RecordVersion = 1

// maxRecord bounds an encoded record: an account JWT with a full revocation list, twice.
const maxRecord = 3 << 20

// MaxRevocations bounds the revocations of one account. The broker's limit is what one account JWT of 1 MiB
// carries, about 11,000.
const MaxRevocations = 10_000

// AllUsers in place of a user key revokes every credential of an account that was issued until then.
const AllUsers = jwt.All

// BrokerRecord is the root of all trust: the operator, its signing keys, the system account and which spaces
// there are. It holds public keys and JWTs only.
type BrokerRecord struct {
	Ver         int                 `json:"ver"`
	Generation  uint64              `json:"generation"` // grows with every change
	Operator    string              `json:"operator"`   // public key of the operator's identity
	OperatorJWT string              `json:"operatorJWT"`
	Signing     []OperatorKeyRecord `json:"signing"`
	System      SystemRecord        `json:"system"`
	Spaces      []SpaceRecord       `json:"spaces,omitempty"`
}

// OperatorKeyState is what an operator signing key is used for.
type OperatorKeyState string

// The states of an operator signing key. There is always one current and one next; brokers trust both, so that a
// rotation needs no restart.
const (
	KeyCurrent  OperatorKeyState = "current"  // signs accounts
	KeyNext     OperatorKeyState = "next"     // trusted, signs nothing yet
	KeyRetiring OperatorKeyState = "retiring" // a rotation is replacing what it signed
)

// OperatorKeyRecord is one operator signing key.
type OperatorKeyRecord struct {
	Public  string           `json:"public"`
	State   OperatorKeyState `json:"state"`
	Created time.Time        `json:"created"`
}

// SystemRecord is the broker's system account.
type SystemRecord struct {
	Public  string            `json:"public"`
	JWT     string            `json:"jwt"`
	Version uint64            `json:"version"`
	Keys    []SystemKeyRecord `json:"keys"`
}

// SystemKeyRecord is one scoped signing key of the system account.
type SystemKeyRecord struct {
	Kind    SystemKind `json:"kind"`
	Public  string     `json:"public"`
	Created time.Time  `json:"created"`
}

// SpaceState is where a space is between being added and being gone.
type SpaceState string

// The states of a space.
const (
	SpaceAdding   SpaceState = "adding"
	SpaceActive   SpaceState = "active"
	SpaceRemoving SpaceState = "removing"
)

// SpaceRecord says that a space exists and which account is its.
type SpaceRecord struct {
	Name   wire.Space `json:"name"`
	Public string     `json:"public"`
	State  SpaceState `json:"state"`
}

// AccountRecord is the account of one space, and the one that lets people into it. The JWT is made from the other fields, never the other way round.
type AccountRecord struct {
	Ver         int          `json:"ver"`
	Space       wire.Space   `json:"space"`
	Public      string       `json:"public"`
	JWT         string       `json:"jwt"`
	Version     uint64       `json:"version"` // grows with every change, also of Callout; a tag of the JWT
	Limits      Limits       `json:"limits"`
	Keys        []KeyRecord  `json:"keys"`
	Revocations []Revocation `json:"revocations,omitempty"`
	// Callout is there when the space signs people in.
	Callout *CalloutRecord `json:"callout,omitempty"`
}

// KeyRecord is one scoped signing key of a space's account.
type KeyRecord struct {
	Profile Profile   `json:"profile"`
	Public  string    `json:"public"`
	Created time.Time `json:"created"`
}

// Revocation says that credentials of a user key issued until At are refused. After Until all of them have
// expired and the entry is dropped.
type Revocation struct {
	UserKey string    `json:"userKey"` // or [AllUsers]
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"`
}

// Limits bound an account. Zero fields mean the default; there is no "unlimited".
type Limits struct {
	Connections   int64 `json:"connections,omitempty"`   // live connections; default 4,096
	Subscriptions int64 `json:"subscriptions,omitempty"` // per connection; default 4,096
	Payload       int64 `json:"payload,omitempty"`       // bytes of one publish; default 1 MiB
	Memory        int64 `json:"memory,omitempty"`        // bytes of memory streams; default 256 MiB
	Disk          int64 `json:"disk,omitempty"`          // bytes of file streams; default 4 GiB
	Streams       int64 `json:"streams,omitempty"`       // streams and buckets; default 32
	Consumers     int64 `json:"consumers,omitempty"`     // consumers of one stream; default 16,384
}

// WithDefaults returns the limits with every zero replaced by its default. A nil receiver means all defaults.
func (l *Limits) WithDefaults() Limits {
	var out Limits
	if l != nil {
		out = *l
	}
	for _, f := range []struct {
		field *int64
		value int64
	}{
		{&out.Connections, 4096}, {&out.Subscriptions, 4096}, {&out.Payload, 1 << 20}, {&out.Memory, 256 << 20},
		{&out.Disk, 4 << 30}, {&out.Streams, 32}, {&out.Consumers, 16384},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return out
}

// Validate refuses limits that are not positive, and a payload that does not fit the contract's largest reply.
func (l Limits) Validate() error {
	for _, v := range []int64{l.Connections, l.Subscriptions, l.Payload, l.Memory, l.Disk, l.Streams, l.Consumers} {
		if v <= 0 {
			return wire.Errorf(wire.CodeBadRequest, "check limits: %d is not positive; there is no unlimited account", v)
		}
	}
	if l.Payload < MaxAgentPayload || l.Payload > 64<<20 {
		return wire.Errorf(wire.CodeBadRequest, "check limits: payload %d outside %d to %d", l.Payload, MaxAgentPayload, 64<<20)
	}
	return nil
}

// Space returns the entry of a space.
func (b BrokerRecord) Space(s wire.Space) (SpaceRecord, bool) {
	i := slices.IndexFunc(b.Spaces, func(r SpaceRecord) bool { return r.Name == s })
	if i < 0 {
		return SpaceRecord{}, false
	}
	return b.Spaces[i], true
}

// Signs returns the public operator signing key that is in the given state, or the empty string.
func (b BrokerRecord) Signs(state OperatorKeyState) string {
	for _, k := range b.Signing {
		if k.State == state {
			return k.Public
		}
	}
	return ""
}

// KeysOf returns the public keys that may sign credentials of a profile, oldest first.
func (a AccountRecord) KeysOf(p Profile) []string {
	var out []string
	for _, k := range a.Keys {
		if k.Profile == p {
			out = append(out, k.Public)
		}
	}
	return out
}

// KeysOf returns the public keys that may sign system credentials of a kind, oldest first.
func (r SystemRecord) KeysOf(kind SystemKind) []string {
	var out []string
	for _, k := range r.Keys {
		if k.Kind == kind {
			out = append(out, k.Public)
		}
	}
	return out
}

// Encode returns the record as JSON.
func (b BrokerRecord) Encode() ([]byte, error) { return encodeRecord(BrokerKey, b) }

// Encode returns the record as JSON.
func (a AccountRecord) Encode() ([]byte, error) { return encodeRecord(AccountKey(a.Space), a) }

func encodeRecord(name string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode record %q: %v", name, err)
	}
	if len(data) > maxRecord {
		return nil, exhausted(len(data), maxRecord, "encode record %q: %d bytes, limit %d", name, len(data), maxRecord)
	}
	return data, nil
}

// DecodeBrokerRecord reads the root record and checks that its parts belong together: the operator signed its own JWT,
// which lists exactly the signing keys and the system account of the record, and one of those keys signed the
// system account. Errors have code failed-precondition and name the record, never its content.
func DecodeBrokerRecord(data []byte) (BrokerRecord, error) {
	var b BrokerRecord
	if err := decodeClosed(data, &b, maxRecord); err != nil {
		return BrokerRecord{}, refuse(BrokerKey, err.Error())
	}
	if b.Ver != RecordVersion {
		return BrokerRecord{}, wire.Errorf(wire.CodeFailedPrecondition, "record %q has version %d, this build reads %d", BrokerKey, b.Ver, RecordVersion)
	}
	if why := b.check(); why != "" {
		return BrokerRecord{}, refuse(BrokerKey, why)
	}
	return b, nil
}

func (b BrokerRecord) check() string {
	operator, err := jwt.DecodeOperatorClaims(b.OperatorJWT)
	if err != nil {
		return "the operator JWT is unreadable"
	}
	var listed []string
	states := map[OperatorKeyState]int{}
	for _, k := range b.Signing {
		listed = append(listed, k.Public)
		states[k.State]++
	}
	switch {
	case operator.Subject != b.Operator || operator.Issuer != b.Operator || !nkeys.IsValidPublicOperatorKey(b.Operator):
		return "the operator JWT is of another operator"
	case !operator.StrictSigningKeyUsage || operator.SystemAccount != b.System.Public:
		return "the operator JWT is not what this build makes"
	case !sameSet(listed, operator.SigningKeys) || states[KeyCurrent] != 1 || states[KeyNext] != 1 || len(listed) != 2+states[KeyRetiring]:
		return "its signing keys are not those of the operator JWT"
	case b.Generation == 0:
		return "it has no generation"
	}
	return b.checkSystem(operator)
}

func (b BrokerRecord) checkSystem(operator *jwt.OperatorClaims) string {
	keys := map[string]jwt.UserPermissionLimits{}
	for _, k := range b.System.Keys {
		t, err := SystemTemplate(k.Kind)
		if err != nil {
			return "the system account has a key of an unknown kind"
		}
		keys[k.Public] = t
	}
	if len(keys) != len(b.System.Keys) {
		return "the system account lists a key twice"
	}
	if why := checkAccount(b.System.JWT, b.System.Public, operator, keys); why != "" {
		return "system account: " + why
	}
	seen := map[wire.Space]bool{}
	for _, s := range b.Spaces {
		if s.Name.Validate() != nil || seen[s.Name] || !nkeys.IsValidPublicAccountKey(s.Public) {
			return "its list of spaces is damaged"
		}
		if s.State != SpaceAdding && s.State != SpaceActive && s.State != SpaceRemoving {
			return "a space is in an unknown state"
		}
		seen[s.Name] = true
	}
	return ""
}

// DecodeAccountRecord reads the account record of a space and checks that it is the one the broker record names, that a
// signing key of the operator signed its JWT, and that the JWT lists exactly the keys of the record, each
// scoped; the same for the callout account, which must let into this account alone. Errors have code failed-precondition and name the record, never its content.
func DecodeAccountRecord(data []byte, s wire.Space, b BrokerRecord) (AccountRecord, error) {
	name := AccountKey(s)
	var a AccountRecord
	if err := decodeClosed(data, &a, maxRecord); err != nil {
		return AccountRecord{}, refuse(name, err.Error())
	}
	if a.Ver != RecordVersion {
		return AccountRecord{}, wire.Errorf(wire.CodeFailedPrecondition, "record %q has version %d, this build reads %d", name, a.Ver, RecordVersion)
	}
	if why := a.check(s, b); why != "" {
		return AccountRecord{}, refuse(name, why)
	}
	return a, nil
}

func (a AccountRecord) check(s wire.Space, b BrokerRecord) string {
	entry, ok := b.Space(s)
	switch {
	case a.Space != s:
		return "it is of another space"
	case !ok || entry.Public != a.Public:
		return "it is not the account that record " + BrokerKey + " names"
	case a.Version == 0 || a.Limits.Validate() != nil || len(a.Revocations) > MaxRevocations:
		return "its version, limits or revocations are not what this build writes"
	}
	operator, err := jwt.DecodeOperatorClaims(b.OperatorJWT)
	if err != nil {
		return "the operator JWT is unreadable"
	}
	keys := map[string]jwt.UserPermissionLimits{}
	for _, k := range a.Keys {
		t, err := Template(k.Profile, s)
		if err != nil {
			return "it has a key of an unknown profile"
		}
		keys[k.Public] = t
	}
	if len(keys) != len(a.Keys) {
		return "it lists a key twice"
	}
	if why := checkAccount(a.JWT, a.Public, operator, keys); why != "" || a.Callout == nil {
		return why
	}
	return a.checkCallout(operator)
}

// checkAccount is the composition check: who signed the account, and is every signing key of it one of ours and scoped?
// Templates are compared by the minter, which knows how to renew them.
func checkAccount(token, public string, operator *jwt.OperatorClaims, keys map[string]jwt.UserPermissionLimits) string {
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return "its JWT is unreadable"
	}
	switch {
	case claims.Subject != public || !nkeys.IsValidPublicAccountKey(public):
		return "its JWT is of another account"
	case claims.Issuer == operator.Subject || !operator.DidSign(claims):
		return "its JWT was not signed by a signing key of the operator"
	case len(claims.SigningKeys) != len(keys):
		return "its JWT lists other signing keys"
	}
	for key, scope := range claims.SigningKeys {
		if _, ok := keys[key]; !ok || scope == nil {
			return "its JWT lists a signing key that is foreign or not scoped"
		}
	}
	return ""
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func refuse(record, why string) error {
	return wire.Errorf(wire.CodeFailedPrecondition, "read record %q: %s; restore it from a backup", record, why)
}
