package endpoint_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// A handler that closes its own endpoint does not wait for itself.
func TestCloseInAHandler(t *testing.T) {
	for _, where := range []string{"direct", "listen", "event"} {
		t.Run(where, func(t *testing.T) {
			bubbled(t)
			faketime.Test(t, func(t *testing.T) {
				w := newWorld(t)
				creds := w.user("bob")
				w.durables(creds)
				sender := w.connect(w.user("ada"), nil)
				closed := make(chan error, 1)
				var ep *endpoint.Endpoint
				stop := func() {
					select {
					case closed <- ep.Close():
					default:
					}
				}
				opts := w.inProcess(nil)
				if where == "event" {
					opts.OnEvent = func(endpoint.Event) { stop() }
				}
				ep = must(endpoint.Connect(t.Context(), "", endpoint.Static(creds), opts))(t)
				handler := func(d *endpoint.Delivery) {
					if where == "event" {
						panic("an event")
					}
					stop()
				}
				must(ep.Listen(t.Context(), "team", handler))(t)
				check(t, "handle", ep.HandleDirect(t.Context(), handler), nil)
				start := time.Now()
				if where == "listen" {
					must(sender.Post(t.Context(), "team", endpoint.Text("x")))(t)
				} else {
					must(sender.Direct(t.Context(), bob, endpoint.Text("x")))(t)
				}
				if err := <-closed; wire.CodeOf(err) != wire.CodeFailedPrecondition {
					t.Errorf("close in a handler: %v", err)
				}
				<-ep.Done()
				if took := time.Since(start); took > time.Second {
					t.Errorf("closing took %v", took)
				}
				check(t, "close again", ep.Close(), nil)
			})
		})
	}
}

// A handler may close another endpoint, and waits for it.
func TestCloseOfAnotherEndpoint(t *testing.T) {
	w := newWorld(t)
	other := must(endpoint.Connect(t.Context(), "", endpoint.Static(w.user("carol")), w.inProcess(nil)))(t)
	must(other.Listen(t.Context(), "team", func(*endpoint.Delivery) {}))(t)
	ep, closed := w.connect(w.user("bob"), nil), make(chan error, 1)
	must(ep.Listen(t.Context(), "stop", func(*endpoint.Delivery) { closed <- other.Close() }))(t)
	must(ep.Post(t.Context(), "stop", endpoint.Text("x")))(t)
	check(t, "close", <-closed, nil)
	select {
	case <-other.Done():
	default:
		t.Error("closed, and not done")
	}
}
