package space_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// event is a record that says everything that one can say.
func event(change ...func(*space.AuditEvent)) space.AuditEvent {
	ada := lifecycle("ada")
	e := space.AuditEvent{
		Ver: space.AuditVersion, ID: wire.NewID(), At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), By: "local.bob",
		Action: space.ActionConnect, Target: ada.Principal.String(), UID: ada.UID, Outcome: space.OutcomeDenied,
		Reason: trust.ReasonRevoked, Detail: "the grant was taken away; ask for it again", Count: 4, Op: "sweep-1",
	}
	for _, fn := range change {
		fn(&e)
	}
	return e
}

// least is a record that says no more than it must.
func least(change ...func(*space.AuditEvent)) space.AuditEvent {
	return event(slices.Concat([]func(*space.AuditEvent){func(e *space.AuditEvent) {
		e.Target, e.UID, e.Reason, e.Detail, e.Count, e.Op = "", "", "", "", 0, ""
	}}, change)...)
}

func TestAuditRecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]space.AuditEvent{"full": event(), "least": least()} {
		data, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := space.DecodeAudit(data)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(want, got))
		}
	}
}

func TestAuditRecordsAreClosed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*space.AuditEvent){
		"no_id":            func(e *space.AuditEvent) { e.ID = "" },
		"foreign_id":       func(e *space.AuditEvent) { e.ID = "UPPER CASE AND SPACES HERE" },
		"no_time":          func(e *space.AuditEvent) { e.At = time.Time{} },
		"nobody":           func(e *space.AuditEvent) { e.By = "" },
		"long_by":          func(e *space.AuditEvent) { e.By = strings.Repeat("x", wire.MaxName+1) },
		"unknown_action":   func(e *space.AuditEvent) { e.Action = "delete" },
		"no_outcome":       func(e *space.AuditEvent) { e.Outcome = "" },
		"unknown_outcome":  func(e *space.AuditEvent) { e.Outcome = "maybe" },
		"wildcard_target":  func(e *space.AuditEvent) { e.Target = "local.*" },
		"unknown_owner":    func(e *space.AuditEvent) { e.Target = "alice.ada" },
		"foreign_uid":      func(e *space.AuditEvent) { e.UID = "x" },
		"uid_of_nobody":    func(e *space.AuditEvent) { e.Target = "" },
		"reason_sentence":  func(e *space.AuditEvent) { e.Reason = "it was revoked" },
		"long_detail":      func(e *space.AuditEvent) { e.Detail = strings.Repeat("x", space.MaxAuditDetail+1) },
		"lines":            func(e *space.AuditEvent) { e.Detail = "a\nb" },
		"escape":           func(e *space.AuditEvent) { e.By = "\x1b[31m" },
		"not_text":         func(e *space.AuditEvent) { e.Op = "\xff" },
		"another_version":  func(e *space.AuditEvent) { e.Ver = 2 },
		"no_version":       func(e *space.AuditEvent) { e.Ver = 0 },
		"target_no_actor":  func(e *space.AuditEvent) { e.Target = "local" },
		"target_with_dash": func(e *space.AuditEvent) { e.Target, e.UID = "-.-", "" },
	} {
		if data, err := event(change).Encode(); err == nil {
			t.Errorf("%s: encoded as %s", name, data)
		}
	}
	good := string(must(event().Encode())(t))
	for name, text := range map[string]string{
		"unknown_field": strings.Replace(good, "{", `{"x":1,`, 1),
		"doubled_field": strings.Replace(good, "{", `{"ver":1,`, 1),
		"other_case":    strings.Replace(good, `"by"`, `"By"`, 1),
		"trailing":      good + "{}",
		"null":          "null",
		"empty":         "",
		"cut":           good[:len(good)-1],
		"large":         strings.Replace(good, "{", "{"+strings.Repeat(" ", space.MaxAudit), 1),
	} {
		if e, err := space.DecodeAudit([]byte(text)); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, %v, want bad-request", name, e, err)
		}
	}
	if _, err := space.DecodeAudit([]byte(`{"ver":2,"who":"somebody"}`)); wire.CodeOf(err) != wire.CodeUnsupportedVersion {
		t.Errorf("a record of another version: %v, want unsupported-version", err)
	}
}

func FuzzDecodeAudit(f *testing.F) {
	for _, e := range []space.AuditEvent{event(), least()} {
		data, err := e.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := space.DecodeAudit(data)
		if err != nil {
			return
		}
		again, err := e.Encode()
		if err != nil {
			t.Fatalf("accepted and not encoded: %v", err)
		}
		if back, err := space.DecodeAudit(again); err != nil || !back.At.Equal(e.At) {
			t.Errorf("read back as %+v, %v, want %+v", back, err, e)
		}
	})
}

func TestAuditSchemaAgreesWithTheType(t *testing.T) {
	t.Parallel()
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal(space.AuditSchema(), schema); err != nil {
		t.Fatal(err)
	}
	fields := map[string]bool{} // whether it must be there
	for f := range reflect.TypeFor[space.AuditEvent]().Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = options == ""
		if _, ok := schema.Properties[name]; !ok {
			t.Errorf("the schema has no %q", name)
		}
		if fields[name] != slices.Contains(schema.Required, name) {
			t.Errorf("%q is required: type %v, schema %v", name, fields[name], !fields[name])
		}
	}
	for name := range schema.Properties {
		if _, ok := fields[name]; !ok {
			t.Errorf("the type has no %q", name)
		}
	}
	words := func(name string) (out []string) {
		for _, v := range schema.Properties[name].Enum {
			out = append(out, v.(string))
		}
		return out
	}
	if got, want := words("action"), space.AuditActions(); !slices.Equal(got, want) {
		t.Errorf("actions of the schema = %q, want %q", got, want)
	}
	if got, want := words("outcome"), space.AuditOutcomes(); !slices.Equal(got, want) {
		t.Errorf("outcomes of the schema = %q, want %q", got, want)
	}
	resolved := must(schema.Resolve(nil))(t)
	valid := func(data []byte) error {
		var doc any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		return resolved.Validate(doc)
	}
	for name, e := range map[string]space.AuditEvent{
		"full": event(), "least": least(), "other_owner": least(func(e *space.AuditEvent) { e.Target = "u_g5mclrofwa6pirb3p4yeigemze.ada" }),
		"widest": event(func(e *space.AuditEvent) {
			e.By, e.Detail = strings.Repeat("é", wire.MaxName), strings.Repeat("<", space.MaxAuditDetail)
		}),
	} {
		if err := valid(must(e.Encode())(t)); err != nil {
			t.Errorf("%s: written, and: %v", name, err)
		}
	}
	for _, text := range []string{
		`{}`, `[]`, `{"ver":1,"id":"01j0000000aaaaaaaaaaaaaaaa","at":"2026-01-02T03:04:05Z","by":"x","action":"delete","outcome":"ok"}`,
		strings.Replace(string(must(least().Encode())(t)), "{", `{"secret":"x",`, 1),
		strings.Replace(string(must(least().Encode())(t)), "{", `{"uid":"`+string(wire.NewUID())+`",`, 1),
	} {
		if valid([]byte(text)) == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}
