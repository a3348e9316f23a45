package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// The core part kinds. Any other kind is an extension, named in reverse-DNS form such as "com.acme.snapshot".
const (
	PartText     = "text"
	PartData     = "data"
	PartArtifact = "artifact"
)

// Part is one piece of a message's content. Kind says which other field holds it.
type Part struct {
	Kind     string          `json:"kind"`
	Text     string          `json:"text,omitempty"` // PartText; may be empty
	Data     json.RawMessage `json:"data,omitempty"` // PartData; any JSON value, kept byte for byte
	Artifact *Artifact       `json:"-"`              // PartArtifact
	Raw      json.RawMessage `json:"-"`              // an extension: the whole object, kept byte for byte
}

// Artifact refers to bytes kept outside the message. All of it is the sender's claim: never allocate from Size, and check
// the fetched bytes against Digest before use.
type Artifact struct {
	Name      string `json:"name"`      // 1 to 128 characters
	MediaType string `json:"mediaType"` // 1 to 128 bytes
	Digest    string `json:"digest"`    // "sha256:" and 64 characters of [0-9a-f]
	Size      int64  `json:"size"`      // bytes, 0 to 2^53-1
}

// Text returns a text part.
func Text(s string) Part { return Part{Kind: PartText, Text: s} }

// Data returns a data part holding v as JSON. Its error has code bad-request: v has no JSON form, or one that DecodeMessage
// would refuse.
func Data(v any) (Part, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return Part{}, Errorf(CodeBadRequest, "encode data part: %w", err)
	}
	raw := bytes.TrimRight(b.Bytes(), "\n")
	if what := checkRaw(raw); what != "" {
		return Part{}, Errorf(CodeBadRequest, "encode data part: %s", what)
	}
	return Part{Kind: PartData, Data: raw}, nil
}

// MarshalJSON encodes the part as it stands in a message. Its error has code bad-request.
func (p Part) MarshalJSON() ([]byte, error) {
	if what := p.check(false); what != "" {
		return nil, malformed(ReasonJSON, "encode part: %s", what)
	}
	return p.append(nil), nil
}

// UnmarshalJSON decodes one part under the rules of DecodeMessage. Its error has code bad-request and ReasonJSON.
func (p *Part) UnmarshalJSON(data []byte) error {
	s := scanner{data: data, limit: MaxDepth, depth: partDepth - 1}
	var part Part
	if !s.begin(MaxMessage) || !part.scan(&s) || !s.end() {
		return s.refusal("decode part")
	}
	if what := part.check(true); what != "" {
		return malformed(ReasonJSON, "decode part: %s", what)
	}
	*p = part
	return nil
}

// partDepth is the level of a part's object: the message is 1, its parts 2.
const partDepth = 3

func (p *Part) check(scanned bool) string {
	switch p.Kind {
	case PartText:
		if !scanned && !utf8.ValidString(p.Text) {
			return "text part is not valid UTF-8"
		}
	case PartData:
		if len(p.Data) == 0 {
			return "data part has no data"
		}
		if !scanned {
			return checkRaw(p.Data)
		}
	case PartArtifact:
		return p.Artifact.check(scanned)
	default:
		return p.checkExtension(scanned)
	}
	return ""
}

func (p *Part) checkExtension(scanned bool) string {
	if !extensionOK(p.Kind) {
		return "part kind is neither text, data, artifact nor a reverse-DNS name"
	}
	if scanned {
		return ""
	}
	s := scanner{data: p.Raw, limit: MaxDepth, depth: partDepth - 1}
	var same Part
	if !s.begin(MaxMessage) || !same.scan(&s) || !s.end() {
		return "extension part: " + s.err
	}
	if same.Kind != p.Kind {
		return "extension part holds another kind than it is labelled with"
	}
	return ""
}

func (a *Artifact) check(scanned bool) string {
	switch {
	case a == nil:
		return "artifact part has no artifact"
	case !nameOK(a.Name, scanned):
		return "artifact name is not 1 to 128 characters"
	case a.MediaType == "" || len(a.MediaType) > MaxName || !idOK(a.MediaType, scanned):
		return "artifact mediaType is not 1 to 128 bytes without control characters"
	case !digestOK(a.Digest):
		return "artifact digest is not sha256: and 64 of [0-9a-f]"
	case a.Size < 0 || a.Size > maxInteger:
		return "artifact size is not from 0 to 2^53-1"
	}
	return ""
}

func digestOK(d string) bool {
	hex, ok := strings.CutPrefix(d, "sha256:")
	if !ok || len(hex) != 64 {
		return false
	}
	for i := range len(hex) {
		if c := hex[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// extensionOK reports whether kind is two or more labels of [A-Za-z0-9-]+ joined by dots, at most 128 bytes.
func extensionOK(kind string) bool {
	return strings.Contains(kind, ".") && !strings.Contains(kind, "_") && len(kind) <= MaxName && channelOK(kind, false)
}

// checkRaw reports what is wrong with a value that will stand as a data part's data, "" if nothing.
func checkRaw(raw []byte) string {
	s := scanner{data: raw, limit: MaxDepth, depth: partDepth}
	if !s.begin(MaxMessage) || !s.value() || !s.end() {
		return "data part: " + s.err
	}
	return ""
}

// Fields of a core part, in the order scan keeps their values.
const (
	fieldKind = iota
	fieldText
	fieldData
	fieldName
	fieldMediaType
	fieldDigest
	fieldSize
	partFields
)

var partNames = []string{"kind", "text", "data", "name", "mediaType", "digest", "size"}

// scan reads one part.
func (p *Part) scan(s *scanner) bool {
	start := s.pos
	var f partValues
	if !f.read(s) {
		return false
	}
	p.Kind = f.text(s, fieldKind)
	core := p.Kind == PartText || p.Kind == PartData || p.Kind == PartArtifact
	if f.badKind || core && f.badCore {
		return s.fail("part key in the wrong case")
	}
	switch p.Kind {
	case PartText:
		p.Text = f.text(s, fieldText)
	case PartData:
		p.Data = slices.Clone(f.raw(s, fieldData))
	case PartArtifact:
		p.Artifact = &Artifact{
			Name: f.text(s, fieldName), MediaType: f.text(s, fieldMediaType), Digest: f.text(s, fieldDigest),
			Size: f.integer(s, fieldSize),
		}
	default:
		p.Raw = slices.Clone(s.data[start:s.pos])
	}
	return s.err == ""
}

// partValues holds the values of a part as spans: the kind, which says how to read the others, may come last.
type partValues struct {
	vals             [partFields][]byte
	at               [partFields]int
	badKind, badCore bool // there is a key that is the kind's, or any core field's, name in another case
}

func (v *partValues) read(s *scanner) bool {
	if !s.open('{', "want a part object") {
		return false
	}
	seen := s.seen()
	for first := true; s.more('}', first); first = false {
		key, ok := s.key()
		if !ok {
			return false
		}
		f := indexOf(partNames, key)
		switch {
		case f >= 0 && v.vals[f] != nil:
			return s.fail("duplicate key")
		case f < 0:
			if !seen.add(s, key) {
				return false
			}
			v.badKind = v.badKind || wrongCase(key, partNames[:1])
			v.badCore = v.badCore || wrongCase(key, partNames)
		}
		pos := s.pos
		val, ok := s.span()
		if !ok {
			return false
		}
		if f >= 0 {
			v.vals[f], v.at[f] = val, pos
		}
	}
	seen.drop(s)
	return s.err == ""
}

// raw returns a field's value; without one it fails the scanner, as do text and integer for a value of another type.
func (v *partValues) raw(s *scanner, field int) []byte {
	val := v.vals[field]
	if val == nil {
		s.fail("part without " + partNames[field])
	}
	return val
}

func (v *partValues) text(s *scanner, field int) string {
	val := v.raw(s, field)
	if val == nil {
		return ""
	}
	if val[0] != '"' {
		s.pos = v.at[field]
		s.fail("want a string")
		return ""
	}
	return string(unescape(val[1 : len(val)-1]))
}

func (v *partValues) integer(s *scanner, field int) int64 {
	val := v.raw(s, field)
	if val == nil {
		return 0
	}
	sub := scanner{data: val}
	n, ok := sub.integer()
	if !ok {
		s.pos = v.at[field]
		s.fail(sub.err)
	}
	return n
}
