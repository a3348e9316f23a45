package wire_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cotal-go/cotal/wire"
)

// schemaOf resolves one document of the embedded schema.
func schemaOf(tb testing.TB, def string) *jsonschema.Resolved {
	tb.Helper()
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(wire.Schema(), s); err != nil {
		tb.Fatal(err)
	}
	if s.Defs[def] == nil {
		tb.Fatalf("schema defines no %s", def)
	}
	s.Ref = "#/$defs/" + def
	r, err := s.Resolve(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// Whatever the decoders accept validates.
func TestSchemaAgreesWithVectors(t *testing.T) {
	for _, c := range []struct {
		kind, def string
		keyed     bool // the first line is a key or subject
	}{
		{"message", "message", false},
		{"presence", "presence", true},
		{"channel-config", "channelConfig", false},
		{"request", "request", false},
		{"reply", "reply", false},
	} {
		t.Run(c.kind, func(t *testing.T) {
			schema := schemaOf(t, c.def)
			for _, file := range vectorFiles(t, c.kind) {
				for _, v := range loadArchive(t, file).cases {
					body := v.input
					if c.keyed {
						_, body, _ = bytes.Cut(body, []byte("\n"))
					}
					accepted := bytes.HasPrefix([]byte(v.want), []byte("accepted"))
					var doc any
					if json.Unmarshal(body, &doc) != nil {
						if accepted {
							t.Errorf("%s: accepted, and no JSON", v.name)
						}
						continue
					}
					if err := schema.Validate(doc); accepted && err != nil {
						t.Errorf("%s %s: accepted, but: %v", filepath.Base(file), v.name, err)
					}
				}
			}
		})
	}
}

// The schema alone refuses these: they are wrong in shape, not in spelling.
func TestSchemaRefuses(t *testing.T) {
	for def, texts := range map[string][]string{
		"message": {
			`{}`, `null`, `{"stream":"CHAT_main","seq":1}`,
			`{"id":"a","ts":1,"space":"main","from":{"id":"local.ada","name":"ada"},"parts":[]}`,
			`{"id":"a","ts":1,"space":"main","from":{"id":"local.ada","name":"ada"},"channel":"a","to":"local.bob","parts":[]}`,
			`{"id":"a","ts":1.5,"space":"main","from":{"id":"local.ada","name":"ada"},"channel":"a","parts":[]}`,
			`{"id":"a","ts":1,"space":"main","from":{"id":"ada","name":"ada"},"channel":"a","parts":[]}`,
			`{"id":"a","ts":1,"space":"main","from":{"id":"local.ada","name":"ada"},"channel":"a.*","parts":[]}`,
			`{"id":"a","ts":1,"space":"main","from":{"id":"local.ada","name":"ada"},"channel":"a","parts":[{"kind":"image"}]}`,
			`{"id":"a","ts":1,"space":"main","from":{"id":"local.ada","name":"ada"},"channel":"a","parts":[{"kind":"text"}]}`,
			`{"id":"a","ts":1,"space":"main","from":{"id":"local.ada","name":"ada"},"channel":"a","parts":[{"kind":"data"}]}`,
		},
		"presence":      {`{}`, `{"card":{"id":"local.ada","name":"ada","kind":"robot"},"status":"idle","lifecycleUid":"kak6nvrsu3s7esjytwyvi3devv","ts":1}`},
		"channelConfig": {`{"deliveryClass":"eventual"}`, `{"replayWindow":"0s"}`, `[]`},
		"request":       {`{}`, `{"v":1,"id":"r1","op":{"endpoint":"delivery","command":"history"},"class":"ephemeral","replyExpected":true,"from":{"id":"local.ada","name":"ada"}}`},
		"reply":         {`{}`, `{"v":1,"id":"r1","ok":false}`, `{"v":1,"id":"r1","ok":true,"error":{"code":"internal"}}`, `{"v":1,"id":"r1","ok":false,"error":{"code":"teapot"}}`},
	} {
		schema := schemaOf(t, def)
		for _, text := range texts {
			var doc any
			if err := json.Unmarshal([]byte(text), &doc); err != nil {
				t.Fatal(err)
			}
			if schema.Validate(doc) == nil {
				t.Errorf("%s: schema accepts %s", def, text)
			}
		}
	}
}

func TestSchemaListsTheCatalog(t *testing.T) {
	schema := schemaOf(t, "error")
	for _, code := range wire.Codes() {
		if err := schema.Validate(map[string]any{"code": string(code)}); err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
	if s := wire.Schema(); len(s) > 0 {
		s[0] = 'X'
		if wire.Schema()[0] == 'X' {
			t.Error("Schema hands out its own memory")
		}
	}
}
