package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// mention stores a message that mentions names and returns its sequence.
func (m *mesh) mention(t testing.TB, from wire.Lifecycle, channel string, names ...string) uint64 {
	t.Helper()
	msg := message(from.Principal, channel, "please look")
	msg.Mentions = names
	return m.store(t, from.Principal, channel, encode(t, msg))
}

// pointers are the pointers that are stored for a lifecycle.
func (m *mesh) pointers(t testing.TB, l wire.Lifecycle) []wire.MentionPointer {
	t.Helper()
	subject, err := wire.MentionRecord(lab, l)
	if err != nil {
		t.Fatal(err)
	}
	var out []wire.MentionPointer
	err = space.Scan(ctxFor(t), m.js, wire.MentionStream(lab), subject, func(s *space.Stored) error {
		p, err := wire.DecodeMentionPointer(s.Data)
		if err != nil {
			return err
		}
		out = append(out, *p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pointed are the sequences of the messages that pointers of a lifecycle are to.
func (m *mesh) pointed(t testing.TB, l wire.Lifecycle) []uint64 {
	t.Helper()
	out := []uint64{}
	for _, p := range m.pointers(t, l) {
		out = append(out, p.Sequence)
	}
	return out
}

// awaitPointer returns a function that waits for the next pointer of a lifecycle, as its republished copy tells.
func (m *mesh) awaitPointer(t testing.TB, l wire.Lifecycle) func() uint64 {
	t.Helper()
	subject, err := wire.MentionSubject(lab, l)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := m.nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	m.flush(t)
	return func() uint64 {
		t.Helper()
		msg, err := sub.NextMsgWithContext(ctxFor(t))
		if err != nil {
			t.Fatalf("no pointer for %q: %v", l.Principal, err)
		}
		p, err := wire.DecodeMentionPointer(msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		return p.Sequence
	}
}

// settle waits until every mention that was stored before is served: they are served in order, and this is the last one.
func (m *mesh) settle(t testing.TB, from wire.Lifecycle) {
	t.Helper()
	fence := lifecycle("fence" + strings.ToLower(string(wire.NewUID())))
	m.grant(t, fence, "fence")
	wait := m.awaitPointer(t, fence)
	seq := m.mention(t, from, "fence", fence.Actor)
	equal(t, "pointer of the fence", wait(), seq)
}

func TestMentionOfAPeerThatIsNotThere(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, bob, carol := lifecycle("ada"), lifecycle("bob"), lifecycle("Carol")
	m.grant(t, ada, "general")
	m.grant(t, bob, "team.*")
	m.grant(t, carol, ">")
	wait := m.awaitPointer(t, carol)
	first := m.mention(t, ada, "team.a", "bob", "local.carol", "bob", "local.bob")
	equal(t, "pointer of carol", wait(), first)
	second := m.mention(t, ada, "team.a", "carol")
	equal(t, "pointer of carol", wait(), second)
	m.settle(t, ada)
	want := []wire.MentionPointer{{V: 1, Channel: "team.a", Sequence: first, Sender: "local.ada"}}
	if got := m.pointers(t, bob); !slices.Equal(got, want) {
		t.Errorf("pointers of bob = %+v, want %+v", got, want)
	}
	if got := m.pointed(t, carol); !slices.Equal(got, []uint64{first, second}) {
		t.Errorf("pointers of carol to %d, want to %d and %d", got, first, second)
	}
}

func TestMentionOfWhoMayNotHaveIt(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, eve, dan, dan2, gone := lifecycle("ada"), lifecycle("eve"), lifecycle("dan"), other("dan"), lifecycle("gone")
	m.grant(t, ada, ">")
	m.grant(t, eve, "general", "team.b")
	m.grant(t, dan, ">")
	m.grant(t, dan2, ">")
	grant, rev := m.grant(t, gone, ">")
	m.mention(t, ada, "team.a", "eve", "dan", "ada", "local.ada", "nobody", "gone", "zoë's twin", "eve ")
	m.settle(t, ada)
	for _, l := range []wire.Lifecycle{ada, eve, dan, dan2} {
		if got := m.pointed(t, l); len(got) != 0 {
			t.Errorf("%q has pointers to %d", l.Principal, got)
		}
	}
	equal(t, "pointers of gone before its end", len(m.pointed(t, gone)), 1)
	grant.State = trust.GrantRetired
	if _, err := m.grants.Update(ctxFor(t), grant, rev); err != nil {
		t.Fatal(err)
	}
	grant, _, err := m.grants.Get(ctxFor(t), eve.Principal)
	if err != nil {
		t.Fatal(err)
	}
	seq := m.mention(t, ada, "team.b", "gone", "eve", "local.dan", "u_abcdefghijklmnopqrstuvwxyz.dan")
	m.settle(t, ada)
	equal(t, "pointers of gone after its end", len(m.pointed(t, gone)), 1)
	for _, l := range []wire.Lifecycle{eve, dan, dan2} {
		if got := m.pointed(t, l); !slices.Equal(got, []uint64{seq}) {
			t.Errorf("%q has pointers to %d, want to %d", l.Principal, got, seq)
		}
	}
}

// Somebody who is granted and mentioned right after is known, and a reused name is its new holder.
func TestMentionOfWhoJustCame(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	for i := range 20 {
		l := lifecycle(fmt.Sprintf("new%d", i))
		wait := m.awaitPointer(t, l)
		g, rev := m.grant(t, l, "general")
		seq := m.mention(t, ada, "general", l.Actor)
		equal(t, "pointer", wait(), seq)
		again := l
		again.UID = wire.NewUID()
		g.UID, g.Epoch = again.UID, 2
		wait = m.awaitPointer(t, again)
		if _, err := m.grants.Update(ctxFor(t), g, rev); err != nil {
			t.Fatal(err)
		}
		seq = m.mention(t, ada, "general", l.Actor)
		equal(t, "pointer of the next life", wait(), seq)
		equal(t, "pointers of the life before", len(m.pointed(t, l)), 1)
	}
}

// What peers call themselves decides nothing.
func TestMentionOfADisplayName(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, eve := lifecycle("ada"), lifecycle("eve")
	m.grant(t, ada, ">")
	m.grant(t, eve, ">")
	rec := presence(eve, wire.StatusIdle, "")
	rec.Card.Name = "boss"
	subject, err := wire.PresenceSubject(lab, eve.Principal)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.nc.Publish(subject, encodePresence(t, rec)); err != nil {
		t.Fatal(err)
	}
	m.flush(t)
	m.mention(t, ada, "general", "boss")
	m.settle(t, ada)
	equal(t, "pointers of eve", len(m.pointed(t, eve)), 0)
}

// A durable member gets the message anyway, as long as the channel is durable.
func TestMentionOfADurableMember(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, bob, carol := lifecycle("ada"), lifecycle("bob"), lifecycle("carol")
	m.grant(t, ada, ">")
	m.grant(t, bob, ">")
	m.grant(t, carol, ">")
	channels := space.NewChannels(m.js, lab)
	for name, class := range map[string]wire.DeliveryClass{"team.d": wire.ClassDurable, "team.l": wire.ClassLive} {
		if _, err := channels.Set(ctxFor(t), name, wire.ChannelConfig{DeliveryClass: string(class)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	before := m.mention(t, ada, "team.d", "bob")
	members := space.NewMembers(m.js, lab)
	bobs := space.Membership{Lifecycle: bob, Pattern: "team.*"}.Joined(before)
	rev, err := members.Put(ctxFor(t), bobs, 0)
	if err != nil {
		t.Fatal(err)
	}
	durable := m.mention(t, ada, "team.d", "bob", "carol")
	live := m.mention(t, ada, "team.l", "bob", "carol")
	m.settle(t, ada)
	if bobs, _, err = members.Get(ctxFor(t), bob, "team.*"); err != nil {
		t.Fatal(err)
	}
	if _, err = members.Put(ctxFor(t), bobs.Left(live), rev); err != nil {
		t.Fatal(err)
	}
	after := m.mention(t, ada, "team.d", "bob")
	m.settle(t, ada)
	if got, want := m.pointed(t, bob), []uint64{before, live, after}; !slices.Equal(got, want) {
		t.Errorf("bob has pointers to %d, want %d: what it gets as a member needs none", got, want)
	}
	if got, want := m.pointed(t, carol), []uint64{durable, live}; !slices.Equal(got, want) {
		t.Errorf("carol has pointers to %d, want %d", got, want)
	}
}

func TestMentionsOfOneMessageAreBounded(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	var names []string
	var lives []wire.Lifecycle
	for i := range wire.MaxMentioned + 1 {
		l := lifecycle(fmt.Sprintf("a%d", i))
		m.grant(t, l, "general")
		lives, names = append(lives, l), append(names, l.Actor)
	}
	m.mention(t, ada, "general", names...)
	m.settle(t, ada)
	for i, l := range lives {
		equal(t, "pointers of "+names[i], len(m.pointed(t, l)), map[bool]int{true: 1}[i < wire.MaxMentioned])
	}
}

// Two instances look at every message; a mention is stored once, and when one of them ends the other goes on.
func TestMentionsServedTwice(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	stop := m.serve(t, nil)
	m.serve(t, nil)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.grant(t, ada, ">")
	m.grant(t, bob, ">")
	var want []uint64
	for range 50 {
		want = append(want, m.mention(t, ada, "general", "bob"))
	}
	m.settle(t, ada)
	stop()
	for range 50 {
		want = append(want, m.mention(t, ada, "general", "bob"))
	}
	m.settle(t, ada)
	if got := m.pointed(t, bob); !slices.Equal(got, want) {
		t.Errorf("bob has pointers to %d, want %d", got, want)
	}
}

func TestMentionsWhileNobodyServed(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.grant(t, ada, ">")
	m.grant(t, bob, ">")
	var want []uint64
	for round := range 3 { // the first is before any delivery ever ran
		for range 1500 {
			m.store(t, ada.Principal, "general", encode(t, message(ada.Principal, "general", "nobody")))
		}
		want = append(want, m.mention(t, ada, "general", "bob"))
		stop := m.serve(t, nil)
		m.settle(t, ada)
		stop()
		if got := m.pointed(t, bob); !slices.Equal(got, want) {
			t.Fatalf("round %d: bob has pointers to %d, want %d", round, got, want)
		}
	}
	sequence, _, err := space.NewProgress(m.js, lab).Get(ctxFor(t))
	state, err2 := space.State(ctxFor(t), m.js, wire.ChatStream(lab))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	equal(t, "recorded position after an orderly end", sequence, state.LastSeq)
}

// In an open space names are those of who is there.
func TestMentionsInAnOpenSpace(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, &delivery.Options{Open: true})
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.beat(t, bob, wire.StatusIdle, "")
	wait := m.awaitPointer(t, bob)
	seq := m.mention(t, ada, "general", "nobody", "bob")
	equal(t, "pointer", wait(), seq)
}
