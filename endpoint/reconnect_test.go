package endpoint_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// proxy stands between an endpoint and its broker and can lose, cut and add.
type proxy struct {
	tb     testing.TB
	ln     net.Listener
	target string
	deaf   atomic.Bool   // what the broker says is lost
	refuse atomic.Bool   // it is a broker that lets nobody in
	lax    atomic.Bool   // it is a broker that asks nobody who they are, and takes everything
	lies   atomic.Bool   // it is one that asks, and takes everything
	met    chan struct{} // a token for each connection since it is one of these
	told   atomic.Int32  // lines beyond the greeting that those said to a lax one
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // client ends, and those towards the broker
	ends  map[net.Conn]bool
}

func newProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	p := &proxy{tb: tb, ln: must(net.Listen("tcp", "127.0.0.1:0"))(tb), target: target, ends: map[net.Conn]bool{}, met: make(chan struct{}, 1024)}
	p.wg.Go(p.accept)
	tb.Cleanup(func() {
		p.ln.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		if p.refuse.Load() || p.lax.Load() || p.lies.Load() {
			p.mu.Lock()
			p.conns = append(p.conns, client) // nats.go does not close what it was refused on
			p.mu.Unlock()
			p.met <- struct{}{}
			p.wg.Go(func() { p.stranger(client, p.lax.Load(), p.lies.Load()) })
			continue
		}
		broker, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, broker)
		p.ends[client] = true
		p.mu.Unlock()
		p.wg.Go(func() { p.pump(broker, client, nil) })
		p.wg.Go(func() { p.pump(client, broker, &p.deaf) })
	}
}

// stranger is a broker of somebody else.
func (p *proxy) stranger(client net.Conn, lax, lies bool) {
	defer func() { _ = client.Close() }()
	if lax {
		_, _ = io.WriteString(client, "INFO {\"max_payload\":1048576,\"proto\":1,\"headers\":true}\r\n")
	} else {
		_, _ = io.WriteString(client, "INFO {\"max_payload\":1048576,\"proto\":1,\"headers\":true,\"auth_required\":true,\"nonce\":\"x\"}\r\n")
	}
	lines := bufio.NewScanner(client)
	for lines.Scan() {
		if lax {
			p.told.Add(1)
		}
		switch {
		case lines.Text() != "PING":
		case !lax && !lies:
			_, _ = io.WriteString(client, "-ERR 'Authorization Violation'\r\n")
			return
		default:
			_, _ = io.WriteString(client, "PONG\r\n")
		}
	}
}

func (p *proxy) pump(to, from net.Conn, lose *atomic.Bool) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.ends, to)
		delete(p.ends, from)
		to.Close()
		from.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if lose != nil && lose.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut ends every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
	clear(p.ends)
}

// say puts words into the broker's mouth. A connection that the client has just left behind does not hear them.
func (p *proxy) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed error
	heard := false
	for c := range p.ends {
		if _, err := c.Write([]byte(text)); err != nil {
			failed = err
			continue
		}
		heard = true
	}
	if !heard {
		p.tb.Errorf("nobody heard %q: %v", text, failed)
	}
}

func listening(o *server.Options) { o.DontListen, o.Host, o.Port = false, "127.0.0.1", -1 }

// connectTo connects over the network.
func (w *openWorld) connectTo(addr, actor string, opts *endpoint.Options) *endpoint.Endpoint {
	w.tb.Helper()
	var o endpoint.Options
	if opts != nil {
		o = *opts
	}
	o.Open = &endpoint.Open{Space: lab, Actor: actor}
	ep, err := endpoint.Connect(w.tb.Context(), addr, nil, &o)
	if err != nil {
		w.tb.Fatalf("connect: %v", err)
	}
	w.tb.Cleanup(func() {
		if err := ep.Close(); err != nil {
			w.tb.Errorf("close: %v", err)
		}
	})
	return ep
}

func (w *openWorld) addr() string { return w.srv.Addr().String() }

// stored counts the messages of a stream.
func (w *openWorld) stored(stream string) uint64 {
	w.tb.Helper()
	return must(must(w.js.Stream(w.tb.Context(), stream))(w.tb).Info(w.tb.Context()))(w.tb).State.Msgs
}

func TestBrokerRestart(t *testing.T) {
	w := newOpenWorld(t, listening)
	w.opts.Port = w.srv.Addr().(*net.TCPAddr).Port
	events, got := newJournal[endpoint.Event](), newJournal[string]()
	ep := w.connectTo(w.addr(), "ada", &endpoint.Options{OnEvent: events.add, RequestTimeout: time.Minute})
	must(ep.Listen(t.Context(), "team", func(d *endpoint.Delivery) { got.add("live " + d.Message.Text()) }))(t)
	check(t, "direct", ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		check(t, "ack", d.Ack(t.Context()), nil)
		got.add("direct " + d.Message.Text())
	}), nil)
	w.unserve() // it would wait for the broker that goes
	w.stop()
	wantEvent[endpoint.EventDisconnected](t, events, nil)
	sent := make(chan error, 1)
	go func() { // waits for the broker, and is stored once
		_, err := ep.Post(t.Context(), "team", endpoint.Text("one"))
		if err == nil {
			_, err = ep.Direct(t.Context(), ada, endpoint.Text("two"))
		}
		sent <- err
	}()
	w.start()
	check(t, "send over a restart", <-sent, nil)
	wantEvent[endpoint.EventConnected](t, events, nil)
	all := got.waitLen(t, 2)
	if fmt.Sprint(all) != "[live one direct two]" && fmt.Sprint(all) != "[direct two live one]" {
		t.Errorf("received %v", all)
	}
}

func TestKicked(t *testing.T) {
	w := newWorld(t)
	creds := w.user("bob", role("reviewer"))
	w.durables(creds)
	events, got := newJournal[endpoint.Event](), newJournal[string]()
	ep := w.connect(creds, &endpoint.Options{OnEvent: events.add})
	receive := func(d *endpoint.Delivery) {
		check(t, "ack", d.Ack(t.Context()), nil)
		got.add(d.Kind.String())
	}
	must(ep.Listen(t.Context(), "team", receive))(t)
	check(t, "direct", ep.HandleDirect(t.Context(), receive), nil)
	check(t, "role", ep.HandleRole(t.Context(), receive), nil)
	for i := range 3 {
		w.kick(creds)
		events.waitFor(t, "its return", func([]endpoint.Event) bool { // what is live is lost while it is away
			n := countEvents[endpoint.EventConnected](events)
			return n > i && n == countEvents[endpoint.EventDisconnected](events)
		})
		must(ep.Post(t.Context(), "team", endpoint.Text("x")))(t)
		must(ep.Direct(t.Context(), bob, endpoint.Text("x")))(t)
		must(ep.Ask(t.Context(), "reviewer", endpoint.Text("x")))(t)
		got.waitLen(t, 3*(i+1))
	}
}

// TestRepeatedAuthErrors is case N17: the broker refuses five times, then accepts.
func TestRepeatedAuthErrors(t *testing.T) {
	g := &gate{limit: 5}
	w := newOpenWorld(t, listening, func(o *server.Options) { o.CustomClientAuthentication = g })
	p := newProxy(t, w.addr())
	events, got := newJournal[endpoint.Event](), newJournal[*endpoint.Delivery]()
	ep := w.connectTo(p.ln.Addr().String(), "ada", &endpoint.Options{OnEvent: events.add, RequestTimeout: time.Minute})
	must(ep.Listen(t.Context(), "team", got.add))(t)
	g.shut.Store(true)
	p.cut()
	must(ep.Post(t.Context(), "team", endpoint.Text("back")))(t)
	got.waitLen(t, 1)
	wantEvent[endpoint.EventConnected](t, events, nil)
	if n := countEvents[endpoint.EventRefused](events); n != 5 || g.refused.Load() != 5 {
		t.Errorf("refused %d times, reported %d, want 5", g.refused.Load(), n)
	}
}

// TestLostAnswer loses the broker's answer together with the connection: the message is sent again under its id and is
// stored once.
func TestLostAnswer(t *testing.T) {
	w := newOpenWorld(t, listening)
	p := newProxy(t, w.addr())
	ep := w.connectTo(p.ln.Addr().String(), "ada", &endpoint.Options{RequestTimeout: time.Minute})
	p.deaf.Store(true)
	type result struct {
		r   endpoint.Receipt
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := ep.Post(t.Context(), "team", endpoint.Text("x"))
		done <- result{r, err}
	}()
	w.untilStored("CHAT_lab", 1)
	p.deaf.Store(false)
	p.cut()
	res := <-done
	if res.err != nil || res.r.Sequence != 1 || res.r.Duplicate {
		t.Errorf("receipt %+v, %v; want sequence 1", res.r, res.err)
	}
	if n := w.stored("CHAT_lab"); n != 1 {
		t.Errorf("stored %d times", n)
	}
}

// untilStored waits for the stream to hold n messages.
func (w *openWorld) untilStored(stream string, n uint64) {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), 20*time.Second)
	defer cancel()
	for w.stored(stream) < n {
		if ctx.Err() != nil {
			w.tb.Fatalf("stream %s never held %d messages", stream, n)
		}
	}
}

// TestClosedForGood lets the client library give the connection up: the endpoint makes another.
func TestClosedForGood(t *testing.T) {
	w := newOpenWorld(t, listening)
	p := newProxy(t, w.addr())
	got := newJournal[string]()
	ep := w.connectTo(p.ln.Addr().String(), "ada", &endpoint.Options{RequestTimeout: time.Minute})
	must(ep.Listen(t.Context(), "team", func(d *endpoint.Delivery) { got.add(d.Message.Text()) }))(t)
	check(t, "direct", ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		check(t, "ack", d.Ack(t.Context()), nil)
		got.add(d.Message.Text())
	}), nil)
	must(ep.Post(t.Context(), "team", endpoint.Text("one")))(t)
	got.waitLen(t, 1)
	clients := w.srv.NumClients()
	for i := range 3 {
		link := ep.LinkClosed()
		p.say("-ERR 'Something New'\r\n")
		<-link
		must(ep.Post(t.Context(), "team", endpoint.Text(fmt.Sprint("post ", i))))(t)
		// Until the broker has noticed the end of the old connection it may hand it the next direct message, which
		// then comes again only after its ack wait.
		for w.srv.NumClients() > clients && t.Context().Err() == nil {
			runtime.Gosched()
		}
		must(ep.Direct(t.Context(), ada, endpoint.Text(fmt.Sprint("direct ", i))))(t)
		got.waitLen(t, 3+2*i)
	}
}

func TestNothingStoresIt(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newOpenWorld(t)
		ep := w.connect("ada", nil)
		check(t, "delete", w.js.DeleteStream(t.Context(), "CHAT_lab"), nil)
		_, err := ep.Post(t.Context(), "team", endpoint.Text("x"))
		wantError(t, err, wire.CodeUnavailable, wire.OutcomeNotExecuted)

		// Somebody listens and never answers.
		must(w.nc.Subscribe("cotal.lab.chat.>", func(*nats.Msg) {}))(t) // until the world ends
		check(t, "flush", w.nc.Flush(), nil)
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = ep.Post(short, "team", endpoint.Text("x"))
		wantError(t, err, wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
		_, err = ep.Post(short, "team", endpoint.Text("x"))
		wantError(t, err, wire.CodeUnavailable, wire.OutcomeNotExecuted) // it had ended before
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, leave)
		_, err = ep.Post(gone, "team", endpoint.Text("x"))
		wantError(t, err, wire.CodeCancelled, wire.OutcomeUnknown)
	})
}

// moody connects only while it is well.
type moody struct {
	w    *openWorld
	sick atomic.Bool
}

func (m *moody) InProcessConn() (net.Conn, error) {
	if m.sick.Load() {
		return nil, net.ErrClosed
	}
	return m.w.srv.InProcessConn()
}

// disconnect ends the connection of an endpoint on the broker's side.
func (w *openWorld) disconnect(ep *endpoint.Endpoint) {
	w.tb.Helper()
	for _, c := range must(w.srv.Connz(nil))(w.tb).Conns {
		if c.Name == ep.Principal().String() {
			check(w.tb, "disconnect", w.srv.DisconnectClientByID(c.Cid), nil)
			return
		}
	}
	w.tb.Fatalf("no connection of %v", ep.Principal())
}

// TestAnswerTooLate loses the connection for longer than the broker knows a message's id: the message is not sent again,
// and its sender is told that nobody knows.
func TestAnswerTooLate(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newOpenWorld(t)
		m := &moody{w: w}
		ep := w.connect("ada", &endpoint.Options{InProcess: m})
		check(t, "delete", w.js.DeleteStream(t.Context(), "CHAT_lab"), nil)
		var heard atomic.Int32
		must(w.nc.Subscribe("cotal.lab.chat.>", func(*nats.Msg) { heard.Add(1) }))(t) // and does not answer
		synctest.Wait()
		post := func(result chan<- error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := ep.Post(ctx, "team", endpoint.Text("x"))
			result <- err
		}
		away := func(d time.Duration) {
			m.sick.Store(true)
			w.disconnect(ep)
			time.Sleep(d)
			m.sick.Store(false)
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go post(first)
		synctest.Wait()
		away(30 * time.Second)
		if n := heard.Load(); n != 2 {
			t.Errorf("after a short absence sent %d times, want again", n)
		}
		m.sick.Store(true)
		w.disconnect(ep)
		time.Sleep(time.Second)
		go post(second) // has not left yet when the connection comes back
		away2 := 2 * time.Minute
		time.Sleep(away2)
		m.sick.Store(false)
		time.Sleep(10 * time.Second)
		wantError(t, <-first, wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
		if n := heard.Load(); n != 3 {
			t.Errorf("heard %d times, want the second message only", n)
		}
		check(t, "close", ep.Close(), nil)
		wantError(t, <-second, wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
	})
}

// TestQueueMadeAnew deletes a queue of an open space, as the broker does when nobody reads it for long.
func TestQueueMadeAnew(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newOpenWorld(t)
		events, got := newJournal[endpoint.Event](), newJournal[string]()
		ep := w.connect("ada", &endpoint.Options{OnEvent: events.add})
		check(t, "direct", ep.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
			check(t, "ack", d.Ack(t.Context()), nil)
			got.add(d.Message.Text())
		}), nil)
		check(t, "delete", w.js.DeleteConsumer(t.Context(), "DM_lab", wire.DirectDurable(ep.Lifecycle())), nil)
		time.Sleep(time.Minute)
		must(ep.Direct(t.Context(), ada, endpoint.Text("x")))(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if fmt.Sprint(got.list()) != "[x]" || countEvents[endpoint.EventQueueLost](events) != 1 {
			t.Errorf("received %v, events %v", got.list(), events.list())
		}
	})
}

func TestHandlersThatDoNotReturn(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newOpenWorld(t)
		hold, told := make(chan struct{}), make(chan struct{})
		events := newJournal[endpoint.Event]()
		ep, err := endpoint.Connect(t.Context(), "", nil, &endpoint.Options{
			InProcess: w.srv, Open: &endpoint.Open{Space: lab, Actor: "carol"},
			OnEvent: func(ev endpoint.Event) {
				events.add(ev)
				<-told
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		must(ep.Listen(t.Context(), "team", func(*endpoint.Delivery) { <-hold }))(t)
		must(ep.Listen(t.Context(), "junk", func(*endpoint.Delivery) {}))(t)
		must(ep.Post(t.Context(), "team", endpoint.Text("x")))(t)
		for i := range uint64(400) {
			w.liveCopy(ada, "junk", i+1, i, []byte("junk"))
		}
		synctest.Wait()
		start := time.Now()
		err = ep.Close()
		wantError(t, err, wire.CodeDeadlineExceeded, wire.OutcomeUnknown)
		if took := time.Since(start); took != 2*endpoint.DefaultTimeout {
			t.Errorf("close took %v", took)
		}
		select {
		case <-ep.Done():
			t.Error("done while a handler runs")
		default:
		}
		close(hold)
		close(told)
		<-ep.Done()
		if err := ep.Close(); wire.CodeOf(err) != wire.CodeDeadlineExceeded {
			t.Errorf("closing again: %v", err)
		}
		all := events.list()
		last, ok := all[len(all)-1].(endpoint.EventsLost)
		if n := countEvents[endpoint.EventDropped](events); !ok || n+last.Count != 400 || n < 200 {
			t.Errorf("of 400 events a handler that blocks was told %d, and %v", n, all[len(all)-1])
		}
	})
}
