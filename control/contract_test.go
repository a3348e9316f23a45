package control_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

func TestDigestIsThatOfCanonicalJSON(t *testing.T) {
	// printf '{"type":"null"}' | sha256sum
	const void = "sha256:bcde375ebd4cbacf651311181173836b169d5a360c6ac158c6a2cdaf49be3f61"
	got, err := control.Digest(control.Void())
	if err != nil || got != void {
		t.Errorf("digest of the void schema = %s, %v, want %s", got, err, void)
	}
	if got := control.DigestOf[control.None](); got != void {
		t.Errorf("digest of None = %s, want that of the void schema", got)
	}
	a := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"b": {Type: "string"}, "a": {Type: "integer"}}}
	var b jsonschema.Schema
	if err := json.Unmarshal([]byte(`{"properties": {"a":{"type":"integer"},"b":{"type":"string"}}, "type":"object"}`), &b); err != nil {
		t.Fatal(err)
	}
	da, _ := control.Digest(a)
	db, _ := control.Digest(&b)
	if da != db {
		t.Errorf("digests of the same schema differ: %s and %s", da, db)
	}
}

type custom struct{}

func (custom) MarshalJSON() ([]byte, error) { return []byte(`"x"`), nil }

type named string

func (n named) MarshalText() ([]byte, error) { return []byte(n), nil }

func TestSchemaFollowsHowATypeEncodes(t *testing.T) {
	type all struct {
		Own   custom          `json:"own"`
		Text  named           `json:"text"`
		Raw   json.RawMessage `json:"raw"`
		Bytes []byte          `json:"bytes"`
		List  []custom        `json:"list"`
	}
	raw, err := json.Marshal(control.SchemaOf[all]())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{"own":true,"text":{"type":"string"},"raw":true,` +
		`"bytes":{"type":["null","string"],"contentEncoding":"base64"},"list":{"type":["null","array"],"items":true}},` +
		`"required":["own","text","raw","bytes","list"],"additionalProperties":false}`
	if string(raw) != want {
		t.Errorf("schema = %s\nwant     %s", raw, want)
	}
}

func newSum(opts *control.Options) *control.Service {
	s := control.New("com.acme.math", opts)
	control.Handle(s, control.Command{Name: "sum", Effect: control.Read, Description: "Adds."},
		func(_ context.Context, _ *control.Request, in sumIn) (sumOut, error) { return sumOut{in.A + in.B}, nil })
	return s
}

var sum = control.Target{Endpoint: "com.acme.math", Command: "sum"}

func TestDescribe(t *testing.T) {
	srv := broker(t)
	run(t, newSum(nil), dial(t, srv))
	c := caller(t, dial(t, srv), ada)
	got, err := c.Describe(t.Context(), "com.acme.math")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, cmd := range got.Commands {
		names = append(names, cmd.Name)
	}
	if s := strings.Join(names, " "); s != "describe health sum" {
		t.Errorf("commands = %q, want describe, health and sum", s)
	}
	cmd, _ := got.Command("sum")
	if cmd.InputDigest != control.DigestOf[sumIn]() || cmd.OutputDigest != control.DigestOf[sumOut]() ||
		cmd.Effect != control.Read || len(cmd.Modes) != 1 || cmd.Modes[0] != wire.ModeNone {
		t.Errorf("contract of sum = %+v", cmd)
	}
	if err := got.Validate("sum", json.RawMessage(`{"a":1,"b":2}`)); err != nil {
		t.Errorf("valid arguments: %v", err)
	}
	e := wantCode(t, got.Validate("sum", json.RawMessage(`{"a":1,"b":"2"}`)), wire.CodeBadRequest, "")
	if e.Details["path"] != "args.b" {
		t.Errorf("path = %v, want args.b", e.Details["path"])
	}
	wantCode(t, got.Validate("sum", json.RawMessage(`{"a":1,"b":2,"b":3}`)), wire.CodeBadRequest, "")
	wantCode(t, got.Validate("product", nil), wire.CodeUnimplemented, "")

	var one control.Contract
	if err := c.Call(t.Context(), control.Target{Endpoint: "com.acme.math", Command: control.CommandDescribe},
		control.DescribeRequest{Command: "sum"}, &one); err != nil {
		t.Fatal(err)
	}
	if err := one.Verify(); err != nil || len(one.Commands) != 1 || len(one.Schemas) != 2 {
		t.Errorf("describe of one command: %v, %d commands, %d schemas", err, len(one.Commands), len(one.Schemas))
	}
	err = c.Call(t.Context(), control.Target{Endpoint: "com.acme.math", Command: control.CommandDescribe},
		control.DescribeRequest{Command: "product"}, &one)
	wantCode(t, err, wire.CodeNotFound, wire.OutcomeNotExecuted)
}

func TestContractThatContradictsItself(t *testing.T) {
	for name, change := range map[string]func(*control.Contract){
		"version":         func(c *control.Contract) { c.V = 2 },
		"schema":          func(c *control.Contract) { c.Schemas[control.DigestOf[sumIn]()] = json.RawMessage(`{}`) },
		"missing_schema":  func(c *control.Contract) { delete(c.Schemas, control.DigestOf[sumOut]()) },
		"effect":          func(c *control.Contract) { c.Commands[2].Effect = control.Write },
		"foreign_command": func(c *control.Contract) { c.Commands[0].Name = "aaa" },
		"order":           func(c *control.Contract) { c.Commands[0], c.Commands[1] = c.Commands[1], c.Commands[0] },
	} {
		c, err := newSum(nil).Contract()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Verify(); err != nil {
			t.Fatalf("untouched contract: %v", err)
		}
		change(c)
		if err := c.Verify(); err == nil {
			t.Errorf("%s: a changed contract passes", name)
		}
	}
}

// TestContractOfALaterEdition has a member that this edition does not know: the digest covers it, and a changed one shows.
func TestContractOfALaterEdition(t *testing.T) {
	own, err := newSum(nil).Contract()
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	raw, err := json.Marshal(own)
	if err == nil {
		err = json.Unmarshal(raw, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	commands := doc["commands"].([]any)
	commands[2].(map[string]any)["cost"] = 1.5
	canonical, err := json.Marshal(commands) // maps are sorted, and this document has nothing else to fold
	if err != nil {
		t.Fatal(err)
	}
	doc["digest"] = fmt.Sprintf("sha256:%x", sha256.Sum256(canonical))
	decode := func() *control.Contract {
		t.Helper()
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		c := new(control.Contract)
		if err := json.Unmarshal(raw, c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := decode().Verify(); err != nil {
		t.Errorf("contract with an unknown member: %v", err)
	}
	commands[2].(map[string]any)["cost"] = 2.5
	wantCode(t, decode().Verify(), wire.CodeContractMismatch, "")
}

func TestMistakesAtRegistrationPanic(t *testing.T) {
	ok := func(context.Context, *control.Request) (any, error) { return nil, nil }
	for name, do := range map[string]func(){
		"endpoint":      func() { control.New("No Such", nil) },
		"instance":      func() { control.New("math", &control.Options{Instance: "_"}) },
		"epoch":         func() { control.New("math", &control.Options{Epoch: "a.b"}) },
		"limit":         func() { control.New("math", &control.Options{Queue: -1}) },
		"name":          func() { newSum(nil).Handle(control.Command{Name: "UP", Effect: control.Read}, ok) },
		"taken":         func() { newSum(nil).Handle(control.Command{Name: "sum", Effect: control.Read}, ok) },
		"builtin_taken": func() { newSum(nil).Handle(control.Command{Name: "health", Effect: control.Read}, ok) },
		"no_effect":     func() { newSum(nil).Handle(control.Command{Name: "x"}, ok) },
		"mode": func() {
			newSum(nil).Handle(control.Command{Name: "x", Effect: control.Read, Modes: []wire.Mode{"every"}}, ok)
		},
		"no_handler": func() { newSum(nil).Handle(control.Command{Name: "x", Effect: control.Read}, nil) },
		"schema": func() {
			newSum(nil).Handle(control.Command{Name: "x", Effect: control.Read, In: &jsonschema.Schema{Ref: "#/nowhere"}}, ok)
		},
		"type":  func() { control.SchemaOf[chan int]() },
		"check": func() { newSum(nil).Check("x", nil) },
		"conn":  func() { _, _ = control.NewCaller(nil, space, ada, wire.EndpointRef{}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			do()
		})
	}
}
