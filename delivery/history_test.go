package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// kept is one stored message of the model.
type kept struct {
	seq     uint64
	channel string
	sender  string
	body    string
	bad     bool
	at      time.Time
}

// fill stores n messages on several channels by interleaved senders, some of which are not messages, and returns the
// model of it.
func fill(t testing.TB, m *mesh, n int) []kept {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 11))
	channels := []string{"general", "general", "general", "team.a", "team.b", "rare"}
	model := make([]kept, 0, n)
	for i := range n {
		k := kept{channel: channels[rng.IntN(len(channels))], sender: fmt.Sprintf("s%d", rng.IntN(5))}
		if k.channel == "rare" && rng.IntN(20) > 0 {
			k.channel = "general"
		}
		from := wire.Principal{Owner: wire.LocalOwner, Actor: k.sender}
		text := fmt.Sprintf("message %d", i)
		if rng.IntN(150) == 0 {
			text = strings.Repeat("long ", rng.IntN(5_000))
		}
		body := encode(t, message(from, k.channel, text))
		switch rng.IntN(60) {
		case 0:
			body, k.bad = []byte(`{"stream":"CHAT_lab","seq":7}`), true
		case 1:
			body, k.bad = encode(t, message(wire.Principal{Owner: wire.LocalOwner, Actor: "boss"}, k.channel, text)), true
		case 2:
			body, k.bad = nil, true
		}
		k.body = string(body)
		subject, err := wire.ChannelSubject(lab, from, k.channel)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.js.PublishAsync(subject, body, jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
		k.seq = uint64(i + 1)
		model = append(model, k)
	}
	select {
	case <-m.js.PublishAsyncComplete():
	case <-ctxFor(t).Done():
		t.Fatal("messages were not stored in time")
	}
	// The broker's times, so that the model knows what "since" means.
	err := space.Scan(ctxFor(t), m.js, wire.ChatStream(lab), wire.StreamSubjects(lab, wire.KindChannel), func(s *space.Stored) error {
		k := &model[s.Sequence-1]
		if string(s.Data) != k.body {
			return fmt.Errorf("message %d is not in its place", s.Sequence)
		}
		k.at = s.Time
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// naive is what a history read returns over all its pages.
func naive(model []kept, in wire.HistoryRequest) (want []kept, skipped int) {
	var all []kept
	for _, k := range model {
		if k.channel == in.Channel {
			all = append(all, k)
		}
	}
	if in.Last > 0 {
		all = all[max(0, len(all)-in.Last):]
	}
	for _, k := range all {
		switch {
		case k.seq < in.From, in.Since > 0 && k.at.Before(time.UnixMilli(in.Since)), in.Until > 0 && k.seq > in.Until:
		case k.bad:
			skipped++
		default:
			want = append(want, k)
		}
	}
	return want, skipped
}

// readAll follows the pages of a read.
func readAll(t rapid.TB, c *control.Caller, in wire.HistoryRequest) (got []wire.HistoryMessage, skipped, pages int) {
	for {
		var raw json.RawMessage
		if err := c.Call(context.Background(), control.Target{Endpoint: wire.DeliveryEndpoint, Command: wire.CommandHistory}, in, &raw); err != nil {
			t.Fatalf("history %+v: %v", in, err)
		}
		if len(raw) > wire.MaxPage {
			t.Fatalf("history %+v: page of %d bytes, want at most %d", in, len(raw), wire.MaxPage)
		}
		var page wire.HistoryReply
		if err := json.Unmarshal(raw, &page); err != nil {
			t.Fatal(err)
		}
		if in.Limit > 0 && len(page.Messages) > in.Limit {
			t.Fatalf("history %+v: %d messages on a page", in, len(page.Messages))
		}
		got, skipped, pages = append(got, page.Messages...), skipped+page.Skipped, pages+1
		if page.Next == 0 {
			return got, skipped, pages
		}
		if page.Next <= in.From && in.From != 0 {
			t.Fatalf("history %+v: next page from %d goes nowhere", in, page.Next)
		}
		in.From, in.Since, in.Last = page.Next, 0, 0
	}
}

func TestHistoryAgreesWithAModelOfTenThousand(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	const total = 10_000
	model := fill(t, m, total)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	c := m.caller(t, ada)
	rapid.Check(t, func(rt *rapid.T) {
		in := wire.HistoryRequest{Channel: rapid.SampledFrom([]string{"general", "team.a", "team.b", "rare", "empty"}).Draw(rt, "channel")}
		switch rapid.IntRange(0, 3).Draw(rt, "start") {
		case 1:
			in.From = rapid.Uint64Range(1, total+10).Draw(rt, "from")
		case 2:
			in.Since = model[rapid.IntRange(0, total-1).Draw(rt, "since")].at.UnixMilli() + 1
		case 3:
			in.Last = rapid.IntRange(1, total+10).Draw(rt, "last")
		}
		if rapid.Bool().Draw(rt, "bounded") {
			in.Until = rapid.Uint64Range(1, total+10).Draw(rt, "until")
		}
		in.Limit = rapid.SampledFrom([]int{0, 500, 1000, wire.MaxHistoryPage}).Draw(rt, "limit")
		want, wantSkipped := naive(model, in)
		got, skipped, _ := readAll(rt, c, in)
		if len(got) != len(want) || skipped != wantSkipped {
			rt.Fatalf("history %+v: %d messages, %d skipped, want %d, %d", in, len(got), skipped, len(want), wantSkipped)
		}
		for i, k := range want {
			g := got[i]
			if g.Sequence != k.seq || g.Sender != "local."+k.sender || string(g.Message) != k.body || g.TimeMS != k.at.UnixMilli() {
				rt.Fatalf("history %+v: message %d is %d of %s, want %d of %s", in, i, g.Sequence, g.Sender, k.seq, k.sender)
			}
		}
	})
	start := time.Now()
	got, _, pages := readAll(t, c, wire.HistoryRequest{Channel: "general"})
	t.Logf("%d messages on %d pages in %s", len(got), pages, time.Since(start))
	start = time.Now()
	ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "rare", Last: 3})
	t.Logf("last 3 of a rare channel in %s", time.Since(start))
}

func TestHistorySmallPages(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	model := fill(t, m, 200)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	c := m.caller(t, ada)
	for _, limit := range []int{1, 2, 7} {
		in := wire.HistoryRequest{Channel: "general", Limit: limit}
		want, _ := naive(model, in)
		got, _, pages := readAll(t, c, in)
		if len(got) != len(want) || pages < len(want)/limit {
			t.Errorf("pages of %d: %d messages on %d pages, want %d", limit, len(got), pages, len(want))
		}
	}
	page := ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "general", Limit: 10})
	all := 0
	for _, k := range model {
		if k.channel == "general" && k.seq >= page.Next {
			all++
		}
	}
	equal(t, "remaining", page.Remaining, uint64(all))
}

func TestHistoryPagesOfTheLargestMessages(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, "big")
	c := m.caller(t, ada)
	// HTML characters and line separators grow when a careless encoder escapes them.
	filler := strings.Repeat("<&>\u2028", 1)
	var sent []string
	for i := range 7 {
		text := fmt.Sprintf("%d ", i) + strings.Repeat(filler, (wire.MaxMessage-1024)/len(filler))
		sent = append(sent, text)
		m.post(t, ada.Principal, "big", text)
	}
	got, skipped, pages := readAll(t, c, wire.HistoryRequest{Channel: "big"})
	if len(got) != len(sent) || skipped != 0 || pages != 7 {
		t.Fatalf("%d messages, %d skipped, %d pages, want 7, 0, 7", len(got), skipped, pages)
	}
	if have := texts(t, wire.HistoryReply{Messages: got}); !slices.Equal(have, sent) {
		t.Error("the largest messages did not survive")
	}
}

// A channel full of what is skipped costs a request a bounded read, and the pages still get to the end.
func TestHistoryOfAFloodOfMalformed(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, "general")
	c := m.caller(t, ada)
	subject, err := wire.ChannelSubject(lab, ada.Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	const flood = 45_000
	for range flood {
		if err := m.nc.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	m.flush(t)
	m.post(t, ada.Principal, "general", "found")
	got, skipped, pages := readAll(t, c, wire.HistoryRequest{Channel: "general"})
	if len(got) != 1 || skipped != flood || pages < 2 {
		t.Errorf("%d messages, %d skipped on %d pages, want 1, %d on several", len(got), skipped, pages, flood)
	}
}

func TestHistoryIsWithinTheCurrentReadList(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	poster := lifecycle("poster").Principal
	for _, ch := range []string{"general", "team.a", "team.a.deep", "secret"} {
		m.post(t, poster, ch, "hello "+ch)
	}
	past := time.Now().Add(-time.Minute)
	ada := lifecycle("ada")
	grant, rev := m.grant(t, ada, "general", "team.*")
	c := m.caller(t, ada)
	read := func(c *control.Caller, channel string) error {
		_, err := try[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: channel})
		return err
	}
	for channel, allowed := range map[string]bool{"general": true, "team.a": true, "team.a.deep": false, "secret": false, "team": false} {
		err := read(c, channel)
		if allowed && err != nil || !allowed && !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("channel %s = %v, allowed %v", channel, err, allowed)
		}
	}
	// Every way a grant can be less counts at once.
	for _, step := range []struct {
		name   string
		change func(*trust.Grant)
		why    string
	}{
		{"narrowed", func(g *trust.Grant) { g.AllowSubscribe = []string{"team.*"} }, "read list"},
		{"expired", func(g *trust.Grant) { g.ExpiresAt = &past }, "expired"},
		{"retiring", func(g *trust.Grant) { g.State = trust.GrantRetiring }, "retiring"},
		{"retired", func(g *trust.Grant) { g.State = trust.GrantRetired }, "retired"},
		{"reborn", func(g *trust.Grant) { g.UID = wire.NewUID() }, "another life"},
	} {
		next := grant
		step.change(&next)
		var err error
		if rev, err = m.grants.Update(ctxFor(t), next, rev); err != nil {
			t.Fatal(err)
		}
		err = read(c, "general")
		e, _ := errors.AsType[*wire.Error](err)
		if !errors.Is(err, wire.ErrPermissionDenied) || !strings.Contains(e.Message, step.why) {
			t.Errorf("%s: %v, want permission-denied because of %q", step.name, err, step.why)
			continue
		}
		for key, want := range map[string]string{"principal": "local.ada", "missing": "subscribe general", "subject": "cotal.lab.chat.*.*.general"} {
			equal(t, step.name+": detail "+key, fmt.Sprint(e.Details[key]), want)
		}
		if ask, _ := e.Details["ask"].(string); !strings.Contains(ask, "general") || e.Outcome != wire.OutcomeNotExecuted {
			t.Errorf("%s: details = %v, outcome %s, want how to ask and not-executed", step.name, e.Details, e.Outcome)
		}
	}
	if err := read(m.caller(t, lifecycle("stranger")), "general"); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("without a grant = %v, want permission-denied", err)
	}
}

func TestHistoryRefusesWhatIsNoRequest(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	c := m.caller(t, ada)
	for name, in := range map[string]wire.HistoryRequest{
		"pattern":    {Channel: "team.>"},
		"star":       {Channel: "*"},
		"empty":      {},
		"two_starts": {Channel: "a", From: 1, Last: 1},
		"limit":      {Channel: "a", Limit: wire.MaxHistoryPage + 1},
		"negative":   {Channel: "a", Last: -1},
		"since":      {Channel: "a", Since: -5},
	} {
		if _, err := try[wire.HistoryReply](t, c, wire.CommandHistory, in); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s = %v, want bad-request", name, err)
		}
	}
}

func TestHistoryOfAJoinHonoursTheChannelsReplay(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		m.serve(t, nil)
		ada := lifecycle("ada")
		m.grant(t, ada, ">")
		c := m.caller(t, ada)
		channels := space.NewChannels(m.js, lab)
		off := false
		set := func(name string, cfg wire.ChannelConfig) {
			if _, err := channels.Set(ctxFor(t), name, cfg, nil); err != nil {
				t.Fatal(err)
			}
		}
		set("quiet", wire.ChannelConfig{Replay: &off})
		set("hour", wire.ChannelConfig{ReplayWindow: "1h"})
		for _, ch := range []string{"quiet", "hour", "plain"} {
			m.post(t, ada.Principal, ch, "old")
		}
		time.Sleep(2 * time.Hour)
		for _, ch := range []string{"quiet", "hour", "plain"} {
			m.post(t, ada.Principal, ch, "new")
		}
		for _, tc := range []struct {
			in   wire.HistoryRequest
			want string
		}{
			{wire.HistoryRequest{Channel: "quiet"}, "old new"},
			{wire.HistoryRequest{Channel: "quiet", Replay: true}, ""},
			{wire.HistoryRequest{Channel: "hour"}, "old new"},
			{wire.HistoryRequest{Channel: "hour", Replay: true}, "new"},
			{wire.HistoryRequest{Channel: "hour", Replay: true, From: 1}, "new"},
			{wire.HistoryRequest{Channel: "hour", Replay: true, Last: 2}, "new"},
			{wire.HistoryRequest{Channel: "plain", Replay: true}, "old new"},
			{wire.HistoryRequest{Channel: "plain", Replay: true, Since: time.Now().Add(-time.Minute).UnixMilli()}, "new"},
		} {
			page := ask[wire.HistoryReply](t, c, wire.CommandHistory, tc.in)
			equal(t, fmt.Sprintf("%+v", tc.in), strings.Join(texts(t, page), " "), tc.want)
		}
		// Defaults of the space apply where the channel is silent.
		set(wire.DefaultsKey, wire.ChannelConfig{DeliveryClass: "live", Replay: &off})
		page := ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "plain", Replay: true})
		equal(t, "replay off by default", len(page.Messages), 0)
	})
}

func TestHistoryMakesNoConsumer(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada := lifecycle("ada")
	m.grant(t, ada, ">")
	c := m.caller(t, ada)
	m.post(t, ada.Principal, "general", "x")
	for range 100 {
		ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "general", Last: 1})
		ask[wire.ChannelsReply](t, c, wire.CommandChannels, nil)
		ask[wire.RosterReply](t, c, wire.CommandRoster, nil)
	}
	info, err := m.js.AccountInfo(ctxFor(t))
	if err != nil || info.Consumers != 0 {
		t.Errorf("consumers after 300 reads = %d, %v, want 0", info.Consumers, err)
	}
}

// The search finds the place in any distribution of messages over sequences, in few probes.
func TestLastStartFindsThePlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		seqs := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 1<<rapid.IntRange(4, 40).Draw(rt, "bits")), 2, 200, rapid.ID).Draw(rt, "sequences")
		slices.Sort(seqs)
		want := rapid.IntRange(1, len(seqs)-1).Draw(rt, "want")
		last := seqs[len(seqs)-1] + rapid.Uint64Range(0, 1000).Draw(rt, "after")
		probes := 0
		got, err := delivery.Search(uint64(want), seqs[0], uint64(len(seqs)), last, func(seq uint64) (uint64, uint64, error) {
			probes++
			i, _ := slices.BinarySearch(seqs, seq)
			if i == len(seqs) {
				return 0, 0, nil
			}
			return seqs[i], uint64(len(seqs) - i), nil
		})
		i, _ := slices.BinarySearch(seqs, got)
		if err != nil || len(seqs)-i != want {
			rt.Fatalf("from %d on lie %d, %v, want %d", got, len(seqs)-i, err, want)
		}
		if probes > 90 {
			rt.Fatalf("%d probes", probes)
		}
	})
}

func BenchmarkHistoryPage(b *testing.B) {
	m := newMesh(b)
	m.serve(b, nil)
	ada := lifecycle("ada")
	m.grant(b, ada, ">")
	c := m.caller(b, ada)
	subject, err := wire.ChannelSubject(lab, ada.Principal, "general")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10_000 {
		if _, err := m.js.PublishAsync(subject, encode(b, message(ada.Principal, "general", fmt.Sprintf("message %d", i))), jetstream.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
	<-m.js.PublishAsyncComplete()
	b.ResetTimer()
	n := 0
	for b.Loop() {
		got, _, _ := readAll(b, c, wire.HistoryRequest{Channel: "general"})
		n += len(got)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
}
