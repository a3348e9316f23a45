package delivery_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// member makes l a durable member of a pattern after a sequence; leave 0 leaves it open. handled, when not 0, is its floor.
func (m *mesh) member(t testing.TB, l wire.Lifecycle, pattern string, join, leave, handled uint64) {
	t.Helper()
	ms := space.Membership{Lifecycle: l, Pattern: pattern, Spans: []space.Span{{Join: join, Leave: leave}}}
	if _, err := space.NewMembers(m.js, lab).Put(ctxFor(t), ms, 0); err != nil {
		t.Fatal(err)
	}
	if handled != 0 {
		m.handled(t, l, pattern, space.Cursor{Floor: handled})
	}
}

func (m *mesh) handled(t testing.TB, l wire.Lifecycle, pattern string, at space.Cursor) {
	t.Helper()
	if _, err := space.NewCursors(m.js, lab).Put(ctxFor(t), l, pattern, at, 0); err != nil {
		t.Fatal(err)
	}
}

// point stores a pointer for l to a message, and returns the sequence of the pointer.
func (m *mesh) point(t testing.TB, l wire.Lifecycle, channel string, sequence uint64, sender wire.Principal) uint64 {
	t.Helper()
	subject, err := wire.MentionRecord(lab, l)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(wire.MentionPointer{V: 1, Channel: channel, Sequence: sequence, Sender: sender.String()})
	if err != nil {
		t.Fatal(err)
	}
	ack, err := m.js.Publish(ctxFor(t), subject, data)
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

// nextPointer tells the sequences of the pointers that are stored for l from now on.
func (m *mesh) nextPointer(t testing.TB, l wire.Lifecycle) (next func() uint64) {
	t.Helper()
	subject, err := wire.MentionSubject(lab, l)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := m.nc.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	m.flush(t)
	return func() uint64 {
		t.Helper()
		msg, err := sub.NextMsgWithContext(ctxFor(t))
		if err != nil {
			t.Fatal(err)
		}
		sequence, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return sequence
	}
}

// read sets the position of l among its mentions.
func (m *mesh) read(t testing.TB, l wire.Lifecycle, at space.Cursor) {
	t.Helper()
	if _, err := space.NewCursors(m.js, lab).PutMentions(ctxFor(t), l, at, 0); err != nil {
		t.Fatal(err)
	}
}

// class sets the delivery class of a channel.
func (m *mesh) class(t testing.TB, channel string, class wire.DeliveryClass) {
	t.Helper()
	if _, err := space.NewChannels(m.js, lab).Set(ctxFor(t), channel, wire.ChannelConfig{DeliveryClass: string(class)}, nil); err != nil {
		t.Fatal(err)
	}
}

func (m *mesh) members(t testing.TB, actors ...string) map[string]wire.Lifecycle {
	t.Helper()
	out := map[string]wire.Lifecycle{}
	for _, actor := range actors {
		out[actor] = lifecycle(actor)
		m.grantAs(t, out[actor], func(g *trust.Grant) { g.AllowSubscribe = []string{">"} })
	}
	return out
}

func TestReceiptOfAChannelMessage(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	who := m.members(t, "ada", "bob", "cleo", "dora", "emil", "finn", "gus", "hal")
	m.class(t, "team", wire.ClassDurable)
	ada := who["ada"].Principal
	finns, guss := m.nextPointer(t, who["finn"]), m.nextPointer(t, who["gus"])
	before := message(ada, "team", "before")
	before.Mentions = []string{"finn"}
	m.send(t, ada, before)
	earlier := finns()
	msg := message(ada, "team", "hello all")
	msg.Mentions = []string{"finn", "gus"}
	sequence := m.send(t, ada, msg)
	finns()
	pointer := guss()

	m.member(t, who["ada"], "team", 1, 0, 0)         // sent it
	m.member(t, who["bob"], "team", 1, 0, sequence)  // handled it
	m.member(t, who["cleo"], "*", 1, 0, 1)           // did not, and is there
	m.beat(t, who["cleo"], wire.StatusIdle, "")      //
	m.member(t, who["dora"], ">", 1, 0, 0)           // did not, and is away
	m.member(t, who["emil"], "team", 1, sequence, 0) // left after it
	m.member(t, who["hal"], "team", sequence, 0, 0)  // came after it
	m.member(t, lifecycle("old"), "team", 1, 0, 0)   // has no grant
	m.read(t, who["finn"], space.Cursor{Floor: earlier})
	m.read(t, who["gus"], space.Cursor{Handled: []wire.SequenceRange{{From: pointer, To: pointer}}})
	m.flush(t)

	want := map[string]wire.RecipientReceipt{
		"local.bob":  {Stage: wire.StageHandled},
		"local.cleo": {Stage: wire.StageStored},
		"local.dora": {Stage: wire.StageStored, Reason: "offline"},
		"local.emil": {Stage: wire.StageStored, Reason: "left"},
		"local.old":  {Stage: wire.StageStored, Reason: "no such participant"},
		"local.finn": {Stage: wire.StageStored, Reason: "offline"},
		"local.gus":  {Stage: wire.StageHandled},
	}
	req := wire.ReceiptRequest{ID: msg.ID}
	for _, l := range []wire.Lifecycle{who["ada"], who["hal"]} {
		wantAudience(t, m.caller(t, l), req, wire.StageStored, want)
	}
	zoe := lifecycle("zoe")
	m.grantAs(t, zoe, func(g *trust.Grant) { g.AllowSubscribe = []string{"other"} })
	if _, err := try[wire.ReceiptReply](t, m.caller(t, zoe), wire.CommandReceipt, req); wire.CodeOf(err) != wire.CodeNotFound {
		t.Errorf("receipt for a stranger: %v, want not-found", err)
	}

	// Answers count from those it was for, in the channel for all to see, and in private for the sender alone.
	inChannel := message(who["dora"].Principal, "team", "yes")
	inChannel.ReplyTo = msg.ID
	m.send(t, who["dora"].Principal, inChannel)
	private := to(who["cleo"].Principal, ada, wire.NewID())
	private.ReplyTo = msg.ID
	m.send(t, who["cleo"].Principal, private)
	want["local.dora"] = wire.RecipientReceipt{Stage: wire.StageAnswered, Answer: inChannel.ID}
	wantAudience(t, m.caller(t, who["hal"]), req, wire.StageStored, want)
	want["local.cleo"] = wire.RecipientReceipt{Stage: wire.StageAnswered, Answer: private.ID}
	wantAudience(t, m.caller(t, who["ada"]), req, wire.StageStored, want)

	// Whom nothing reaches any more is waited for by nobody.
	g, rev, err := m.grants.Get(ctxFor(t), who["finn"].Principal)
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []trust.GrantState{trust.GrantRetiring, trust.GrantRetired} {
		if g.State, g.Epoch = state, g.Epoch+1; err == nil {
			rev, err = m.grants.Update(ctxFor(t), g, rev)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	want["local.finn"] = wire.RecipientReceipt{Stage: wire.StageGone, Reason: "what became of it is no longer known: the name was revoked"}
	wantAudience(t, m.caller(t, who["ada"]), req, wire.StageGone, want)
}

func wantAudience(t testing.TB, c *control.Caller, req wire.ReceiptRequest, stage wire.Stage, want map[string]wire.RecipientReceipt) {
	t.Helper()
	r := ask[wire.ReceiptReply](t, c, wire.CommandReceipt, req)
	if r.Stage != stage || r.Kind != "channel" || r.Channel != "team" || r.Hidden != 0 || len(r.Recipients) != len(want) {
		t.Errorf("receipt = %+v, want stage %s and %d recipients", r, stage, len(want))
	}
	for _, got := range r.Recipients {
		name := got.Principal
		got.Principal = ""
		if w, ok := want[name]; !ok || got != w {
			t.Errorf("receipt of %s = %+v, want %+v", name, got, w)
		}
	}
}

// Who may post to a channel and not read it learns how many members it reaches, and not who they are. On a live channel
// nothing is kept for anybody.
func TestReceiptHidesMembers(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	who := m.members(t, "bob", "cleo")
	m.class(t, "team", wire.ClassDurable)
	writer := lifecycle("writer")
	m.grantAs(t, writer, func(g *trust.Grant) { g.AllowPublish = []string{"team"} })
	m.member(t, who["bob"], "team", 0, 0, 0)
	m.member(t, who["cleo"], "team", 0, 0, 0)
	msg := message(writer.Principal, "team", "hello")
	m.send(t, writer.Principal, msg)
	req := wire.ReceiptRequest{ID: msg.ID}
	c := m.caller(t, writer)
	if r := ask[wire.ReceiptReply](t, c, wire.CommandReceipt, req); r.Hidden != 2 || len(r.Recipients) != 0 || r.Stage != wire.StageStored {
		t.Errorf("receipt = %+v, want two hidden members", r)
	}
	if r := ask[wire.ReceiptReply](t, c, wire.CommandTrace, req); r.Hidden != 0 || len(r.Recipients) != 2 {
		t.Errorf("trace = %+v, want both members", r)
	}
	m.class(t, "team", wire.ClassLive)
	if r := ask[wire.ReceiptReply](t, c, wire.CommandTrace, req); r.Hidden != 0 || len(r.Recipients) != 0 || r.Stage != wire.StageStored {
		t.Errorf("trace on a live channel = %+v, want nobody", r)
	}
}

// Who reads a channel is shown the members whose pattern its read list covers, as in a listing, and how many others there are.
func TestReceiptHidesMembersByWiderPatterns(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	who := m.members(t, "bob", "cleo", "auditor")
	m.class(t, "team", wire.ClassDurable)
	low := lifecycle("low")
	m.grantAs(t, low, func(g *trust.Grant) { g.AllowSubscribe, g.AllowPublish = []string{"team"}, []string{"team"} })
	m.member(t, who["bob"], "team", 0, 0, 0)
	m.member(t, who["cleo"], "team.>", 0, 0, 0) // not of this channel
	m.member(t, who["auditor"], ">", 0, 0, 0)
	m.member(t, low, "*", 0, 0, 0) // joined when it read more; its own
	msg := message(who["cleo"].Principal, "team", "hello")
	m.send(t, who["cleo"].Principal, msg)
	for l, want := range map[wire.Lifecycle][2]int{low: {2, 1}, who["bob"]: {3, 0}} {
		r := ask[wire.ReceiptReply](t, m.caller(t, l), wire.CommandReceipt, wire.ReceiptRequest{ID: msg.ID})
		if len(r.Recipients) != want[0] || r.Hidden != want[1] {
			t.Errorf("receipt for %s = %+v, want %d recipients and %d hidden", l.Principal, r, want[0], want[1])
		}
	}
}

// A receipt is bounded, and says how many it leaves out.
func TestReceiptOfALargeChannel(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	who := m.members(t, "ada")
	m.class(t, "team", wire.ClassDurable)
	msg := message(who["ada"].Principal, "team", "hello")
	sequence := m.send(t, who["ada"].Principal, msg)
	for i := range delivery.MaxAudience + 3 {
		m.member(t, lifecycle(fmt.Sprintf("m%04d", i)), "team", 0, 0, sequence)
	}
	r := ask[wire.ReceiptReply](t, m.caller(t, who["ada"]), wire.CommandReceipt, wire.ReceiptRequest{ID: msg.ID})
	if r.Stage != wire.StageHandled || len(r.Recipients) != delivery.MaxAudience || r.Hidden != 3 {
		t.Errorf("receipt = %s, %d recipients, %d hidden, want all handled, %d and 3", r.Stage, len(r.Recipients), r.Hidden, delivery.MaxAudience)
	}
}

func TestReachOfAChannel(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	who := m.members(t, "ada", "bob", "cleo", "dora")
	m.class(t, "team", wire.ClassDurable)
	c := m.caller(t, who["ada"])
	want := func(what, tier string, live, stored int) {
		t.Helper()
		r := ask[wire.ReachReply](t, c, wire.CommandReach, wire.ReachRequest{Channel: "team"})
		if r.Tier != tier || r.Live != live || r.Stored != stored || (r.Reason == "") != (tier == wire.ReachLive) {
			t.Errorf("%s: reach = %+v, want %s, %d live and %d stored", what, r, tier, live, stored)
		}
	}
	want("no member", wire.ReachNobody, 0, 0)
	m.member(t, who["bob"], "team", 0, 0, 0)
	m.member(t, who["cleo"], "*", 0, 0, 0)
	m.member(t, who["cleo"], "team", 0, 0, 0)
	m.member(t, who["dora"], "team", 0, 5, 0)
	m.member(t, lifecycle("old"), "team", 0, 0, 0)
	want("all away", wire.ReachStored, 0, 2)
	m.beat(t, who["cleo"], wire.StatusIdle, "")
	m.flush(t)
	want("one is there", wire.ReachLive, 1, 1)
	m.class(t, "team", wire.ClassLive)
	want("a live channel", wire.ReachNobody, 0, 0)
}

// Where delivery sees the broker's connections, who only listens counts, but for the caller.
func TestReachOfAChannelCountsWhoListens(t *testing.T) {
	watched(t, func(t *testing.T, m *mesh, s *switchboard) {
		who := m.members(t, "ada", "bob", "cleo", "dora")
		m.member(t, who["bob"], "team", 0, 0, 0)
		m.member(t, who["dora"], "team", 0, 0, 0)
		filter := func(pattern string) string {
			f, err := wire.LiveFilter(lab, pattern)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		s.connect(who["ada"], filter("team"))
		ask := func(channel string) wire.ReachReply {
			t.Helper()
			time.Sleep(2 * time.Second) // the view is kept for a moment
			return ask[wire.ReachReply](t, m.caller(t, who["ada"]), wire.CommandReach, wire.ReachRequest{Channel: channel})
		}
		if r := ask("team"); r.Tier != wire.ReachStored || r.Live != 0 || r.Stored != 2 {
			t.Errorf("reach = %+v, want stored: the caller does not count", r)
		}
		s.connect(who["cleo"], filter("*"))
		s.connect(who["bob"], filter("team"), filter("other"))
		if r := ask("team"); r.Tier != wire.ReachLive || r.Live != 2 || r.Stored != 1 {
			t.Errorf("reach = %+v, want cleo who listens, bob who is a member, and dora who is away", r)
		}
		m.class(t, "team", wire.ClassLive)
		if r := ask("team"); r.Tier != wire.ReachLive || r.Live != 2 || r.Stored != 0 {
			t.Errorf("reach of a live channel = %+v, want who listens", r)
		}
	})
}
