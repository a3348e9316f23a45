package endpoint_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// TestBrokerMoves: an endpoint finds a broker that is at another address, whoever listens at the first one meanwhile, and says nothing to
// a stranger that would take anybody without asking. One that lies keeps it for five seconds at most.
func TestBrokerMoves(t *testing.T) {
	for name, stranger := range map[string]func(p *proxy){
		"nobody_in_its_place":    func(p *proxy) { p.ln.Close() },
		"one_who_lets_nobody_in": func(p *proxy) { p.refuse.Store(true) },
		"one_who_takes_anybody":  func(p *proxy) { p.lax.Store(true) },
		"one_who_lies":           func(p *proxy) { p.lies.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *broker.Options) {
				o.NoListen, o.Port, o.Transport = false, broker.RandomPort, broker.Plaintext()
			})
			home := strings.TrimPrefix(w.srv.ClientURL(), "nats://")
			first, second := newProxy(t, home), newProxy(t, home)
			var at atomic.Pointer[string]
			know := func(s string) { at.Store(&s) }
			know("nats://" + first.ln.Addr().String())
			events, got := newJournal[endpoint.Event](), newJournal[string]()
			ep := must(endpoint.Connect(t.Context(), first.ln.Addr().String(), endpoint.Static(w.user("ada")), &endpoint.Options{
				OnEvent: events.add, RequestTimeout: 20 * time.Second, Locate: func() string { return *at.Load() },
			}))(t)
			t.Cleanup(func() { _ = ep.Close() })
			must(ep.Listen(t.Context(), "team", func(d *endpoint.Delivery) { got.add(d.Message.Text()) }))(t)

			stranger(first)
			first.cut()
			wantEvent[endpoint.EventDisconnected](t, events, nil)
			sent := make(chan error, 1)
			go func() {
				_, err := ep.Post(t.Context(), "team", endpoint.Text("not for strangers"))
				sent <- err
			}()
			if name != "nobody_in_its_place" {
				<-first.met
			}
			now := "nats://" + second.ln.Addr().String()
			know(now)
			check(t, "post over the move", <-sent, nil)
			if all := got.waitLen(t, 1); all[0] != "not for strangers" {
				t.Errorf("received %v", all)
			}
			if n := first.told.Load(); n > 0 {
				t.Errorf("a stranger that asks nobody who they are was told %d lines", n)
			}
			wantEvent(t, events, func(e endpoint.EventConnected) bool { return e.Server == now })
		})
	}
}

// TestLocateIsHeldToTheRules: an address that would lose encryption or leave the machine in plaintext, and what is no address, is not used.
func TestLocateIsHeldToTheRules(t *testing.T) {
	w := newOpenWorld(t, listening)
	for _, bad := range []string{"nats://192.0.2.1:4222", "tls://127.0.0.1:4222", "nats://127.0.0.1", "127.0.0.1:1", "\x00", "http://127.0.0.1:80"} {
		ep := w.connectTo(w.addr(), "ada", &endpoint.Options{Locate: func() string { return bad }})
		if !ep.Connected() {
			t.Errorf("Locate says %q: not connected", bad)
		}
	}
	_, err := endpoint.Connect(t.Context(), w.addr()+",127.0.0.1:1", nil, &endpoint.Options{
		Open: &endpoint.Open{Space: lab, Actor: "ada"}, Locate: func() string { return "" },
	})
	if wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("two addresses: %v, want bad-request", err)
	}
}
