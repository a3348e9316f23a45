package spec_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/cotaltest"
)

func TestCredentialSaysWhoItIs(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	c := connect(t, m, m.Credentials(t, "Ada_1", &cotaltest.Peer{Role: "author", Subscribe: []string{"Team.>", "x.*"}, Publish: []string{"Team.a"}}).Reveal())
	if c.space != "test" || c.owner != "local" || c.actor != "Ada_1" || len(c.uid) != 26 || c.tag("inbox") != c.uid || c.tag("role") != "author" || c.tag("profile") != "agent" {
		t.Errorf("tags = %v", c.tags)
	}
	if got := strings.Join(c.tags["sub"], " ") + "/" + strings.Join(c.tags["pub"], " "); got != "Team.> x.*/Team.a" {
		t.Errorf("patterns = %q, want them in order with their case", got)
	}
}

func TestPublishIsAcknowledgedByTheBroker(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	c := connect(t, m, m.Credentials(t, "ada", &cotaltest.Peer{Publish: []string{"team"}}).Reveal())
	subject := c.subject("chat.local.ada.team")
	body, header := c.message("id-one", object{"channel": "team"}), nats.Header{"Nats-Msg-Id": {"id-one"}}
	if got := decode(t, c.ask(subject, header, body).Data); got["stream"] != "CHAT_test" || got["seq"] != 1.0 || got["duplicate"] != nil || got["error"] != nil {
		t.Errorf("first answer = %v", got)
	}
	if got := decode(t, c.ask(subject, header, body).Data); got["seq"] != 1.0 || got["duplicate"] != true {
		t.Errorf("answer to the same again = %v, want the same sequence as a duplicate", got)
	}
	// Nothing stores this subject of the inbox, and nobody listens.
	if got := c.ask(c.subject("ep.one.com_example_nobody.health.local.ada.%s.%s", c.uid, strings.Repeat("n", 22)), nil, "{}"); got.Header.Get("Status") != "503" || len(got.Data) != 0 {
		t.Errorf("answer where nobody is = %v %q, want status 503", got.Header, got.Data)
	}
	// A subject outside the credential is a violation that names it, and no answer.
	if err := c.nc.PublishRequest(c.subject("chat.local.ada.secret"), c.inbox+".x", []byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := <-c.violations; !strings.Contains(err.Error(), "chat.local.ada.secret") {
		t.Errorf("violation = %v", err)
	}
}

func TestLiveRail(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	ada := connect(t, m, m.Credentials(t, "ada", nil).Reveal())
	bob := connect(t, m, m.Credentials(t, "bob", &cotaltest.Peer{Subscribe: []string{"team.>"}}).Reveal())
	live := bob.subscribe(bob.subject("live.*.*.team.>"))
	forged := nats.Header{"Nats-Msg-Id": {"b"}, "Nats-Sequence": {"9999"}, "Nats-Last-Sequence": {"9998"}, "Nats-Subject": {"cotal.test.chat.local.boss.team.x"}}
	for _, send := range []struct {
		id      string
		channel string
		header  nats.Header
	}{{"a", "team.x", nats.Header{"Nats-Msg-Id": {"a"}}}, {"z", "team.y", nil}, {"b", "team.x", forged}} {
		ada.ask(ada.subject("chat.local.ada.%s", send.channel), send.header, ada.message(send.id, object{"channel": send.channel}))
	}
	for i, want := range []struct{ subject, sequence, last string }{
		{"cotal.test.live.local.ada.team.x", "1", "0"},
		{"cotal.test.live.local.ada.team.y", "2", "0"},
		{"cotal.test.live.local.ada.team.x", "3", "1"},
	} {
		msg := next(t, live)
		lastOf := func(name string) string { v := msg.Header.Values(name); return v[len(v)-1] }
		if msg.Subject != want.subject || lastOf("Nats-Sequence") != want.sequence || lastOf("Nats-Last-Sequence") != want.last ||
			lastOf("Nats-Stream") != "CHAT_test" || msg.Reply != "" {
			t.Errorf("copy %d = %q %v reply %q, want %+v without a reply", i, msg.Subject, msg.Header, msg.Reply, want)
		}
		if i == 2 && msg.Header.Get("Nats-Sequence") != "9999" {
			t.Error("the broker now removes forged headers: LIV-2 can be relaxed")
		}
	}
}

func TestDurables(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	ada := connect(t, m, m.Credentials(t, "ada", nil).Reveal())
	bob := connect(t, m, m.Credentials(t, "bob", &cotaltest.Peer{Role: "reviewer"}).Reveal())
	ada.ask(ada.subject("inst.local.bob.local.ada"), nats.Header{"Nats-Msg-Id": {"dm"}}, ada.message("dm", object{"to": "local.bob"}))
	ada.ask(ada.subject("svc.reviewer.local.ada"), nats.Header{"Nats-Msg-Id": {"job"}}, ada.message("job", object{"toService": "reviewer"}))

	pull := "$JS.API.CONSUMER.MSG.NEXT.DM_test.dm_local-bob-" + bob.uid
	first := bob.ask(pull, nil, `{"batch":1,"expires":50000000000}`) // the queue may hear of it after the sender
	if first.Subject != "cotal.test.inst.local.bob.local.ada" || decode(t, first.Data)["id"] != "dm" {
		t.Fatalf("first = %q %q", first.Subject, first.Data)
	}
	ack := strings.Split(first.Reply, ".")
	if len(ack) != 9 || strings.Join(ack[:4], ".") != "$JS.ACK.DM_test.dm_local-bob-"+bob.uid || ack[4] != "1" || ack[5] != "1" || ack[8] != "0" {
		t.Errorf("acknowledgement subject = %q", first.Reply)
	}
	if got := bob.ask(pull, nil, `{"batch":1,"no_wait":true}`); got.Header.Get("Status") != "404" || len(got.Data) != 0 {
		t.Errorf("pull with nothing there = %v, want status 404", got.Header)
	}
	if got := bob.ask(pull, nil, `{"batch":1,"expires":50000000}`); got.Header.Get("Status") != "408" || got.Header.Get("Nats-Pending-Messages") != "1" {
		t.Errorf("pull that expired = %v, want status 408 with what is pending", got.Header)
	}
	if err := bob.nc.Publish(first.Reply, []byte(`-NAK {"delay": 1000000}`)); err != nil {
		t.Fatal(err)
	}
	again := bob.ask(pull, nil, `{"batch":1,"expires":50000000000}`)
	if n, err := strconv.Atoi(strings.Split(again.Reply, ".")[4]); err != nil || n != 2 || again.Subject != first.Subject {
		t.Errorf("after a negative acknowledgement came %q with %q, want the message again, delivered twice", again.Subject, again.Reply)
	}
	if got := bob.ask(again.Reply, nil, "+ACK"); len(got.Data) != 0 || got.Header.Get("Status") != "" {
		t.Errorf("confirmation = %v %q, want an empty message", got.Header, got.Data)
	}

	work := "$JS.API.CONSUMER.MSG.NEXT.TASK_test.svc_reviewer"
	job := bob.ask(work, nil, `{"batch":1,"expires":50000000000}`)
	if job.Subject != "cotal.test.svc.reviewer.local.ada" {
		t.Fatalf("job = %q %q", job.Subject, job.Data)
	}
	bob.ask(job.Reply, nil, "+WPI")
	bob.ask(job.Reply, nil, "+TERM not a job")
	if got := bob.ask(work, nil, `{"batch":1,"no_wait":true}`); got.Header.Get("Status") != "404" {
		t.Errorf("after termination = %q %v, want nothing", got.Subject, got.Header)
	}
}

func TestHeartbeatOfAPull(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	bob := connect(t, m, m.Credentials(t, "bob", nil).Reveal())
	got := bob.ask("$JS.API.CONSUMER.MSG.NEXT.DM_test.dm_local-bob-"+bob.uid, nil, `{"batch":1,"expires":30000000000,"idle_heartbeat":100000000}`)
	if got.Header.Get("Status") != "100" || got.Subject == "" || len(got.Data) != 0 {
		t.Errorf("first answer = %v, want status 100", got.Header)
	}
}

func TestPresenceReachesTheRoster(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	c := connect(t, m, m.Credentials(t, "ada", nil).Reveal())
	events := c.subscribe(c.subject("epe.delivery.*.*.roster"))
	record := encode(t, object{
		"card": object{"id": "local.ada", "name": "Ada", "kind": "agent"}, "status": "working", "activity": "reading", "lifecycleUid": c.uid, "ts": 1,
	})
	if got := decode(t, c.ask("$KV.cotal_presence_test.local.ada", nil, record).Data); got["stream"] != "KV_cotal_presence_test" {
		t.Errorf("answer to presence = %v", got)
	}
	for {
		msg := next(t, events)
		event := decode(t, msg.Data)
		if event["kind"] != "change" {
			continue
		}
		entry := event["entry"].(object)
		if entry["principal"] != "local.ada" || entry["presence"].(object)["activity"] != "reading" || event["sequence"].(float64) < 1 {
			t.Errorf("event = %v", event)
		}
		break
	}
	reply, _ := c.call("roster", strings.Repeat("a", 22), object{"limit": 10})
	data := reply["data"].(object)
	if reply["ok"] != true || data["total"] != 1.0 || data["instance"] == "" || data["entries"].([]any)[0].(object)["principal"] != "local.ada" {
		t.Errorf("roster = %v", reply)
	}
}

func TestRequestsAndReplies(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	c := connect(t, m, m.Credentials(t, "ada", &cotaltest.Peer{Subscribe: []string{"team"}, Publish: []string{"team"}}).Reveal())
	for _, id := range []string{"a", "b", "c"} {
		c.ask(c.subject("chat.local.ada.team"), nats.Header{"Nats-Msg-Id": {id}}, c.message(id, object{"channel": "team"}))
	}
	nonce := strings.Repeat("h", 22)
	reply, subject := c.call("history", nonce, object{"channel": "team", "last": 2})
	tokens := strings.Split(subject, ".")
	if strings.Join(tokens[:5], ".") != "cotal.test.ep.reply.delivery" || strings.Join(tokens[7:], ".") != "local.ada."+c.uid+"."+nonce || tokens[5] == "_" {
		t.Errorf("reply subject = %q", subject)
	}
	messages := reply["data"].(object)["messages"].([]any)
	first := messages[0].(object)
	if reply["v"] != 1.0 || reply["id"] != "r1" || reply["ok"] != true || reply["error"] != nil || len(messages) != 2 ||
		first["sequence"] != 2.0 || first["sender"] != "local.ada" || first["message"].(object)["id"] != "b" {
		t.Errorf("history = %v", reply)
	}
	reply, _ = c.call("history", strings.Repeat("i", 22), object{"channel": "secret"})
	failure := reply["error"].(object)
	details := failure["details"].(object)
	if reply["ok"] != false || reply["data"] != nil || failure["code"] != "permission-denied" || failure["outcome"] != "not-executed" ||
		details["principal"] != "local.ada" || details["missing"] == nil {
		t.Errorf("refusal = %v", reply)
	}
	reply, _ = c.call("describe", strings.Repeat("j", 22), object{})
	contract, ok := reply["data"].(object)
	if !ok {
		t.Fatalf("describe = %v", reply)
	}
	if contract["v"] != 1.0 || contract["endpoint"] != "delivery" || !strings.HasPrefix(contract["digest"].(string), "sha256:") || len(contract["commands"].([]any)) < 4 {
		t.Errorf("contract = %v", contract)
	}
	if reply, _ = c.call("health", strings.Repeat("k", 22), nil); reply["data"].(object)["ready"] != true {
		t.Errorf("health = %v", reply)
	}
	// Nobody there: the broker answers on the caller's own reply rail.
	nobody := c.subject("ep.one.com_example_nobody.health.local.ada.%s.%s", c.uid, strings.Repeat("n", 22))
	at := c.subject("ep.reply.com_example_nobody._.0.local.ada.%s.%s", c.uid, strings.Repeat("n", 22))
	replies := c.subscribe(c.subject("ep.reply.*.*.*.local.ada.%s.*", c.uid))
	if err := c.nc.PublishRequest(nobody, at, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if got := next(t, replies); got.Subject != at || got.Header.Get("Status") != "503" {
		t.Errorf("answer where nobody is = %q %v, want status 503 on the reply rail", got.Subject, got.Header)
	}
}
