package attack_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// deliver asks the delivery service as ep.
func deliver(ctx context.Context, ep *endpoint.Endpoint, command string, in, out any) error {
	return ep.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, in, out)
}

// away makes actor a durable member of pattern and ends its process, so that what follows waits for it.
func away(t *testing.T, m *cotaltest.Mesh, actor string, p *cotaltest.Peer, pattern string) wire.JoinReply {
	t.Helper()
	ep := m.Endpoint(t, actor, p)
	var joined wire.JoinReply
	if err := deliver(t.Context(), ep, wire.CommandJoin, wire.JoinRequest{Pattern: pattern}, &joined); err != nil {
		t.Fatal(err)
	}
	if !joined.Durable {
		t.Fatalf("join %q = %+v, want durable", pattern, joined)
	}
	if err := ep.Close(); err != nil {
		t.Fatal(err)
	}
	return joined
}

func say(t *testing.T, ep *endpoint.Endpoint, channel string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := ep.Post(t.Context(), channel, endpoint.Text(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// wantPull fails unless a pull gives exactly these texts.
func wantPull(t *testing.T, ep *endpoint.Endpoint, pattern string, texts ...string) wire.PullReply {
	t.Helper()
	var got wire.PullReply
	if err := deliver(t.Context(), ep, wire.CommandPull, wire.PullRequest{Pattern: pattern}, &got); err != nil {
		t.Fatalf("pull %q: %v", pattern, err)
	}
	var have []string
	for _, h := range got.Messages {
		msg, err := wire.DecodeMessage(h.Message)
		if err != nil {
			t.Fatal(err)
		}
		have = append(have, msg.Text())
	}
	if fmt.Sprint(have) != fmt.Sprint(texts) {
		t.Errorf("pull %q = %q, want %q", pattern, have, texts)
	}
	return got
}

// wantRefusal fails unless err is the wanted refusal and names what is missing and whom to ask.
func wantRefusal(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
		return
	}
	e, ok := errors.AsType[*wire.Error](err)
	if ok && errors.Is(want, wire.ErrPermissionDenied) {
		for _, key := range []string{"subject", "principal", "missing", "ask"} {
			if e.Details[key] == nil {
				t.Errorf("%s is refused without %q in the details %v", what, key, e.Details)
			}
		}
	}
}

func regrant(t *testing.T, m *cotaltest.Mesh, actor string, subscribe ...string) *endpoint.Endpoint {
	t.Helper()
	creds, err := m.Node().Authority().Issue(t.Context(), auth.Request{Space: m.Space(), Actor: actor, Subscribe: subscribe, Renew: true})
	if err != nil {
		t.Fatal(err)
	}
	return m.Connect(t, creds, nil)
}

// TestNarrowedReadList shows that what waits for a member is not given out once its read list no longer covers it.
func TestNarrowedReadList(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	boss := m.Endpoint(t, "boss", nil)
	team := &cotaltest.Peer{Subscribe: []string{"team.>"}}
	away(t, m, "wide", team, "team.>")
	away(t, m, "gone", team, "team.secret")
	say(t, boss, "team.secret", "the plan")
	say(t, boss, "team.open", "hello")

	wide := regrant(t, m, "wide", "team.open")
	if got := wantPull(t, wide, "team.>", "hello"); got.Withheld != 1 {
		t.Errorf("withheld = %d, want 1", got.Withheld)
	}
	gone := regrant(t, m, "gone", "team.open")
	wantRefusal(t, "pull of a channel outside the list", deliver(t.Context(), gone, wire.CommandPull, wire.PullRequest{Pattern: "team.secret"}, new(wire.PullReply)), wire.ErrPermissionDenied)
	wantRefusal(t, "join beyond the list", deliver(t.Context(), gone, wire.CommandJoin, wire.JoinRequest{Pattern: "team.>"}, new(wire.JoinReply)), wire.ErrPermissionDenied)
	if _, err := gone.Join(t.Context(), "team.secret", func(*endpoint.Delivery) { t.Error("a message surfaced") }, nil); !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("Join = %v, want permission-denied", err)
	}
}

// TestLeftChannel shows that nothing after the leave is given out, and nothing at all once it was discarded.
func TestLeftChannel(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	boss := m.Endpoint(t, "boss", nil)
	ada := m.Endpoint(t, "ada", nil)
	var joined wire.JoinReply
	if err := deliver(t.Context(), ada, wire.CommandJoin, wire.JoinRequest{Pattern: "team"}, &joined); err != nil {
		t.Fatal(err)
	}
	say(t, boss, "team", "before")
	if err := deliver(t.Context(), ada, wire.CommandLeave, wire.LeaveRequest{Pattern: "team", Generation: joined.Generation + 1}, new(wire.LeaveReply)); !errors.Is(err, wire.ErrConflict) {
		t.Errorf("leave of another generation = %v, want conflict", err)
	}
	if err := deliver(t.Context(), ada, wire.CommandLeave, wire.LeaveRequest{Pattern: "team"}, new(wire.LeaveReply)); err != nil {
		t.Fatal(err)
	}
	say(t, boss, "team", "after")
	got := wantPull(t, ada, "team", "before")
	if !got.Ended {
		t.Errorf("pull after the leave = %+v, want ended", got)
	}
	if err := deliver(t.Context(), ada, wire.CommandAck, wire.AckRequest{Pattern: "team", Generation: joined.Generation, Floor: got.Through}, new(wire.AckReply)); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, "pull of a membership that ended", deliver(t.Context(), ada, wire.CommandPull, wire.PullRequest{Pattern: "team"}, new(wire.PullReply)), wire.ErrNotFound)
}

// TestRetiredLifecycleAndReusedName shows that a revoked credential pulls nothing, and that the next life of the name does
// not inherit what waited.
func TestRetiredLifecycleAndReusedName(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	boss := m.Endpoint(t, "boss", nil)
	away(t, m, "eve", nil, "team")
	say(t, boss, "team", "for the first eve")
	if _, err := boss.Post(t.Context(), "elsewhere", endpoint.Draft{Parts: []wire.Part{wire.Text("eve, look")}, Mentions: []string{"eve"}}); err != nil {
		t.Fatal(err)
	}
	old := m.Endpoint(t, "mallory", nil)
	if _, err := m.Node().Authority().Revoke(t.Context(), m.Space(), wire.Principal{Owner: wire.LocalOwner, Actor: "eve"}); err != nil {
		t.Fatal(err)
	}
	next := m.Endpoint(t, "eve", nil)
	wantRefusal(t, "pull by the next life", deliver(t.Context(), next, wire.CommandPull, wire.PullRequest{Pattern: "team"}, new(wire.PullReply)), wire.ErrNotFound)
	var mentions wire.PullReply
	if err := deliver(t.Context(), next, wire.CommandPull, wire.PullRequest{Mentions: true}, &mentions); err != nil || len(mentions.Messages) != 0 {
		t.Errorf("mentions of the next life = %+v, %v, want none", mentions, err)
	}
	wantRefusal(t, "pull by a stranger", deliver(t.Context(), old, wire.CommandPull, wire.PullRequest{Pattern: "team"}, new(wire.PullReply)), wire.ErrNotFound)
}

// TestForeignMembership shows that nobody can name another's membership or position: whose they are is what the broker let
// the caller publish as, and a request as somebody else is refused by the broker.
func TestForeignMembership(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	boss := m.Endpoint(t, "boss", nil)
	joined := away(t, m, "victim", nil, "team")
	say(t, boss, "team", "for the victim")
	mallory := m.Credentials(t, "mallory", nil)
	ep := m.Connect(t, mallory, nil)
	for name, in := range map[string]any{
		wire.CommandAck:   wire.AckRequest{Pattern: "team", Generation: joined.Generation, Floor: 1},
		wire.CommandLeave: wire.LeaveRequest{Pattern: "team", Generation: joined.Generation},
		wire.CommandPull:  wire.PullRequest{Pattern: "team"},
	} {
		wantRefusal(t, name+" of a membership that is not the caller's", deliver(t.Context(), ep, name, in, new(map[string]any)), wire.ErrNotFound)
	}
	in := intrude(t, m, mallory)
	for _, command := range []string{wire.CommandJoin, wire.CommandLeave, wire.CommandPull, wire.CommandAck, wire.CommandReceipt} {
		in.mustNotPublish(t, fmt.Sprintf("cotal.test.ep.one.delivery.%s.local.victim.%s.%s", command, in.id.UID, wire.NewNonce()), []byte(`{}`))
	}
	victim := m.Endpoint(t, "victim", &cotaltest.Peer{Request: &auth.Request{Subscribe: []string{">"}, Renew: true}})
	wantPull(t, victim, "team", "for the victim")
}

// TestRecordsAreOutOfReach shows that no agent can write or hear the records of memberships, positions, pointers and dead
// letters, directly or by having the broker answer there.
func TestRecordsAreOutOfReach(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	s := m.Space()
	victim := m.Credentials(t, "victim", nil).Identity()
	in := intrude(t, m, m.Credentials(t, "mallory", nil))
	life := fmt.Sprintf("%s.%s.%s", victim.Owner, victim.Actor, victim.UID)
	for _, subject := range []string{
		wire.RecordPrefix(wire.MembersBucket(s)) + life + ".x", wire.RecordPrefix(wire.CursorsBucket(s)) + life + ".x",
		must[string](t)(wire.MentionRecord(s, victim.Lifecycle)), must[string](t)(wire.MentionSubject(s, victim.Lifecycle)),
		"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED." + wire.DirectStream(s) + "." + wire.DirectDurable(victim.Lifecycle),
	} {
		in.mustNotPublish(t, subject, []byte(`{}`))
		in.mustNotSubscribe(t, subject)
	}
	in.mustNotSubscribe(t, "cotal.test.epe.delivery.*.*.receipt.local.victim")
	in.mustNotSubscribe(t, "cotal.test.epe.delivery.*.*.receipt.>")
}

// TestForgedLive shows that a live copy and a mention that the broker did not make surface nowhere: nobody may publish them,
// and what the broker can be made to send there carries no position.
func TestForgedLive(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	shown := make(chan string, 16)
	victim := m.Endpoint(t, "victim", nil)
	if _, err := victim.Join(t.Context(), "team", func(d *endpoint.Delivery) { shown <- d.Message.Text() }, nil); err != nil {
		t.Fatal(err)
	}
	if err := victim.HandleMentions(t.Context(), func(d *endpoint.Delivery) { shown <- "mention " + d.Message.Text() }); err != nil {
		t.Fatal(err)
	}
	creds := m.Credentials(t, "mallory", nil)
	in := intrude(t, m, creds)
	pointer := must[string](t)(wire.MentionSubject(m.Space(), victim.Lifecycle()))
	for _, subject := range []string{"cotal.test.live.local.mallory.team", "cotal.test.live.local.boss.team", pointer} {
		in.mustNotPublish(t, subject, []byte(`{"v":1,"channel":"team","sequence":1,"sender":"local.boss"}`))
	}
	// The broker answers a publish where the publisher says.
	body := `{"id":"x","ts":1,"space":"test","from":{"id":"local.mallory","name":"m"},"channel":"team","parts":[{"kind":"text","text":"real"}]}`
	for i, subject := range []string{"cotal.test.live.local.boss.team", pointer} {
		msg := &nats.Msg{Subject: "cotal.test.chat.local.mallory.team", Reply: subject, Data: []byte(body), Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint(i)}}}
		if err := in.nc.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	boss := m.Endpoint(t, "boss", nil)
	say(t, boss, "team", "end")
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for got := []string{}; ; {
		select {
		case text := <-shown:
			if got = append(got, text); text == "end" {
				if fmt.Sprint(got) != "[real end]" {
					t.Errorf("shown %q, want the real message once and the end", got)
				}
				return
			}
		case <-limit.C:
			t.Fatalf("shown %q, and the end never came", got)
		}
	}
}
