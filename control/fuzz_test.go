package control_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

// FuzzRequest takes any bytes on any subject as far as a handler. Whatever a handler would see agrees with the subject and
// with the published schema, and what is refused says that nothing was done.
func FuzzRequest(f *testing.F) {
	s := testService(new(logged))
	if err := s.Begin(space); err != nil {
		f.Fatal(err)
	}
	for _, command := range []string{"sum", "who", "nothing", control.CommandDescribe, control.CommandHealth} {
		f.Add(requestSubject(f, command), request(f, command, nil))
	}
	exact, err := wire.RequestSubject{
		Space: space, Rail: wire.RailInst, Instance: "one", Endpoint: "com.acme.math", Command: "who", Mode: wire.ModeExact,
		Target: []string{"local", "bob", string(lifecycle("bob").UID)}, Caller: ada, Nonce: nonce,
	}.Subject()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(exact, request(f, "who", func(r *wire.Request) {
		r.Target = &wire.Target{Owner: "local", Actor: "bob", LifecycleUID: lifecycle("bob").UID}
		r.Bind = &wire.Bind{InstanceID: "one", Epoch: "7"}
	}))
	f.Add(requestSubject(f, "sum"), []byte(`{"stream":"CHAT_lab","seq":7}`))
	f.Add(requestSubject(f, "sum"), []byte(`{"v":1,"id":"a","args":[{"a":{}}]}`))

	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		req, refused := s.Admit(subject, data)
		if refused != nil && refused.Outcome != wire.OutcomeNotExecuted && refused.Outcome != "" {
			t.Errorf("a refusal before the handler has outcome %q", refused.Outcome)
		}
		if req == nil {
			return
		}
		sub, err := wire.ParseRequestSubject(subject)
		if err != nil {
			t.Fatalf("accepted on a subject that does not parse: %v", err)
		}
		if req.Caller != sub.Caller || req.From.ID != sub.Caller.Principal.String() || req.Command != sub.Command || req.Mode != sub.Mode {
			t.Errorf("request %+v does not agree with its subject", req)
		}
		if !req.Deadline.After(req.Received) {
			t.Errorf("deadline %v is not after %v", req.Deadline, req.Received)
		}
		if err := validate(s.InputSchema(req.Command), req.Args); err != nil {
			t.Errorf("accepted arguments %s: %v", req.Args, err)
		}
	})
}

// FuzzReply decodes any bytes as a reply. What is accepted is a result or an error, never both, and belongs to the request.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{
		`{"v":1,"id":"a","ok":true}`, `{"v":1,"id":"a","ok":true,"data":{"sum":1}}`, `{"v":1,"id":"b","ok":true}`,
		`{"v":1,"id":"a","ok":false,"error":{"code":"not-found","message":"m","outcome":"executed","details":{"k":[1]}}}`,
		`{"v":1,"id":"a","ok":false,"error":{"code":"com.acme.odd","message":""}}`, `{"stream":"S","seq":1}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, ok, err := control.ReadReply("a", data)
		if err != nil {
			if e, typed := errors.AsType[*wire.Error](err); !typed || e.Outcome != wire.OutcomeUnknown {
				t.Errorf("error %v does not say that the outcome is unknown", err)
			}
			return
		}
		if !ok {
			return
		}
		if a.Err != nil && (len(a.Data) > 0 || a.Err.Outcome == "" || a.Err.Code == "") {
			t.Errorf("answer %+v has data, no code or no outcome", a)
		}
		if len(a.Data) > 0 && !json.Valid(a.Data) {
			t.Errorf("data %q is not JSON", a.Data)
		}
	})
}

func validate(schema, value json.RawMessage) error {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return err
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return err
	}
	var v any
	if len(value) > 0 {
		if err := json.Unmarshal(value, &v); err != nil {
			return err
		}
	}
	return resolved.Validate(v)
}
