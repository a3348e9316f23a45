package delivery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// populate makes n lives members of general, each with a position.
func (m *mesh) populate(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		l := lifecycle(fmt.Sprintf("a%05d", i))
		key := l.String() + "." + space.PatternKey("general")
		for subject, body := range map[string]string{
			wire.RecordPrefix(wire.MembersBucket(lab)) + key: `{"v":1,"pattern":"general","spans":[{"gen":1,"join":1}]}`,
			wire.RecordPrefix(wire.CursorsBucket(lab)) + key: fmt.Sprintf(`{"v":1,"floor":%d}`, i+1),
		} {
			if _, err := m.js.PublishAsync(subject, []byte(body), jetstream.WithStallWait(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-m.js.PublishAsyncComplete():
	case <-ctxFor(t).Done():
		t.Fatal("records were not stored in time")
	}
}

func (u *member) list(t testing.TB, in wire.MembershipsRequest) []wire.MemberInfo {
	t.Helper()
	var out []wire.MemberInfo
	for {
		page := ask[wire.MembershipsReply](t, u.Caller, wire.CommandMemberships, in)
		if in.Limit > 0 && len(page.Members) > in.Limit+2 {
			t.Fatalf("memberships %+v: %d on a page", in, len(page.Members))
		}
		out = append(out, page.Members...)
		if page.Next == "" {
			return out
		}
		if page.Next <= in.After {
			t.Fatalf("memberships %+v: next page after %q", in, page.Next)
		}
		in.After = page.Next
	}
}

func names(members []wire.MemberInfo) string {
	var out []string
	for _, m := range members {
		var patterns []string
		for _, d := range m.Durable {
			patterns = append(patterns, d.Pattern)
		}
		out = append(out, strings.TrimPrefix(m.Principal, "local.")+":"+strings.Join(patterns, "+"))
	}
	return strings.Join(out, " ")
}

func TestMembershipsShowWhatTheReadListCoversAndOnesOwn(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada, bob := m.participant(t, "ada", ">"), m.participant(t, "bob", "team.>", "general")
	l := lifecycle("carl")
	g, rev := m.grant(t, l, ">")
	carl := &member{m.caller(t, l), m, l}
	for u, patterns := range map[*member][]string{ada: {">", "general", "secret"}, bob: {"team.>"}, carl: {"secret.x", "team.a"}} {
		for _, p := range patterns {
			u.join(t, p)
		}
	}
	g.AllowSubscribe = []string{"general"}
	if _, err := m.grants.Update(ctxFor(t), g, rev); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who  *member
		in   wire.MembershipsRequest
		want string
	}{
		{ada, wire.MembershipsRequest{}, "ada:>+general+secret bob:team.> carl:secret.x+team.a"},
		{ada, wire.MembershipsRequest{Limit: 1}, "ada:>+general+secret bob:team.> carl:secret.x+team.a"},
		{bob, wire.MembershipsRequest{}, "ada:general bob:team.> carl:team.a"},
		{carl, wire.MembershipsRequest{}, "ada:general carl:secret.x+team.a"},
		{ada, wire.MembershipsRequest{Channel: "team.a"}, "ada:> bob:team.> carl:team.a"},
		{bob, wire.MembershipsRequest{Channel: "general"}, "ada:general"},
		{ada, wire.MembershipsRequest{Principal: "local.bob"}, "bob:team.>"},
		{bob, wire.MembershipsRequest{Principal: "local.carl", Channel: "secret.x"}, ""},
		{ada, wire.MembershipsRequest{After: "local.ada"}, "bob:team.> carl:secret.x+team.a"},
		{ada, wire.MembershipsRequest{After: "local.b"}, "bob:team.> carl:secret.x+team.a"},
	} {
		if got := names(c.who.list(t, c.in)); got != c.want {
			t.Errorf("memberships %+v as %s = %q, want %q", c.in, c.who.life.Actor, got, c.want)
		}
	}
	for _, bad := range []wire.MembershipsRequest{{Limit: -1}, {Limit: wire.MaxMembershipsPage + 1}, {Principal: "x"}, {Channel: "a.*"}} {
		_, err := try[wire.MembershipsReply](t, ada.Caller, wire.CommandMemberships, bad)
		refused(t, fmt.Sprintf("memberships %+v", bad), err, wire.ErrBadRequest)
	}
}

func TestMembershipsShowPositionsAndIntervals(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	m.burst(t, "general", 3, 10)
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 7, 10)
	only := wire.MembershipsRequest{Principal: "local.ada"}
	want := wire.DurableMembership{Pattern: "general", Generation: gen, Joined: 3, Floor: 3}
	if got := ada.list(t, only); len(got) != 1 || got[0].UID != ada.life.UID || !cmp.Equal(got[0].Durable, []wire.DurableMembership{want}) {
		t.Errorf("joined: %+v, want %+v", got, want)
	}
	ada.ack(t, "general", gen, 8)
	ada.leave(t, wire.LeaveRequest{Pattern: "general"})
	want.Floor, want.Left = 8, 10
	if got := ada.list(t, only); len(got) != 1 || !cmp.Equal(got[0].Durable, []wire.DurableMembership{want}) {
		t.Errorf("left: %+v, want %+v", got, want)
	}
}

func TestLivesOfOnePrincipalAreNeverApart(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	boss := m.participant(t, "boss", ">")
	for i := range 12 {
		l := wire.Lifecycle{Principal: lifecycle(fmt.Sprintf("a%d", i/3)).Principal, UID: wire.NewUID()}
		m.member(t, l, "general", 1, 0, 0)
	}
	for limit := range 5 {
		got := boss.list(t, wire.MembershipsRequest{Limit: limit})
		if len(got) != 12 || !slices.IsSortedFunc(got, func(a, b wire.MemberInfo) int { return strings.Compare(a.Principal, b.Principal) }) {
			t.Errorf("limit %d: %s", limit, names(got))
		}
	}
}

func TestLargeListingsComeInPages(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	boss := m.participant(t, "boss", ">")
	const total = 2500
	m.populate(t, total)
	got := boss.list(t, wire.MembershipsRequest{})
	if len(got) != total || got[total-1].Durable[0].Floor != total {
		t.Errorf("%d listed, the last %+v", len(got), got[len(got)-1])
	}
	long := strings.Repeat("x", 4000)
	for i := range 200 { // as the build before let one life store
		pattern := fmt.Sprintf("%s%d", long, i)
		subject := wire.RecordPrefix(wire.MembersBucket(lab)) + boss.life.String() + "." + space.PatternKey(pattern)
		if _, err := m.js.Publish(ctxFor(t), subject, fmt.Appendf(nil, `{"v":1,"pattern":%q,"spans":[{"join":1}]}`, pattern)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := try[wire.JoinReply](t, boss.Caller, wire.CommandJoin, wire.JoinRequest{Pattern: "one.more"})
	exhausted(t, "join by a life that has too much", err, wire.MaxMembershipBytes, "leave one first")
	if got := boss.list(t, wire.MembershipsRequest{Principal: "local.boss"}); len(got) != 1 || len(got[0].Durable) < 50 {
		t.Errorf("memberships with long patterns: %d", len(got))
	}
}

func TestListingFollowsEveryChange(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada, bob := m.participant(t, "ada", ">"), m.participant(t, "bob", ">")
	l := delivery.NewListing(m.js, lab)
	see := func(what, want string) {
		t.Helper()
		all, err := l.All(ctxFor(t))
		if got := names(all); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", what, got, err, want)
		}
	}
	see("nobody", "")
	gen := ada.join(t, "general").Generation
	bob.join(t, "general")
	ada.join(t, "team.>")
	see("joined", "ada:general+team.> bob:general")
	m.burst(t, "general", 5, 10)
	ada.ack(t, "general", gen, 4)
	all, err := l.All(ctxFor(t))
	if err != nil || len(all) != 2 || all[0].Durable[0].Floor != 4 || all[1].Durable[0].Floor != 0 {
		t.Errorf("after an ack: %+v, %v", all, err)
	}
	bob.leave(t, wire.LeaveRequest{Pattern: "general"})
	if all, err = l.All(ctxFor(t)); err != nil || all[1].Durable[0].Left != 5 {
		t.Errorf("after leaving: %+v, %v", all, err)
	}
	bob.leave(t, wire.LeaveRequest{Pattern: "general", Discard: true})
	see("forgotten", "ada:general+team.>")
	// One goes as another comes: the number is the same.
	ada.leave(t, wire.LeaveRequest{Pattern: "team.>", Discard: true})
	bob.join(t, "other")
	see("one for another", "ada:general bob:other")
}
