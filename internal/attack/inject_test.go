package attack_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// surfaced collects what an application would see.
type surfaced struct {
	mu   sync.Mutex
	text []string
}

func (s *surfaced) add(d *endpoint.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, fmt.Sprintf("%s: %s", d.Sender, d.Message.Text()))
}

func (s *surfaced) has(part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.text {
		if strings.Contains(t, part) {
			return true
		}
	}
	return false
}

// listen joins everything a peer can hear and acknowledges it.
func listen(t *testing.T, ep *endpoint.Endpoint, role bool) *surfaced {
	t.Helper()
	seen := &surfaced{}
	take := func(d *endpoint.Delivery) {
		seen.add(d)
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("ack: %v", err)
		}
	}
	if _, err := ep.Listen(t.Context(), "general", seen.add); err != nil {
		t.Fatal(err)
	}
	if err := ep.HandleDirect(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	if role {
		if err := ep.HandleRole(t.Context(), take); err != nil {
			t.Fatal(err)
		}
	}
	return seen
}

// TestPushStoredBytes shows what happens when an agent has the broker deliver stored bytes of its choice to a
// foreign subject. Consumers that push are refused (TestReadAnothersMessages). A pull from its own durable with a
// foreign reply subject, an acknowledgement with one and a publish with one cannot be refused by the broker
// (ADR 0006): here nothing of them reaches an application, history, or a service.
func TestPushStoredBytes(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	s := m.Space()
	victim := m.Endpoint(t, "victim", &cotaltest.Peer{Role: "vault"})
	seen := listen(t, victim, true)
	in := intrude(t, m, m.Credentials(t, "mallory", &cotaltest.Peer{Role: "reviewer"}))
	me, v := in.id.Principal, victim.Lifecycle()
	subject := must[string](t)

	body := func(from wire.Principal, text string) []byte {
		msg := wire.Message{ID: wire.NewID(), TS: time.Now().UnixMilli(), Space: s, From: wire.EndpointRef{ID: from.String(), Name: "x"}, Channel: "general", Parts: []wire.Part{wire.Text(text)}}
		return must[[]byte](t)(msg.AppendJSON(nil))
	}
	targets := []string{
		subject(wire.ChannelSubject(s, v.Principal, "general")),
		subject(wire.LiveSubject(s, v.Principal, "general")),
		subject(wire.DirectSubject(s, v.Principal, local("boss"))),
		subject(wire.RoleSubject(s, "vault", local("boss"))),
		subject(wire.MentionSubject(s, v)),
		subject(wire.PresenceSubject(s, v.Principal)),
		wire.RecordPrefix(wire.AuthorityBucket(s)) + "grant.local.mallory",
		wire.RecordPrefix(wire.ChannelsBucket(s)) + "general",
		subject(wire.ReplySubject{Space: s, Endpoint: "delivery", Instance: "x", Epoch: "1", Caller: v, Nonce: "abcdefghijklmnopqrstuv"}.Subject()),
		subject(wire.EventSubject{Space: s, Endpoint: "delivery", Instance: "x", Epoch: "1", Topic: "roster"}.Subject()),
		subject(wire.RequestSubject{Space: s, Rail: wire.RailOne, Endpoint: "delivery", Command: "channel-set", Caller: v, Nonce: "abcdefghijklmnopqrstuv"}.Subject()),
		wire.InboxPrefix(string(v.UID)) + ".guess.guess",
	}
	stored := subject(wire.DirectSubject(s, me, me))
	next := "$JS.API.CONSUMER.MSG.NEXT." + wire.DirectStream(s) + "." + wire.DirectDurable(in.id.Lifecycle)
	inbox := in.nc.NewRespInbox()
	own := must[*nats.Subscription](t)(in.nc.SubscribeSync(inbox))
	for i, target := range targets {
		// A well-formed message that claims to come from the victim, stored in the intruder's own inbox.
		if _, err := in.nc.Request(stored, body(v.Principal, fmt.Sprintf("forged %d", i)), time.Minute); err != nil {
			t.Fatal(err)
		}
		publish(t, in.nc, next, target, `{"batch":1,"expires":1000000000}`)
		// Acknowledgement and PubAck with a foreign reply.
		if _, err := in.nc.Request(stored, body(me, "bait"), time.Minute); err != nil {
			t.Fatal(err)
		}
		publish(t, in.nc, next, inbox, `{"batch":1,"expires":60000000000}`)
		bait := must[*nats.Msg](t)(own.NextMsg(time.Minute))
		publish(t, in.nc, bait.Reply, target, `+NXT {"batch":1,"expires":1000000000}`)
		if err := in.nc.PublishMsg(&nats.Msg{Subject: stored, Reply: target, Data: body(v.Principal, fmt.Sprintf("forged ack %d", i))}); err != nil {
			t.Fatal(err)
		}
	}
	in.barrier(t)

	// What was honestly sent after the attack still arrives on each way, so the attack has been processed.
	friend := m.Endpoint(t, "friend", nil)
	fence := endpoint.Draft{Parts: []wire.Part{wire.Text("fence")}}
	if _, err := friend.Post(t.Context(), "general", fence); err != nil {
		t.Fatal(err)
	}
	if _, err := friend.Direct(t.Context(), v.Principal, fence); err != nil {
		t.Fatal(err)
	}
	if _, err := friend.Ask(t.Context(), "vault", fence); err != nil {
		t.Fatal(err)
	}
	eventually(t, "three fences", func() bool { seen.mu.Lock(); defer seen.mu.Unlock(); return len(seen.text) >= 3 })
	if seen.has("forged") || seen.has("bait") || len(seen.text) != 3 {
		t.Errorf("application saw %q, want the three fences only", seen.text)
	}
	page, err := victim.History(t.Context(), wire.HistoryRequest{Channel: "general", Last: 100})
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := json.Marshal(page); strings.Contains(string(raw), "forged") || strings.Contains(string(raw), "bait") {
		t.Errorf("history of general shows injected bytes: %s", raw)
	}
	roster, err := victim.Roster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := json.Marshal(roster); strings.Contains(string(raw), "forged") {
		t.Errorf("roster shows injected bytes: %s", raw)
	}
	grants, err := m.Node().Authority().List(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(grants) != 3 {
		t.Errorf("authority lists %d grants, want 3: %+v", len(grants), grants)
	}
}

func publish(t *testing.T, nc *nats.Conn, subject, reply, body string) {
	t.Helper()
	if err := nc.PublishRequest(subject, reply, []byte(body)); err != nil {
		t.Fatalf("publish %q: %v", subject, err)
	}
}

// eventually waits for a condition that another goroutine brings about; it fails the test after 10 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-limit:
			t.Fatalf("no %s within 10 s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestMalformedMessages shows that bodies outside the wire's rules, sent raw by a credential that may post, reach no
// application, are ended where they were queued, and leave the next good message untouched.
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	s := m.Space()
	victim := m.Endpoint(t, "victim", &cotaltest.Peer{Role: "vault"})
	seen := listen(t, victim, true)
	in := intrude(t, m, m.Credentials(t, "mallory", nil))
	me := in.id.Principal
	good := func(text string) string {
		msg := wire.Message{ID: wire.NewID(), TS: 1, Space: s, From: wire.EndpointRef{ID: me.String(), Name: "mallory"}, Channel: "general", Parts: []wire.Part{wire.Text(text)}}
		return string(must[[]byte](t)(msg.AppendJSON(nil)))
	}
	bad := map[string]string{
		"empty":            "",
		"not json":         "hello",
		"puback":           `{"stream":"CHAT_test","seq":1}`,
		"duplicate key":    strings.Replace(good("bad dup"), `{`, `{"ts":1,`, 1),
		"duplicate from":   strings.Replace(good("bad dup2"), `{`, `{"from":{"id":"local.boss","name":"boss"},`, 1),
		"wrong case":       strings.Replace(good("bad case"), `"parts"`, `"Parts"`, 1),
		"deep":             strings.Replace(good("bad deep"), `{`, `{"x":`+strings.Repeat("[", 4000)+strings.Repeat("]", 4000)+`,`, 1),
		"not utf-8":        strings.Replace(good("bad utf"), "bad", "\xff\xfe", 1),
		"lone surrogate":   strings.Replace(good("bad surrogate"), "bad", `\ud800`, 1),
		"forged sender":    strings.Replace(good("bad sender"), me.String(), "local.boss", 1),
		"trailing data":    good("bad trail") + `{}`,
		"oversize":         strings.Replace(good("bad size"), "bad", strings.Repeat("a", wire.MaxMessage), 1),
		"system role text": strings.Replace(good("bad part"), `"text","text"`, `"system","text"`, 1),
	}
	for name, body := range bad {
		for _, subject := range []string{
			must[string](t)(wire.ChannelSubject(s, me, "general")),
			must[string](t)(wire.DirectSubject(s, victim.Principal(), me)),
			must[string](t)(wire.RoleSubject(s, "vault", me)),
		} {
			if _, err := in.nc.Request(subject, []byte(body), time.Minute); err != nil {
				t.Fatalf("%s: store raw body on %q: %v", name, subject, err)
			}
		}
	}
	friend := m.Endpoint(t, "friend", nil)
	fence := endpoint.Draft{Parts: []wire.Part{wire.Text("fence")}}
	for _, send := range []func() (endpoint.Receipt, error){
		func() (endpoint.Receipt, error) { return friend.Post(t.Context(), "general", fence) },
		func() (endpoint.Receipt, error) { return friend.Direct(t.Context(), victim.Principal(), fence) },
		func() (endpoint.Receipt, error) { return friend.Ask(t.Context(), "vault", fence) },
	} {
		if _, err := send(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three fences", func() bool { seen.mu.Lock(); defer seen.mu.Unlock(); return len(seen.text) >= 3 })
	for _, text := range seen.text {
		if text != "local.friend: fence" {
			t.Errorf("application saw %.80q, want the fences only", text)
		}
	}
	page, err := victim.History(t.Context(), wire.HistoryRequest{Channel: "general", Last: 100})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(page.Messages); got != 1 {
		t.Errorf("history of general shows %d messages, want the fence only", got)
	}
}
