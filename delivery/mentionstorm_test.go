package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// Who mentions many peers in many messages holds up a mention by somebody else for its own share of a minute and no longer,
// and what the service asks the broker does not grow with the storm.
func TestAStormOfMentionsDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	eve, boss, victim := lifecycle("eve"), lifecycle("boss"), lifecycle("victim")
	for _, l := range []wire.Lifecycle{eve, boss, victim} {
		m.grant(t, l, ">")
	}
	names := make([]string, wire.MaxMentioned)
	for i := range names {
		names[i] = fmt.Sprintf("sock%d", i)
		m.grant(t, lifecycle(names[i]), ">")
	}
	for _, heard := range []bool{false, true} { // read after the fact, and heard
		t.Run(map[bool]string{false: "read", true: "heard"}[heard], func(t *testing.T) {
			nc := dial(t, m.srv)
			stop := func() {}
			if heard {
				stop = m.serveOn(t, nc, nil)
			}
			first := m.pointersStored(t)
			storm(t, m, eve, 300, names)
			seq := m.mention(t, boss, "general", "victim")
			sent := nc.Stats().OutMsgs
			wait := m.awaitPointer(t, victim)
			if !heard {
				stop = m.serveOn(t, nc, nil)
			} else if !slices.Contains(m.pointed(t, victim), seq) {
				equal(t, "pointer of the victim", wait(), seq)
			}
			m.settle(t, boss)
			stop()
			// The storm may lie in two minutes.
			if before, most := m.placeOf(t, victim)-first-1, uint64(2*wire.MaxMentionsPerMinute); before > most || before < wire.MaxMentionsPerMinute {
				t.Errorf("%d pointers of the storm came before, want %d to %d of %d", before, wire.MaxMentionsPerMinute, most, 300*len(names))
			}
			if got, most := nc.Stats().OutMsgs-sent, uint64(2*wire.MaxMentionsPerMinute+800); got > most {
				t.Errorf("%d messages to the broker, want at most %d", got, most)
			}
		})
	}
}

func storm(t *testing.T, m *mesh, from wire.Lifecycle, n int, names []string) {
	t.Helper()
	subject, err := wire.ChannelSubject(lab, from.Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		msg := message(from.Principal, "general", "spam")
		msg.Mentions = names
		if _, err := m.js.PublishAsync(subject, encode(t, msg), jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	<-m.js.PublishAsyncComplete()
}

func (m *mesh) pointersStored(t *testing.T) uint64 {
	t.Helper()
	b, err := space.BoundsOf(ctxFor(t), m.js, wire.MentionStream(lab))
	if err != nil {
		t.Fatal(err)
	}
	return b.Last
}

// placeOf is the sequence of the last pointer of a life.
func (m *mesh) placeOf(t *testing.T, l wire.Lifecycle) (at uint64) {
	t.Helper()
	subject, err := wire.MentionRecord(lab, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := space.Scan(ctxFor(t), m.js, wire.MentionStream(lab), subject, func(s *space.Stored) error { at = s.Sequence; return nil }); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestMentionsOfASenderInAMinute(t *testing.T) {
	t.Parallel()
	var q delivery.Quota
	ada, bob := lifecycle("ada").Principal, lifecycle("bob").Principal
	minute := time.Unix(1_800_000_000, 0)
	for i, c := range []struct {
		who     wire.Principal
		after   time.Duration
		n, want int
		first   bool
	}{
		{ada, 0, 990, 990, false}, {ada, 59 * time.Second, 32, 10, true}, {ada, 59 * time.Second, 32, 0, false}, {bob, 59 * time.Second, 32, 32, false},
		{ada, time.Minute, 32, 32, false}, {ada, 30 * time.Second, 968, 968, false}, {ada, time.Minute, 1, 0, true}, {ada, time.Minute, 1, 0, false},
		{bob, time.Hour, 32, 32, false},
	} {
		if got, first := q.Take(c.who, minute.Add(c.after), c.n); got != c.want || first != c.first {
			t.Errorf("step %d: %d of %d count, first %t; want %d, %t", i, got, c.n, first, c.want, c.first)
		}
	}
}

// Health tells when a mention waits for longer than a few seconds, whatever it waits for.
func TestHealthTellsThatMentionsLag(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		d := delivery.New(m.nc, lab, nil)
		sub, err := m.nc.SubscribeSync(wire.StreamSubjects(lab, wire.KindLive))
		if err != nil {
			t.Fatal(err)
		}
		m.flush(t)
		heard := func(names ...string) *nats.Msg {
			m.mention(t, lifecycle("ada"), "general", names...)
			msg, err := sub.NextMsgWithContext(ctxFor(t))
			if err != nil {
				t.Fatal(err)
			}
			return msg
		}
		hear := delivery.HearOf(d)
		hear(heard())
		time.Sleep(time.Minute)
		if err := delivery.MentionsFresh(d); err != nil {
			t.Errorf("after a message that mentions nobody: %v", err)
		}
		hear(heard("bob"))
		time.Sleep(4 * time.Second)
		if err := delivery.MentionsFresh(d); err != nil {
			t.Errorf("after four seconds: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := delivery.MentionsFresh(d); err == nil || !strings.Contains(err.Error(), "mentions lag by 6s") {
			t.Errorf("after six seconds: %v, want a lag of six", err)
		}
	})
}

// The name of a channel is up to its sender: pointers stay small beside it, and lead to the message all the same.
func TestPointersToALongChannelAreSmall(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	m.class(t, wire.DefaultsKey, wire.ClassLive)
	ada, bob := m.participant(t, "ada", ">"), m.participant(t, "bob", ">")
	eve := m.participant(t, "eve", "general")
	long := strings.Repeat("abcdefghi.", 400) + "x"
	seq := m.mention(t, ada.life, long, "bob", "eve")
	m.settle(t, ada.life)
	place := m.placeOf(t, bob.life)
	stream, err := m.js.Stream(ctxFor(t), wire.MentionStream(lab))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := stream.GetMsg(ctxFor(t), place)
	if err != nil || len(raw.Data) > 256 {
		t.Errorf("pointer of %d bytes, %v: %s", len(raw.Data), err, raw.Data)
	}
	page := bob.pull(t, wire.PullRequest{Mentions: true})
	if len(page.Messages) != 1 || page.Messages[0].Stored != seq || page.Messages[0].Channel != long {
		t.Errorf("bob gets %+v, want message %d", page, seq)
	}
	m.point(t, eve.life, "", seq, ada.life.Principal) // made up: eve may not read the channel
	m.point(t, bob.life, "", seq, poster())           // of another sender
	m.point(t, bob.life, "", 4711, poster())          // of nothing
	if page := eve.pull(t, wire.PullRequest{Mentions: true}); len(page.Messages) != 0 || page.Withheld != 1 {
		t.Errorf("eve gets %+v, want one withheld", page)
	}
	page = bob.pull(t, wire.PullRequest{Mentions: true})
	if len(page.Messages) != 1 || page.Withheld != 1 || len(page.Losses) != 1 || page.Losses[0].Channel != "" || page.Losses[0].Reason != wire.LossRetention {
		t.Errorf("bob gets %+v, want one message, one withheld, one loss", page)
	}
}

// Pointers that the stream dropped for room are told, to those whose they may have been.
func TestMentionsPushedOutAreALoss(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	seq := m.post(t, poster(), "general", "x")
	m.point(t, ada.life, "general", seq, poster())
	for range 4 {
		m.point(t, lifecycle("bob"), "general", seq, poster())
	}
	stream, err := m.js.Stream(ctxFor(t), wire.MentionStream(lab))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctxFor(t), jetstream.WithPurgeSequence(4)); err != nil {
		t.Fatal(err)
	}
	page := ada.pull(t, wire.PullRequest{Mentions: true})
	if want := (wire.Loss{SequenceRange: wire.SequenceRange{From: 1, To: 3}, Reason: wire.LossRetention}); len(page.Losses) != 1 || page.Losses[0] != want {
		t.Errorf("losses = %+v, want %+v", page.Losses, want)
	}
	if page := m.participant(t, "new", ">").pull(t, wire.PullRequest{Mentions: true}); page.Losses != nil {
		t.Errorf("losses of who came later = %+v, want none", page.Losses)
	}
	ask[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{Mentions: true, Floor: page.Through})
	if page := ada.pull(t, wire.PullRequest{Mentions: true}); page.Losses != nil {
		t.Errorf("losses after they were told = %+v, want none", page.Losses)
	}
	m.point(t, ada.life, "general", seq, poster())
	if err := stream.Purge(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	if page := ada.pull(t, wire.PullRequest{Mentions: true}); len(page.Losses) != 1 || page.Losses[0].From != 6 || page.Losses[0].To != 6 {
		t.Errorf("losses of an empty stream = %+v, want 6", page.Losses)
	}
}

// A copy that lies about its place does not move the search beyond the end of the stream.
func TestTheSearchForMentionsStaysInsideTheStream(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		d := delivery.New(m.nc, lab, nil)
		stop, done := runIn(d)
		<-d.Ready()
		ada, bob := lifecycle("ada"), lifecycle("bob")
		m.grant(t, ada, ">")
		m.grant(t, bob, ">")
		m.settle(t, ada)
		live, err := wire.LiveSubject(lab, ada.Principal, "general")
		if err != nil {
			t.Fatal(err)
		}
		msg := nats.NewMsg(live)
		msg.Data = encode(t, message(ada.Principal, "general", "x"))
		msg.Header.Set("Nats-Sequence", "1000")
		if err := m.nc.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
		m.flush(t)
		time.Sleep(10 * time.Second)
		at, _, err := space.NewProgress(m.js, lab).Get(ctxFor(t))
		b, err2 := space.BoundsOf(ctxFor(t), m.js, wire.ChatStream(lab))
		if err := errors.Join(err, err2); err != nil || at > b.Last {
			t.Fatalf("the search is at %d of %d, %v", at, b.Last, err)
		}
		var want []uint64
		for range 5 {
			want = append(want, m.mention(t, ada, "general", "bob"))
		}
		m.settle(t, ada)
		if got := m.pointed(t, bob); !slices.Equal(got, want) {
			t.Errorf("bob has pointers to %d, want %d", got, want)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
