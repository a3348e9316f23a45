package delivery_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/internal/header/headertest"
	"github.com/cotal-go/cotal/wire"
)

// pullAll follows the pages of a pull and checks what every page promises.
func (u *member) pullAll(t testing.TB, in wire.PullRequest) (got []wire.PulledMessage, last wire.PullReply, pages int) {
	t.Helper()
	for {
		var raw json.RawMessage
		if err := u.Call(ctxFor(t), control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandPull}, in, &raw); err != nil {
			t.Fatalf("pull %+v: %v", in, err)
		}
		var page wire.PullReply
		if err := wire.Decode(raw, &page, wire.MaxPage); err != nil {
			t.Fatalf("pull %+v: %v", in, err)
		}
		if in.Limit > 0 && len(page.Messages) > in.Limit {
			t.Fatalf("pull %+v: %d messages on a page", in, len(page.Messages))
		}
		for _, m := range page.Messages {
			if m.Sequence <= in.After || m.Sequence > page.Through {
				t.Fatalf("pull %+v: message %d outside %d to %d", in, m.Sequence, in.After, page.Through)
			}
			msg, err := wire.DecodeMessage(m.Message)
			if err != nil || msg.Channel != m.Channel || msg.From.ID != m.Sender {
				t.Fatalf("message %d of %q on %q: %+v, %v", m.Sequence, m.Sender, m.Channel, msg, err)
			}
		}
		got, pages = append(got, page.Messages...), pages+1
		if page.Next == 0 {
			return got, page, pages
		}
		if page.Next <= in.After || page.Next != page.Through {
			t.Fatalf("pull %+v: next page after %d, through %d", in, page.Next, page.Through)
		}
		in.After = page.Next
	}
}

func sequences(msgs []wire.PulledMessage) []uint64 {
	var out []uint64
	for _, m := range msgs {
		out = append(out, m.Sequence)
	}
	return out
}

func TestBurstIsPulledToTheLastMessage(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	const total = 5000
	last := m.burst(t, "general", total, 200)
	m.post(t, poster(), "other", "elsewhere")
	got, page, pages := ada.pullAll(t, wire.PullRequest{Pattern: "general"})
	if len(got) != total || got[total-1].Sequence != last || page.Generation != gen {
		t.Fatalf("%d messages up to %d in %d pages, want %d up to %d", len(got), got[len(got)-1].Sequence, pages, total, last)
	}
	for i, msg := range got {
		if i > 0 && msg.Sequence != got[i-1].Sequence+1 {
			t.Fatalf("message %d comes after %d", msg.Sequence, got[i-1].Sequence)
		}
	}
	if page.Through < last+1 || page.Losses != nil || page.Withheld != 0 || page.Skipped != 0 || page.Remaining != 0 {
		t.Errorf("last page = through %d, %+v", page.Through, page.Losses)
	}
	if r := ada.ack(t, "general", gen, page.Through); r.Floor != page.Through || r.Ended {
		t.Errorf("ack = %+v", r)
	}
	if got, _, _ := ada.pullAll(t, wire.PullRequest{Pattern: "general"}); len(got) != 0 {
		t.Errorf("%d messages after all were handled", len(got))
	}
}

func TestPagesOfTinyLimitsAndOfLargeMessages(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	ada.join(t, ">")
	var want []uint64
	for i := range 7 {
		want = append(want, m.post(t, poster(), fmt.Sprintf("c%d", i%2), strings.Repeat("x", i%3*120<<10)))
	}
	for limit := range 4 {
		got, _, pages := ada.pullAll(t, wire.PullRequest{Pattern: ">", Limit: limit})
		if !slices.Equal(sequences(got), want) {
			t.Errorf("limit %d: got %v in %d pages, want %v", limit, sequences(got), pages, want)
		}
	}
	// The first page says what is left.
	if page := ada.pull(t, wire.PullRequest{Pattern: ">", Limit: 2}); page.Remaining != 5 {
		t.Errorf("remaining = %d, want 5", page.Remaining)
	}
	_, err := try[wire.PullReply](t, ada.Caller, wire.CommandPull, wire.PullRequest{Pattern: ">", Limit: wire.MaxPullPage + 1})
	refused(t, "a limit too high", err, wire.ErrBadRequest)
}

func TestPullSkipsWhatIsHandled(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 20, 10)
	ada.ack(t, "general", gen, 3, wire.SequenceRange{From: 5, To: 6}, wire.SequenceRange{From: 10, To: 18})
	got, page, _ := ada.pullAll(t, wire.PullRequest{Pattern: "general"})
	if want := []uint64{4, 7, 8, 9, 19, 20}; !slices.Equal(sequences(got), want) || page.Through != 20 {
		t.Errorf("got %v through %d, want %v through 20", sequences(got), page.Through, want)
	}
	got, _, _ = ada.pullAll(t, wire.PullRequest{Pattern: "general", After: 7, Limit: 1})
	if want := []uint64{8, 9, 19, 20}; !slices.Equal(sequences(got), want) {
		t.Errorf("after 7: got %v, want %v", sequences(got), want)
	}
	// What lies at or below the floor is never given, whatever is asked.
	got, _, _ = ada.pullAll(t, wire.PullRequest{Pattern: "general", After: 1})
	if len(got) == 0 || got[0].Sequence != 4 {
		t.Errorf("after 1: got %v, want from 4", sequences(got))
	}
	// A position that the client cannot have yet does not hide what comes.
	if page := ada.pull(t, wire.PullRequest{Pattern: "general", After: 1 << 60}); page.Through != 20 {
		t.Errorf("after the end: through %d, want 20", page.Through)
	}
}

func TestEachMessageIsAuthorisedByTheReadListOfNow(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	l := lifecycle("ada")
	g, rev := m.grant(t, l, ">")
	ada := &member{m.caller(t, l), m, l}
	ada.join(t, "team.>")
	m.post(t, poster(), "team.a", "1")
	m.post(t, poster(), "team.b", "2")
	m.post(t, poster(), "team.a.deep", "3")
	if page := ada.pull(t, wire.PullRequest{Pattern: "team.>", Limit: 1}); len(page.Messages) != 1 {
		t.Fatalf("first page = %+v", page)
	}
	g.AllowSubscribe = []string{"team.b", "general"}
	var err error
	if rev, err = m.grants.Update(ctxFor(t), g, rev); err != nil {
		t.Fatal(err)
	}
	page := ada.pull(t, wire.PullRequest{Pattern: "team.>"})
	if !slices.Equal(sequences(page.Messages), []uint64{2}) || page.Withheld != 2 || page.Through != 3 {
		t.Errorf("after narrowing: %+v, want message 2, two withheld", page)
	}
	g.AllowSubscribe = []string{"general"}
	if rev, err = m.grants.Update(ctxFor(t), g, rev); err != nil {
		t.Fatal(err)
	}
	_, err = try[wire.PullReply](t, ada.Caller, wire.CommandPull, wire.PullRequest{Pattern: "team.>"})
	refused(t, "with nothing left", err, wire.ErrPermissionDenied)
	g.AllowSubscribe = []string{"team.>"}
	if _, err = m.grants.Update(ctxFor(t), g, rev); err != nil {
		t.Fatal(err)
	}
	if page := ada.pull(t, wire.PullRequest{Pattern: "team.>"}); len(page.Messages) != 3 || page.Withheld != 0 {
		t.Errorf("after widening: %+v, want all three", page)
	}
}

func TestClassOfAChannelIsThatOfNow(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	ada.join(t, "team.*")
	m.post(t, poster(), "team.a", "1")
	m.post(t, poster(), "team.b", "2")
	m.class(t, "team.a", wire.ClassLive)
	page := ada.pull(t, wire.PullRequest{Pattern: "team.*"})
	if !slices.Equal(sequences(page.Messages), []uint64{2}) || page.Through != 2 {
		t.Errorf("with team.a live: %+v, want message 2", page)
	}
	m.class(t, "team.a", wire.ClassDurable)
	m.class(t, wire.DefaultsKey, wire.ClassLive)
	page = ada.pull(t, wire.PullRequest{Pattern: "team.*"})
	if !slices.Equal(sequences(page.Messages), []uint64{1}) {
		t.Errorf("with team.a alone durable: %+v, want message 1", page)
	}
}

func TestManyChannelsOfOnePageAreResolvedAtOnce(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	ada.join(t, ">")
	var want []uint64
	for i := range 60 {
		channel := fmt.Sprintf("c%d", i)
		if i%3 == 0 {
			m.class(t, channel, wire.ClassLive)
		}
		if seq := m.post(t, poster(), channel, "x"); i%3 != 0 {
			want = append(want, seq)
		}
	}
	if got, _, _ := ada.pullAll(t, wire.PullRequest{Pattern: ">"}); !slices.Equal(sequences(got), want) {
		t.Errorf("got %v, want %v", sequences(got), want)
	}
}

func TestWhatIsNoMessageIsSkipped(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	ada.join(t, "general")
	raw := headertest.Dial(t, m.srv, nil)
	subject, err := wire.ChannelSubject(lab, poster(), "general")
	if err != nil {
		t.Fatal(err)
	}
	m.post(t, poster(), "general", "good")
	m.store(t, poster(), "general", []byte(`{"stream":"CHAT_lab","seq":7}`))
	m.store(t, poster(), "general", encode(t, message(lifecycle("boss").Principal, "general", "forged")))
	m.store(t, poster(), "general", encode(t, message(poster(), "secret", "of another channel")))
	m.store(t, poster(), "general", nil)
	raw.Publish(t, subject, "NATS/1.0\r\nnocolon\r\n\r\n", []byte("hidden"))
	header := nats.NewMsg(subject)
	header.Data = encode(t, message(poster(), "general", "with false numbers"))
	header.Header.Set("Nats-Sequence", "77")
	if _, err := m.js.PublishMsg(ctxFor(t), header); err != nil {
		t.Fatal(err)
	}
	raw.Publish(t, subject, "NATS/1.0\r\nnocolon\r\n\r\n", []byte("hidden"))
	for limit := range 4 {
		got, page, _ := ada.pullAll(t, wire.PullRequest{Pattern: "general", Limit: limit})
		if !slices.Equal(sequences(got), []uint64{1, 7}) || page.Through != 8 {
			t.Errorf("limit %d: got %v through %d, want 1 and 7 through 8", limit, sequences(got), page.Through)
		}
	}
	if page := ada.pull(t, wire.PullRequest{Pattern: "general"}); page.Skipped != 6 {
		t.Errorf("skipped = %d, want 6", page.Skipped)
	}
}

// keep makes the stream begin at a sequence, as retention does.
func (m *mesh) keep(t testing.TB, from uint64) {
	t.Helper()
	st, err := m.js.Stream(ctxFor(t), wire.ChatStream(lab))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Purge(ctxFor(t), jetstream.WithPurgeSequence(from)); err != nil {
		t.Fatal(err)
	}
}

func retention(pairs ...uint64) []wire.Loss {
	var out []wire.Loss
	for _, r := range ranges(pairs...) {
		out = append(out, wire.Loss{SequenceRange: r, Reason: wire.LossRetention})
	}
	return out
}

func TestWhatRetentionTookIsReportedByItsRange(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	m.burst(t, "general", 5, 10)
	gen := ada.join(t, "general").Generation // after 5
	m.burst(t, "general", 20, 10)            // 6 to 25
	ada.ack(t, "general", gen, 7, wire.SequenceRange{From: 10, To: 11})

	if _, page, _ := ada.pullAll(t, wire.PullRequest{Pattern: "general"}); page.Losses != nil {
		t.Errorf("with everything stored: losses %+v", page.Losses)
	}
	m.keep(t, 8)
	if page := ada.pull(t, wire.PullRequest{Pattern: "general"}); page.Losses != nil {
		t.Errorf("with what is handled gone: losses %+v", page.Losses)
	}
	m.keep(t, 15)
	want := retention(8, 9, 12, 14)
	for range 2 { // repeated until the floor is beyond
		page := ada.pull(t, wire.PullRequest{Pattern: "general", Limit: 3})
		if !cmp.Equal(page.Losses, want) || !slices.Equal(sequences(page.Messages), []uint64{15, 16, 17}) {
			t.Errorf("losses = %+v with %v, want %+v with 15 to 17", page.Losses, sequences(page.Messages), want)
		}
	}
	// What the caller has in hand is not lost to it.
	m.keep(t, 20)
	if page := ada.pull(t, wire.PullRequest{Pattern: "general", After: 17}); !cmp.Equal(page.Losses, retention(18, 19)) {
		t.Errorf("after 17: losses = %+v, want 18 to 19", page.Losses)
	}
	m.keep(t, 26)
	page := ada.pull(t, wire.PullRequest{Pattern: "general"})
	if !cmp.Equal(page.Losses, retention(8, 9, 12, 25)) || page.Through != 25 || len(page.Messages) != 0 || page.Next != 0 {
		t.Errorf("with nothing stored: %+v", page)
	}
	ada.ack(t, "general", gen, page.Through)
	if page = ada.pull(t, wire.PullRequest{Pattern: "general"}); page.Losses != nil {
		t.Errorf("beyond the floor: losses %+v", page.Losses)
	}
}

func TestLossOfAClosedIntervalEndsWithIt(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 4, 10)
	ada.leave(t, wire.LeaveRequest{Pattern: "general"})
	m.burst(t, "general", 10, 10)
	m.keep(t, 12)
	page := ada.pull(t, wire.PullRequest{Pattern: "general"})
	if !cmp.Equal(page.Losses, retention(1, 4)) || !page.Ended || len(page.Messages) != 0 {
		t.Errorf("page = %+v, want the loss of 1 to 4 and the end", page)
	}
	if r := ada.ack(t, "general", gen, page.Through); !r.Ended {
		t.Errorf("ack = %+v, want ended", r)
	}
}

func TestSmallStreamLosesNothingWithoutASaying(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	st, err := m.js.Stream(ctxFor(t), wire.ChatStream(lab))
	if err != nil {
		t.Fatal(err)
	}
	cfg := st.CachedInfo().Config
	cfg.MaxBytes = 1 << 20
	if _, err := m.js.UpdateStream(ctxFor(t), cfg); err != nil {
		t.Fatal(err)
	}
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	posting := make(chan struct{})
	const total = 400
	go func() {
		defer close(posting)
		for range total {
			m.burst(t, "general", 1, 50<<10)
		}
	}()
	// Every sequence is either given or within a reported loss, while the stream is overrun all the time.
	told := map[uint64]bool{}
	for done := false; !done; {
		select {
		case <-posting:
			done = true
		default:
		}
		after, first := uint64(0), true
		var page wire.PullReply
		for ; after != 0 || first; after, first = page.Next, false {
			page = ada.pull(t, wire.PullRequest{Pattern: "general", After: after})
			for _, msg := range page.Messages {
				told[msg.Sequence] = true
			}
			for _, l := range page.Losses {
				for seq := l.From; seq <= l.To; seq++ {
					told[seq] = true
				}
			}
		}
		ada.ack(t, "general", gen, page.Through)
	}
	for seq := uint64(1); seq <= total; seq++ {
		if !told[seq] {
			t.Fatalf("message %d was neither given nor reported as lost", seq)
		}
	}
}

func TestPageListsBoundedLosses(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 300, 10)
	var handled []wire.SequenceRange
	for i := uint64(2); i < 290; i += 3 {
		handled = append(handled, wire.SequenceRange{From: i, To: i})
	}
	ada.ack(t, "general", gen, 0, handled...)
	m.keep(t, 290)
	page := ada.pull(t, wire.PullRequest{Pattern: "general"})
	if n := len(page.Losses); n == 0 || n > 64 || page.Losses[n-1].To != 289 || page.Losses[0].From != 1 {
		t.Errorf("%d losses, the last %+v", n, page.Losses[max(n-1, 0)])
	}
}

func TestPullReplyHasTheShapeOfItsType(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	ada.join(t, "a.>")
	body := []byte(`{ "id":"01","ts":1,"space":"lab","from":{"id":"local.poster","name":"<&>"},"channel":"a.b","parts":[{"kind":"text","text":"\u2028 <b> \"q\""}] }`)
	m.store(t, poster(), "a.b", body)
	var raw json.RawMessage
	if err := ada.Call(ctxFor(t), control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandPull}, wire.PullRequest{Pattern: "a.>"}, &raw); err != nil {
		t.Fatal(err)
	}
	var page wire.PullReply
	if err := wire.Decode(raw, &page, wire.MaxPage); err != nil || len(page.Messages) != 1 {
		t.Fatalf("page %s: %v", raw, err)
	}
	if got := page.Messages[0]; !bytes.Equal(got.Message, body) || got.Sender != "local.poster" || got.Channel != "a.b" || got.Stored != 0 || time.Since(time.UnixMilli(got.TimeMS)) > time.Hour {
		t.Errorf("message = %+v", got)
	}
}

func TestCopyOfTheStreamThatLagsHidesNothing(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	for _, channel := range []string{"general", "other", "general", "other"} {
		m.post(t, poster(), channel, "x")
	}
	filter, err := wire.ChannelFilter(lab, "general")
	if err != nil {
		t.Fatal(err)
	}
	d := delivery.New(m.nc, lab, nil)
	for _, c := range []struct {
		through, want uint64
		more          bool
	}{{1, 2, true}, {3, 4, false}, {4, 4, false}} {
		through, more, err := delivery.Reached(ctxFor(t), d, filter, c.through, 4)
		if err != nil || through != c.want || more != c.more {
			t.Errorf("through %d: %d, more %t, %v, want %d, %t", c.through, through, more, err, c.want, c.more)
		}
	}
}
