package delivery_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func stored(msgs []wire.PulledMessage) []uint64 {
	var out []uint64
	for _, m := range msgs {
		out = append(out, m.Stored)
	}
	return out
}

func TestMentionsAreResolvedToTheirMessages(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada, bob := m.participant(t, "ada", ">"), m.participant(t, "bob", ">")
	m.class(t, "chatter", wire.ClassLive) // mentions on live channels count too
	var want []uint64
	for i := range 40 {
		channel := []string{"general", "chatter"}[i%2]
		seq := m.post(t, poster(), channel, strings.Repeat("x", i%4*60<<10))
		m.point(t, ada.life, channel, seq, poster())
		want = append(want, seq)
		if i%3 == 0 {
			m.point(t, bob.life, channel, seq, poster())
		}
	}
	for _, limit := range []int{0, 1, 7} {
		got, page, pages := ada.pullAll(t, wire.PullRequest{Mentions: true, Limit: limit})
		if !slices.Equal(stored(got), want) || page.Withheld != 0 || page.Skipped != 0 || page.Losses != nil {
			t.Errorf("limit %d: got %v in %d pages, want %v", limit, stored(got), pages, want)
		}
		if got[3].Channel != "chatter" || got[3].Sender != "local.poster" || got[3].Sequence == got[3].Stored {
			t.Errorf("message = %s on %s, %d of %d", got[3].Sender, got[3].Channel, got[3].Sequence, got[3].Stored)
		}
	}
	if got, _, _ := bob.pullAll(t, wire.PullRequest{Mentions: true}); len(got) != 14 {
		t.Errorf("bob got %d, want 14", len(got))
	}
}

func TestHandledMentionsAreNotGivenAgain(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada, bob := m.participant(t, "ada", ">"), m.participant(t, "bob", ">")
	var at []uint64
	for range 6 {
		at = append(at, m.point(t, ada.life, "general", m.post(t, poster(), "general", "x"), poster()))
	}
	m.point(t, bob.life, "general", 1, poster())
	ack := func(floor uint64, handled ...wire.SequenceRange) wire.AckReply {
		return ask[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{Mentions: true, Floor: floor, Handled: handled})
	}
	if r := ack(at[0], wire.SequenceRange{From: at[2], To: at[3]}); r.Floor != at[0] || r.Ended {
		t.Errorf("ack = %+v", r)
	}
	got, page, _ := ada.pullAll(t, wire.PullRequest{Mentions: true})
	if want := []uint64{at[1], at[4], at[5]}; !slices.Equal(sequences(got), want) || page.Through != at[5]+1 {
		t.Errorf("got %v through %d, want %v", sequences(got), page.Through, want)
	}
	if r := ack(at[1]); r.Floor != at[3] {
		t.Errorf("ack = %+v, want floor %d", r, at[3])
	}
	if r := ack(0); r.Floor != at[3] {
		t.Errorf("ack backwards = %+v, want floor %d", r, at[3])
	}
	_, err := try[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{Mentions: true, Floor: 1000})
	refused(t, "ack beyond the end", err, wire.ErrPrecondition)
	if got, _, _ := bob.pullAll(t, wire.PullRequest{Mentions: true}); len(got) != 1 {
		t.Errorf("bob got %d, want 1", len(got))
	}
}

func TestPointerProvesNothing(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	l := lifecycle("ada")
	g, rev := m.grant(t, l, "general", "team")
	ada := &member{m.caller(t, l), m, l}
	general, secret := m.post(t, poster(), "general", "x"), m.post(t, poster(), "secret", "y")
	team := m.post(t, poster(), "team", "z")
	m.point(t, l, "general", general, poster())
	m.point(t, l, "secret", secret, poster())                      // not in the read list
	m.point(t, l, "general", secret, poster())                     // of another channel than it says
	m.point(t, l, "general", general, lifecycle("boss").Principal) // of another sender
	m.point(t, l, "team", team, poster())
	subject, err := wire.MentionRecord(lab, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.js.Publish(ctxFor(t), subject, []byte(`{"stream":"CHAT_lab","seq":7}`)); err != nil {
		t.Fatal(err)
	}
	page := ada.pull(t, wire.PullRequest{Mentions: true})
	if !slices.Equal(stored(page.Messages), []uint64{general, team}) || page.Withheld != 3 || page.Skipped != 1 {
		t.Errorf("page = %+v, want general and team, three withheld, one skipped", page)
	}
	g.AllowSubscribe = []string{"team"}
	if _, err := m.grants.Update(ctxFor(t), g, rev); err != nil {
		t.Fatal(err)
	}
	page = ada.pull(t, wire.PullRequest{Mentions: true})
	if !slices.Equal(stored(page.Messages), []uint64{team}) || page.Withheld != 4 {
		t.Errorf("after narrowing: %+v, want team alone", page)
	}
}

func TestMentionWhoseMessageIsGoneIsALoss(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	l := lifecycle("ada")
	m.grant(t, l, "general", "team")
	ada := &member{m.caller(t, l), m, l}
	var at, in []uint64 // pointers and messages
	for _, channel := range []string{"general", "secret", "team", "general"} {
		in = append(in, m.post(t, poster(), channel, "x"))
		at = append(at, m.point(t, l, channel, in[len(in)-1], poster()))
	}
	m.keep(t, 3)
	if _, err := space.ClearHistory(ctxFor(t), m.js, lab, "team"); err != nil {
		t.Fatal(err)
	}
	page := ada.pull(t, wire.PullRequest{Mentions: true})
	if !slices.Equal(sequences(page.Messages), at[3:]) || page.Withheld != 1 || len(page.Losses) != 2 {
		t.Fatalf("page = %+v, want the last, one withheld and two losses", page)
	}
	for i, want := range []wire.Loss{
		{SequenceRange: wire.SequenceRange{From: in[0], To: in[0]}, Reason: wire.LossRetention, Channel: "general", Count: 1},
		{SequenceRange: wire.SequenceRange{From: in[2], To: in[2]}, Reason: wire.LossCleared, Channel: "team", Count: 1},
	} {
		if page.Losses[i] != want {
			t.Errorf("loss %d = %+v, want %+v", i, page.Losses[i], want)
		}
	}
}

func TestMoreMentionsThanAreKeptAreALoss(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	seq := m.post(t, poster(), "general", "x")
	subject, err := wire.MentionRecord(lab, ada.life)
	if err != nil {
		t.Fatal(err)
	}
	const total = space.MentionsKept + 20
	for range total {
		if _, err := m.js.PublishAsync(subject, []byte(`{"v":1,"channel":"general","sequence":`+string('0'+byte(seq))+`,"sender":"local.poster"}`), jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	<-m.js.PublishAsyncComplete()
	got, page, _ := ada.pullAll(t, wire.PullRequest{Mentions: true})
	first := ada.pull(t, wire.PullRequest{Mentions: true, Limit: 1})
	if len(got) != space.MentionsKept || len(first.Losses) != 1 || first.Losses[0].SequenceRange != (wire.SequenceRange{From: 1, To: 20}) {
		t.Errorf("%d given, losses %+v, want 1 to 20", len(got), first.Losses)
	}
	ask[wire.AckReply](t, ada.Caller, wire.CommandAck, wire.AckRequest{Mentions: true, Floor: page.Through})
	m.point(t, ada.life, "general", seq, poster())
	if page := ada.pull(t, wire.PullRequest{Mentions: true}); len(page.Messages) != 1 || page.Losses != nil {
		t.Errorf("after handling: %+v, want one message, no loss", page)
	}
}
