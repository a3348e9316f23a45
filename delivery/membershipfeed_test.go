package delivery_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// joins follows the membership feed: changes are what it has told since it was last asked, but for the signs of life.
type joins struct {
	m    *mesh
	sub  *nats.Subscription
	ch   chan *nats.Msg
	last wire.MembershipEvent // the last one that was a sign of life
}

func (m *mesh) joins(t testing.TB) *joins {
	t.Helper()
	filter, err := wire.EventFilter(lab, wire.DeliveryEndpoint, wire.TopicMembership)
	if err != nil {
		t.Fatal(err)
	}
	j := &joins{m: m, ch: make(chan *nats.Msg, 1<<12)}
	if j.sub, err = m.nc.ChanSubscribe(filter, j.ch); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.sub.Unsubscribe() })
	m.flush(t)
	return j
}

func (j *joins) changes(t testing.TB) []string {
	t.Helper()
	j.m.flush(t)
	var out []string
	for range len(j.ch) {
		var e wire.MembershipEvent
		if err := json.Unmarshal((<-j.ch).Data, &e); err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case wire.RosterAlive:
			j.last = e
		case wire.RosterChange:
			out = append(out, fmt.Sprintf("%d %s", e.Sequence, shortInfo(*e.Member)))
		default:
			out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Sequence, e.Kind, e.Principal)))
		}
	}
	return out
}

func shortInfo(m wire.MemberInfo) string {
	var durable []string
	for _, d := range m.Durable {
		durable = append(durable, fmt.Sprintf("%s/%d", d.Pattern, d.Left))
	}
	return fmt.Sprintf("%s live %v durable %v", m.Principal, m.Live, durable)
}

func (j *joins) want(t testing.TB, what string, want ...string) {
	t.Helper()
	if got := j.changes(t); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func live(t testing.TB, pattern string) string {
	t.Helper()
	s, err := wire.LiveFilter(lab, pattern)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const settled = 1500 * time.Millisecond // a change is told by then

func TestMembershipFeedTellsChangesOnly(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		members := space.NewMembers(m.js, lab)
		ada, bob := lifecycle("ada"), lifecycle("bob")
		s.connect(ada, live(t, "general"), live(t, "team.>"), live(t, "team.>"), "_INBOX_x.>")
		s.connectAs(trust.Delivery, lifecycle("delivery"), "cotal.lab.live.>")
		j := m.joins(t)
		time.Sleep(2 * delivery.AliveInterval)
		j.want(t, "what was there before") // is in the snapshot, not in the feed

		id := s.connect(bob, live(t, "*"), "cotal.lab.live.>")
		time.Sleep(settled)
		j.want(t, "a connection", "1 local.bob live [* >] durable []")
		rev, err := members.Put(ctxFor(t), space.Membership{Lifecycle: bob, Pattern: "team.*", Spans: []space.Span{{Join: 4}}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(settled)
		j.want(t, "a join", "2 local.bob live [* >] durable [team.*/0]")
		s.end(id)
		time.Sleep(settled)
		j.want(t, "the end of the connection", "3 local.bob live [] durable [team.*/0]")
		if _, err = members.Put(ctxFor(t), space.Membership{Lifecycle: bob, Pattern: "team.*", Spans: []space.Span{{Generation: rev, Join: 4, Leave: 9}}}, rev); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settled)
		j.want(t, "a leave", "4 local.bob live [] durable [team.*/9]")
		m.grant(t, bob, "team.>")
		ask[wire.LeaveReply](t, m.caller(t, bob), wire.CommandLeave, wire.LeaveRequest{Pattern: "team.*", Discard: true})
		time.Sleep(settled)
		j.want(t, "all of it given up", "5 remove local.bob")

		// A subscription tells nobody: it shows within the slow interval.
		s.set(func() {
			for id, c := range s.there {
				if c.Lifecycle == ada {
					c.Subscriptions = append(c.Subscriptions, live(t, "new"))
					s.there[id] = c
				}
			}
		})
		time.Sleep(11 * time.Second)
		j.want(t, "a subscription", "6 local.ada live [general new team.>] durable []")
		time.Sleep(time.Minute)
		j.want(t, "a quiet minute")
		if j.last.Sequence != 6 || j.last.StaleSince != 0 {
			t.Errorf("sign of life = %+v, want sequence 6 and not stale", j.last)
		}
	})
}

func TestMembershipsAreReadOnlyForWhoWantsToKnow(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		ada := lifecycle("ada")
		m.grant(t, ada, ">")
		time.Sleep(10 * time.Minute)
		for range 20 {
			s.end(s.connect(lifecycle("x"), live(t, "general")))
			time.Sleep(time.Second)
		}
		if _, subs := s.count(); subs != 0 {
			t.Errorf("%d listings of subscriptions while nobody wants to know", subs)
		}
		s.connect(ada, live(t, "general"))
		c := m.caller(t, ada)
		for _, want := range []string{"general", "other"} {
			s.connect(ada, live(t, want))
			time.Sleep(2 * time.Second)
			got := ask[wire.MembershipsReply](t, c, wire.CommandMemberships, nil)
			if len(got.Members) != 1 || !slices.Contains(got.Members[0].Live, want) || time.Since(time.UnixMilli(got.LiveAt)) > 2*time.Second {
				t.Errorf("memberships = %+v as of %s, want ada on %q now", got.Members, time.UnixMilli(got.LiveAt), want)
			}
		}
		_, before := s.count()
		time.Sleep(30 * time.Second)
		if _, subs := s.count(); subs-before < 2 || subs-before > 4 {
			t.Errorf("%d listings in half a minute after somebody asked, want about 3", subs-before)
		}
		time.Sleep(time.Minute)
		_, before = s.count()
		time.Sleep(10 * time.Minute)
		if _, subs := s.count(); subs != before {
			t.Errorf("%d listings although nobody has asked for a while", subs-before)
		}
		// A follower keeps it going for as long as it follows.
		j := m.joins(t)
		time.Sleep(5 * time.Minute)
		if _, subs := s.count(); subs-before < 25 || subs-before > 40 {
			t.Errorf("%d listings in five minutes with a follower, want about 30", subs-before)
		}
		if err := j.sub.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		_, before = s.count()
		time.Sleep(10 * time.Minute)
		if _, subs := s.count(); subs != before {
			t.Errorf("%d listings although nobody follows any more", subs-before)
		}
	})
}

// A change between a snapshot and the next event is told, also when the snapshot is what woke the feed.
func TestMembershipFeedGoesOnFromASnapshot(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		ada := lifecycle("ada")
		m.grant(t, ada, ">")
		id := s.connect(ada, live(t, "general"))
		time.Sleep(time.Hour)
		j := m.joins(t)
		got := ask[wire.MembershipsReply](t, m.caller(t, ada), wire.CommandMemberships, nil)
		if len(got.Members) != 1 {
			t.Fatalf("memberships = %+v, want ada", got)
		}
		s.end(id)
		time.Sleep(settled)
		j.want(t, "right after the snapshot", "1 remove local.ada")
	})
}

func TestMembershipFeedSaysThatItIsStale(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		j := m.joins(t)
		time.Sleep(2 * delivery.AliveInterval)
		s.set(func() { s.broken = errBroken })
		broke := time.Now()
		time.Sleep(30 * time.Second)
		j.want(t, "while it cannot see")
		if since := time.UnixMilli(j.last.StaleSince); j.last.StaleSince == 0 || since.Before(broke) || since.After(broke.Add(12*time.Second)) {
			t.Errorf("stale since %s, the view broke at %s", since, broke)
		}
		s.set(func() { s.broken = nil })
		time.Sleep(20 * time.Second)
		j.want(t, "when it sees again")
		equal(t, "stale", j.last.StaleSince, 0)
	})
}

// Without a view of the connections the durable part is told all the same, and an instance that stops says so.
func TestMembershipFeedWithoutConnections(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		stop := m.serve(t, nil)
		j := m.joins(t)
		time.Sleep(2 * delivery.AliveInterval)
		bob := lifecycle("bob")
		if _, err := space.NewMembers(m.js, lab).Put(ctxFor(t), space.Membership{Lifecycle: bob, Pattern: "general", Spans: []space.Span{{Join: 1}}}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settled)
		j.want(t, "a join", "1 local.bob live [] durable [general/0]")
		stop()
		j.want(t, "the end", "1 end")
	})
}

// Of two lives of a principal the one that listens is told.
func TestMembershipFeedTellsThePresentLife(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		j := m.joins(t)
		time.Sleep(2 * delivery.AliveInterval)
		old, fresh := lifecycle("ada"), lifecycle("ada")
		members := space.NewMembers(m.js, lab)
		if _, err := members.Put(ctxFor(t), space.Membership{Lifecycle: old, Pattern: "old", Spans: []space.Span{{Join: 1}}}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settled)
		j.want(t, "one life", "1 local.ada live [] durable [old/0]")
		s.connect(fresh, live(t, "new"))
		time.Sleep(settled)
		j.want(t, "the next", "2 local.ada live [new] durable []")
	})
}
