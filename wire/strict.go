package wire

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Decode decodes a JSON document other than a message into v, a non-nil pointer, under the rules of the contract: at most
// maxBytes, valid UTF-8 without lone surrogates, at most MaxNestedDepth levels, no key twice in an object at any depth, no
// key that is a field of the Go type in another case, null only where the Go type has a nil, nothing after the value.
// Unknown fields are ignored. After an error v may be partly filled.
//
// Errors have code bad-request and ReasonJSON, or those of a nested Message.
func Decode(data []byte, v any, maxBytes int) error {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || reflect.ValueOf(v).IsNil() {
		return Errorf(CodeInternal, "decode: destination %T is not a non-nil pointer", v)
	}
	s := scanner{data: data, limit: MaxNestedDepth}
	if !s.begin(maxBytes) || !s.typed(t.Elem()) || !s.end() {
		return s.refusal("decode " + typeName(t.Elem()))
	}
	if err := json.Unmarshal(data, v); err != nil {
		return malformed(ReasonJSON, "decode %s: %w", typeName(t.Elem()), err)
	}
	return nil
}

// typeName is a type's own word for errors, such as "presence".
func typeName(t reflect.Type) string {
	if t.Name() == "" {
		return "document"
	}
	return strings.ToLower(t.Name())
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// typed validates and skips one value that will be decoded into a t. What does not fit t is left to the decoder.
func (s *scanner) typed(t reflect.Type) bool {
	nullable := false
	for t.Kind() == reflect.Pointer {
		nullable = true
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return s.value()
	}
	switch t.Kind() {
	case reflect.Interface, reflect.Map, reflect.Slice:
		nullable = true
	}
	switch s.peek() {
	case 'n':
		if !nullable {
			return s.fail("null where a value must be")
		}
	case '{':
		switch t.Kind() {
		case reflect.Struct:
			return s.typedStruct(layoutOf(t))
		case reflect.Map:
			return s.typedMap(t.Elem())
		}
	case '[':
		if k := t.Kind(); k == reflect.Slice || k == reflect.Array {
			return s.typedList(t.Elem())
		}
	}
	return s.value()
}

func (s *scanner) typedStruct(l *layout) bool {
	if !s.open('{', "want an object") {
		return false
	}
	seen := s.seen()
	for first := true; s.more('}', first); first = false {
		key, ok := s.key()
		if !ok || !seen.add(s, key) {
			return false
		}
		t, known := l.types[string(key)]
		switch {
		case known:
			ok = s.typed(t)
		case wrongCase(key, l.names):
			ok = s.fail("key in the wrong case")
		default:
			ok = s.value()
		}
		if !ok {
			return false
		}
	}
	seen.drop(s)
	return s.err == ""
}

func (s *scanner) typedMap(elem reflect.Type) bool {
	if !s.open('{', "want an object") {
		return false
	}
	seen := s.seen()
	for first := true; s.more('}', first); first = false {
		key, ok := s.key()
		if !ok || !seen.add(s, key) || !s.typed(elem) {
			return false
		}
	}
	seen.drop(s)
	return s.err == ""
}

func (s *scanner) typedList(elem reflect.Type) bool {
	if !s.open('[', "want an array") {
		return false
	}
	for first := true; s.more(']', first); first = false {
		if !s.typed(elem) {
			return false
		}
	}
	return s.err == ""
}

// layout is what the scanner needs to know of a struct: its JSON names and their types.
type layout struct {
	types map[string]reflect.Type
	names []string
}

// layouts caches by reflect.Type. It only saves time: a lost entry is computed again.
var layouts sync.Map

func layoutOf(t reflect.Type) *layout {
	if l, ok := layouts.Load(t); ok {
		return l.(*layout)
	}
	l := &layout{types: make(map[string]reflect.Type)}
	l.add(t, []reflect.Type{t})
	for name := range l.types {
		l.names = append(l.names, name)
	}
	slices.Sort(l.names)
	actual, _ := layouts.LoadOrStore(t, l)
	return actual.(*layout)
}

// add collects the fields of t, and of what it embeds, as encoding/json names them. Shallower fields win.
func (l *layout) add(t reflect.Type, path []reflect.Type) {
	var embedded []reflect.Type
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Tag.Get("json") == "-" {
			continue
		}
		ft := f.Type
		if f.Anonymous && ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if f.Anonymous && name == "" && ft.Kind() == reflect.Struct {
			embedded = append(embedded, ft)
			continue
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, taken := l.types[name]; !taken {
			l.types[name] = f.Type
		}
	}
	for _, e := range embedded {
		if !slices.Contains(path, e) {
			l.add(e, append(slices.Clone(path), e))
		}
	}
}
