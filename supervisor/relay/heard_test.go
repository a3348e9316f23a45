package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// TestManagerStartedAgain: a viewer that comes back to a manager which does not know the session learns that at once, and not by silence.
// One that was away for a moment is waited for.
func TestManagerStartedAgain(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, nil)
		ada, link := w.viewer(t, "ada")
		s := newStage(80, 24)
		v := open(t, ada, w.offer(t, ada, s, true, 80, 24), nil)
		w.relay.RemoveConn(w.nc)
		link.cut(false)
		var ev endpoint.SessionEvent
		var err error
		for err == nil && ev.Kind != endpoint.SessionLost {
			ev, err = v.Next(t.Context())
		}
		time.Sleep(time.Second) // the viewer is back, and nobody hears it
		if err := w.relay.AddConn(t.Context(), w.nc); err != nil {
			t.Fatal(err)
		}
		s.write("still here")
		var g glass
		g.until(t, v, "output", func() bool { return strings.Contains(g.String(), "still here") })

		w.nc.Close() // as if the supervisor were killed
		cut := time.Now()
		link.cut(false)
		for err == nil {
			_, err = v.Next(t.Context())
		}
		if took := time.Since(cut); wire.CodeOf(err) != wire.CodeUnavailable || took > 3*time.Second {
			t.Errorf("after the manager was gone: %v, after %s", err, took)
		}
	})
}
