package trust

import (
	"encoding/json"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/cotal-go/cotal/wire"
)

// GrantVersion is the version of [Grant] that this build reads and writes.
const GrantVersion = 1

// MaxGrant bounds an encoded grant in bytes: two full lists of long patterns and room.
const MaxGrant = 64 << 10

// GrantKind says how a principal came to its grant.
type GrantKind string

// The kinds of grant.
const (
	KindInteractive GrantKind = "interactive" // a person at a terminal
	KindManaged     GrantKind = "managed"     // an agent that a supervisor runs
	KindStatic      GrantKind = "static"      // whoever holds a minted credential
	KindService     GrantKind = "service"     // a long-running program
)

// GrantState is where in its life a grant is.
type GrantState string

// The states of a grant, in their order.
const (
	GrantActive   GrantState = "active"
	GrantRetiring GrantState = "retiring" // nothing new is minted; what it held is being taken away
	GrantRetired  GrantState = "retired"  // nothing is left; the name is free
)

// Grant is the one record that decides what a principal may do. Only the authority writes it.
type Grant struct {
	Ver            int        `json:"ver"`
	Owner          string     `json:"owner"`
	Actor          string     `json:"actor"`
	UID            wire.UID   `json:"uid"`
	Epoch          uint64     `json:"epoch"`
	Kind           GrantKind  `json:"kind"`
	State          GrantState `json:"state"`
	Scope          []string   `json:"scope,omitempty"`
	AllowSubscribe []string   `json:"allowSubscribe,omitempty"`
	AllowPublish   []string   `json:"allowPublish,omitempty"`
	Role           string     `json:"role,omitempty"`
	// Profile is that of the credential files of a static grant; empty in every other, and in those of older versions.
	Profile Profile `json:"profile,omitempty"`
	// Parent is the principal that this grant is held under, and ParentUID the life of it: a successor of the same name is
	// not the parent.
	Parent    string   `json:"parent,omitempty"`
	ParentUID wire.UID `json:"parentUid,omitempty"`
	Label     string   `json:"label,omitempty"`
	// TokenHash is the SHA-256 of the secret of a managed agent's last start, as hex; empty while none was started.
	TokenHash string `json:"tokenHash,omitempty"`
	// Start numbers the last start of a managed agent that was made or ended; that of the grant itself is 0.
	Start uint64 `json:"start,omitempty"`
	// Cut is the last sequence of the direct stream when this life began; its queue starts after it, also when it
	// has to be made again.
	Cut uint64 `json:"cut,omitempty"`
	// Refusing is an epoch that took rights away, while the credentials of earlier epochs are not all refused yet; 0
	// when they are.
	Refusing  uint64     `json:"refusing,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
	By        string     `json:"by"`
}

// Principal returns who the grant is for.
func (g Grant) Principal() wire.Principal { return wire.Principal{Owner: g.Owner, Actor: g.Actor} }

// Lifecycle returns the life that the grant is for.
func (g Grant) Lifecycle() wire.Lifecycle {
	return wire.Lifecycle{Principal: g.Principal(), UID: g.UID}
}

// Allows reports whether the grant permits anything at now: it is active and not past its end.
func (g Grant) Allows(now time.Time) bool {
	return g.State == GrantActive && (g.ExpiresAt == nil || now.Before(*g.ExpiresAt))
}

// Validate checks every field. Its error has code bad-request, or resource-exhausted for a list that is too long.
func (g Grant) Validate() error {
	if g.Ver != GrantVersion {
		return wire.Errorf(wire.CodeUnsupportedVersion, "check grant: version %d, this build knows %d", g.Ver, GrantVersion)
	}
	if err := g.Lifecycle().Validate(); err != nil {
		return err
	}
	switch {
	case !g.Principal().OwnerKnown():
		return wire.Errorf(wire.CodeBadRequest, "check grant of %q: unknown form of owner", g.Principal())
	case g.Epoch == 0 || g.CreatedAt.IsZero() || g.By == "":
		return wire.Errorf(wire.CodeBadRequest, "check grant of %q: epoch, createdAt and by are required", g.Principal())
	case !validLabel(g.Label) || !validLabel(g.By):
		return wire.Errorf(wire.CodeBadRequest, "check grant of %q: label and by are text of at most %d characters", g.Principal(), wire.MaxName)
	}
	switch g.Kind {
	case KindInteractive, KindManaged, KindStatic, KindService:
	default:
		return wire.Errorf(wire.CodeBadRequest, "check grant of %q: unknown kind %.64q", g.Principal(), string(g.Kind))
	}
	switch g.State {
	case GrantActive, GrantRetiring, GrantRetired:
	default:
		return wire.Errorf(wire.CodeBadRequest, "check grant of %q: unknown state %.64q", g.Principal(), string(g.State))
	}
	if g.Profile != "" {
		if g.Kind != KindStatic {
			return wire.Errorf(wire.CodeBadRequest, "check grant of %q: only a static grant has a profile", g.Principal())
		}
		if _, err := ParseProfile(string(g.Profile)); err != nil {
			return err
		}
	}
	return g.validateLists()
}

func (g Grant) validateLists() error {
	if g.Role != "" {
		if err := wire.ValidateRole(g.Role); err != nil {
			return err
		}
	}
	if err := g.validateParent(); err != nil {
		return err
	}
	if err := checkList("allowSubscribe", g.AllowSubscribe, MaxPatterns, wire.ValidatePattern); err != nil {
		return err
	}
	if err := checkList("allowPublish", g.AllowPublish, MaxPatterns, wire.ValidatePattern); err != nil {
		return err
	}
	return checkList("scope", g.Scope, MaxCommands, ValidateScope)
}

func (g Grant) validateParent() error {
	switch {
	case (g.Parent == "") != (g.ParentUID == ""):
		return wire.Errorf(wire.CodeBadRequest, "check grant of %q: parent and parentUid go together", g.Principal())
	case g.Parent == g.Principal().String():
		return wire.Errorf(wire.CodeBadRequest, "check grant of %q: it is its own parent", g.Principal())
	case g.TokenHash != "" && (g.Kind != KindManaged || !hash.MatchString(g.TokenHash)):
		return wire.Errorf(wire.CodeBadRequest, "check grant of %q: only a managed agent has a tokenHash, of 64 hex digits", g.Principal())
	case g.Parent == "":
		return nil
	}
	parent := wire.Lifecycle{UID: g.ParentUID}
	var err error
	if parent.Principal, err = wire.ParsePrincipal(g.Parent); err != nil {
		return err
	}
	return parent.Validate()
}

// hash is a SHA-256 as hex.
var hash = regexp.MustCompile(`^[0-9a-f]{64}$`)

func validLabel(s string) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= wire.MaxName
}

// DecodeGrant reads a grant. The JSON is closed: an unknown or doubled field, another version or an invalid value is
// refused, and what is refused permits nothing.
func DecodeGrant(data []byte) (Grant, error) {
	var g Grant
	if err := decodeClosed(data, &g, MaxGrant); err != nil {
		return Grant{}, err
	}
	if err := g.Validate(); err != nil {
		return Grant{}, err
	}
	return g, nil
}

// Encode returns the grant as JSON after validating it.
func (g Grant) Encode() ([]byte, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(g)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode grant of %q: %v", g.Principal(), err)
	}
	if len(data) > MaxGrant {
		return nil, exhausted(len(data), MaxGrant, "encode grant of %q: %d bytes, limit %d", g.Principal(), len(data), MaxGrant)
	}
	return data, nil
}
