package control_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

func TestNobodyListens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		c := caller(t, dial(t, srv), ada)
		start := time.Now()
		e := wantCode(t, c.Call(t.Context(), sum, sumIn{}, nil), wire.CodeUnavailable, wire.OutcomeNotExecuted)
		if !strings.Contains(e.Error(), "com.acme.math") {
			t.Errorf("error %q does not name the endpoint", e)
		}
		_, err := c.Scatter(t.Context(), sum, sumIn{}, 10*time.Second, 0)
		wantCode(t, err, wire.CodeUnavailable, wire.OutcomeNotExecuted)
		run(t, testService(new(logged)), dial(t, srv))
		bound := sum
		bound.Instance = "two"
		e = wantCode(t, c.Call(t.Context(), bound, sumIn{}, nil), wire.CodeUnavailable, wire.OutcomeNotExecuted)
		if !strings.Contains(e.Error(), `"two"`) {
			t.Errorf("error %q does not name the instance", e)
		}
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("it took %v: the caller waited for its deadline", took)
		}
	})
}

// silent subscribes to the class rail and answers what reply makes of a request, if anything.
func silent(tb testing.TB, nc *nats.Conn, reply func(*nats.Msg)) {
	tb.Helper()
	filter, err := wire.ServeFilter(space, wire.RailOne, "com.acme.math", "")
	if err != nil {
		tb.Fatal(err)
	}
	if reply == nil {
		reply = func(*nats.Msg) {}
	}
	if _, err := nc.Subscribe(filter, reply); err != nil {
		tb.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		tb.Fatal(err)
	}
}

func TestDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		var asked atomic.Int64 // milliseconds
		silent(t, dial(t, srv), func(msg *nats.Msg) {
			r, err := wire.DecodeRequest(msg.Data)
			if err != nil {
				t.Error(err)
				return
			}
			asked.Store(r.DeadlineMS)
		})
		c := caller(t, dial(t, srv), ada)
		call := func(ctx context.Context, code wire.Code, took time.Duration) {
			t.Helper()
			start := time.Now()
			err := c.Call(ctx, sum, sumIn{}, nil)
			wantCode(t, err, code, wire.OutcomeUnknown)
			if got := time.Since(start); got != took {
				t.Errorf("the call ended after %v, want %v", got, took)
			}
			if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
				t.Errorf("error %v is not %v", err, ctx.Err())
			}
		}
		call(context.Background(), wire.CodeDeadlineExceeded, control.DefaultTimeout)
		if got := asked.Load(); got != control.DefaultTimeout.Milliseconds() {
			t.Errorf("the request grants %d ms, want %v", got, control.DefaultTimeout)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		call(ctx, wire.CodeDeadlineExceeded, 90*time.Second)
		if got := asked.Load(); got != 90_000 {
			t.Errorf("the request grants %d ms, want 90000", got)
		}
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		call(ctx, wire.CodeCancelled, time.Second)
		// A context that has ended sends nothing.
		wantCode(t, c.Call(ctx, sum, sumIn{}, nil), wire.CodeCancelled, wire.OutcomeNotExecuted)
	})
}

func TestEndpointKeepsTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		s := control.New("com.acme.math", &control.Options{MaxDeadline: 10 * time.Second})
		left := make(chan time.Duration, 1)
		s.Handle(control.Command{Name: "wait", Effect: control.Write}, func(ctx context.Context, req *control.Request) (any, error) {
			at, _ := ctx.Deadline()
			left <- time.Until(at)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		run(t, s, dial(t, srv))
		nc := dial(t, srv)
		for grant, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, time.Minute: 10 * time.Second} {
			data := request(t, "wait", func(r *wire.Request) { r.DeadlineMS = grant.Milliseconds() })
			sub, err := nc.SubscribeSync("cotal.lab.ep.reply.>")
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := nc.Publish(requestSubject(t, "wait"), data); err != nil {
				t.Fatal(err)
			}
			if got := <-left; got != want {
				t.Errorf("granted %v, the handler has %v, want %v", grant, got, want)
			}
			msg, err := sub.NextMsgWithContext(t.Context()) // NextMsg takes its timer from outside the bubble
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("answered after %v, want %v", took, want)
			}
			r, err := wire.DecodeReply(msg.Data)
			if err != nil {
				t.Fatal(err)
			}
			wantCode(t, r.Error, wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
			_ = sub.Unsubscribe()
		}
	})
}

// TestForgedReplies answers a call wrongly in every way there is before it answers it right.
func TestForgedReplies(t *testing.T) {
	srv := broker(t)
	eve := dial(t, srv)
	ok := func(id string) []byte { return []byte(`{"v":1,"id":"` + id + `","ok":true,"data":{"sum":1}}`) }
	silent(t, eve, func(msg *nats.Msg) {
		r, err := wire.ParseRequestSubject(msg.Subject)
		if err != nil {
			t.Error(err)
			return
		}
		req, err := wire.DecodeRequest(msg.Data)
		if err != nil {
			t.Error(err)
			return
		}
		send := func(change func(*wire.ReplySubject), data []byte, header ...string) {
			to := r.Reply("one", "1")
			if change != nil {
				change(&to)
			}
			subject, err := to.Subject()
			if err != nil {
				t.Error(err)
				return
			}
			m := nats.NewMsg(subject)
			m.Data = data
			if len(header) > 0 {
				m.Header.Set(header[0], header[1])
			}
			if err := eve.PublishMsg(m); err != nil {
				t.Error(err)
			}
		}
		send(func(s *wire.ReplySubject) { s.Endpoint = "manager" }, ok(req.ID))
		send(func(s *wire.ReplySubject) { s.Nonce = strings.Repeat("x", 26) }, ok(req.ID))
		send(func(s *wire.ReplySubject) { s.Instance, s.Epoch = "_", "0" }, ok(req.ID))
		send(func(s *wire.ReplySubject) { s.Instance = "_" }, nil, "Status", "404")
		send(nil, nil, "Status", "503")
		send(nil, ok("another-id"))
		send(nil, []byte(`{"v":1,"id":"`+req.ID+`","ok":true,"data":{"sum":42}}`))
	})
	c := caller(t, dial(t, srv), ada)
	var out sumOut
	if err := c.Call(t.Context(), sum, sumIn{}, &out); err != nil || out.Sum != 42 {
		t.Errorf("sum = %d, %v, want the one right reply, 42", out.Sum, err)
	}
}

func TestReplyOfAnotherInstanceThanTheOneCalled(t *testing.T) {
	srv := broker(t)
	nc := dial(t, srv)
	filter, err := wire.ServeFilter(space, wire.RailInst, "com.acme.math", "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Subscribe(filter, func(msg *nats.Msg) {
		r, err := wire.ParseRequestSubject(msg.Subject)
		if err != nil {
			t.Error(err)
			return
		}
		req, err := wire.DecodeRequest(msg.Data)
		if err != nil {
			t.Error(err)
			return
		}
		for i, instance := range []string{"two", "one"} {
			subject, _ := r.Reply(instance, "1").Subject()
			data := []byte(`{"v":1,"id":"` + req.ID + `","ok":true,"data":{"sum":` + string(rune('1'+i)) + `}}`)
			if err := nc.Publish(subject, data); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	bound := sum
	bound.Instance = "one"
	a, err := caller(t, dial(t, srv), ada).Invoke(t.Context(), control.Invocation{Target: bound, Args: sumIn{}})
	if err != nil || a.Instance != "one" || string(a.Data) != `{"sum":2}` {
		t.Errorf("answer of %q: %s, %v, want that of one", a.Instance, a.Data, err)
	}
}

func TestReplyThatIsNone(t *testing.T) {
	srv := broker(t)
	nc := dial(t, srv)
	silent(t, nc, func(msg *nats.Msg) {
		r, err := wire.ParseRequestSubject(msg.Subject)
		if err != nil {
			t.Error(err)
			return
		}
		subject, _ := r.Reply("one", "1").Subject()
		if err := nc.Publish(subject, []byte(`{"v":1}`)); err != nil {
			t.Error(err)
		}
	})
	err := caller(t, dial(t, srv), ada).Call(t.Context(), sum, sumIn{}, nil)
	wantCode(t, err, wire.CodeInternal, wire.OutcomeUnknown)
}

// TestPermissionDenied has a broker that permits ada one command and her reply rail, and eve nothing to hear.
func TestPermissionDenied(t *testing.T) {
	allowed := "cotal.lab.ep.one.com_acme_math.sum.local.ada." + string(ada.UID) + ".*"
	rail := "cotal.lab.ep.reply.*.*.*.local.ada." + string(ada.UID) + ".*"
	srv := broker(t,
		&server.User{Username: "svc", Password: "x"},
		&server.User{Username: "ada", Password: "x", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{allowed}}, Subscribe: &server.SubjectPermission{Allow: []string{rail}},
		}},
		&server.User{Username: "eve", Password: "x", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{"cotal.lab.ep.>"}}, Subscribe: &server.SubjectPermission{Deny: []string{">"}},
		}})
	run(t, testService(new(logged)), dial(t, srv, nats.UserInfo("svc", "x")))

	var mu sync.Mutex
	var c *control.Caller
	hook := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		mu.Lock()
		defer mu.Unlock()
		if subject, ok := control.DeniedSubject(err); !ok || !c.Denied(subject) {
			t.Errorf("error handler: %v", err)
		}
	})
	connect := func(user string) {
		nc := dial(t, srv, nats.UserInfo(user, "x"), hook)
		mu.Lock()
		defer mu.Unlock()
		c = caller(t, nc, ada)
	}
	connect("ada")
	if err := c.Call(t.Context(), sum, sumIn{A: 1}, nil); err != nil {
		t.Errorf("permitted call: %v", err)
	}
	for _, target := range []control.Target{
		{Endpoint: "com.acme.math", Command: "who", Mode: wire.ModeAny, Of: lifecycle("bob")},
		{Endpoint: "com.acme.math", Command: "sum", Instance: "one"},
	} {
		e := wantCode(t, c.Call(t.Context(), target, nil, nil), wire.CodePermissionDenied, wire.OutcomeNotExecuted)
		for key, want := range map[string]string{"principal": "local.ada", "grant": "com.acme.math." + target.Command, "subject": ".*"} {
			if got, _ := e.Details[key].(string); !strings.Contains(got, want) {
				t.Errorf("detail %s = %q, want %q in it", key, got, want)
			}
		}
		if !strings.Contains(e.Error(), "local.ada") || !strings.Contains(e.Error(), "com.acme.math."+target.Command) {
			t.Errorf("error %q does not name the principal and the grant", e)
		}
	}
	if c.Denied("cotal.lab.chat.local.ada.general") || c.Denied(requestSubject(t, "sum")) {
		t.Error("Denied claims a publish that no call waits for")
	}

	connect("eve")
	if err := c.Call(t.Context(), sum, sumIn{}, nil); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("call without a reply rail: %v, want permission-denied", err)
	}
	wantCode(t, c.Call(t.Context(), sum, sumIn{}, nil), wire.CodePermissionDenied, wire.OutcomeNotExecuted)
	wantCode(t, c.Attach(t.Context(), dial(t, srv, nats.UserInfo("eve", "x"), hook)), wire.CodePermissionDenied, wire.OutcomeNotExecuted)
	if err := c.Attach(t.Context(), dial(t, srv, nats.UserInfo("ada", "x"), hook)); err != nil {
		t.Fatal(err)
	}
	if err := c.Call(t.Context(), sum, sumIn{}, nil); err != nil {
		t.Errorf("call over the connection that may hear: %v", err)
	}
}

func TestServiceWithoutPermissionToSubscribe(t *testing.T) {
	srv := broker(t, &server.User{Username: "svc", Password: "x", Permissions: &server.Permissions{
		Subscribe: &server.SubjectPermission{Deny: []string{"cotal.lab.ep.inst.>"}},
	}})
	nc := dial(t, srv, nats.UserInfo("svc", "x"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	e := wantCode(t, newSum(nil).Run(t.Context(), nc, space), wire.CodePermissionDenied, wire.OutcomeNotExecuted)
	if s, _ := e.Details["subject"].(string); !strings.HasPrefix(s, "cotal.lab.ep.inst.com_acme_math.") {
		t.Errorf("denied subject = %q", s)
	}
}

func TestServiceThatMayNotHearAnyMore(t *testing.T) {
	log := new(logged)
	s := testService(log)
	srv := broker(t)
	result := make(chan error, 1)
	nc := dial(t, srv)
	go func() { result <- s.Run(context.Background(), nc, space) }()
	<-s.Ready()
	for subject, want := range map[string]bool{
		"cotal.lab.chat.local.ada.general":                                                  false,
		"cotal.lab.ep.one.com_acme_other.>":                                                 false,
		"cotal.lab.ep.reply.com_acme_math.one.7.local.ada." + string(ada.UID) + "." + nonce: true,
		"cotal.lab.ep.reply.com_acme_math.two.7.local.ada." + string(ada.UID) + "." + nonce: false,
	} {
		if got := s.Denied(subject); got != want {
			t.Errorf("Denied(%q) = %v, want %v", subject, got, want)
		}
	}
	if !strings.Contains(log.String(), "lacks the reply rail") {
		t.Error("a reply that may not leave is not logged")
	}
	if !s.Denied("cotal.lab.ep.one.com_acme_math.>") {
		t.Error("Denied does not know the rail of the service")
	}
	wantCode(t, <-result, wire.CodePermissionDenied, wire.OutcomeNotExecuted)
}

// slow is a service whose command waits until it is released.
func slow(tb testing.TB, nc *nats.Conn, opts *control.Options) (started <-chan string, release chan<- struct{}) {
	tb.Helper()
	s := control.New("com.acme.math", opts)
	begun, gate := make(chan string, 64), make(chan struct{})
	s.Handle(control.Command{Name: "sum", Effect: control.Write}, func(ctx context.Context, req *control.Request) (any, error) {
		begun <- req.ID
		select {
		case <-gate:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	run(tb, s, nc)
	return begun, gate
}

func TestRenewalOfACaller(t *testing.T) {
	srv := broker(t)
	started, release := slow(t, dial(t, srv), nil)
	old, fresh := dial(t, srv), dial(t, srv)
	c := caller(t, old, ada)
	results := make(chan error, 2)
	go func() { results <- c.Call(t.Context(), sum, nil, nil) }()
	<-started
	if err := c.Attach(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	wantCode(t, c.Attach(t.Context(), fresh), wire.CodeFailedPrecondition, "")
	go func() { results <- c.Call(t.Context(), sum, nil, nil) }()
	<-started
	gone := make(chan error)
	go func() { gone <- c.Detach(t.Context(), old) }()
	close(release)
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("call across the renewal: %v", err)
		}
	}
	if err := <-gone; err != nil {
		t.Errorf("Detach: %v", err)
	}
	shut(old)
	if err := c.Call(t.Context(), sum, nil, nil); err != nil {
		t.Errorf("call after the renewal: %v", err)
	}
	wantCode(t, c.Detach(t.Context(), old), wire.CodeNotFound, "")
}

func TestDetachGivesUpWithItsContext(t *testing.T) {
	srv := broker(t)
	started, release := slow(t, dial(t, srv), nil)
	old, fresh := dial(t, srv), dial(t, srv)
	c := caller(t, old, ada)
	result := make(chan error, 1)
	go func() { result <- c.Call(t.Context(), sum, nil, nil) }()
	<-started
	if err := c.Attach(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, c.Detach(ctx, old), wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
	shut(old)
	close(release)
	if err := <-result; err != nil {
		t.Errorf("the answer did not come over the new connection: %v", err)
	}
}

func TestCloseEndsCallsInFlight(t *testing.T) {
	for name, end := range map[string]func(*control.Caller, *nats.Conn){
		"caller":     func(c *control.Caller, _ *nats.Conn) { _ = c.Close() },
		"connection": func(_ *control.Caller, nc *nats.Conn) { shut(nc) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := broker(t)
			started, release := slow(t, dial(t, srv), nil)
			defer close(release)
			nc := dial(t, srv)
			c := caller(t, nc, ada)
			result := make(chan error, 1)
			go func() { result <- c.Call(t.Context(), sum, nil, nil) }()
			<-started
			end(c, nc)
			wantCode(t, <-result, wire.CodeCancelled, wire.OutcomeUnknown)
			wantCode(t, c.Call(t.Context(), sum, nil, nil), wire.CodeUnavailable, wire.OutcomeNotExecuted)
			if err := c.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
	}
}

// place is where a broker is, or none.
type place struct{ srv atomic.Pointer[server.Server] }

func (p *place) InProcessConn() (net.Conn, error) {
	if srv := p.srv.Load(); srv != nil {
		return srv.InProcessConn()
	}
	return nil, net.ErrClosed
}

// TestCallWaitsForReconnection calls while the broker is away: nothing leaves late, and the call succeeds if the broker
// is back in time.
func TestCallWaitsForReconnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		var p place
		p.srv.Store(srv)
		connect := func() *nats.Conn {
			return dial(t, srv, nats.InProcessServer(&p), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
		}
		served, nc := connect(), connect()
		run(t, newSum(nil), served)
		c := caller(t, nc, ada)
		back := served.StatusChanged(nats.CONNECTED)
		away := nc.StatusChanged(nats.RECONNECTING)
		p.srv.Store(nil)
		srv.Shutdown()
		srv.WaitForShutdown()
		<-away
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wantCode(t, c.Call(ctx, sum, sumIn{}, nil), wire.CodeUnavailable, wire.OutcomeNotExecuted)
		result := make(chan error, 1)
		go func() {
			<-back
			result <- served.Flush()
		}()
		p.srv.Store(broker(t))
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if err := c.Call(t.Context(), sum, sumIn{}, nil); err != nil {
			t.Errorf("call after reconnection: %v", err)
		}
	})
}
