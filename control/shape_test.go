package control_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

type inner struct {
	Name  string            `json:"name"`
	Tags  []string          `json:"tags,omitempty"`
	Attrs map[string]int    `json:"attrs,omitempty"`
	Next  *struct{ X bool } `json:"next,omitempty"`
}

type outer struct {
	ID    uint8           `json:"id"`
	Count int             `json:"count,omitempty"`
	Ratio float64         `json:"ratio,omitempty"`
	List  []inner         `json:"list,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Any   any             `json:"any,omitempty"`
}

// schemas are those that the fast check is compared on.
func schemas() map[string]*jsonschema.Schema {
	return map[string]*jsonschema.Schema{
		"outer": control.SchemaOf[outer](),
		"list":  control.SchemaOf[[]inner](),
		"void":  control.Void(),
		"sum":   control.SchemaOf[sumIn](),
		"bounded": {Type: "object", Properties: map[string]*jsonschema.Schema{
			"word":  {Type: "string", MinLength: jsonschema.Ptr(1), MaxLength: jsonschema.Ptr(3)},
			"color": {Type: "string", Enum: []any{"red", "green"}},
			"n":     {Type: "integer", Minimum: jsonschema.Ptr(-2.0), Maximum: jsonschema.Ptr(9.0)},
			"few":   {Type: "array", MinItems: jsonschema.Ptr(1), MaxItems: jsonschema.Ptr(2)},
			"open":  {Types: []string{"null", "object"}},
		}, Required: []string{"word"}},
		"anything": {},
	}
}

var values = []string{
	`null`, `true`, `{}`, `[]`, `"x"`, `1`, `-1`, `1.5`, `1e2`, `1e400`, `256`, `255`,
	`{"id":1}`, `{"id":256}`, `{"id":1,"count":1.0}`, `{"id":1,"count":1.5}`, `{"id":"1"}`, `{"ID":1}`, `{"id":1,"extra":0}`,
	`{"id":1,"list":null}`, `{"id":1,"list":[{"name":"a","tags":["x",2]}]}`, `{"id":1,"list":[{"name":"a"},{"tags":[]}]}`,
	`{"id":1,"list":[{"name":"a","attrs":{"k":1,"l":"m"}}]}`, `{"id":1,"list":[{"name":"a","next":null}]}`,
	`{"id":1,"list":[{"name":"a","next":{"X":true}}]}`, `{"id":1,"raw":{"a":[1,{"b":"}"}]},"any":[[]]}`,
	`{"i\u0064":1}`, `{ "id" : 1 , "ratio" : -0.5e-3 }`, `[{"name":"a"}]`, `[{"name":"a\"b","tags":["\\"]}]`,
	`{"word":""}`, `{"word":"abc"}`, `{"word":"äöü"}`, `{"word":"\u00e4bcd"}`, `{"word":"a","color":"red"}`,
	`{"word":"a","color":"blue"}`, `{"word":"a","n":-3}`, `{"word":"a","n":9}`, `{"word":"a","n":9.5}`, `{"word":"a","few":[]}`,
	`{"word":"a","few":[1,[2]]}`, `{"word":"a","few":[1,2,3]}`, `{"word":"a","open":{"x":1}}`, `{"word":"a","open":[]}`,
	`{"a":1,"b":2}`, `{"a":1}`, `{"a":1,"b":2,"label":"l"}`, `{"a":1,"b":2,"label":null}`,
	strings.Repeat("9", 400),
}

func TestShapeDecidesAsTheValidator(t *testing.T) {
	for name, s := range schemas() {
		for _, v := range values {
			compareShape(t, name, s, []byte(v))
		}
	}
}

// FuzzShape compares the fast check with the validator of the schema package on every value that a request may hold.
func FuzzShape(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(v))
	}
	all := schemas()
	f.Fuzz(func(t *testing.T, value []byte) {
		var probe any
		if wire.Decode(value, &probe, wire.MaxRequest) != nil {
			return
		}
		for name, s := range all {
			compareShape(t, name, s, value)
		}
	})
}

func compareShape(t *testing.T, name string, s *jsonschema.Schema, value []byte) {
	t.Helper()
	reason, fast := control.ShapeCheck(s, value)
	if !fast {
		t.Fatalf("schema %s is left to the full validator", name)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	var full error
	if full = json.Unmarshal(value, &v); full == nil {
		full = resolved.Validate(v)
	}
	if (reason == "") != (full == nil) {
		t.Errorf("schema %s, value %s: fast check says %q, validator says %v", name, value, reason, full)
	}
}

func TestShapeLeavesOtherSchemas(t *testing.T) {
	for name, s := range map[string]*jsonschema.Schema{
		"pattern": {Type: "string", Pattern: "^a"},
		"anyOf":   {AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "integer"}}},
		"nested":  {Type: "object", Properties: map[string]*jsonschema.Schema{"a": {Not: &jsonschema.Schema{Type: "null"}}}},
		"numbers": {Type: "integer", Enum: []any{1.0, 2.0}},
		"ref":     {Ref: "#/$defs/x", Defs: map[string]*jsonschema.Schema{"x": {Type: "string"}}},
	} {
		if _, fast := control.ShapeCheck(s, []byte(`"a"`)); fast {
			t.Errorf("schema %s is taken by the fast check", name)
		}
	}
}

func TestShapeSaysWhereAndWhy(t *testing.T) {
	all := schemas()
	for _, tt := range []struct{ schema, value, want string }{
		{"outer", `{"id":1,"list":[{"name":"a"},{"name":2}]}`, `.list[1].name: is number, want string`},
		{"outer", `{"count":1}`, `: missing property "id"`},
		{"outer", `{"id":1,"Count":1}`, `: unknown property "Count"`},
		{"outer", `{"id":300}`, `.id: is above the limit, 255`},
		{"outer", `[]`, `: is array, want object`},
		{"list", `{}`, `: is object, want null or array`},
		{"bounded", `{"word":"abcd"}`, `.word: has 4 characters, limit 3`},
		{"bounded", `{"word":"a","color":"x"}`, `.color: want one of red, green`},
		{"bounded", `{"word":"a","few":[1,2,3]}`, `.few: has 3 items, limit 2`},
		{"void", `{}`, `: is object, want null`},
	} {
		got, _ := control.ShapeCheck(all[tt.schema], []byte(tt.value))
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.schema, tt.value, got, tt.want)
		}
	}
}
