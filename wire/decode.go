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
	var keys [fewKeys * 2][]byte
	s := scanner{data: data, limit: MaxDepth, keys: keys[:0]}
	var got fieldSet
	if !s.begin(MaxMessage) || !m.scan(&s, &got) || !s.end() {
		return s.refusal("decode message")
	}
	if missing := got.missing(mustHave); missing != "" {
		return malformed(ReasonJSON, "decode message: no %s", missing)
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

// Fields of a message.
const (
	msgID = iota
	msgTS
	msgSpace
	msgFrom
	msgParts
	msgChannel
	msgTo
	msgToService
	msgMentions
	msgReplyTo
	msgContextID
)

var messageNames = []string{"id", "ts", "space", "from", "parts", "channel", "to", "toService", "mentions", "replyTo", "contextId"}

const mustHave = fieldSet(1<<msgID | 1<<msgTS | 1<<msgSpace | 1<<msgParts)

// fieldSet remembers which known fields of an object were seen.
type fieldSet uint32

func (f fieldSet) has(i int) bool { return f&(1<<i) != 0 }

// missing names the first field of want that was not seen.
func (f fieldSet) missing(want fieldSet) string {
	for i, name := range messageNames {
		if want.has(i) && !f.has(i) {
			return name
		}
	}
	return ""
}

func messageField(key []byte) int {
	switch string(key) {
	case "id":
		return msgID
	case "ts":
		return msgTS
	case "space":
		return msgSpace
	case "from":
		return msgFrom
	case "parts":
		return msgParts
	case "channel":
		return msgChannel
	case "to":
		return msgTo
	case "toService":
		return msgToService
	case "mentions":
		return msgMentions
	case "replyTo":
		return msgReplyTo
	case "contextId":
		return msgContextID
	}
	return -1
}

// field handles the bookkeeping of one key of an object with known fields: f is the field's number or -1.
func (s *scanner) field(f int, key []byte, got *fieldSet, seen *seenKeys, names []string) bool {
	if f < 0 {
		if wrongCase(key, names) {
			return s.fail("key in the wrong case")
		}
		return seen.add(s, key)
	}
	if got.has(f) {
		return s.fail("duplicate key")
	}
	*got |= 1 << f
	return true
}

func (m *Message) scan(s *scanner, got *fieldSet) bool {
	if !s.open('{', "want an object") {
		return false
	}
	seen := s.seen()
	for first := true; s.more('}', first); first = false {
		key, ok := s.key()
		if !ok {
			return false
		}
		f := messageField(key)
		if !s.field(f, key, got, &seen, messageNames) || !m.scanField(s, f) {
			return false
		}
	}
	seen.drop(s)
	return s.err == ""
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
	default:
		ok = s.value()
	}
	return ok
}

// someText reads a string that must not be empty: an address given as "" is not the same as none.
func (s *scanner) someText() (string, bool) {
	at := s.pos
	v, ok := s.text()
	if ok && v == "" {
		s.pos = at
		return "", s.fail("empty address")
	}
	return v, ok
}

func (s *scanner) texts() ([]string, bool) {
	if !s.open('[', "want an array of strings") {
		return nil, false
	}
	var out []string
	for first := true; s.more(']', first); first = false {
		v, ok := s.text()
		if !ok {
			return nil, false
		}
		out = append(out, v)
	}
	return out, s.err == ""
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

func refField(key []byte) int {
	switch string(key) {
	case "id":
		return 0
	case "name":
		return 1
	case "role":
		return 2
	}
	return -1
}

func (r *EndpointRef) scan(s *scanner) bool {
	if !s.open('{', "want an object") {
		return false
	}
	var got fieldSet
	seen := s.seen()
	for first := true; s.more('}', first); first = false {
		key, ok := s.key()
		if !ok {
			return false
		}
		f := refField(key)
		if !s.field(f, key, &got, &seen, refNames) {
			return false
		}
		switch f {
		case 0:
			r.ID, ok = s.text()
		case 1:
			r.Name, ok = s.text()
		case 2:
			r.Role, ok = s.text()
		default:
			ok = s.value()
		}
		if !ok {
			return false
		}
	}
	seen.drop(s)
	if s.err == "" && (!got.has(0) || !got.has(1)) {
		return s.fail("from without id and name")
	}
	return s.err == ""
}
