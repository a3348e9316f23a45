package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

// testService serves a command for every way to fail.
func testService(log *logged) *control.Service {
	s := newSum(&control.Options{Instance: "one", Epoch: "7", Version: "1.2.3", Logger: log.logger()})
	raw := func(name string, effect control.Effect, fn control.HandlerFunc, modes ...wire.Mode) {
		s.Handle(control.Command{Name: name, Effect: effect, Modes: modes, Out: &jsonschema.Schema{}}, fn)
	}
	fails := func(err error) control.HandlerFunc {
		return func(context.Context, *control.Request) (any, error) { return nil, err }
	}
	who := func(_ context.Context, req *control.Request) (any, error) {
		return req.Caller.Principal.String() + ">" + req.Target.Principal.String() + "/" + string(req.Target.UID), nil
	}
	raw("who", control.Read, who, wire.ModeNone, wire.ModeSelf, wire.ModeOwner, wire.ModeAny, wire.ModeExact)
	raw("panics", control.Read, func(context.Context, *control.Request) (any, error) { panic("the secret cause") })
	raw("unknown", control.Write, fails(errors.New("the secret cause")))
	raw("typed", control.Write, fails(fmt.Errorf("the secret cause: %w", wire.Errorf(wire.CodeNotFound, "no such thing"))))
	raw("stated", control.Write, fails(&wire.Error{Code: wire.CodeConflict, Message: "half done", Outcome: wire.OutcomeExecuted}))
	raw("badcode", control.Write, fails(&wire.Error{Code: "No Such", Outcome: wire.OutcomeExecuted}))
	raw("odd", control.Read, func(context.Context, *control.Request) (any, error) { return make(chan int), nil })
	raw("huge", control.Write, func(context.Context, *control.Request) (any, error) { return strings.Repeat("x", wire.MaxReply), nil })
	raw("nothing", control.Read, fails(nil))
	overruns := func(ctx context.Context, _ *control.Request) (any, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("gave up: %w", ctx.Err())
	}
	raw("overrun-read", control.Read, overruns)
	raw("overrun-write", control.Write, overruns)
	return s
}

func TestOutcomesOfHandlers(t *testing.T) {
	log := new(logged)
	srv := broker(t)
	run(t, testService(log), dial(t, srv))
	c := caller(t, dial(t, srv), ada)
	for _, tt := range []struct {
		command string
		code    wire.Code
		outcome wire.Outcome
	}{
		{"panics", wire.CodeInternal, wire.OutcomeUnknown},
		{"unknown", wire.CodeInternal, wire.OutcomeUnknown},
		{"typed", wire.CodeNotFound, wire.OutcomeNotExecuted},
		{"stated", wire.CodeConflict, wire.OutcomeExecuted},
		{"badcode", wire.CodeInternal, wire.OutcomeExecuted},
		{"odd", wire.CodeInternal, wire.OutcomeExecuted},
		{"huge", wire.CodeResourceExhausted, wire.OutcomeExecuted},
		{"overrun-write", wire.CodeDeadlineExceeded, wire.OutcomeUnknown},
		{"overrun-read", wire.CodeDeadlineExceeded, wire.OutcomeNotExecuted},
	} {
		t.Run(tt.command, func(t *testing.T) {
			inv := control.Invocation{Target: control.Target{Endpoint: "com.acme.math", Command: tt.command}, ID: "id-" + tt.command}
			ctx := t.Context()
			if strings.HasPrefix(tt.command, "overrun") {
				// The caller grants the endpoint less than it waits itself, as one that is farther away would.
				data := request(t, inv.Command, func(r *wire.Request) { r.ID, r.DeadlineMS = inv.ID, 20 })
				wantCode(t, ask(t, dial(t, srv), inv.Command, data).Error, tt.code, tt.outcome)
				return
			}
			a, err := c.Invoke(ctx, inv)
			e := wantCode(t, err, tt.code, tt.outcome)
			if strings.Contains(e.Error(), "secret") {
				t.Errorf("the cause crosses the wire: %v", e)
			}
			if e.Code == wire.CodeInternal && !strings.Contains(e.Error(), inv.ID) {
				t.Errorf("error %q does not name the request", e)
			}
			if a.Instance != "one" || a.Epoch != "7" {
				t.Errorf("answered by %q of epoch %q, want one and 7", a.Instance, a.Epoch)
			}
		})
	}
	if got := log.String(); strings.Count(got, "the secret cause") != 2 || !strings.Contains(got, "serve_test.go") {
		t.Errorf("the log should hold both causes, and the stack of the panic:\n%s", got)
	}
	if err := c.Call(t.Context(), control.Target{Endpoint: "com.acme.math", Command: "nothing"}, nil, nil); err != nil {
		t.Errorf("command without result: %v", err)
	}
}

func TestResultsAreCheckedOnDemand(t *testing.T) {
	srv := broker(t)
	log := new(logged)
	s := newSum(&control.Options{CheckResults: true, Logger: log.logger()})
	s.Handle(control.Command{Name: "wrong", Effect: control.Write, Out: control.SchemaOf[sumOut]()},
		func(context.Context, *control.Request) (any, error) { return map[string]string{"sum": "three"}, nil })
	run(t, s, dial(t, srv))
	c := caller(t, dial(t, srv), ada)
	if err := c.Call(t.Context(), sum, sumIn{}, nil); err != nil {
		t.Error(err)
	}
	err := c.Call(t.Context(), control.Target{Endpoint: "com.acme.math", Command: "wrong"}, nil, nil)
	wantCode(t, err, wire.CodeInternal, wire.OutcomeExecuted)
	if !strings.Contains(log.String(), "data.sum: is string, want integer") {
		t.Errorf("the log does not say what is wrong:\n%s", log)
	}
}

func TestCallDecodesItsResult(t *testing.T) {
	srv := broker(t)
	run(t, testService(new(logged)), dial(t, srv))
	c := caller(t, dial(t, srv), ada)
	var out sumOut
	pinned := sum
	pinned.InputDigest, pinned.OutputDigest = control.DigestOf[sumIn](), control.DigestOf[sumOut]()
	pinned.Instance, pinned.Epoch = "one", "7"
	if err := c.Call(t.Context(), pinned, sumIn{A: 40, B: 2}, &out); err != nil || out.Sum != 42 {
		t.Errorf("sum = %d, %v, want 42", out.Sum, err)
	}
	var text string
	wantCode(t, c.Call(t.Context(), sum, sumIn{}, &text), wire.CodeContractMismatch, wire.OutcomeExecuted)
	wantCode(t, c.Call(t.Context(), sum, 7, nil), wire.CodeBadRequest, wire.OutcomeNotExecuted)
	wantCode(t, c.Call(t.Context(), sum, json.RawMessage(`{"a":1`), nil), wire.CodeBadRequest, wire.OutcomeNotExecuted)
	wantCode(t, c.Call(t.Context(), sum, make(chan int), nil), wire.CodeBadRequest, wire.OutcomeNotExecuted)
	wantCode(t, c.Call(t.Context(), sum, sumIn{Label: strings.Repeat("x", wire.MaxRequest)}, nil), wire.CodeResourceExhausted, wire.OutcomeNotExecuted)
	wantCode(t, c.Call(t.Context(), control.Target{Endpoint: "com.acme.*", Command: "sum"}, nil, nil), wire.CodeBadRequest, "")
	if err := c.Call(t.Context(), sum, json.RawMessage(`{"a":1,"b":2}`), &out); err != nil || out.Sum != 3 {
		t.Errorf("after refused calls sum = %d, %v, want 3", out.Sum, err)
	}
}

func TestModes(t *testing.T) {
	srv := broker(t)
	run(t, testService(new(logged)), dial(t, srv))
	c := caller(t, dial(t, srv), ada)
	bob := lifecycle("bob")
	for _, tt := range []struct {
		mode wire.Mode
		of   wire.Lifecycle
		want string
	}{
		{wire.ModeNone, wire.Lifecycle{}, "local.ada>./"},
		{wire.ModeSelf, wire.Lifecycle{}, "local.ada>local.ada/" + string(ada.UID)},
		{wire.ModeOwner, wire.Lifecycle{Principal: bob.Principal}, "local.ada>local.bob/"},
		{wire.ModeAny, bob, "local.ada>local.bob/" + string(bob.UID)},
		{wire.ModeExact, bob, "local.ada>local.bob/" + string(bob.UID)},
	} {
		var got string
		target := control.Target{Endpoint: "com.acme.math", Command: "who", Mode: tt.mode, Of: tt.of}
		if err := c.Call(t.Context(), target, nil, &got); err != nil || got != tt.want {
			t.Errorf("mode %q: %q, %v, want %q", tt.mode, got, err, tt.want)
		}
	}
	target := control.Target{Endpoint: "com.acme.math", Command: "sum", Mode: wire.ModeSelf}
	wantCode(t, c.Call(t.Context(), target, sumIn{}, nil), wire.CodeTargetMismatch, wire.OutcomeNotExecuted)
	foreign := wire.Lifecycle{Principal: wire.Principal{Owner: "u_" + strings.Repeat("a", 26), Actor: "eve"}}
	target = control.Target{Endpoint: "com.acme.math", Command: "who", Mode: wire.ModeOwner, Of: foreign}
	wantCode(t, c.Call(t.Context(), target, nil, nil), wire.CodeTargetMismatch, "")
}

// request encodes a request to the test service, changed by edit.
func request(tb testing.TB, command string, edit func(*wire.Request)) []byte {
	tb.Helper()
	r := &wire.Request{
		V: 1, ID: "id-1", Op: wire.Op{Endpoint: "com.acme.math", Command: command}, Class: wire.ClassEphemeral,
		ReplyExpected: true, From: wire.EndpointRef{ID: "local.ada", Name: "ada"}, DeadlineMS: 2000,
	}
	if command == "sum" {
		r.Args = json.RawMessage(`{"a":1,"b":2}`)
	}
	if edit != nil {
		edit(r)
	}
	data, err := json.Marshal(r)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

const nonce = "nonce-nonce-nonce-nonce-1"

func requestSubject(tb testing.TB, command string) string {
	tb.Helper()
	subject, err := wire.RequestSubject{
		Space: space, Rail: wire.RailOne, Endpoint: "com.acme.math", Command: command, Caller: ada, Nonce: nonce,
	}.Subject()
	if err != nil {
		tb.Fatal(err)
	}
	return subject
}

// ask publishes bytes as a request of ada, with a reply address that must stay silent, and returns what comes on ada's
// reply rail.
func ask(tb testing.TB, nc *nats.Conn, command string, data []byte) *wire.Reply {
	tb.Helper()
	filter, err := wire.ReplyFilter(space, ada)
	if err != nil {
		tb.Fatal(err)
	}
	rail, err := nc.SubscribeSync(filter)
	if err != nil {
		tb.Fatal(err)
	}
	inbox, err := nc.SubscribeSync("inbox.eve")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		_ = rail.Unsubscribe()
		_ = inbox.Unsubscribe()
	}()
	if err := nc.PublishRequest(requestSubject(tb, command), "inbox.eve", data); err != nil {
		tb.Fatal(err)
	}
	msg, err := rail.NextMsg(5 * time.Second)
	if err != nil {
		tb.Fatalf("no reply: %v", err)
	}
	if n, _, _ := inbox.Pending(); n > 0 {
		tb.Fatal("the endpoint answered at the reply address of the transport")
	}
	r, err := wire.DecodeReply(msg.Data)
	if err != nil {
		tb.Fatalf("reply %s: %v", msg.Data, err)
	}
	return r
}

func TestRefusalsBeforeTheHandler(t *testing.T) {
	srv := broker(t)
	s := testService(new(logged))
	run(t, s, dial(t, srv))
	nc := dial(t, srv)
	digest := "sha256:" + strings.Repeat("0", 64)
	for name, tt := range map[string]struct {
		command string
		edit    func(*wire.Request)
		code    wire.Code
	}{
		"version":          {"sum", func(r *wire.Request) { r.V = 2 }, wire.CodeUnsupportedVersion},
		"class":            {"sum", func(r *wire.Request) { r.Class = "journal" }, wire.CodeClassMismatch},
		"command":          {"sum", func(r *wire.Request) { r.Op.Command = "who" }, wire.CodeOpMismatch},
		"endpoint":         {"sum", func(r *wire.Request) { r.Op.Endpoint = "manager" }, wire.CodeOpMismatch},
		"sender":           {"sum", func(r *wire.Request) { r.From.ID = "local.bob" }, wire.CodeSenderMismatch},
		"target":           {"sum", func(r *wire.Request) { r.Target = &wire.Target{Owner: "local", Actor: "bob"} }, wire.CodeTargetMismatch},
		"deadline_missing": {"sum", func(r *wire.Request) { r.DeadlineMS = 0 }, wire.CodeBadRequest},
		"deadline_long":    {"sum", func(r *wire.Request) { r.DeadlineMS = 1 << 40 }, wire.CodeBadRequest},
		"input_digest":     {"sum", func(r *wire.Request) { r.Op.InputDigest = digest }, wire.CodeContractMismatch},
		"output_digest":    {"sum", func(r *wire.Request) { r.Op.OutputDigest = digest }, wire.CodeContractMismatch},
		"bind_instance":    {"sum", func(r *wire.Request) { r.Bind = &wire.Bind{InstanceID: "two", Epoch: "7"} }, wire.CodeFailedPrecondition},
		"bind_epoch":       {"sum", func(r *wire.Request) { r.Bind = &wire.Bind{InstanceID: "one", Epoch: "6"} }, wire.CodeExpired},
		"unknown_command":  {"product", nil, wire.CodeUnimplemented},
		"argument_type":    {"sum", func(r *wire.Request) { r.Args = json.RawMessage(`{"a":1,"b":"2"}`) }, wire.CodeBadRequest},
		"argument_missing": {"sum", func(r *wire.Request) { r.Args = json.RawMessage(`{"a":1}`) }, wire.CodeBadRequest},
		"argument_unknown": {"sum", func(r *wire.Request) { r.Args = json.RawMessage(`{"a":1,"b":2,"c":3}`) }, wire.CodeBadRequest},
		"argument_case":    {"sum", func(r *wire.Request) { r.Args = json.RawMessage(`{"a":1,"B":2}`) }, wire.CodeBadRequest},
		"no_arguments":     {"sum", func(r *wire.Request) { r.Args = nil }, wire.CodeBadRequest},
		"arguments_of_a_void_command": {"nothing", func(r *wire.Request) { r.Args = json.RawMessage(`{}`) },
			wire.CodeBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.Stats()
			r := ask(t, nc, tt.command, request(t, tt.command, tt.edit))
			if r.ID != "id-1" {
				t.Errorf("reply id = %q", r.ID)
			}
			wantCode(t, r.Error, tt.code, wire.OutcomeNotExecuted)
			if after := s.Stats(); after.Refused != before.Refused+1 || after.Failed != before.Failed || after.Served != before.Served {
				t.Errorf("counters %+v, before %+v", after, before)
			}
		})
	}
}

func TestArgumentErrorsNameTheirPath(t *testing.T) {
	srv := broker(t)
	run(t, testService(new(logged)), dial(t, srv))
	nc := dial(t, srv)
	r := ask(t, nc, "sum", request(t, "sum", func(r *wire.Request) { r.Args = json.RawMessage(`{"a":1,"b":"2"}`) }))
	if r.Error.Details["path"] != "args.b" || !strings.Contains(r.Error.Message, "args.b") {
		t.Errorf("error %q, details %v: want the path args.b", r.Error.Message, r.Error.Details)
	}
}

// TestMalformedRequestsAreDropped sends what is no request, then one that is: only that one is answered.
func TestMalformedRequestsAreDropped(t *testing.T) {
	srv := broker(t)
	s := testService(new(logged))
	stop := run(t, s, dial(t, srv))
	nc := dial(t, srv)
	good := request(t, "sum", nil)
	subject := requestSubject(t, "sum")
	bad := []struct {
		subject string
		data    string
	}{
		{subject, ``},
		{subject, `{`},
		{subject, `[]`},
		{subject, `{"stream":"CHAT_lab","seq":7}`}, // an acknowledgement sent here by a foreign reply address
		{subject, `{"id":"not an id"}`},
		{subject, "\xff"},
		{strings.Replace(subject, ".local.", ".stranger.", 1), string(good)},
		{strings.Replace(subject, nonce, "short", 1), string(good)},
		{strings.TrimSuffix(subject, "."+nonce), string(good)},
		{strings.Replace(subject, ".sum.", ".sum.every.", 1), string(good)},
		{subject + ".more", string(good)},
	}
	for _, b := range bad {
		if err := nc.Publish(b.subject, []byte(b.data)); err != nil {
			t.Fatal(err)
		}
	}
	status := nats.NewMsg(subject)
	status.Header.Set("Status", "409")
	status.Data = good
	if err := nc.PublishMsg(status); err != nil {
		t.Fatal(err)
	}
	r := ask(t, nc, "sum", good)
	if !r.OK {
		t.Fatalf("reply = %+v", r)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Stats().Dropped, uint64(len(bad)+1); got != want {
		t.Errorf("dropped %d, want %d", got, want)
	}
	if got := s.Stats().Served; got != 1 {
		t.Errorf("served %d, want 1", got)
	}
}

func TestRepeatedKeysAreRefused(t *testing.T) {
	srv := broker(t)
	run(t, testService(new(logged)), dial(t, srv))
	data := strings.Replace(string(request(t, "sum", nil)), `"a":1`, `"a":1,"a":2`, 1)
	wantCode(t, ask(t, dial(t, srv), "sum", []byte(data)).Error, wire.CodeBadRequest, wire.OutcomeNotExecuted)
}

func TestCastIsNotAnswered(t *testing.T) {
	srv := broker(t)
	s := control.New("com.acme.math", nil)
	ran := make(chan *control.Request, 2)
	s.Handle(control.Command{Name: "note", Effect: control.Write}, func(_ context.Context, req *control.Request) (any, error) {
		ran <- req
		return nil, nil
	})
	run(t, s, dial(t, srv))
	nc := dial(t, srv)
	filter, err := wire.ReplyFilter(space, ada)
	if err != nil {
		t.Fatal(err)
	}
	rail, err := nc.SubscribeSync(filter)
	if err != nil {
		t.Fatal(err)
	}
	c := caller(t, nc, ada)
	inv := control.Invocation{Target: control.Target{Endpoint: "com.acme.math", Command: "note"}, ID: "note-1",
		Correlation: &wire.Correlation{Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	if err := c.Cast(t.Context(), inv); err != nil {
		t.Fatal(err)
	}
	req := <-ran
	if req.ReplyExpected || req.ID != "note-1" || req.Correlation.Traceparent != inv.Correlation.Traceparent || req.Caller != ada {
		t.Errorf("request = %+v", req)
	}
	// A cast may leave out its deadline.
	data := request(t, "note", func(r *wire.Request) { r.ReplyExpected = false })
	data = []byte(strings.Replace(string(data), `"deadlineMs":2000`, `"correlation":{}`, 1))
	if err := nc.Publish(requestSubject(t, "note"), data); err != nil {
		t.Fatal(err)
	}
	if req := <-ran; !req.Deadline.Equal(req.Received.Add(control.DefaultMaxDeadline)) {
		t.Errorf("deadline %v, received %v, want a minute", req.Deadline, req.Received)
	}
	// A call behind it on the same connection is answered, and its answer is the only one.
	if err := c.Call(t.Context(), inv.Target, nil, nil); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := rail.Pending(); n != 1 {
		t.Errorf("%d replies, want 1", n)
	}
}
