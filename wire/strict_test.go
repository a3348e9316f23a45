package wire_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/wire"
)

type inner struct {
	Deep string `json:"deep"`
	Same string `json:"same"`
}

type document struct {
	inner
	*Other
	Name   string            `json:"name"`
	Same   int               `json:"same"`
	Tagged inner             `json:"tagged"`
	Ptr    *inner            `json:"ptr,omitempty"`
	List   []inner           `json:"list,omitempty"`
	Array  [2]int            `json:"array"`
	Map    map[string]inner  `json:"map,omitempty"`
	Any    any               `json:"any,omitempty"`
	Raw    json.RawMessage   `json:"raw,omitempty"`
	When   time.Time         `json:"when"`
	Hidden string            `json:"-"`
	Plain  map[string]string // no tag: named Plain
}

// Other is embedded by pointer and refers to the type that embeds it.
type Other struct {
	Back *document `json:"back,omitempty"`
	More bool      `json:"more,omitempty"`
}

func TestDecodeAccepts(t *testing.T) {
	const text = ` {"name":"n","deep":"d","same":1,"tagged":{"deep":"x"},"ptr":null,"list":[{"deep":"a"},{"deep":"b"}],"array":[1,2],
		"map":{"Deep":{"deep":"m"},"deep":{"deep":"n"}},"any":{"Name":1,"name":2},"raw":{"NAME":1},"when":"2026-01-02T03:04:05Z",
		"Hidden":"x","hidden":"y","unknown":[{"a":1}],"Plain":{"k":"v"},"silent":"s","more":true,"back":{"name":"b"}} `
	var got document
	if err := wire.Decode([]byte(text), &got, len(text)); err != nil {
		t.Fatal(err)
	}
	var want document
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(document{})); diff != "" {
		t.Errorf("(-encoding/json +Decode):\n%s", diff)
	}
	var list []inner
	if err := wire.Decode([]byte(`[{"deep":"a"}]`), &list, 100); err != nil || len(list) != 1 {
		t.Errorf("Decode into a slice: %+v, %v", list, err)
	}
	var any1 any
	if err := wire.Decode([]byte(`null`), &any1, 100); err != nil {
		t.Errorf("Decode null into any: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                        ``,
		"null":                         `null`,
		"array":                        `[]`,
		"wrong case":                   `{"Name":"n"}`,
		"wrong case beside right":      `{"name":"n","NAME":"m"}`,
		"wrong case of an untagged":    `{"plain":{}}`,
		"wrong case in a struct":       `{"tagged":{"Deep":"x"}}`,
		"wrong case behind a pointer":  `{"ptr":{"DEEP":"x"}}`,
		"wrong case in a list":         `{"list":[{"deep":"a"},{"dEEp":"b"}]}`,
		"wrong case in a map":          `{"map":{"k":{"Deep":"x"}}}`,
		"wrong case in an embedded":    `{"DEEP":"d"}`,
		"wrong case behind embedded":   `{"MORE":true}`,
		"wrong case in recursion":      `{"back":{"back":{"Name":"x"}}}`,
		"duplicate":                    `{"name":"a","name":"b"}`,
		"duplicate by escape":          `{"name":"a","n\u0061me":"b"}`,
		"duplicate in any":             `{"any":{"a":1,"a":2}}`,
		"duplicate in raw":             `{"raw":[{"a":1,"a":2}]}`,
		"duplicate in unknown":         `{"zeta":{"a":1,"a":2}}`,
		"duplicate map key":            `{"map":{"k":{},"k":{}}}`,
		"null string":                  `{"name":null}`,
		"null number":                  `{"same":null}`,
		"null struct":                  `{"tagged":null}`,
		"null in a list":               `{"list":[null]}`,
		"type":                         `{"name":1}`,
		"object for a list":            `{"list":{}}`,
		"custom decoder":               `{"when":"yesterday"}`,
		"trailing data":                `{} {}`,
		"unfinished":                   `{"name":"a"`,
		"bad escape":                   `{"name":"\ud800"}`,
		"control character":            "{\"name\":\"\x01\"}",
		"invalid UTF-8":                "{\"name\":\"\xff\"}",
		"too deep":                     `{"any":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
		"over the limit":               `{"name":"` + strings.Repeat("a", 2000) + `"}`,
		"number beyond the field":      `{"same":99999999999999999999}`,
		"fraction for an integer":      `{"same":1.5}`,
		"deep inside unfinished array": `{"any":[[[`,
	} {
		var d document
		err := wire.Decode([]byte(text), &d, 1000)
		if wire.CodeOf(err) != wire.CodeBadRequest || wire.ReasonOf(err) != wire.ReasonJSON {
			t.Errorf("%s: %v (%s, %s), want bad-request, malformed-json", name, err, wire.CodeOf(err), wire.ReasonOf(err))
		}
	}
}

func TestDecodeWithoutLimitOrPointer(t *testing.T) {
	var d document
	if err := wire.Decode([]byte(`{}`), &d, 0); wire.ReasonOf(err) != wire.ReasonJSON {
		t.Errorf("limit 0 accepts: %v", err)
	}
	for _, v := range []any{nil, d, "x", (*document)(nil)} {
		if err := wire.Decode([]byte(`{}`), v, 10); wire.CodeOf(err) != wire.CodeInternal {
			t.Errorf("Decode into %T: %v, want internal", v, err)
		}
	}
}

func TestDecodeDepth(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	var v any
	if err := wire.Decode(nested(wire.MaxNestedDepth), &v, 1000); err != nil {
		t.Errorf("%d levels: %v", wire.MaxNestedDepth, err)
	}
	if err := wire.Decode(nested(wire.MaxNestedDepth+1), &v, 1000); wire.ReasonOf(err) != wire.ReasonJSON {
		t.Errorf("%d levels: %v, want malformed-json", wire.MaxNestedDepth+1, err)
	}
}
