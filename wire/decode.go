package wire

// DecodeMessage decodes a message in one pass. It refuses more than MaxMessage bytes, invalid UTF-8 (lone surrogates in
// escapes included), nesting beyond MaxDepth, a key that repeats in any object, a key that is a field's name in another
// case, a bare unknown part kind, anything after the object, and whatever Validate refuses. Unknown fields are dropped;
// extension parts are kept whole.
//
// Errors have code bad-request and ReasonJSON; a message without from, or whose from.id is no principal, has code
// sender-mismatch and ReasonSender.
func DecodeMessage(data []byte) (*Message, error) {
	m := new(Message)
	if err := m.decode(data); err != nil {
		return nil, err
	}
	return m, nil
}

// UnmarshalJSON decodes like DecodeMessage, so a message nested in another document is held to the same rules.
func (m *Message) UnmarshalJSON(data []byte) error {
	var fresh Message
	if err := fresh.decode(data); err != nil {
		return err
	}
	*m = fresh
	return nil
}

func (m *Message) decode(data []byte) error {
	s := scanner{data: data, limit: MaxDepth}
	var got fieldSet
	if !s.begin(MaxMessage) || !m.scan(&s, &got) || !s.end() {
		return s.refusal("decode message")
	}
	if !s.require(messageNames[:msgFrom], got) {
		return s.refusal("decode message")
	}
	if !got.has(msgFrom) {
		return malformedAs(CodeSenderMismatch, ReasonSender, "decode message: no from")
	}
	if what := m.check(true); what != "" {
		return malformed(ReasonJSON, "decode message: %s", what)
	}
	if _, err := ParsePrincipal(m.From.ID); err != nil {
		return malformedAs(CodeSenderMismatch, ReasonSender, "decode message: from: %v", err)
	}
	return nil
}

// refusal turns the scanner's failure into an error. It names the place, never the content.
func (s *scanner) refusal(doing string) error {
	return malformed(ReasonJSON, "%s: %s at byte %d", doing, s.err, s.at)
}

// Fields of a message, by their place in messageNames. Those before from must be there, and so must from.
const (
	msgID = iota
	msgTS
	msgSpace
	msgParts
	msgFrom
	msgChannel
	msgTo
	msgToService
	msgMentions
	msgReplyTo
	msgContextID
)

var messageNames = []string{"id", "ts", "space", "parts", "from", "channel", "to", "toService", "mentions", "replyTo", "contextId"}

func (m *Message) scan(s *scanner, got *fieldSet) bool {
	return s.members(messageNames, got, func(field int) bool { return m.scanField(s, field) })
}

func (m *Message) scanField(s *scanner, field int) (ok bool) {
	switch field {
	case msgID:
		m.ID, ok = s.text()
	case msgTS:
		m.TS, ok = s.integer()
	case msgSpace:
		var space string
		space, ok = s.text()
		m.Space = Space(space)
	case msgFrom:
		ok = m.From.scan(s)
	case msgParts:
		ok = m.scanParts(s)
	case msgChannel:
		m.Channel, ok = s.someText()
	case msgTo:
		m.To, ok = s.someText()
	case msgToService:
		m.ToService, ok = s.someText()
	case msgMentions:
		m.Mentions, ok = s.texts()
	case msgReplyTo:
		m.ReplyTo, ok = s.text()
	case msgContextID:
		m.ContextID, ok = s.text()
	}
	return ok
}

func (m *Message) scanParts(s *scanner) bool {
	if !s.open('[', "want an array of parts") {
		return false
	}
	m.Parts = make([]Part, 0, 1)
	for first := true; s.more(']', first); first = false {
		m.Parts = append(m.Parts, Part{})
		if !m.Parts[len(m.Parts)-1].scan(s) {
			return false
		}
	}
	return s.err == ""
}

var refNames = []string{"id", "name", "role"}

func (r *EndpointRef) scan(s *scanner) bool {
	var got fieldSet
	ok := s.members(refNames, &got, func(field int) (ok bool) {
		switch field {
		case 0:
			r.ID, ok = s.text()
		case 1:
			r.Name, ok = s.text()
		case 2:
			r.Role, ok = s.text()
		}
		return ok
	})
	return ok && s.require(refNames[:2], got)
}
