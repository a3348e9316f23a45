package wire

import (
	"encoding/binary"
	"strconv"
)

// AppendJSON appends the encoded message to dst. It refuses what Validate refuses, an empty ID, and more than MaxMessage
// bytes; dst is then returned as it was. What it produces, DecodeMessage accepts. Errors are those of Validate, and code
// resource-exhausted for the size.
func (m *Message) AppendJSON(dst []byte) ([]byte, error) {
	if m.ID == "" {
		return dst, malformed(ReasonJSON, "encode message: no id")
	}
	if err := m.Validate(); err != nil {
		return dst, err
	}
	out := m.append(dst)
	if n := len(out) - len(dst); n > MaxMessage {
		return dst, Errorf(CodeResourceExhausted, "encode message: %d bytes, at most %d", n, MaxMessage)
	}
	return out, nil
}

// MarshalJSON encodes like AppendJSON.
func (m Message) MarshalJSON() ([]byte, error) { return m.AppendJSON(nil) }

func (m *Message) append(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, m.ID)
	b = append(b, `,"ts":`...)
	b = strconv.AppendInt(b, m.TS, 10)
	b = append(b, `,"space":`...)
	b = appendString(b, string(m.Space))
	b = append(b, `,"from":`...)
	b = m.From.append(b)
	b = appendField(b, "channel", m.Channel)
	b = appendField(b, "to", m.To)
	b = appendField(b, "toService", m.ToService)
	if len(m.Mentions) > 0 {
		b = append(b, `,"mentions":[`...)
		for i, name := range m.Mentions {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, name)
		}
		b = append(b, ']')
	}
	b = appendField(b, "replyTo", m.ReplyTo)
	b = appendField(b, "contextId", m.ContextID)
	b = append(b, `,"parts":[`...)
	for i := range m.Parts {
		if i > 0 {
			b = append(b, ',')
		}
		b = m.Parts[i].append(b)
	}
	return append(b, `]}`...)
}

func (r *EndpointRef) append(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, r.ID)
	b = append(b, `,"name":`...)
	b = appendString(b, r.Name)
	b = appendField(b, "role", r.Role)
	return append(b, '}')
}

func (p *Part) append(b []byte) []byte {
	switch p.Kind {
	case PartText:
		b = append(b, `{"kind":"text","text":`...)
		b = appendString(b, p.Text)
	case PartData:
		b = append(b, `{"kind":"data","data":`...)
		b = append(b, p.Data...)
	case PartArtifact:
		b = append(b, `{"kind":"artifact","name":`...)
		b = appendString(b, p.Artifact.Name)
		b = append(b, `,"mediaType":`...)
		b = appendString(b, p.Artifact.MediaType)
		b = append(b, `,"digest":`...)
		b = appendString(b, p.Artifact.Digest)
		b = append(b, `,"size":`...)
		b = strconv.AppendInt(b, p.Artifact.Size, 10)
	default:
		return append(b, p.Raw...)
	}
	return append(b, '}')
}

// appendField appends a member that is left out when empty. Name needs no escaping.
func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return appendString(b, value)
}

const hexDigits = "0123456789abcdef"

// appendString appends s, which is valid UTF-8, as a JSON string. It escapes what JSON demands and nothing else.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		for i+8 <= len(s) {
			n := plainBytes(load64(s, i))
			i += n
			if n < 8 {
				break
			}
		}
		if i >= len(s) {
			break
		}
		c := s[i]
		i++
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i-1]...)
		start = i
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// load64 reads eight bytes of s from i.
func load64(s string, i int) uint64 {
	var w [8]byte
	copy(w[:], s[i:i+8])
	return binary.LittleEndian.Uint64(w[:])
}
