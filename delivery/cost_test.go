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

// What a reach and a receipt of a channel ask of the broker does not grow with its members.
func TestChannelAudienceCostsTheBrokerTheSameForAnyNumber(t *testing.T) {
	t.Parallel()
	measure := func(members int) (requests uint64) {
		m := newMesh(t)
		nc := dial(t, m.srv)
		m.serveOn(t, nc, nil)
		ada := m.members(t, "ada")["ada"]
		m.class(t, "team", wire.ClassDurable)
		msg := message(ada.Principal, "team", "hello")
		m.send(t, ada.Principal, msg)
		for i := range members {
			l := lifecycle(fmt.Sprintf("m%03d", i))
			m.grantAs(t, l, nil)
			m.member(t, l, "team", 0, 0, 0)
		}
		c := m.caller(t, ada)
		both := func() {
			if r := ask[wire.ReachReply](t, c, wire.CommandReach, wire.ReachRequest{Channel: "team"}); r.Stored != members {
				t.Errorf("reach = %+v, want %d stored", r, members)
			}
			r := ask[wire.ReceiptReply](t, c, wire.CommandReceipt, wire.ReceiptRequest{ID: msg.ID, Kind: "channel", Sequence: 1})
			if len(r.Recipients) != members || r.Recipients[0].Reason != "offline" {
				t.Errorf("receipt = %d recipients, want %d that are offline", len(r.Recipients), members)
			}
		}
		both() // reads what it follows from then on
		before := nc.Stats()
		for range 10 {
			both()
		}
		return (nc.Stats().OutMsgs - before.OutMsgs) / 10
	}
	few, many := measure(5), measure(300)
	t.Logf("a reach and a receipt send the broker %d messages with 5 members, %d with 300", few, many)
	if many > few+5 {
		t.Errorf("messages = %d with 5 members, %d with 300, want about the same", few, many)
	}
}
