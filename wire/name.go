package wire

import (
	"crypto/rand"
	"strings"
	"time"
)

// Root is the first token of every subject of the contract.
const Root = "cotal"

// ProtocolVersion is the version of the public contract this package speaks, as cards advertise it. It is a change
// signal, not a negotiation. History: 0.5, 2026-09, first edition of this project.
const ProtocolVersion = "0.5"

// LocalOwner is the owner of every principal in static and open mode.
const LocalOwner = "local"

// Limits of the contract. Sizes are bytes of the encoded form unless the comment says characters, which are Unicode
// code points.
const (
	// MaxMessage bounds an encoded message.
	MaxMessage = 256 << 10
	// MaxPage bounds one page of history as its service fills it.
	MaxPage = 512 << 10
	// MaxRequest bounds an encoded request.
	MaxRequest = 256 << 10
	// MaxReply bounds an encoded reply: a page with its envelope and room to spare.
	MaxReply = 1 << 20
	// MaxPresence bounds an encoded presence record.
	MaxPresence = 32 << 10
	// MaxChannelConfig bounds an encoded channel configuration.
	MaxChannelConfig = 16 << 10
	// MaxDepth bounds the nesting of objects and arrays in a message; the message itself is the first level.
	MaxDepth = 32
	// MaxNestedDepth bounds the nesting in everything else, which may hold whole messages a few levels down.
	MaxNestedDepth = MaxDepth + 8
	// MaxName bounds a display name, in characters.
	MaxName = 128
	// MaxID bounds a message id, a reply-to and a context id, in bytes.
	MaxID = 256
	// MaxMentions bounds the mentions of one message.
	MaxMentions = 128
	// MaxChannel bounds a channel or channel pattern.
	MaxChannel = 4096
	// MaxToken bounds a space, owner, actor, role, endpoint or instance token.
	MaxToken = 64
	// MaxCommand bounds a command name.
	MaxCommand = 32
	// MaxRailSubject bounds a request, reply, event or session subject.
	MaxRailSubject = 1024
)

// Presence timing of the contract: how often a participant refreshes its record, and how long the record stands.
const (
	HeartbeatInterval = 2 * time.Second
	LivenessWindow    = 6 * time.Second
)

// uidLength is the fixed length of a lifecycle uid: 26 base-32 characters carry 130 bits.
const uidLength = 26

// Character classes of tokens, as bits of charClass.
const (
	classWord  = 1 << iota // [A-Za-z0-9_]
	classToken             // [A-Za-z0-9_-]
	classLower             // [a-z0-9]
	classLabel             // [a-z0-9-]
	classB32               // [a-z2-7]
	classHost              // [A-Za-z0-9.-]
)

var charClass = func() (t [256]uint8) {
	set := func(bits uint8, chars string) {
		for i := range len(chars) {
			t[chars[i]] |= bits
		}
	}
	const lower, upper = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	set(classWord|classToken|classHost, lower+upper+"0123456789")
	set(classWord|classToken, "_")
	set(classToken|classLabel|classHost, "-")
	set(classLower|classLabel, lower+"0123456789")
	set(classB32, lower+"234567")
	set(classHost, ".")
	return t
}()

// inClass reports whether s has 1 to limit bytes, all of the class.
func inClass(s string, class uint8, limit int) bool {
	if len(s) == 0 || len(s) > limit {
		return false
	}
	for i := range len(s) {
		if charClass[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

// Space names one isolated mesh: [A-Za-z0-9_-]{1,64}, validated, never folded. The zero value is no space.
type Space string

// ParseSpace checks a space name. Its error has code bad-request.
func ParseSpace(s string) (Space, error) {
	if !inClass(s, classToken, MaxToken) {
		return "", Errorf(CodeBadRequest, "parse space %q: not [A-Za-z0-9_-]{1,%d}", clip(s), MaxToken)
	}
	return Space(s), nil
}

// Validate reports whether s is a space name. Its error has code bad-request.
func (s Space) Validate() error {
	_, err := ParseSpace(string(s))
	return err
}

// Prefix returns the first two tokens of every subject in the space, "cotal.<space>". It does not validate s; it is for
// permission templates, whose remaining tokens the broker fills in. Everything else uses the typed builders.
func (s Space) Prefix() string { return Root + "." + string(s) }

// Principal is who speaks on the wire: an owner and one actor under it, each [A-Za-z0-9_]{1,64}. In a subject the broker
// vouches for it; in a payload it is a claim. The zero value is nobody.
type Principal struct {
	Owner string // LocalOwner or a derived owner, see OwnerKnown
	Actor string // one participant of that owner
}

// ParsePrincipal reads the dot form, "owner.actor". It splits and checks the tokens; whether the owner is one the
// contract knows is OwnerKnown's question. Its error has code bad-request.
func ParsePrincipal(s string) (Principal, error) {
	owner, actor, ok := strings.Cut(s, ".")
	p := Principal{Owner: owner, Actor: actor}
	if !ok || !p.ok() {
		return Principal{}, Errorf(CodeBadRequest, "parse principal %q: not owner.actor, each [A-Za-z0-9_]{1,%d}", clip(s), MaxToken)
	}
	return p, nil
}

// String returns the dot form used in cards, from.id and presence keys.
func (p Principal) String() string { return p.Owner + "." + p.Actor }

// Dash returns the dash form used in durable names.
func (p Principal) Dash() string { return p.Owner + "-" + p.Actor }

// is reports whether dot is p's dot form, without making it.
func (p Principal) is(dot string) bool {
	owner, actor, ok := strings.Cut(dot, ".")
	return ok && owner == p.Owner && actor == p.Actor
}

// IsZero reports whether p names nobody.
func (p Principal) IsZero() bool { return p == Principal{} }

// Validate reports whether both tokens fit. Its error has code bad-request.
func (p Principal) Validate() error {
	if !p.ok() {
		return Errorf(CodeBadRequest, "check principal %q: owner and actor are each [A-Za-z0-9_]{1,%d}", clip(p.String()), MaxToken)
	}
	return nil
}

func (p Principal) ok() bool {
	return inClass(p.Owner, classWord, MaxToken) && inClass(p.Actor, classWord, MaxToken)
}

// OwnerKnown reports whether the owner has one of the two forms of the contract: "local", or "u_" and 26 characters of
// [a-z2-7]. A subject whose sender fails this splits, but its content must not be surfaced.
func (p Principal) OwnerKnown() bool { return ownerKnown(p.Owner) }

func ownerKnown(owner string) bool {
	if owner == LocalOwner {
		return true
	}
	return len(owner) == 2+uidLength && owner[:2] == "u_" && inClass(owner[2:], classB32, uidLength)
}

// checkSpeaker is what builders ask of a principal: valid tokens and a known owner, so nothing is sent that every
// receiver would drop.
func (p Principal) checkSpeaker() error {
	if err := p.Validate(); err != nil {
		return err
	}
	if !p.OwnerKnown() {
		return Errorf(CodeBadRequest, "check principal %q: owner is neither %q nor u_[a-z2-7]{26}", clip(p.String()), LocalOwner)
	}
	return nil
}

// ValidateActor reports whether s can be an actor: [A-Za-z0-9_]{1,64}. Its error has code bad-request.
func ValidateActor(s string) error {
	if !inClass(s, classWord, MaxToken) {
		return Errorf(CodeBadRequest, "check actor %q: not [A-Za-z0-9_]{1,%d}", clip(s), MaxToken)
	}
	return nil
}

// UID names one life of a principal: 26 characters of [a-z0-9] with at least 128 random bits. Everything durable is keyed
// by it, so a reused name inherits nothing.
type UID string

// NewUID returns a fresh uid with 130 random bits, all of [a-z2-7].
func NewUID() UID { return UID(strings.ToLower(rand.Text())) }

// ParseUID checks a uid. Its error has code bad-request.
func ParseUID(s string) (UID, error) {
	if len(s) != uidLength || !inClass(s, classLower, uidLength) {
		return "", Errorf(CodeBadRequest, "parse lifecycle uid %q: not [a-z0-9]{%d}", clip(s), uidLength)
	}
	return UID(s), nil
}

// Validate reports whether u is a uid. Its error has code bad-request.
func (u UID) Validate() error {
	_, err := ParseUID(string(u))
	return err
}

// Lifecycle is one life of one principal.
type Lifecycle struct {
	Principal
	UID UID
}

// Name returns "owner-actor-uid", the suffix of the names of everything this life owns at the broker. The form is
// unambiguous because no token holds a dash. It does not validate l.
func (l Lifecycle) Name() string { return l.Dash() + "-" + string(l.UID) }

// String returns "owner.actor.uid".
func (l Lifecycle) String() string { return l.Principal.String() + "." + string(l.UID) }

// Validate reports whether the principal and the uid fit. Its error has code bad-request.
func (l Lifecycle) Validate() error {
	if err := l.Principal.Validate(); err != nil {
		return err
	}
	return l.UID.Validate()
}

func (l Lifecycle) checkSpeaker() error {
	if err := l.Principal.checkSpeaker(); err != nil {
		return err
	}
	return l.UID.Validate()
}

// idDigits are those of the time at the start of an id, in ASCII order, so that ids sort by time.
const idDigits = "0123456789abcdefghjkmnpqrstvwxyz"

// idTimeDigits hold 45 bits of milliseconds since 1970.
const idTimeDigits = 9

// NewID returns a fresh message or request id: 26 characters, the first nine of which are the time in milliseconds and
// the rest 85 random bits. Whoever looks for a message by its id reads from [IDTime] what to search.
func NewID() string {
	var id [26]byte
	for i, ms := idTimeDigits-1, time.Now().UnixMilli(); i >= 0; i, ms = i-1, ms>>5 {
		id[i] = idDigits[ms&31]
	}
	copy(id[idTimeDigits:], strings.ToLower(rand.Text()))
	return string(id[:])
}

// IDTime returns the time that an id of [NewID] was made at. An id that somebody made otherwise can look like one, so
// what is not found there may be elsewhere.
func IDTime(id string) (at time.Time, ok bool) {
	if len(id) != 26 {
		return time.Time{}, false
	}
	var ms int64
	for _, c := range []byte(id[:idTimeDigits]) {
		d := strings.IndexByte(idDigits, c)
		if d < 0 {
			return time.Time{}, false
		}
		ms = ms<<5 | int64(d)
	}
	return time.UnixMilli(ms), true
}

// NewNonce returns a fresh request nonce: 26 characters of [A-Za-z0-9_-], 130 random bits. Holding it is what lets a
// responder answer, so it is never logged above debug and never reused.
func NewNonce() string { return strings.ToLower(rand.Text()) }

// ValidateRole reports whether r can be a role, the address of a role message: [A-Za-z0-9_-]{1,64}. Its error has code
// bad-request.
func ValidateRole(r string) error {
	if !inClass(r, classToken, MaxToken) {
		return Errorf(CodeBadRequest, "check role %q: not [A-Za-z0-9_-]{1,%d}", clip(r), MaxToken)
	}
	return nil
}

// clip bounds an operand that is about to be quoted in an error.
func clip(s string) string {
	const most = 96
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
