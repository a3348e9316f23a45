package control

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// shape is the part of JSON Schema that schemas inferred from Go types use, compiled to a check over the bytes
// of a value: no intermediate tree, no allocation when the value is right. It decides exactly as the full
// validator does (a fuzz test compares the two); a schema with any other keyword is left to that one.
//
// The bytes must be well-formed JSON without duplicate keys, which the envelope decoder has made sure of.
type shape struct {
	types      kinds
	properties map[string]*shape
	required   []string
	rest       *shape // additionalProperties; nil allows all
	closed     bool   // no property beyond properties
	items      *shape
	enum       []string // allowed strings; nil allows all
	min, max   *float64
	minLen     int
	maxLen     int // -1: none
	minItems   int
	maxItems   int // -1: none
}

// kinds is a set of JSON types; 0 allows every type.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBool
	kindNumber
	kindInteger
	kindString
	kindArray
	kindObject
)

var kindNames = map[string]kinds{
	"null": kindNull, "boolean": kindBool, "number": kindNumber | kindInteger, "integer": kindInteger,
	"string": kindString, "array": kindArray, "object": kindObject,
}

// compileShape compiles s, or reports false when it uses a keyword that shape does not know.
func compileShape(s *jsonschema.Schema) (*shape, bool) {
	if s == nil || !onlyKnown(s) {
		return nil, false
	}
	sh := &shape{maxLen: -1, maxItems: -1, min: s.Minimum, max: s.Maximum}
	sh.required = slices.Compact(slices.Sorted(slices.Values(s.Required)))
	for _, name := range append(slices.Clone(s.Types), s.Type) {
		if kindNames[name] == 0 && name != "" {
			return nil, false
		}
		sh.types |= kindNames[name]
	}
	for _, v := range s.Enum {
		str, ok := v.(string)
		if !ok || sh.types != kindString {
			return nil, false
		}
		sh.enum = append(sh.enum, str)
	}
	setBound(&sh.minLen, s.MinLength)
	setBound(&sh.maxLen, s.MaxLength)
	setBound(&sh.minItems, s.MinItems)
	setBound(&sh.maxItems, s.MaxItems)
	return sh, sh.compileParts(s)
}

func setBound(dst, v *int) {
	if v != nil {
		*dst = *v
	}
}

func (sh *shape) compileParts(s *jsonschema.Schema) (ok bool) {
	if s.Items != nil {
		if sh.items, ok = compileShape(s.Items); !ok {
			return false
		}
	}
	if len(s.Properties) > 0 {
		sh.properties = make(map[string]*shape, len(s.Properties))
	}
	for name, ps := range s.Properties {
		if sh.properties[name], ok = compileShape(ps); !ok {
			return false
		}
	}
	switch a := s.AdditionalProperties; {
	case a == nil:
	case isFalse(a):
		sh.closed = true
	default:
		if sh.rest, ok = compileShape(a); !ok {
			return false
		}
	}
	return true
}

// isFalse recognises the schema that matches nothing, {"not":{}} or false.
func isFalse(s *jsonschema.Schema) bool {
	if s.Not == nil {
		return false
	}
	outer, inner := *s, *s.Not
	outer.Not = nil
	return zeroSchema(&outer) && zeroSchema(&inner)
}

func zeroSchema(s *jsonschema.Schema) bool {
	raw, err := json.Marshal(s)
	return err == nil && (string(raw) == "true" || string(raw) == "{}")
}

// onlyKnown reports whether s has no keyword but those of shape and pure annotations.
func onlyKnown(s *jsonschema.Schema) bool {
	k := *s
	k.Title, k.Description, k.Deprecated, k.ReadOnly, k.WriteOnly = "", "", false, false, false
	k.Comment, k.Examples, k.Format, k.ContentEncoding, k.ContentMediaType = "", nil, "", "", ""
	k.Type, k.Types, k.Properties, k.PropertyOrder, k.Required = "", nil, nil, nil, nil
	k.AdditionalProperties, k.Items, k.Enum, k.Minimum, k.Maximum = nil, nil, nil, nil, nil
	k.MinLength, k.MaxLength, k.MinItems, k.MaxItems = nil, nil, nil, nil
	return zeroSchema(&k)
}

// check returns where and why the value is wrong; an empty reason means that it is right.
func (sh *shape) check(value []byte) (path, why string) {
	c := cursor{data: value}
	return c.value(sh)
}

// cursor walks well-formed JSON.
type cursor struct {
	data []byte
	pos  int
}

func (c *cursor) space() {
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// take consumes b after space, if it is next.
func (c *cursor) take(b byte) bool {
	c.space()
	if c.pos < len(c.data) && c.data[c.pos] == b {
		c.pos++
		return true
	}
	return false
}

// str consumes a string and returns what stands between its quotes.
func (c *cursor) str() []byte {
	c.space()
	c.pos++
	start := c.pos
	for c.pos < len(c.data) && c.data[c.pos] != '"' {
		if c.data[c.pos] == '\\' {
			c.pos++
		}
		c.pos++
	}
	end := min(c.pos, len(c.data))
	c.pos = end + 1
	return c.data[start:end]
}

// scalar consumes a number or a literal.
func (c *cursor) scalar() []byte {
	start := c.pos
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ',', ']', '}', ' ', '\t', '\n', '\r':
			return c.data[start:c.pos]
		}
		c.pos++
	}
	return c.data[start:]
}

// skip consumes any value.
func (c *cursor) skip() {
	c.space()
	depth := 0
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case '"':
			c.str()
		case '[', '{':
			depth++
			c.pos++
		case ']', '}':
			depth--
			c.pos++
		case ',', ':', ' ', '\t', '\n', '\r':
			c.pos++
			continue
		default:
			c.scalar()
		}
		if depth <= 0 {
			return
		}
	}
}

func (c *cursor) value(sh *shape) (path, why string) {
	c.space()
	if c.pos >= len(c.data) {
		return "", "missing"
	}
	switch c.data[c.pos] {
	case '{':
		if !sh.allows(kindObject) {
			return "", sh.want("object")
		}
		return c.object(sh)
	case '[':
		if !sh.allows(kindArray) {
			return "", sh.want("array")
		}
		return c.array(sh)
	case '"':
		if !sh.allows(kindString) {
			return "", sh.want("string")
		}
		return "", sh.checkString(c.str())
	case 't', 'f':
		c.scalar()
		return "", sh.only(kindBool, "boolean")
	case 'n':
		c.scalar()
		return "", sh.only(kindNull, "null")
	default:
		return "", sh.checkNumber(c.scalar())
	}
}

func (sh *shape) allows(k kinds) bool { return sh.types == 0 || sh.types&k != 0 }

// only is the reason to refuse a value of kind k, called got; empty when it is allowed.
func (sh *shape) only(k kinds, got string) string {
	if sh.allows(k) {
		return ""
	}
	return sh.want(got)
}

// want says which types are allowed; got is the one that was found.
func (sh *shape) want(got string) string {
	var allowed []string
	for _, name := range []string{"null", "boolean", "integer", "string", "array", "object"} {
		if sh.types&kindNames[name] != 0 {
			if name == "integer" && sh.types&kindNumber != 0 {
				name = "number"
			}
			allowed = append(allowed, name)
		}
	}
	return "is " + got + ", want " + strings.Join(allowed, " or ")
}

func (c *cursor) object(sh *shape) (path, why string) {
	start := c.pos
	c.pos++ // {
	missing := len(sh.required)
	for !c.take('}') {
		c.take(',')
		name := c.str()
		if slices.Contains(name, '\\') {
			name = []byte(unquote(name))
		}
		c.take(':')
		prop := sh.properties[string(name)]
		if prop == nil {
			if sh.closed {
				return "", "unknown property " + strconv.Quote(clip(string(name)))
			}
			prop = sh.rest
		}
		if missing > 0 && contains(sh.required, name) {
			missing--
		}
		if prop == nil {
			c.skip()
		} else if path, why = c.value(prop); why != "" {
			return "." + clip(string(name)) + path, why
		}
	}
	if missing > 0 {
		return "", "missing property " + strconv.Quote(sh.firstMissing(c.data[start:c.pos]))
	}
	return "", ""
}

// contains is slices.Contains without making a string of name.
func contains(list []string, name []byte) bool {
	for _, s := range list {
		if s == string(name) {
			return true
		}
	}
	return false
}

// firstMissing finds the required property that the object does not have.
func (sh *shape) firstMissing(object []byte) string {
	var have map[string]json.RawMessage
	if json.Unmarshal(object, &have) != nil {
		return ""
	}
	for _, name := range sh.required {
		if _, ok := have[name]; !ok {
			return name
		}
	}
	return ""
}

func (c *cursor) array(sh *shape) (path, why string) {
	c.pos++ // [
	n := 0
	for !c.take(']') {
		c.take(',')
		if sh.items == nil {
			c.skip()
		} else if path, why = c.value(sh.items); why != "" {
			return "[" + strconv.Itoa(n) + "]" + path, why
		}
		n++
	}
	switch {
	case n < sh.minItems:
		return "", "has " + strconv.Itoa(n) + " items, want at least " + strconv.Itoa(sh.minItems)
	case sh.maxItems >= 0 && n > sh.maxItems:
		return "", "has " + strconv.Itoa(n) + " items, limit " + strconv.Itoa(sh.maxItems)
	}
	return "", ""
}

func (sh *shape) checkString(raw []byte) string {
	if sh.enum == nil && sh.minLen == 0 && sh.maxLen < 0 {
		return ""
	}
	s := unquote(raw)
	if sh.enum != nil && !slices.Contains(sh.enum, s) {
		return "want one of " + strings.Join(sh.enum, ", ")
	}
	switch n := utf8.RuneCountInString(s); {
	case n < sh.minLen:
		return "has " + strconv.Itoa(n) + " characters, want at least " + strconv.Itoa(sh.minLen)
	case sh.maxLen >= 0 && n > sh.maxLen:
		return "has " + strconv.Itoa(n) + " characters, limit " + strconv.Itoa(sh.maxLen)
	}
	return ""
}

func (sh *shape) checkNumber(raw []byte) string {
	if !sh.allows(kindNumber | kindInteger) {
		return sh.want("number")
	}
	wantInteger := sh.types != 0 && sh.types&kindNumber == 0
	if sh.min == nil && sh.max == nil && len(raw) < maxPlain && !slices.ContainsFunc(raw, notDigit) {
		return ""
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil:
		return "is out of range"
	case wantInteger && f != math.Trunc(f):
		return sh.want("number")
	case sh.min != nil && f < *sh.min:
		return "is below the least, " + strconv.FormatFloat(*sh.min, 'g', -1, 64)
	case sh.max != nil && f > *sh.max:
		return "is above the limit, " + strconv.FormatFloat(*sh.max, 'g', -1, 64)
	}
	return ""
}

// maxPlain is a number of digits that surely fits a float64.
const maxPlain = 300

func notDigit(b byte) bool { return b < '0' || b > '9' }

// unquote decodes the inside of a JSON string.
func unquote(raw []byte) string {
	if !slices.Contains(raw, '\\') {
		return string(raw)
	}
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return string(raw)
	}
	return s
}

// clip bounds a name from outside before it goes into an error.
func clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "…"
}
