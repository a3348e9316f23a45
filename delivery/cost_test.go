package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/wire"
)

// What a watcher of the roster is sent in a minute does not depend on how many members beat: their heartbeats, and the
// connections that come and go around them, cost it nothing.
func TestRosterTrafficOfAWatcherIsIndependentOfHeartbeats(t *testing.T) {
	measure := func(members int) (bytes, messages uint64) {
		watchedMembers(t, members, func(t *testing.T, m *mesh, beat func()) {
			nc := dial(t, m.srv)
			filter, err := wire.EventFilter(lab, wire.DeliveryEndpoint, wire.TopicRoster)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := nc.Subscribe(filter, func(*nats.Msg) {}); err != nil {
				t.Fatal(err)
			}
			if err := nc.FlushWithContext(ctxFor(t)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // between two signs of life
			before := nc.Stats()
			for range int(time.Minute / wire.HeartbeatInterval) {
				beat()
				time.Sleep(wire.HeartbeatInterval)
			}
			after := nc.Stats()
			bytes, messages = after.InBytes-before.InBytes, after.InMsgs-before.InMsgs
		})
		return bytes, messages
	}
	few, fewMessages := measure(10)
	many, manyMessages := measure(200)
	t.Logf("a watcher is sent %d bytes in %d messages a minute beside 10 members, %d in %d beside 200", few, fewMessages, many, manyMessages)
	if few == 0 || few != many || fewMessages != manyMessages {
		t.Errorf("bytes to a watcher in a minute = %d beside 10 members and %d beside 200, want the same", few, many)
	}
}

// watchedMembers runs fn in fake time with members who are there already.
func watchedMembers(t *testing.T, members int, fn func(t *testing.T, m *mesh, beat func())) {
	t.Helper()
	bubble(t, func(t *testing.T, m *mesh) {
		s := newSwitchboard()
		lives := make([]wire.Lifecycle, members)
		for i := range lives {
			lives[i] = lifecycle(fmt.Sprintf("a%03d", i))
			s.connect(lives[i])
		}
		beat := func() {
			for _, l := range lives {
				m.beat(t, l, wire.StatusWorking, "reading the tests")
			}
			s.end(s.connect(lives[0])) // one of them renews
			m.flush(t)
		}
		beat()
		m.serve(t, &delivery.Options{Broker: s, Instance: "one"})
		fn(t, m, beat)
	})
}
