package endpoint_test

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// mortal provides connections until the process that they stand for is killed.
type mortal struct {
	provider nats.InProcessConnProvider

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (m *mortal) InProcessConn() (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, net.ErrClosed
	}
	conn, err := m.provider.InProcessConn()
	if err == nil {
		m.conns = append(m.conns, conn)
	}
	return conn, err
}

// kill cuts the connections without a word, and lets no other be made.
func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, c := range m.conns {
		_ = c.Close()
	}
}

// mortal connects an endpoint that can be killed.
func (w *world) mortal(src endpoint.Source, opts endpoint.Options) (*endpoint.Endpoint, *mortal) {
	w.tb.Helper()
	m := &mortal{provider: w.srv.InProcess()}
	opts.InProcess = m
	ep, err := endpoint.Connect(w.tb.Context(), "", src, &opts)
	if err != nil {
		w.tb.Fatalf("connect: %v", err)
	}
	w.tb.Cleanup(func() {
		m.kill()
		_ = ep.Close()
	})
	return ep, m
}

func fill(t *testing.T, sender *endpoint.Endpoint, to wire.Principal, n int) {
	t.Helper()
	for i := range n {
		must(sender.Direct(t.Context(), to, endpoint.Text(fmt.Sprint(i))))(t)
	}
}

// A handler that never settles stops its own queue and nothing else, and somebody is told.
func TestN38UnsettledMessagesStopTheirOwnQueueAlone(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stuck, other := w.user("bob"), w.user("carol")
		w.durables(stuck)
		w.durables(other)
		sender := w.connect(w.user("ada"), nil)
		const limit, more = 1000, 50
		events, shown := newJournal[endpoint.Event](), newJournal[uint64]()
		ep, process := w.mortal(endpoint.Static(stuck), endpoint.Options{OnEvent: events.add})
		if err := ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) { shown.add(d.Sequence) }); err != nil {
			t.Fatal(err)
		}
		fill(t, sender, bob, limit+more)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(shown.list()); n != limit {
			t.Errorf("%d shown, want %d", n, limit)
		}
		if full := wantEvent[endpoint.EventQueueFull](t, events, nil); full.Kind != wire.KindDirect || full.Pending != limit {
			t.Errorf("alert %+v", full)
		}
		unaffected(t, w, sender, other)
		process.kill()

		// The next process is told at once, and when it settles everything the counter goes to zero.
		events, done := newJournal[endpoint.Event](), map[uint64]int{}
		next := w.connect(stuck, &endpoint.Options{OnEvent: events.add})
		if err := next.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			check(t, "ack", d.Ack(t.Context()), nil)
			done[d.Sequence]++
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := countEvents[endpoint.EventQueueFull](events); n != 1 {
			t.Errorf("%d alerts for the next process, want 1", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for seq, n := range done {
			if n != 1 {
				t.Errorf("message %d settled %d times", seq, n)
			}
		}
		info := w.queueInfo("DM_lab", wire.DirectDurable(stuck.Identity().Lifecycle))
		if len(done) != limit+more || info.NumAckPending != 0 || info.NumPending != 0 {
			t.Errorf("%d settled, %d held, %d waiting; want %d, none, none", len(done), info.NumAckPending, info.NumPending, limit+more)
		}
		if n := countEvents[endpoint.EventQueueFull](events); n != 1 {
			t.Errorf("%d alerts in the end, want 1", n)
		}
	})
}

// unaffected checks that somebody else's messages come at once.
func unaffected(t *testing.T, w *world, sender *endpoint.Endpoint, other *trust.Credentials) {
	t.Helper()
	got := newJournal[*endpoint.Delivery]()
	if err := w.connect(other, nil).HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		check(t, "ack", d.Ack(t.Context()), nil)
		got.add(d)
	}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	fill(t, sender, other.Identity().Principal, 20)
	synctest.Wait()
	if n := len(got.list()); n != 20 || time.Since(start) > time.Second {
		t.Errorf("another agent got %d of 20 messages in %v", n, time.Since(start))
	}
}

// The alert also comes when it is not this process that holds the messages.
func TestQueueFilledByOthers(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		sender := w.connect(w.user("ada"), nil)
		var first, second atomic.Int32
		events := newJournal[endpoint.Event]()
		hoard := func(n *atomic.Int32, ev func(endpoint.Event)) {
			if err := w.connect(creds, &endpoint.Options{OnEvent: ev}).HandleDirect(t.Context(), func(d *endpoint.Delivery) { n.Add(1) }); err != nil {
				t.Fatal(err)
			}
		}
		hoard(&first, nil)
		fill(t, sender, bob, 600)
		synctest.Wait()
		hoard(&second, events.add)
		fill(t, sender, bob, 500)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if first.Load()+second.Load() != 1000 {
			t.Errorf("%d and %d shown, want 1000 together", first.Load(), second.Load())
		}
		if n := countEvents[endpoint.EventQueueFull](events); n != 1 {
			t.Errorf("%d alerts, want 1", n)
		}
	})
}

// The work of a role member that died is done by another one, once, after the ack wait.
func TestRoleWorkOfADeadMemberIsTakenOver(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, two := w.user("one", role("reviewer")), w.user("two", role("reviewer"))
		w.durables(one)
		w.durables(two)
		sender := w.connect(w.user("ada"), nil)
		victim, process := w.mortal(endpoint.Static(one), endpoint.Options{})
		taken, forever := make(chan *endpoint.Delivery, 1), make(chan struct{})
		defer close(forever)
		if err := victim.HandleRole(t.Context(), func(d *endpoint.Delivery) {
			taken <- d
			<-forever
		}); err != nil {
			t.Fatal(err)
		}
		job := must(sender.Ask(t.Context(), "reviewer", endpoint.Text("job")))(t)
		<-taken
		start := time.Now()
		process.kill()
		type done struct {
			seq   uint64
			after time.Duration
			again bool
		}
		got := newJournal[done]()
		if err := w.connect(two, nil).HandleRole(t.Context(), func(d *endpoint.Delivery) {
			got.add(done{d.Sequence, time.Since(start).Round(time.Second), d.Redelivered})
			check(t, "ack", d.Ack(t.Context()), nil)
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if want := []done{{job.Sequence, time.Minute, true}}; fmt.Sprint(got.list()) != fmt.Sprint(want) {
			t.Errorf("taken over: %v, want %v", got.list(), want)
		}
		if n := w.stored("TASK_lab"); n != 0 {
			t.Errorf("%d jobs stored, want none", n)
		}
	})
}

// A retry of the sender under the same id, while the first is unsettled, is no attempt of the receiver, and takes none away.
func TestN39ARetryIsNoAttempt(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("bob")
		w.durables(creds)
		sender := w.connect(w.user("ada"), nil)
		start, got := time.Now(), newJournal[string]()
		if err := w.connect(creds, &endpoint.Options{MaxAttempts: 3}).HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			got.add(fmt.Sprintf("%d:%d at %s", d.Sequence, d.Attempt, time.Since(start).Round(time.Second)))
			if d.Attempt < 3 {
				check(t, "nak", d.Nak(t.Context(), 2*time.Minute), nil)
				return
			}
			check(t, "ack", d.Ack(t.Context()), nil)
		}); err != nil {
			t.Fatal(err)
		}
		draft := endpoint.Draft{ID: "the-same", Parts: []wire.Part{wire.Text("x")}}
		must(sender.Direct(t.Context(), bob, draft))(t)
		for range 12 { // every 15 s, some of them beyond the broker's window, which stores them
			time.Sleep(15 * time.Second)
			must(sender.Direct(t.Context(), bob, draft))(t)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := "[1:1 at 0s 1:2 at 2m0s 1:3 at 4m0s]"; fmt.Sprint(got.list()) != want {
			t.Errorf("attempts %v, want %s", got.list(), want)
		}
		if w.stored("DM_lab") < 2 {
			t.Error("no retry was stored, so that nothing was tried")
		}
		if all := w.buried(); len(all) != 0 {
			t.Errorf("dead letters %v, want none", all)
		}
		if n := w.queueInfo("DM_lab", wire.DirectDurable(creds.Identity().Lifecycle)).NumAckPending; n != 0 {
			t.Errorf("%d messages held in the end", n)
		}
	})
}

// Only the broker's own header is one: what merely looks like it, or like a word of the broker, changes nothing.
func TestN41LookalikeHeaders(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds, mallory := w.user("bob"), w.user("mallory")
		w.durables(creds)
		got := newJournal[string]()
		if err := w.connect(creds, nil).HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			got.add(fmt.Sprintf("%s %d %t %t", d.Message.ID, d.Sequence, d.Requeued, time.Since(d.Time) < time.Hour))
			check(t, "ack", d.Ack(t.Context()), nil)
		}); err != nil {
			t.Fatal(err)
		}
		raw := w.raw(mallory)
		defer shut(raw)
		from := mallory.Identity().Principal
		subject := must(wire.DirectSubject(lab, bob, from))(t)
		send := func(id string, header nats.Header) {
			m := &wire.Message{
				ID: id, TS: 1, Space: lab, From: wire.EndpointRef{ID: from.String(), Name: "x"}, To: bob.String(), Parts: []wire.Part{wire.Text("x")},
			}
			w.publish(raw, subject, header, must(m.AppendJSON(nil))(t))
		}
		for i, name := range []string{"X-Nats-Msg-Id", "My-Nats-Msg-Id", "nats-msg-id", "Nats-Msg-Id-2", "Nats-Msg-I"} {
			send(fmt.Sprintf("%d-a", i), nats.Header{name: {"same"}})
			send(fmt.Sprintf("%d-b", i), nats.Header{name: {"same"}})
		}
		send("broker", nats.Header{
			"Nats-Sequence": {"99"}, "Nats-Stream": {"CHAT_lab"}, "Nats-Time-Stamp": {"2099-01-01T00:00:00Z"}, "Nats-Subject": {"x"},
			"Nats-Last-Sequence": {"98"}, "Nats-Num-Pending": {"7"}, "Nats-Pending-Messages": {"7"}, "Reply-To": {"x"},
		})
		synctest.Wait()
		var want []string
		for i := range 5 {
			want = append(want, fmt.Sprintf("%d-a %d false true", i, 2*i+1), fmt.Sprintf("%d-b %d false true", i, 2*i+2))
		}
		want = append(want, "broker 11 false true")
		if fmt.Sprint(got.list()) != fmt.Sprint(want) {
			t.Errorf("shown %q, want %q", got.list(), want)
		}
	})
}
