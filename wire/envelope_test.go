package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/wire"
)

func fullRequest() *wire.Request {
	digest := "sha256:" + strings.Repeat("0f", 32)
	return &wire.Request{
		V: wire.EnvelopeVersion, ID: "r1", Op: wire.Op{Endpoint: "manager", Command: "stop", InputDigest: digest, OutputDigest: digest},
		Class: wire.ClassEphemeral, ReplyExpected: true,
		Target: &wire.Target{Owner: "local", Actor: "bob", LifecycleUID: uidA}, Bind: &wire.Bind{InstanceID: "i1", Epoch: "e1"},
		Args: json.RawMessage(`{"force":true}`), From: wire.EndpointRef{ID: ada.String(), Name: "ada", Role: "lead"}, DeadlineMS: 5000,
		Correlation: &wire.Correlation{Tracestate: "x=1"},
	}
}

func TestRequestSurvives(t *testing.T) {
	for _, change := range []func(*wire.Request){
		func(*wire.Request) {},
		func(r *wire.Request) { r.Target, r.Bind, r.Args, r.Correlation = nil, nil, nil, nil },
		func(r *wire.Request) { r.Correlation = &wire.Correlation{} },
		func(r *wire.Request) {
			r.Correlation = &wire.Correlation{Traceparent: "a", Tracestate: "b", Baggage: "c"}
		},
		func(r *wire.Request) { r.ReplyExpected, r.DeadlineMS = false, 0 },
	} {
		r := fullRequest()
		change(r)
		data, err := r.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.DecodeRequest(data)
		if diff := cmp.Diff(r, got); err != nil || diff != "" {
			t.Errorf("DecodeRequest(%s): %v (-sent +received):\n%s", data, err, diff)
		}
		std := new(wire.Request)
		if err := wire.Decode(data, std, wire.MaxRequest); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, std); diff != "" {
			t.Errorf("differs from Decode (-DecodeRequest +Decode):\n%s", diff)
		}
	}
}

func TestRequestEncodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*wire.Request)
		code  wire.Code
	}{
		"version":          {func(r *wire.Request) { r.V = 0 }, wire.CodeUnsupportedVersion},
		"class":            {func(r *wire.Request) { r.Class = "" }, wire.CodeClassMismatch},
		"digest":           {func(r *wire.Request) { r.Op.InputDigest = "x" }, wire.CodeContractMismatch},
		"no deadline":      {func(r *wire.Request) { r.DeadlineMS = 0 }, wire.CodeBadRequest},
		"args are a list":  {func(r *wire.Request) { r.Args = json.RawMessage(` []`) }, wire.CodeBadRequest},
		"args break out":   {func(r *wire.Request) { r.Args = json.RawMessage(`{},"id":"evil"`) }, wire.CodeBadRequest},
		"args twice a key": {func(r *wire.Request) { r.Args = json.RawMessage(`{"a":1,"a":2}`) }, wire.CodeBadRequest},
		"invalid name":     {func(r *wire.Request) { r.From.Name = "\xff" }, wire.CodeBadRequest},
		"invalid baggage":  {func(r *wire.Request) { r.Correlation.Baggage = "\xff" }, wire.CodeBadRequest},
		"too large": {func(r *wire.Request) {
			r.Args = json.RawMessage(`{"a":"` + strings.Repeat("a", wire.MaxRequest-10) + `"}`)
		}, wire.CodeResourceExhausted},
		"stranger's target": {func(r *wire.Request) { r.Target.Actor = "*" }, wire.CodeBadRequest},
	} {
		r := fullRequest()
		c.spoil(r)
		if got, err := r.AppendJSON([]byte("kept")); wire.CodeOf(err) != c.code || string(got) != "kept" {
			t.Errorf("%s: %.60q, %v; want %s", name, got, err, c.code)
		}
	}
}

func TestCheckRequest(t *testing.T) {
	sub := wire.RequestSubject{Space: "main", Rail: wire.RailOne, Endpoint: "manager", Command: "stop", Mode: wire.ModeExact,
		Target: []string{"local", "bob", string(uidA)}, Caller: wire.Lifecycle{Principal: ada, UID: uidA}, Nonce: nonce}
	if err := wire.CheckRequest(sub, fullRequest()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(*wire.RequestSubject, *wire.Request)
		code  wire.Code
	}{
		"endpoint":         {func(s *wire.RequestSubject, _ *wire.Request) { s.Endpoint = "delivery" }, wire.CodeOpMismatch},
		"command":          {func(_ *wire.RequestSubject, r *wire.Request) { r.Op.Command = "start" }, wire.CodeOpMismatch},
		"sender":           {func(_ *wire.RequestSubject, r *wire.Request) { r.From.ID = "local.eve" }, wire.CodeSenderMismatch},
		"target uid":       {func(_ *wire.RequestSubject, r *wire.Request) { r.Target.LifecycleUID = "" }, wire.CodeTargetMismatch},
		"target actor":     {func(_ *wire.RequestSubject, r *wire.Request) { r.Target.Actor = "carol" }, wire.CodeTargetMismatch},
		"no target":        {func(_ *wire.RequestSubject, r *wire.Request) { r.Target = nil }, wire.CodeTargetMismatch},
		"target of self":   {func(s *wire.RequestSubject, _ *wire.Request) { s.Mode, s.Target = wire.ModeSelf, nil }, wire.CodeTargetMismatch},
		"target of none":   {func(s *wire.RequestSubject, _ *wire.Request) { s.Mode, s.Target = wire.ModeNone, nil }, wire.CodeTargetMismatch},
		"target owner":     {func(s *wire.RequestSubject, _ *wire.Request) { s.Mode, s.Target = wire.ModeAny, []string{bob.Owner} }, wire.CodeTargetMismatch},
		"bind on scatter":  {func(s *wire.RequestSubject, _ *wire.Request) { s.Rail = wire.RailAll }, wire.CodeBadRequest},
		"bind to another":  {func(s *wire.RequestSubject, _ *wire.Request) { s.Rail, s.Instance = wire.RailInst, "i2" }, wire.CodeBadRequest},
		"owner by subject": {func(s *wire.RequestSubject, _ *wire.Request) { s.Mode, s.Target = wire.ModeOwner, []string{"local"} }, ""},
	} {
		s, r := sub, fullRequest()
		c.spoil(&s, r)
		err := wire.CheckRequest(s, r)
		if wire.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if e, ok := err.(*wire.Error); ok && e.Outcome != wire.OutcomeNotExecuted {
			t.Errorf("%s: outcome %q, want not-executed", name, e.Outcome)
		}
	}
}

func TestReplySurvives(t *testing.T) {
	for _, r := range []*wire.Reply{
		{V: 1, ID: "r1", OK: true},
		{V: 1, ID: "r1", OK: true, Data: json.RawMessage(`{"a":[1]}`)},
		{V: 1, ID: "r1", Error: &wire.Error{Code: wire.CodePermissionDenied, Message: "not \"permitted\"\n", Outcome: wire.OutcomeNotExecuted,
			Details: map[string]any{"missing": "sub:team.>", "n": 1.5}}},
	} {
		data, err := r.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.DecodeReply(data)
		if diff := cmp.Diff(r, got); err != nil || diff != "" {
			t.Errorf("DecodeReply(%s): %v (-sent +received):\n%s", data, err, diff)
		}
	}
}

func TestReplyEncodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		r    wire.Reply
		code wire.Code
	}{
		"version":           {wire.Reply{ID: "r1", OK: true}, wire.CodeUnsupportedVersion},
		"ok with error":     {wire.Reply{V: 1, ID: "r1", OK: true, Error: wire.Errorf(wire.CodeInternal, "x")}, wire.CodeBadRequest},
		"no error":          {wire.Reply{V: 1, ID: "r1"}, wire.CodeBadRequest},
		"unknown code":      {wire.Reply{V: 1, ID: "r1", Error: &wire.Error{Code: "teapot"}}, wire.CodeBadRequest},
		"details of a func": {wire.Reply{V: 1, ID: "r1", Error: &wire.Error{Code: wire.CodeInternal, Details: map[string]any{"f": func() {}}}}, wire.CodeBadRequest},
		"data breaks out":   {wire.Reply{V: 1, ID: "r1", OK: true, Data: json.RawMessage(`1,"id":"r2"`)}, wire.CodeBadRequest},
		"too large":         {wire.Reply{V: 1, ID: "r1", OK: true, Data: json.RawMessage(`"` + strings.Repeat("a", wire.MaxReply-10) + `"`)}, wire.CodeResourceExhausted},
	} {
		if got, err := c.r.AppendJSON([]byte("kept")); wire.CodeOf(err) != c.code || string(got) != "kept" {
			t.Errorf("%s: %.60q, %v; want %s", name, got, err, c.code)
		}
	}
	invalid := wire.Reply{V: 1, ID: "r1", Error: &wire.Error{Code: wire.CodeInternal, Message: "a\xffb"}}
	data, err := invalid.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.DecodeReply(data); err != nil || got.Error.Message != "a\uFFFDb" {
		t.Errorf("message of invalid UTF-8 came as %+v, %v", got, err)
	}
}
