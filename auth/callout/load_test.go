package callout_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// turnstile holds whoever comes to the records until it is opened.
type turnstile struct {
	came chan struct{} // one entry for each who came
	open chan struct{}
}

func newTurnstile(w *world) *turnstile {
	s := &turnstile{came: make(chan struct{}, 1024), open: make(chan struct{})}
	w.records.decide = func(ctx context.Context, _ *mint.ConnectionRequest) (string, error) {
		s.came <- struct{}{}
		select {
		case <-s.open:
			return "", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return s
}

// patient is a broker that waits for long, so that a test can hold questions up.
func (o *origin) patient(t testing.TB, w *world, p *person, token, host string) *nats.Msg {
	t.Helper()
	c := o.claims(t, w, p, token)
	c.Expires = time.Now().Add(50 * time.Minute).Unix()
	c.ClientInformation.Host = host
	return o.ask(t, w, c)
}

// send asks a question and returns where the answer comes.
func (l *lab) send(t testing.TB, m *nats.Msg) *nats.Subscription {
	t.Helper()
	m.Reply = l.nc.NewInbox()
	sub := must(l.nc.SubscribeSync(m.Reply))(t)
	if err := l.nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	return sub
}

func next(t testing.TB, sub *nats.Subscription) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return must(sub.NextMsgWithContext(ctx))(t).Data
}

func longLived(o *callout.Options) {
	o.Deadline = 30 * time.Minute
	callout.Patient(o, time.Hour)
}

// When there is no room for a question it is refused at once, without content, while those before it wait.
func TestBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours := newOrigin(t)
		l := newLab(t, ours)
		defer l.close()
		hold := newTurnstile(l.w)
		l.o.Workers, l.o.Queue = 1, 2
		longLived(&l.o)
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		var waiting []*nats.Subscription
		for range 3 {
			waiting = append(waiting, l.send(t, ours.patient(t, l.w, ada, token, "203.0.113.1")))
			synctest.Wait() // one is with the worker, two fill the queue
		}
		if got := next(t, l.send(t, ours.patient(t, l.w, ada, token, "203.0.113.1"))); len(got) != 0 {
			t.Errorf("answer of %d bytes, want none", len(got))
		}
		if got := <-d.told; got.Reason != trust.ReasonBusy || got.Told || got.Host != "203.0.113.1" {
			t.Errorf("decision = %+v, want %q", got, trust.ReasonBusy)
		}

		// Junk is refused with its reason although no worker is free.
		if got := ours.read(t, l.w, next(t, l.send(t, ours.patient(t, l.w, ada, "junk", "203.0.113.1")))); got.Error != string(trust.ReasonMalformed) {
			t.Errorf("junk: answer %q, want %q", got.Error, trust.ReasonMalformed)
		}
		<-d.told
		close(hold.open)
		for i, sub := range waiting {
			if got := ours.read(t, l.w, next(t, sub)); got.Jwt == "" {
				t.Errorf("question %d: refused with %q", i+1, got.Error)
			}
		}
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// The answer without content refuses a client of the real broker at once.
func TestBusyReachesTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		hold := newTurnstile(w)
		d := m.serve(t, w, func(o *callout.Options) { o.Workers, o.Queue = 1, 1 })
		ada := newPerson(t, "ada")
		token := w.bearer(t, ada, true, time.Minute)
		let := make(chan error, 2)
		for range 2 {
			go func() {
				nc, err := m.connect(w, token, ada.key)
				if err == nil {
					nc.Close()
				}
				let <- err
			}()
			synctest.Wait()
		}
		began := time.Now()
		nc, err := m.connect(w, token, ada.key)
		refused(t, nc, err)
		if took := time.Since(began); took >= time.Second {
			t.Errorf("refused after %s, want no waiting", took)
		}
		if got := <-d.told; got.Reason != trust.ReasonBusy || got.Told {
			t.Errorf("decision = %+v, want %q", got, trust.ReasonBusy)
		}
		close(hold.open)
		for range 2 {
			if err := <-let; err != nil {
				t.Errorf("connect: %v", err)
			}
		}
		m.end(t, d)
	})
}

// A bug in what is told of decisions, or in the validator, refuses one connection and ends nothing.
func TestPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		var calls atomic.Int64
		d := m.serve(t, w, func(o *callout.Options) {
			o.Validator = &broken{Validator: w.validator, left: 1}
			o.OnDecision = func(context.Context, callout.Decision) {
				if calls.Add(1) == 2 {
					panic("oops")
				}
			}
		})
		ada := newPerson(t, "ada")
		for i := range 3 {
			nc, err := m.connect(w, w.bearer(t, ada, true, time.Minute), ada.key)
			if i == 0 {
				refused(t, nc, err)
				continue
			}
			if err != nil {
				t.Fatalf("connect %d: %v", i+1, err)
			}
			nc.Close()
		}
		synctest.Wait()
		if s := d.Stats(); s.Panics != 2 || s.Admitted != 2 || s.Denied[trust.ReasonUnavailable] != 1 || s.Bare != 1 {
			t.Errorf("stats = %+v, want two panics, one of them a refusal", s)
		}
		m.end(t, d)
	})
}

// broken is a validator that panics a few times.
type broken struct {
	callout.Validator
	left int
}

func (b *broken) Peek(token string) (string, time.Time, error) {
	if b.left > 0 {
		b.left--
		panic("oops")
	}
	return b.Validator.Peek(token)
}

// slow is a validator that waits for nothing but its gate.
type slow struct {
	callout.Validator
	came chan struct{}
	gate chan struct{}
}

func (s *slow) Peek(token string) (string, time.Time, error) {
	s.came <- struct{}{}
	<-s.gate
	return s.Validator.Peek(token)
}

// What arrives faster than it can be opened is refused at once as well.
func TestBusyBeforeOpening(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours := newOrigin(t)
		l := newLab(t, ours)
		defer l.close()
		s := &slow{Validator: l.w.validator, came: make(chan struct{}, 1024), gate: make(chan struct{})}
		l.o.Validator, l.o.Queue = s, 1
		longLived(&l.o)
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		var waiting []*nats.Subscription
		for {
			sub := l.send(t, ours.patient(t, l.w, ada, token, "203.0.113.1"))
			synctest.Wait()
			if st := d.Stats(); st.Denied[trust.ReasonBusy] > 0 {
				if got := next(t, sub); len(got) != 0 {
					t.Errorf("answer of %d bytes, want none", len(got))
				}
				break
			}
			waiting = append(waiting, sub)
		}
		if got := <-d.told; got.Reason != trust.ReasonBusy || got.Server != "" || got.Lifecycle != (wire.Lifecycle{}) {
			t.Errorf("decision = %+v, want %q of somebody unknown", got, trust.ReasonBusy)
		}
		close(s.gate)
		for i, sub := range waiting {
			data := next(t, sub)
			if len(data) != 0 && ours.read(t, l.w, data).Jwt == "" {
				t.Errorf("question %d: refused", i+1)
			}
		}
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// An address that sends junk is answered without content, and what is good from there waits behind everybody else; it is not
// refused.
func TestSuspectAddress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours := newOrigin(t)
		l := newLab(t, ours)
		defer l.close()
		hold := newTurnstile(l.w)
		l.o.Workers = 1
		longLived(&l.o)
		d := run(t, l.serve, l.o)
		first, shared, other := newPerson(t, "first"), newPerson(t, "shared"), newPerson(t, "other")
		const bad, good = "203.0.113.66", "203.0.113.1"
		for i := range callout.SuspectAt + 4 {
			next(t, l.send(t, ours.patient(t, l.w, shared, "junk", bad)))
			if got := <-d.told; got.Told != (i < callout.SuspectAt) || got.Reason != trust.ReasonMalformed || got.Host != bad {
				t.Errorf("junk %d: decision = %+v", i+1, got)
			}
		}
		subs := []*nats.Subscription{l.send(t, ours.patient(t, l.w, first, l.w.bearer(t, first, true, time.Minute), good))}
		<-hold.came
		subs = append(subs, l.send(t, ours.patient(t, l.w, shared, l.w.bearer(t, shared, true, time.Minute), bad)))
		synctest.Wait()
		for range 10 {
			subs = append(subs, l.send(t, ours.patient(t, l.w, other, l.w.bearer(t, other, true, time.Minute), good)))
			synctest.Wait()
		}
		close(hold.open)
		for i, sub := range subs {
			if got := ours.read(t, l.w, next(t, sub)); got.Jwt == "" {
				t.Errorf("question %d: refused with %q", i+1, got.Error)
			}
			<-d.told
		}
		var order []string
		for _, life := range l.w.records.asked() {
			order = append(order, life.Actor)
		}
		want := slices.Concat([]string{"first"}, slices.Repeat([]string{"other"}, 10))
		want = slices.Insert(want, 7, "shared") // behind the others, but it does not wait for all of them
		if !slices.Equal(order, want) {
			t.Errorf("decided in order %q, want %q", order, want)
		}

		// A minute later it is an address like any other.
		time.Sleep(time.Minute) // fake
		next(t, l.send(t, ours.patient(t, l.w, shared, "junk", bad)))
		if got := <-d.told; !got.Told {
			t.Errorf("junk after a minute: decision = %+v, want its reason told", got)
		}

		// A bearer that has expired speaks against nobody.
		expired := l.w.bearer(t, other, true, time.Second)
		time.Sleep(time.Minute) // fake
		for range callout.SuspectAt + 4 {
			next(t, l.send(t, ours.patient(t, l.w, other, expired, good)))
			if got := <-d.told; !got.Told || got.Reason != trust.ReasonExpired {
				t.Errorf("expired bearer: decision = %+v, want %q told", got, trust.ReasonExpired)
			}
		}
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// What decides is given less time than the broker waits, so the refusal is an answer and not silence.
func TestDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		newTurnstile(w) // never opened
		d := m.serve(t, w, func(o *callout.Options) { o.Deadline = time.Minute })
		ada := newPerson(t, "ada")
		began := time.Now()
		nc, err := m.connect(w, w.bearer(t, ada, true, time.Minute), ada.key)
		refused(t, nc, err)
		if took := time.Since(began); took >= trust.AuthTimeout {
			t.Errorf("refused after %s, want before the broker's %s", took, trust.AuthTimeout)
		}
		if got := <-d.told; got.Reason != trust.ReasonUnavailable || !got.Told || got.Lifecycle != ada.Lifecycle {
			t.Errorf("decision = %+v, want %q", got, trust.ReasonUnavailable)
		}
		m.end(t, d)
	})
}

// A question that waited too long for a worker is not decided any more.
func TestTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours := newOrigin(t)
		l := newLab(t, ours)
		defer l.close()
		newTurnstile(l.w) // never opened
		l.o.Workers = 1
		callout.Patient(&l.o, time.Hour)
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		first := l.send(t, ours.patient(t, l.w, ada, token, "203.0.113.1"))
		synctest.Wait()
		second := l.send(t, ours.patient(t, l.w, ada, token, "203.0.113.1"))
		if got := ours.read(t, l.w, next(t, first)); got.Error != string(trust.ReasonUnavailable) {
			t.Errorf("first: %q, want %q", got.Error, trust.ReasonUnavailable)
		}
		if got := next(t, second); len(got) != 0 {
			t.Errorf("second: answer of %d bytes, want none", len(got))
		}
		<-d.told
		if got := <-d.told; got.Reason != trust.ReasonBusy || len(l.w.records.asked()) != 1 {
			t.Errorf("second: decision = %+v, records asked %d times, want %q and once", got, len(l.w.records.asked()), trust.ReasonBusy)
		}
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// end stops everything inside a bubble.
func (m *mesh) end(t testing.TB, desks ...*desk) {
	t.Helper()
	for _, d := range desks {
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		d.nc.Close()
	}
	m.srv.Shutdown()
}

// A service that is told to stop takes nothing more and answers all that it has.
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours := newOrigin(t)
		l := newLab(t, ours)
		defer l.close()
		hold := newTurnstile(l.w)
		l.o.Workers = 2
		longLived(&l.o)
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		var subs []*nats.Subscription
		for range 20 {
			subs = append(subs, l.send(t, ours.patient(t, l.w, ada, token, "203.0.113.1")))
		}
		synctest.Wait() // two are with the workers
		ended := make(chan error, 1)
		go func() { ended <- d.stop() }()
		synctest.Wait()
		if _, err := l.nc.RequestMsg(ours.patient(t, l.w, ada, token, "203.0.113.1"), time.Minute); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a question after the stop: %v, want %v", err, nats.ErrNoResponders)
		}
		select {
		case err := <-ended:
			t.Fatalf("Run returned %v with questions in hand", err)
		default:
		}
		close(hold.open)
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		for i, sub := range subs {
			if got := ours.read(t, l.w, next(t, sub)); got.Jwt == "" {
				t.Errorf("question %d: refused with %q", i+1, got.Error)
			}
		}
		if s := d.Stats(); s.Taken != 20 || s.Admitted != 20 {
			t.Errorf("stats = %+v, want 20 taken and admitted", s)
		}
		if err := d.Run(context.Background()); wire.CodeOf(err) != wire.CodeFailedPrecondition {
			t.Errorf("second Run: %v, want %q", err, wire.CodeFailedPrecondition)
		}
	})
}
