package control

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/gowebpki/jcs"

	"github.com/cotal-go/cotal/wire"
)

// None is the input or output type of a command that has none. On the wire the side is absent or null.
type None struct{}

// Void is the schema of a side without a payload, {"type":"null"}. Its digest is one fixed value.
func Void() *jsonschema.Schema { return &jsonschema.Schema{Type: "null"} }

// SchemaOf infers the schema of a Go type, as [Handle] does for its input and output: struct fields without
// omitempty or omitzero are required, unknown properties are refused, the jsonschema tag describes a field.
// A type with its own JSON encoding is described as any value, one with its own text encoding as a string.
// It panics when the type has no schema (a channel, a function, a cycle): that is a programmer's mistake.
func SchemaOf[T any]() *jsonschema.Schema {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[None]() {
		return Void()
	}
	over := map[reflect.Type]*jsonschema.Schema{}
	collectOverrides(t, over, map[reflect.Type]bool{})
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: over})
	if err != nil {
		panic("control: schema of " + t.String() + ": " + err.Error())
	}
	return s
}

// collectOverrides finds the types below t whose JSON is not what their fields say.
func collectOverrides(t reflect.Type, over map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch {
	case t == reflect.TypeFor[time.Time]():
		return // known to the schema package
	case t == reflect.TypeFor[json.RawMessage](), codes[json.Marshaler](t), codes[json.Unmarshaler](t):
		over[t] = &jsonschema.Schema{}
		return
	case codes[encoding.TextMarshaler](t), codes[encoding.TextUnmarshaler](t):
		over[t] = &jsonschema.Schema{Type: "string"}
		return
	case t == reflect.TypeFor[[]byte]():
		over[t] = &jsonschema.Schema{Types: []string{"null", "string"}, ContentEncoding: "base64"}
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		collectOverrides(t.Elem(), over, seen)
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if f.IsExported() && f.Tag.Get("json") != "-" {
				collectOverrides(f.Type, over, seen)
			}
		}
	}
}

// codes reports whether t or a pointer to it implements the interface I.
func codes[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && (t.Implements(i) || reflect.PointerTo(t).Implements(i))
}

// Digest is the content address of a schema: "sha256:" and the lower-case hex of the SHA-256 of its RFC 8785
// canonical JSON.
func Digest(s *jsonschema.Schema) (string, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode schema: %w", err)
	}
	return digestJSON(raw)
}

// DigestOf is the digest of the schema that [Handle] gives to T: what a client that shares the Go type pins.
// It panics as [SchemaOf] does. It is meant for package variables and constructors, not for every call.
func DigestOf[T any]() string {
	d, err := Digest(SchemaOf[T]())
	if err != nil {
		panic("control: digest of " + reflect.TypeFor[T]().String() + ": " + err.Error())
	}
	return d
}

func digestJSON(raw []byte) (string, error) {
	canon, err := jcs.Transform(raw)
	if err != nil {
		return "", fmt.Errorf("canonicalize schema: %w", err)
	}
	sum := sha256.Sum256(canon)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// schema is a compiled side of a command.
type schema struct {
	digest string
	raw    json.RawMessage // canonical JSON
	void   bool
	fast   *shape               // nil when the schema needs the full validator
	full   *jsonschema.Resolved // never nil
}

func compileSchema(s *jsonschema.Schema) (*schema, error) {
	if s == nil {
		s = Void()
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	canon, err := jcs.Transform(raw)
	if err != nil {
		return nil, fmt.Errorf("canonicalize schema: %w", err)
	}
	c := &schema{raw: canon}
	if c.digest, err = digestJSON(canon); err != nil {
		return nil, err
	}
	// The compiled form is read back from what is published, so that both sides validate the same document.
	var own jsonschema.Schema
	if err := json.Unmarshal(canon, &own); err != nil {
		return nil, fmt.Errorf("read schema back: %w", err)
	}
	if c.full, err = own.Resolve(nil); err != nil {
		return nil, fmt.Errorf("resolve schema: %w", err)
	}
	c.void = string(canon) == `{"type":"null"}`
	c.fast, _ = compileShape(&own)
	return c, nil
}

// check validates a JSON value that is already known to be well formed. root names it in the error.
func (s *schema) check(root string, value json.RawMessage) *wire.Error {
	if s.void {
		if len(value) > 0 && string(value) != "null" {
			return wire.Errorf(wire.CodeBadRequest, "%s: none are taken", root)
		}
		return nil
	}
	if len(value) == 0 {
		value = null // absent and null are the same
	}
	if s.fast != nil {
		if path, msg := s.fast.check(value); msg != "" {
			return invalid(root+path, msg)
		}
		return nil
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return invalid(root, "not JSON")
	}
	if err := s.full.Validate(v); err != nil {
		return invalid(root, err.Error())
	}
	return nil
}

var null = json.RawMessage("null")

// invalid is the answer to a value that its schema refuses; path says where.
func invalid(path, why string) *wire.Error {
	if len(why) > maxReason {
		why = why[:maxReason] + "…"
	}
	e := wire.Errorf(wire.CodeBadRequest, "%s: %s", path, why)
	e.Details = map[string]any{"path": path}
	return e
}

// maxReason bounds the part of a validation error that quotes the caller's own input back.
const maxReason = 256
