package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// switchboard is the connections of a space as a test has them.
type switchboard struct {
	mu     sync.Mutex // guards those below
	there  map[string]delivery.Connection
	tell   func(delivery.ConnectionChange) // nil while nobody follows
	broken error                           // of List
	lists  int
	subs   int           // listings with subscriptions
	during func()        // called while a listing is under way, after it was made
	refuse chan struct{} // closed when following is to fail
	next   int           // connection number
}

func newSwitchboard() *switchboard {
	return &switchboard{there: map[string]delivery.Connection{}, refuse: make(chan struct{})}
}

var errBroken = errors.New("the way is cut")

func (s *switchboard) Follow(ctx context.Context, fn func(delivery.ConnectionChange)) error {
	s.mu.Lock()
	s.tell = fn
	refuse := s.refuse
	s.mu.Unlock()
	fn(delivery.ConnectionChange{Missed: true})
	select {
	case <-ctx.Done():
		return nil
	case <-refuse:
		return errBroken
	}
}

func (s *switchboard) List(_ context.Context, subscriptions bool) ([]delivery.Connection, error) {
	s.mu.Lock()
	if subscriptions {
		s.subs++
	} else {
		s.lists++
	}
	var out []delivery.Connection
	for _, c := range s.there {
		if !subscriptions {
			c.Subscriptions = nil
		}
		out = append(out, c)
	}
	err, during := s.broken, s.during
	s.during = nil
	s.mu.Unlock()
	if during != nil {
		during()
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// connect adds a connection and returns its id.
func (s *switchboard) connect(l wire.Lifecycle, subscriptions ...string) string {
	return s.connectAs(trust.Agent, l, subscriptions...)
}

func (s *switchboard) connectAs(p trust.Profile, l wire.Lifecycle, subscriptions ...string) string {
	s.mu.Lock()
	s.next++
	c := delivery.Connection{ID: fmt.Sprint("c", s.next), Profile: p, Lifecycle: l, Subscriptions: subscriptions}
	s.there[c.ID] = c
	tell := s.tell
	s.mu.Unlock()
	c.Subscriptions = nil
	if tell != nil {
		tell(delivery.ConnectionChange{Connected: true, Connection: c})
	}
	return c.ID
}

func (s *switchboard) end(id string) { s.ends(id, false, true) }

// ends ends a connection; its server may be moving its clients, and the listing may still have it.
func (s *switchboard) ends(id string, moving, unlisted bool) {
	s.mu.Lock()
	c := s.there[id]
	if unlisted {
		delete(s.there, id)
	}
	tell := s.tell
	s.mu.Unlock()
	c.Subscriptions = nil
	if tell != nil {
		tell(delivery.ConnectionChange{Moving: moving, Connection: c})
	}
}

func (s *switchboard) missed() {
	s.mu.Lock()
	tell := s.tell
	s.mu.Unlock()
	tell(delivery.ConnectionChange{Missed: true})
}

func (s *switchboard) set(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

func (s *switchboard) count() (lists, subs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.subs
}

// state is how the roster lists a principal.
func (m *mesh) state(t testing.TB, actor string) string {
	t.Helper()
	for _, e := range ask[wire.RosterReply](t, m.caller(t, lifecycle("judge")), wire.CommandRoster, nil).Entries {
		if e.Principal == "local."+actor {
			return string(e.Presence.Status) + " " + e.Gone
		}
	}
	return ""
}

// watched runs fn in fake time with a delivery that sees the connections of a switchboard.
func watched(t *testing.T, fn func(t *testing.T, m *mesh, s *switchboard)) {
	t.Helper()
	bubble(t, func(t *testing.T, m *mesh) {
		s := newSwitchboard()
		m.serve(t, &delivery.Options{Broker: s})
		fn(t, m, s)
	})
}

const (
	there    = "working "
	departed = "offline " + wire.GoneDisconnected
)

func TestWhoseLastConnectionEndsIsOfflineAtOnce(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		events, _ := m.listen(t)
		ada, bob := lifecycle("ada"), lifecycle("bob")
		c := s.connect(ada)
		s.connect(bob)
		m.beat(t, ada, wire.StatusWorking, "busy")
		m.beat(t, bob, wire.StatusWorking, "")
		time.Sleep(300 * time.Millisecond)
		events()
		s.end(c)
		time.Sleep(200 * time.Millisecond)
		equal(t, "ada", m.state(t, "ada"), departed)
		equal(t, "bob", m.state(t, "bob"), there)
		got := events()
		if len(got) != 1 || got[0].Entry.Principal != "local.ada" || got[0].Entry.Gone != wire.GoneDisconnected || got[0].Entry.Presence.Activity != "busy" {
			t.Errorf("events = %+v, want one that says that ada is disconnected", got)
		}
		if lists, _ := s.count(); lists != 1 {
			t.Errorf("%d listings for one end, want 1", lists)
		}
		// It stays so although its record lives on in the bucket.
		for range 8 {
			m.beat(t, bob, wire.StatusWorking, "")
			time.Sleep(time.Second)
			equal(t, "ada later", m.state(t, "ada"), departed)
		}
		equal(t, "events of what is over", len(events()), 0)
	})
}

func TestWhoRenewsDoesNotFlap(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		events, _ := m.listen(t)
		ada := lifecycle("ada")
		c := s.connect(ada)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(time.Second)
		for range 20 { // the next connection before the one before ends, as in a renewal
			next := s.connect(ada)
			time.Sleep(10 * time.Millisecond)
			s.end(c)
			c = next
			m.beat(t, ada, wire.StatusWorking, "")
			time.Sleep(time.Second)
		}
		for range 20 { // and the other way round, as after a broken connection
			s.end(c)
			time.Sleep(100 * time.Millisecond)
			c = s.connect(ada)
			m.beat(t, ada, wire.StatusWorking, "")
			time.Sleep(time.Second)
		}
		if got := events(); len(got) != 1 {
			t.Errorf("events = %+v, want the first alone", got)
		}
	})
}

func TestHeartbeatsUnderWayReviveNobody(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		events, _ := m.listen(t)
		ada := lifecycle("ada")
		c := s.connect(ada)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(time.Second)
		s.end(c)
		m.beat(t, ada, wire.StatusWorking, "before the end is known")
		time.Sleep(300 * time.Millisecond)
		equal(t, "after one on its way", m.state(t, "ada"), departed)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(300 * time.Millisecond)
		equal(t, "after a late one", m.state(t, "ada"), departed)
		events()
		// A return counts at once: its connection is told of before, or after, its first heartbeat.
		for _, connectFirst := range []bool{true, false} {
			if connectFirst {
				c = s.connect(ada)
			}
			m.beat(t, ada, wire.StatusWorking, "")
			if !connectFirst {
				m.flush(t)
				time.Sleep(time.Millisecond)
				c = s.connect(ada)
			}
			time.Sleep(300 * time.Millisecond)
			equal(t, fmt.Sprintf("back, connection told first: %v", connectFirst), m.state(t, "ada"), there)
			s.end(c)
			time.Sleep(300 * time.Millisecond)
			equal(t, "gone again", m.state(t, "ada"), departed)
		}
		if got := events(); len(got) != 4 {
			t.Errorf("events of two returns = %d, want 4: %+v", len(got), got)
		}
		// And one whose connection nobody told of, with its next heartbeat.
		s.set(func() { s.tell = nil })
		s.connect(ada)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(wire.HeartbeatInterval)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(300 * time.Millisecond)
		equal(t, "back unnoticed", m.state(t, "ada"), there)
	})
}

// Who connects between the listing and the judgement is not in the listing, and there all the same.
func TestWhoComesDuringTheListingStays(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		events, _ := m.listen(t)
		ada := lifecycle("ada")
		c := s.connect(ada)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(time.Second)
		s.set(func() {
			s.during = func() {
				s.connect(ada)
				m.beat(t, ada, wire.StatusWorking, "")
			}
		})
		s.end(c)
		time.Sleep(2 * time.Second)
		equal(t, "ada", m.state(t, "ada"), there)
		if got := events(); len(got) != 1 {
			t.Errorf("events = %+v, want the first alone", got)
		}
		if lists, _ := s.count(); lists != 2 {
			t.Errorf("%d listings, want a second one after the first was too early", lists)
		}
	})
}

func TestThousandThatDisconnectAreOneListing(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		events, _ := m.listen(t)
		const members = 1000
		var ids []string
		for i := range members {
			l := lifecycle(fmt.Sprintf("a%04d", i))
			ids = append(ids, s.connect(l))
			m.beat(t, l, wire.StatusWorking, "")
		}
		time.Sleep(time.Second)
		equal(t, "joins", len(events()), members)
		for i, id := range ids {
			s.end(id)
			if i%100 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		got := events()
		for _, e := range got {
			if e.Entry.Gone != wire.GoneDisconnected {
				t.Errorf("%s is %q", e.Entry.Principal, e.Entry.Gone)
			}
		}
		equal(t, "events", len(got), members)
		if lists, _ := s.count(); lists != 1 {
			t.Errorf("%d listings, want 1", lists)
		}
	})
}

// Connections that go on ending do not put off the listing.
func TestListingIsNotPutOff(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		ada := lifecycle("ada")
		c := s.connect(ada)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(time.Second)
		s.end(c)
		for i := range 100 { // a second of strangers
			s.end(s.connect(lifecycle(fmt.Sprint("stranger", i))))
			time.Sleep(10 * time.Millisecond)
			if i == 60 {
				equal(t, "ada after 600 ms", m.state(t, "ada"), departed)
			}
		}
		if lists, _ := s.count(); lists != 1 {
			t.Errorf("%d listings, want 1: a stranger's end asks for none", lists)
		}
	})
}

func TestNobodyIsOfflineWithoutProof(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *switchboard, ada wire.Lifecycle, id string)
		want string // right after
	}{
		{"the listing fails", func(s *switchboard, _ wire.Lifecycle, id string) {
			s.set(func() { s.broken = errBroken })
			s.end(id)
		}, there},
		{"notices are missed before the listing", func(s *switchboard, _ wire.Lifecycle, id string) {
			s.end(id)
			s.missed()
		}, there},
		{"notices are missed during the listing", func(s *switchboard, _ wire.Lifecycle, id string) {
			s.set(func() { s.during = s.missed })
			s.end(id)
		}, there},
		{"the server is moving its clients", func(s *switchboard, _ wire.Lifecycle, id string) { s.ends(id, true, true) }, there},
		{"another connection is left", func(s *switchboard, ada wire.Lifecycle, id string) {
			s.connect(ada)
			s.end(id)
		}, there},
		{"the end of an earlier life", func(s *switchboard, _ wire.Lifecycle, _ string) { s.end(s.connect(lifecycle("ada"))) }, there},
		{"the listing still has the one that ended", func(s *switchboard, _ wire.Lifecycle, id string) { s.ends(id, false, false) }, departed},
	} {
		t.Run(c.name, func(t *testing.T) {
			watched(t, func(t *testing.T, m *mesh, s *switchboard) {
				ada := lifecycle("ada")
				id := s.connect(ada)
				m.beat(t, ada, wire.StatusWorking, "")
				time.Sleep(time.Second)
				c.do(s, ada, id)
				time.Sleep(time.Second)
				equal(t, "right after", m.state(t, "ada"), c.want)
				if c.want == there { // heartbeats keep whoever sends them, and silence tells in the end
					for range 5 {
						m.beat(t, ada, wire.StatusWorking, "")
						time.Sleep(wire.HeartbeatInterval)
						equal(t, "with heartbeats", m.state(t, "ada"), there)
					}
					time.Sleep(wire.LivenessWindow + 2*time.Second)
					equal(t, "after silence", m.state(t, "ada"), "offline "+wire.GoneSilent)
				}
			})
		})
	}
}

// A listing that failed for a moment is made again.
func TestListingIsTriedAgain(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		ada := lifecycle("ada")
		id := s.connect(ada)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(time.Second)
		s.set(func() { s.broken = errBroken })
		s.end(id)
		time.Sleep(600 * time.Millisecond)
		equal(t, "while it fails", m.state(t, "ada"), there)
		s.set(func() { s.broken = nil })
		time.Sleep(600 * time.Millisecond)
		equal(t, "after it went well", m.state(t, "ada"), departed)
	})
}

// When connections can no longer be followed, heartbeats tell, and following is tried again.
func TestFollowingIsTakenUpAgain(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		ada := lifecycle("ada")
		id := s.connect(ada)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(time.Second)
		s.set(func() {
			refuse := s.refuse
			s.refuse, s.tell = make(chan struct{}), nil
			close(refuse)
		})
		time.Sleep(3 * time.Second)
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(100 * time.Millisecond)
		s.end(id)
		time.Sleep(300 * time.Millisecond)
		equal(t, "ada", m.state(t, "ada"), departed)
	})
}

// A delivery that is itself cut off calls nobody offline, also when it is told of ends meanwhile.
func TestCutOffDeliveryCallsNobodyDisconnected(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		cut := &cutter{srv: m.srv}
		s := newSwitchboard()
		m.serveOn(t, dialVia(t, cut), &delivery.Options{Broker: s, Instance: "cut"})
		m.serve(t, &delivery.Options{Instance: "whole"})
		ada := lifecycle("ada")
		id := s.connect(ada)
		own := s.connectAs(trust.Delivery, lifecycle("delivery"))
		m.beat(t, ada, wire.StatusWorking, "")
		time.Sleep(time.Second)
		events, _ := m.listen(t)
		cut.off()
		s.end(own)
		s.end(id)
		s.connect(ada)
		for range 10 {
			m.beat(t, ada, wire.StatusWorking, "")
			time.Sleep(wire.HeartbeatInterval)
		}
		cut.on()
		for range 10 {
			m.beat(t, ada, wire.StatusWorking, "")
			time.Sleep(wire.HeartbeatInterval)
		}
		for _, e := range events() {
			if e.Kind == wire.RosterChange && e.Entry.Gone != "" {
				t.Errorf("event %+v, want nobody gone", e)
			}
		}
	})
}

// A replacement under the same name is another life: it is there at once, and the end of the one before does not touch it.
func TestReplacementIsThereAtOnce(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		old, fresh := lifecycle("ada"), lifecycle("ada")
		id := s.connect(old)
		m.beat(t, old, wire.StatusWorking, "busy")
		time.Sleep(time.Second)
		s.end(id)
		time.Sleep(300 * time.Millisecond)
		equal(t, "old", m.state(t, "ada"), departed)
		s.connect(fresh)
		m.beat(t, fresh, wire.StatusWorking, "fresh")
		time.Sleep(300 * time.Millisecond)
		equal(t, "fresh", m.state(t, "ada"), there)
		reply := ask[wire.RosterReply](t, m.caller(t, lifecycle("judge")), wire.CommandRoster, nil)
		i := slices.IndexFunc(reply.Entries, func(e wire.RosterEntry) bool { return e.Principal == "local.ada" })
		if got := reply.Entries[i].Presence; got.LifecycleUID != fresh.UID || got.Activity != "fresh" {
			t.Errorf("presence = %+v, want that of the replacement", got)
		}
	})
}

// dialVia connects over a way that can be cut.
func dialVia(t testing.TB, way nats.InProcessConnProvider) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect("", nats.InProcessServer(way), nats.ClosedHandler(func(*nats.Conn) { close(closed) }), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); <-closed })
	return nc
}
