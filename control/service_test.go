package control_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

func TestOverloadIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		snc, nc := dial(t, srv), dial(t, srv)
		started, release := slow(t, snc, &control.Options{Concurrency: 1, Queue: 1, Share: 10})
		c := caller(t, nc, ada)
		results := make(chan error, 2)
		go func() { results <- c.Call(t.Context(), sum, nil, nil) }()
		<-started
		go func() { results <- c.Call(t.Context(), sum, nil, nil) }()
		synctest.Wait()
		e := wantCode(t, c.Call(t.Context(), sum, nil, nil), wire.CodeResourceExhausted, wire.OutcomeNotExecuted)
		if !strings.Contains(e.Error(), "1 requests run and 1 wait") {
			t.Errorf("error %q does not name the limits", e)
		}
		h, err := c.Health(t.Context(), "com.acme.math", time.Second, 1)
		if err != nil || !h[0].Ready || h[0].Stats.Running != 1 || h[0].Stats.Queued != 1 || h[0].Stats.Refused != 1 {
			t.Errorf("health under load = %+v, %v", h, err)
		}
		if _, err := c.Describe(t.Context(), "com.acme.math"); err != nil {
			t.Errorf("describe under load: %v", err)
		}
		close(release)
		for range 2 {
			if err := <-results; err != nil {
				t.Errorf("accepted call: %v", err)
			}
		}
	})
}

func TestOnePrincipalCannotTakeItAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		started, release := slow(t, dial(t, srv), &control.Options{Concurrency: 4, Queue: 4, Share: 2})
		loop, other := caller(t, dial(t, srv), ada), caller(t, dial(t, srv), lifecycle("bob"))
		results := make(chan error, 3)
		for range 2 {
			go func() { results <- loop.Call(t.Context(), sum, nil, nil) }()
			<-started
		}
		e := wantCode(t, loop.Call(t.Context(), sum, nil, nil), wire.CodeResourceExhausted, wire.OutcomeNotExecuted)
		if e.Details["principal"] != "local.ada" {
			t.Errorf("details = %v", e.Details)
		}
		go func() { results <- other.Call(t.Context(), sum, nil, nil) }()
		<-started
		close(release)
		for range 3 {
			if err := <-results; err != nil {
				t.Errorf("accepted call: %v", err)
			}
		}
	})
}

// TestAnsweredMeansNoLongerCounted calls one after the other where one principal may have one request: whoever has its
// answer can ask again.
func TestAnsweredMeansNoLongerCounted(t *testing.T) {
	srv := broker(t)
	run(t, newSum(&control.Options{Concurrency: 1, Queue: 1, Share: 1}), dial(t, srv))
	c := caller(t, dial(t, srv), ada)
	for i := range 2000 {
		if err := c.Call(t.Context(), sum, sumIn{A: i}, nil); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

func TestWaitingTooLongIsNotExecuted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		nc := dial(t, srv)
		started, release := slow(t, dial(t, srv), &control.Options{Concurrency: 1, Queue: 1, Share: 10})
		c := caller(t, nc, ada)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- c.Call(ctx, sum, nil, nil) }()
		<-started
		sub, err := nc.SubscribeSync("cotal.lab.ep.reply.>")
		if err != nil {
			t.Fatal(err)
		}
		data := request(t, "sum", func(r *wire.Request) { r.DeadlineMS, r.Args = 1000, nil })
		if err := nc.Publish(requestSubject(t, "sum"), data); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		close(release)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		for {
			msg, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := wire.DecodeReply(msg.Data); err != nil {
				t.Fatal(err)
			} else if r.ID == "id-1" {
				wantCode(t, r.Error, wire.CodeDeadlineExceeded, wire.OutcomeNotExecuted)
				return
			}
		}
	})
}

func TestStopFinishesWhatWasAccepted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		s := control.New("com.acme.math", &control.Options{Concurrency: 2, Queue: 100, Share: 100})
		gate, begun := make(chan struct{}), make(chan struct{}, 100)
		s.Handle(control.Command{Name: "sum", Effect: control.Write}, func(context.Context, *control.Request) (any, error) {
			begun <- struct{}{}
			<-gate
			return nil, nil
		})
		stop := run(t, s, dial(t, srv))
		c := caller(t, dial(t, srv), ada)
		const n = 20
		results := make(chan error, n)
		for range n {
			go func() { results <- c.Call(t.Context(), sum, nil, nil) }()
		}
		<-begun
		<-begun
		synctest.Wait()
		if got := s.Stats().Queued; got != n-2 {
			t.Fatalf("%d calls are queued, want %d", got, n-2)
		}
		stopped := make(chan error)
		go func() { stopped <- stop() }()
		synctest.Wait()
		err := c.Call(t.Context(), control.Target{Endpoint: "com.acme.math", Command: control.CommandHealth}, nil, nil)
		if !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("health of a stopping endpoint: %v, want unavailable", err)
		}
		close(gate)
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
		for range n {
			if err := <-results; err != nil {
				t.Errorf("accepted call: %v", err)
			}
		}
	})
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		s := control.New("com.acme.math", &control.Options{Concurrency: 1, Drain: 3 * time.Second})
		begun := make(chan struct{}, 1)
		s.Handle(control.Command{Name: "sum", Effect: control.Write}, func(ctx context.Context, _ *control.Request) (any, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		stop := run(t, s, dial(t, srv))
		c := caller(t, dial(t, srv), ada)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		results := make(chan error, 2)
		go func() { results <- c.Call(ctx, sum, nil, nil) }()
		<-begun
		go func() { results <- c.Call(ctx, sum, nil, nil) }()
		synctest.Wait()
		start := time.Now()
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("stopping took %v, want 3s", took)
		}
		running, waiting := <-results, <-results
		if errors.Is(running, wire.ErrUnavailable) {
			running, waiting = waiting, running
		}
		wantCode(t, running, wire.CodeCancelled, wire.OutcomeUnknown)
		wantCode(t, waiting, wire.CodeUnavailable, wire.OutcomeNotExecuted)
	})
}

// TestRenewalOfAService moves an endpoint between connections under load, on every rail: each call is answered and runs
// once.
func TestRenewalOfAService(t *testing.T) {
	srv := broker(t)
	s := control.New("com.acme.math", &control.Options{Instance: "one"})
	var mu sync.Mutex
	ran := map[string]int{}
	s.Handle(control.Command{Name: "sum", Effect: control.Write}, func(_ context.Context, req *control.Request) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		ran[req.ID]++
		return nil, nil
	})
	conns := []*nats.Conn{dial(t, srv)}
	stop := run(t, s, conns[0])
	c := caller(t, dial(t, srv), ada)
	var done atomic.Bool
	var calls atomic.Int64
	var wg sync.WaitGroup
	load := func(do func(i int64) error) {
		wg.Go(func() {
			for !done.Load() {
				if err := do(calls.Add(1)); err != nil {
					t.Errorf("call during the renewal: %v", err)
					return
				}
			}
		})
	}
	bound := sum
	bound.Instance = "one"
	load(func(int64) error { return c.Call(t.Context(), sum, nil, nil) })
	load(func(int64) error { return c.Call(t.Context(), bound, nil, nil) })
	load(func(int64) error { _, err := c.Scatter(t.Context(), sum, nil, 5*time.Second, 1); return err })
	for range 5 {
		fresh := dial(t, srv)
		if err := s.AddConn(t.Context(), fresh); err != nil {
			t.Fatal(err)
		}
		old := conns[len(conns)-1]
		conns = append(conns, fresh)
		if err := s.RemoveConn(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		shut(old)
	}
	done.Store(true)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if int64(len(ran)) != calls.Load() {
		t.Errorf("%d calls ran, want %d", len(ran), calls.Load())
	}
	for id, n := range ran {
		if n != 1 {
			t.Errorf("request %s ran %d times", id, n)
		}
	}
	last := conns[len(conns)-1]
	wantCode(t, s.RemoveConn(t.Context(), last), wire.CodeFailedPrecondition, "")
	wantCode(t, s.RemoveConn(t.Context(), conns[0]), wire.CodeNotFound, "")
	wantCode(t, s.AddConn(t.Context(), last), wire.CodeFailedPrecondition, "")
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRunEndsWithItsLastConnection(t *testing.T) {
	srv := broker(t)
	s := newSum(nil)
	nc, second := dial(t, srv), dial(t, srv)
	result := make(chan error, 1)
	go func() { result <- s.Run(context.Background(), nc, space) }()
	<-s.Ready()
	if err := s.AddConn(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	c := caller(t, dial(t, srv), ada)
	clients := srv.NumClients()
	shut(nc)
	for srv.NumClients() >= clients && t.Context().Err() == nil { // else the call may still be handed to the one that is gone
		runtime.Gosched()
	}
	if err := c.Call(t.Context(), sum, sumIn{}, nil); err != nil {
		t.Errorf("call while one connection is left: %v", err)
	}
	shut(second)
	wantCode(t, <-result, wire.CodeUnavailable, wire.OutcomeNotExecuted)
	wantCode(t, s.Run(t.Context(), dial(t, srv), space), wire.CodeFailedPrecondition, "")
	wantCode(t, s.AddConn(t.Context(), dial(t, srv)), wire.CodeFailedPrecondition, "")
}

func TestRunRefusesWhatCannotBe(t *testing.T) {
	srv := broker(t)
	wantCode(t, newSum(nil).Run(t.Context(), dial(t, srv), "no space"), wire.CodeBadRequest, "")
	closed := dial(t, srv)
	shut(closed)
	wantCode(t, newSum(nil).Run(t.Context(), closed, space), wire.CodeUnavailable, wire.OutcomeNotExecuted)
	_, err := control.NewCaller(closed, space, ada, wire.EndpointRef{}, nil)
	wantCode(t, err, wire.CodeUnavailable, wire.OutcomeNotExecuted)
	_, err = control.NewCaller(dial(t, srv), space, wire.Lifecycle{}, wire.EndpointRef{}, nil)
	wantCode(t, err, wire.CodeBadRequest, "")
	_, err = control.NewCaller(dial(t, srv), space, ada, wire.EndpointRef{Name: strings.Repeat("n", wire.MaxName+1)}, nil)
	wantCode(t, err, wire.CodeBadRequest, "")
}

func TestScatter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		for i := range 3 {
			s := control.New("com.acme.math", &control.Options{Instance: fmt.Sprint("i", i), Epoch: "1"})
			control.Handle(s, control.Command{Name: "sum", Effect: control.Read},
				func(context.Context, *control.Request, sumIn) (sumOut, error) {
					if i == 2 {
						return sumOut{}, wire.Errorf(wire.CodeFailedPrecondition, "not now")
					}
					return sumOut{i}, nil
				})
			run(t, s, dial(t, srv))
		}
		c := caller(t, dial(t, srv), ada)
		check := func(answers []control.Answer) {
			t.Helper()
			seen := map[string]string{}
			for _, a := range answers {
				seen[a.Instance] = string(a.Data)
				if a.Err != nil {
					seen[a.Instance] = string(a.Err.Code)
				}
			}
			want := map[string]string{"i0": `{"sum":0}`, "i1": `{"sum":1}`, "i2": "failed-precondition"}
			if len(answers) != len(want) || fmt.Sprint(seen) != fmt.Sprint(want) {
				t.Errorf("answers = %v, want %v", seen, want)
			}
		}
		answers, err := c.Scatter(t.Context(), sum, sumIn{}, 10*time.Second, 3)
		if err != nil {
			t.Fatal(err)
		}
		check(answers)
		if answers, err = c.Scatter(t.Context(), sum, sumIn{}, 100*time.Millisecond, 0); err != nil {
			t.Fatal(err)
		}
		check(answers)
		answers, err = c.Scatter(t.Context(), sum, sumIn{}, 100*time.Millisecond, 4)
		check(answers)
		e := wantCode(t, err, wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
		if e.Details["answered"] != 3 || e.Details["expected"] != 4 {
			t.Errorf("details = %v, want 3 of 4", e.Details)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		answers, err = c.Scatter(ctx, sum, sumIn{}, time.Minute, 4)
		check(answers)
		wantCode(t, err, wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
		bound := sum
		bound.Instance = "i0"
		_, err = c.Scatter(t.Context(), bound, sumIn{}, 0, 0)
		wantCode(t, err, wire.CodeBadRequest, "")
	})
}

func TestScatterThatNobodyAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		mute := dial(t, srv)
		if _, err := mute.Subscribe("cotal.lab.ep.all.>", func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
		if err := mute.Flush(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := caller(t, dial(t, srv), ada).Scatter(t.Context(), sum, sumIn{}, 0, 0)
		wantCode(t, err, wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
		if took := time.Since(start); took != control.DefaultWindow {
			t.Errorf("it took %v, want %v", took, control.DefaultWindow)
		}
	})
}

func TestSpacesAreApart(t *testing.T) {
	srv := broker(t)
	run(t, newSum(nil), dial(t, srv))
	other, err := control.NewCaller(dial(t, srv), "elsewhere", ada, wire.EndpointRef{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, other.Call(t.Context(), sum, sumIn{}, nil), wire.CodeUnavailable, wire.OutcomeNotExecuted)
	_ = other.Close()
}

// TestManyInFlightStarveNobody has one principal send as many requests as handlers run at a time, and more. Another's
// is run at once, and of what waits the principals take turns.
func TestManyInFlightStarveNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		started, release := slow(t, dial(t, srv), &control.Options{Concurrency: 32})
		loop, other := caller(t, dial(t, srv), ada), caller(t, dial(t, srv), lifecycle("bob"))
		var wg sync.WaitGroup
		call := func(c *control.Caller) {
			wg.Go(func() {
				if err := c.Call(t.Context(), sum, nil, nil); err != nil {
					t.Errorf("accepted call: %v", err)
				}
			})
		}
		for range 48 {
			call(loop)
		}
		for range 24 {
			<-started
		}
		synctest.Wait()
		select {
		case <-started:
			t.Error("one principal runs more than three quarters of what runs")
		default:
		}
		for range 9 { // the ninth waits, behind all of the other's
			call(other)
		}
		for range 8 {
			<-started
		}
		synctest.Wait()
		close(release)
		for range 48 - 24 + 1 {
			<-started
		}
		wg.Wait()
	})
}

// TestPrincipalsTakeTurns has one principal queue four requests before another queues two.
func TestPrincipalsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := broker(t)
		var mu sync.Mutex
		var order []string
		gate := make(chan struct{})
		s := control.New("com.acme.math", &control.Options{Concurrency: 1, Queue: 16, Share: 8})
		s.Handle(control.Command{Name: "sum", Effect: control.Write}, func(_ context.Context, req *control.Request) (any, error) {
			mu.Lock()
			order = append(order, req.Caller.Actor)
			mu.Unlock()
			<-gate
			return nil, nil
		})
		run(t, s, dial(t, srv))
		var wg sync.WaitGroup
		for _, c := range []struct {
			life wire.Lifecycle
			n    int
		}{{ada, 5}, {lifecycle("bob"), 2}} {
			who := caller(t, dial(t, srv), c.life)
			for range c.n {
				wg.Go(func() {
					if err := who.Call(t.Context(), sum, nil, nil); err != nil {
						t.Errorf("call of %s: %v", c.life.Actor, err)
					}
				})
			}
			synctest.Wait()
		}
		close(gate)
		wg.Wait()
		if got, want := strings.Join(order, " "), "ada ada bob ada bob ada ada"; got != want {
			t.Errorf("order %q, want %q", got, want)
		}
	})
}
