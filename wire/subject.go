package wire

import "strings"

// Kind says what a subject carries. It comes from the subject, so the broker vouches for it.
type Kind int

// The kinds of subjects. The zero Kind is none of them.
const (
	KindChannel Kind = iota + 1 // cotal.<space>.chat.<owner>.<actor>.<channel…>
	KindLive                    // cotal.<space>.live.<owner>.<actor>.<channel…>, written by the broker alone
	KindDirect                  // cotal.<space>.inst.<to owner>.<to actor>.<owner>.<actor>
	KindRole                    // cotal.<space>.svc.<role>.<owner>.<actor>
	KindMention                 // cotal.<space>.dlv.<owner>.<actor>.<uid>
	KindRequest                 // cotal.<space>.ep.one|all|inst.…
	KindReply                   // cotal.<space>.ep.reply.…
	KindEvent                   // cotal.<space>.epe.…
	KindSession                 // cotal.<space>.eps.…
)

var kindNames = [...]string{"unknown", "channel", "live", "direct", "role", "mention", "request", "reply", "event", "session"}

// String returns the kind's word, such as "channel".
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return kindNames[0]
	}
	return kindNames[k]
}

// KindOf classifies a subject by its first tokens, without parsing the rest. It returns 0 for what is not a subject of
// the contract.
func KindOf(subject string) Kind {
	t := tokens{rest: subject}
	if t.next() != Root || t.next() == "" {
		return 0
	}
	switch t.next() {
	case "chat":
		return KindChannel
	case "live":
		return KindLive
	case "inst":
		return KindDirect
	case "svc":
		return KindRole
	case "dlv":
		return KindMention
	case "epe":
		return KindEvent
	case "eps", "epm":
		return KindSession
	case "ep":
		switch Rail(t.next()) {
		case railReply:
			return KindReply
		case RailOne, RailAll, RailInst:
			return KindRequest
		}
	}
	return 0
}

// Subject is a parsed message subject. The broker vouches for all of it.
type Subject struct {
	Kind    Kind
	Space   Space
	Sender  Principal // zero for KindMention
	To      Principal // KindDirect and KindMention
	Channel string    // KindChannel and KindLive
	Role    string    // KindRole
	UID     UID       // KindMention: the lifecycle of To
}

// ChannelSubject returns the subject a channel message is published on. Errors have code bad-request.
func ChannelSubject(s Space, from Principal, channel string) (string, error) {
	return channelSubject(s, "chat", from, channel)
}

// LiveSubject returns the subject the broker republishes a stored channel message on. Errors have code bad-request.
func LiveSubject(s Space, from Principal, channel string) (string, error) {
	return channelSubject(s, "live", from, channel)
}

func channelSubject(s Space, kind string, from Principal, channel string) (string, error) {
	if err := firstError(s.Validate(), from.checkSpeaker(), ValidateChannel(channel)); err != nil {
		return "", err
	}
	return join(s, kind, from.Owner, from.Actor, channel), nil
}

// LiveFilter returns the subscription for live copies from anyone on the channels of a pattern. Errors have code
// bad-request.
func LiveFilter(s Space, pattern string) (string, error) { return channelFilter(s, "live", pattern) }

// ChannelFilter returns the filter for stored messages from anyone on the channels of a pattern. Errors have code
// bad-request.
func ChannelFilter(s Space, pattern string) (string, error) { return channelFilter(s, "chat", pattern) }

func channelFilter(s Space, kind, pattern string) (string, error) {
	if err := firstError(s.Validate(), ValidatePattern(pattern)); err != nil {
		return "", err
	}
	return join(s, kind, "*", "*", pattern), nil
}

// DirectSubject returns the subject of a message to one principal. Errors have code bad-request.
func DirectSubject(s Space, to, from Principal) (string, error) {
	if err := firstError(s.Validate(), to.checkSpeaker(), from.checkSpeaker()); err != nil {
		return "", err
	}
	return join(s, "inst", to.Owner, to.Actor, from.Owner, from.Actor), nil
}

// DirectFilter returns the filter for every message to one principal. Errors have code bad-request.
func DirectFilter(s Space, to Principal) (string, error) {
	if err := firstError(s.Validate(), to.checkSpeaker()); err != nil {
		return "", err
	}
	return join(s, "inst", to.Owner, to.Actor, ">"), nil
}

// RoleSubject returns the subject of a message to any one holder of a role. Errors have code bad-request.
func RoleSubject(s Space, role string, from Principal) (string, error) {
	if err := firstError(s.Validate(), ValidateRole(role), from.checkSpeaker()); err != nil {
		return "", err
	}
	return join(s, "svc", role, from.Owner, from.Actor), nil
}

// RoleFilter returns the filter for every message to a role. Errors have code bad-request.
func RoleFilter(s Space, role string) (string, error) {
	if err := firstError(s.Validate(), ValidateRole(role)); err != nil {
		return "", err
	}
	return join(s, "svc", role, ">"), nil
}

// MentionSubject returns the subject of pointers to messages that mention one lifecycle. Errors have code bad-request.
func MentionSubject(s Space, to Lifecycle) (string, error) {
	if err := firstError(s.Validate(), to.checkSpeaker()); err != nil {
		return "", err
	}
	return join(s, "dlv", to.Owner, to.Actor, string(to.UID)), nil
}

// ParseSubject splits a message subject (channel, live, direct, role, mention) and checks every token. It only splits: a
// sender with an owner the contract does not know is accepted here and refused by Surface. Anything else is refused with
// code bad-request and ReasonSubject.
func ParseSubject(subject string) (Subject, error) {
	sub, ok := parseSubject(subject)
	if !ok {
		return Subject{}, malformed(ReasonSubject, "parse subject %q: no message subject of this contract", clip(subject))
	}
	return sub, nil
}

func parseSubject(subject string) (sub Subject, ok bool) {
	t := tokens{rest: subject}
	if t.next() != Root {
		return sub, false
	}
	sub.Space = Space(t.next())
	switch kind := t.next(); kind {
	case "chat", "live":
		sub.Kind = KindChannel
		if kind == "live" {
			sub.Kind = KindLive
		}
		sub.Sender = t.principal()
		sub.Channel = t.tail()
		ok = channelOK(sub.Channel, false) && sub.Sender.ok()
	case "inst":
		sub.Kind = KindDirect
		sub.To = t.principal()
		sub.Sender = t.principal()
		ok = t.done() && sub.To.ok() && sub.Sender.ok()
	case "svc":
		sub.Kind = KindRole
		sub.Role = t.next()
		sub.Sender = t.principal()
		ok = t.done() && inClass(sub.Role, classToken, MaxToken) && sub.Sender.ok()
	case "dlv":
		sub.Kind = KindMention
		sub.To = t.principal()
		sub.UID = UID(t.next())
		ok = t.done() && sub.To.ok() && len(sub.UID) == uidLength && inClass(string(sub.UID), classLower, uidLength)
	}
	return sub, ok && inClass(string(sub.Space), classToken, MaxToken)
}

// Surface reports whether what arrived on the subject may be shown or acted on: the sender's owner, and for a direct
// message or a mention the addressee's, must be known to the contract. Its error has code bad-request and ReasonSubject.
func (s Subject) Surface() error {
	if s.Kind != KindMention && !s.Sender.OwnerKnown() {
		return malformed(ReasonSubject, "surface subject: sender %q has no known owner", clip(s.Sender.String()))
	}
	if (s.Kind == KindDirect || s.Kind == KindMention) && !s.To.OwnerKnown() {
		return malformed(ReasonSubject, "surface subject: addressee %q has no known owner", clip(s.To.String()))
	}
	return nil
}

// tokens walks the dot-separated tokens of a subject without allocating.
type tokens struct {
	rest string
	end  bool // the last token was taken
}

// next takes one token; "" when there is none, or an empty one, which no grammar accepts.
func (t *tokens) next() string {
	if t.end {
		return ""
	}
	i := strings.IndexByte(t.rest, '.')
	if i < 0 {
		tok := t.rest
		t.rest, t.end = "", true
		return tok
	}
	tok := t.rest[:i]
	t.rest = t.rest[i+1:]
	return tok
}

func (t *tokens) principal() Principal {
	owner := t.next()
	return Principal{Owner: owner, Actor: t.next()}
}

// tail takes all that is left.
func (t *tokens) tail() string {
	if t.end {
		return ""
	}
	t.end = true
	return t.rest
}

func (t *tokens) done() bool { return t.end }

func join(s Space, tokens ...string) string {
	n := len(Root) + 1 + len(s)
	for _, t := range tokens {
		n += 1 + len(t)
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteString(Root)
	b.WriteByte('.')
	b.WriteString(string(s))
	for _, t := range tokens {
		b.WriteByte('.')
		b.WriteString(t)
	}
	return b.String()
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
