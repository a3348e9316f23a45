package wire

import (
	"strings"
	"unicode/utf8"
)

// EndpointRef says who a message claims to come from.
type EndpointRef struct {
	ID   string `json:"id"`             // dot form of a principal; a claim until CheckSender compared it with the subject
	Name string `json:"name"`           // display name, 1 to 128 characters; a claim
	Role string `json:"role,omitempty"` // the role it says it plays; a claim
}

// Message is what a participant sends: to a channel, to one principal or to a role. The sender claims every field.
// CheckSender ties the claims about sender and address to the subject, which the broker vouches for; the rest stays a
// claim, and the content is hostile until shown otherwise.
type Message struct {
	// ID names the message, at most 256 bytes without control characters; it is also the broker's de-duplication key.
	// A received message may carry an empty one: such messages are never duplicates of each other.
	ID string `json:"id"`
	// TS is when the sender says it was sent: milliseconds since 1970, 0 to 2^53-1.
	TS    int64       `json:"ts"`
	Space Space       `json:"space"`
	From  EndpointRef `json:"from"`

	// Exactly one of the three is set.
	Channel   string `json:"channel,omitempty"`   // a concrete channel
	To        string `json:"to,omitempty"`        // dot form of a principal
	ToService string `json:"toService,omitempty"` // a role

	Parts     []Part   `json:"parts"`
	Mentions  []string `json:"mentions,omitempty"`  // lower-case display names, at most 128
	ReplyTo   string   `json:"replyTo,omitempty"`   // the ID of the message this one answers
	ContextID string   `json:"contextId,omitempty"` // what ties a conversation together
}

// Text returns the text parts joined by newlines. Parts of other kinds, known or not, add nothing.
func (m *Message) Text() string {
	var texts []string
	for i := range m.Parts {
		if m.Parts[i].Kind == PartText {
			texts = append(texts, m.Parts[i].Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Validate reports whether m is a message of the contract, apart from its encoded size, which AppendJSON checks. An empty
// ID passes here, as it does on receipt, and is refused by AppendJSON. Errors have code bad-request and ReasonJSON; or
// code sender-mismatch and ReasonSender when From.ID is no principal.
func (m *Message) Validate() error {
	if what := m.check(false); what != "" {
		return malformed(ReasonJSON, "check message: %s", what)
	}
	if _, err := ParsePrincipal(m.From.ID); err != nil {
		return malformedAs(CodeSenderMismatch, ReasonSender, "check message: from: %v", err)
	}
	return nil
}

// check returns what is wrong with the shape, "" if nothing. Scanned says the message was just decoded, so that its
// strings are valid UTF-8 and its raw JSON was checked.
func (m *Message) check(scanned bool) string {
	if what := m.checkHeader(scanned); what != "" {
		return what
	}
	if what := m.checkRoute(); what != "" {
		return what
	}
	if len(m.Mentions) > MaxMentions {
		return "more than 128 mentions"
	}
	for _, name := range m.Mentions {
		if !nameOK(name, scanned) || strings.ToLower(name) != name {
			return "a mention is not a lower-case name of 1 to 128 characters"
		}
	}
	for i := range m.Parts {
		if what := m.Parts[i].check(scanned); what != "" {
			return what
		}
	}
	return ""
}

func (m *Message) checkHeader(scanned bool) string {
	switch {
	case !idOK(m.ID, scanned):
		return "id is over 256 bytes or has a control character"
	case m.TS < 0 || m.TS > maxInteger:
		return "ts is not from 0 to 2^53-1"
	case !inClass(string(m.Space), classToken, MaxToken):
		return "space is not a space name"
	case !nameOK(m.From.Name, scanned):
		return "from.name is not 1 to 128 characters"
	case m.From.Role != "" && !inClass(m.From.Role, classToken, MaxToken):
		return "from.role is not a role"
	case !idOK(m.ReplyTo, scanned):
		return "replyTo is over 256 bytes or has a control character"
	case !idOK(m.ContextID, scanned):
		return "contextId is over 256 bytes or has a control character"
	}
	return ""
}

func (m *Message) checkRoute() string {
	set := 0
	if m.Channel != "" {
		set++
		if !channelOK(m.Channel, false) {
			return "channel is not a concrete channel"
		}
	}
	if m.To != "" {
		set++
		owner, actor, _ := strings.Cut(m.To, ".")
		if !(Principal{owner, actor}).ok() {
			return "to is not a principal"
		}
	}
	if m.ToService != "" {
		set++
		if !inClass(m.ToService, classToken, MaxToken) {
			return "toService is not a role"
		}
	}
	if set != 1 {
		return "want exactly one of channel, to and toService"
	}
	return ""
}

// idOK accepts the empty id; who needs one checks.
func idOK(id string, scanned bool) bool { return plain(id, MaxID, scanned) }

// plain reports whether s is at most limit bytes of UTF-8 without control characters.
func plain(s string, limit int, scanned bool) bool {
	if len(s) > limit || !scanned && !utf8.ValidString(s) {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func nameOK(name string, scanned bool) bool {
	if name == "" || len(name) > MaxName && utf8.RuneCountInString(name) > MaxName {
		return false
	}
	return scanned || utf8.ValidString(name)
}

// CheckSender reports whether m may be surfaced as what arrived on the subject: the subject surfaces, and the message names
// the same sender, space and address. Errors have code bad-request and ReasonSubject, or code sender-mismatch or
// target-mismatch and ReasonSender. A receiver of direct messages also checks that sub.To is itself.
func CheckSender(sub Subject, m *Message) error {
	if err := sub.Surface(); err != nil {
		return err
	}
	if sub.Kind == KindMention || !sub.Sender.is(m.From.ID) {
		return malformedAs(CodeSenderMismatch, ReasonSender, "check sender: message is from %q, subject from %q",
			clip(m.From.ID), clip(sub.Sender.String()))
	}
	var named, real string
	switch sub.Kind {
	case KindChannel, KindLive:
		named, real = m.Channel, sub.Channel
	case KindDirect:
		named, real = m.To, sub.To.String()
	case KindRole:
		named, real = m.ToService, sub.Role
	}
	if named != real || real == "" {
		return malformedAs(CodeTargetMismatch, ReasonSender, "check sender: message is to %q, subject to %q", clip(named), clip(real))
	}
	if m.Space != sub.Space {
		return malformedAs(CodeTargetMismatch, ReasonSender, "check sender: message is for space %q, subject for %q",
			clip(string(m.Space)), clip(string(sub.Space)))
	}
	return nil
}

// Receive does all a receiver must do with a delivered message: ParseSubject, DecodeMessage, CheckSender. The subject is
// the delivered message's own, never the subscription's. ReasonOf tells why an error was returned; the message is then
// dropped for good.
func Receive(subject string, payload []byte) (Subject, *Message, error) {
	sub, err := ParseSubject(subject)
	if err != nil {
		return Subject{}, nil, err
	}
	m, err := DecodeMessage(payload)
	if err != nil {
		return sub, nil, err
	}
	if err := CheckSender(sub, m); err != nil {
		return sub, nil, err
	}
	return sub, m, nil
}
