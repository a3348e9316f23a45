package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
)

// asks counts the requests of a client: each has a nonce of its own.
type asks struct {
	*client
	n int
}

// do runs a command of delivery and returns its data, or fails the test.
func (a *asks) do(command string, args object) object {
	a.t.Helper()
	reply := a.request(command, args)
	data, ok := reply["data"].(object)
	if !ok {
		a.t.Fatalf("%s %v = %v, want data", command, args, reply)
	}
	return data
}

// refused runs a command of delivery and returns its error.
func (a *asks) refused(command, code string, args object) object {
	a.t.Helper()
	reply := a.request(command, args)
	failure, _ := reply["error"].(object)
	if reply["ok"] != false || failure["code"] != code {
		a.t.Errorf("%s %v = %v, want %s", command, args, reply, code)
	}
	return failure
}

func (a *asks) request(command string, args object) object {
	a.t.Helper()
	a.n++
	reply, _ := a.call(command, fmt.Sprintf("%022d", a.n), args)
	return reply
}

// post posts one message and returns its sequence.
func (c *client) post(channel, id string, more object) float64 {
	c.t.Helper()
	body := object{"channel": channel}
	for k, v := range more {
		body[k] = v
	}
	answer := decode(c.t, c.ask(c.subject("chat.local.%s.%s", c.actor, channel), nil, c.message(id, body)).Data)
	sequence, ok := answer["seq"].(float64)
	if !ok {
		c.t.Fatalf("post %q = %v", id, answer)
	}
	return sequence
}

// ids are those of the messages of a page, in order.
func ids(page object) []string {
	out := []string{}
	for _, entry := range page["messages"].([]any) {
		out = append(out, entry.(object)["message"].(object)["id"].(string))
	}
	return out
}

func member(t *testing.T) (ada *client, bob *asks) {
	m := cotaltest.New(t, nil)
	ada = connect(t, m, m.Credentials(t, "ada", nil).Reveal())
	return ada, &asks{client: connect(t, m, m.Credentials(t, "bob", &cotaltest.Peer{Subscribe: []string{"team.>"}, Publish: []string{"team.>"}}).Reveal())}
}

func TestMembership(t *testing.T) {
	t.Parallel()
	ada, bob := member(t)
	joined := ada.post("team.x", "before", nil)
	live := bob.subscribe(bob.subject("live.*.*.team.>"))
	join := bob.do("join", object{"pattern": "team.>"})
	generation := join["generation"]
	if join["pattern"] != "team.>" || join["class"] != "durable" || join["durable"] != true || join["resumed"] != nil ||
		join["joined"] != joined || join["frontier"] != joined || join["floor"] != joined || join["handled"] != nil {
		t.Errorf("join = %v, want it to begin after %v", join, joined)
	}
	for _, id := range []string{"a", "b", "c"} {
		ada.post("team."+id, id, nil)
	}
	if msg := next(t, live); msg.Subject != "cotal.test.live.local.ada.team.a" {
		t.Errorf("live copy on %q", msg.Subject)
	}

	page := bob.do("pull", object{"pattern": "team.>", "limit": 2})
	first := page["messages"].([]any)[0].(object)
	if !slices.Equal(ids(page), []string{"a", "b"}) || page["through"] != joined+2 || page["next"] != joined+2 || page["remaining"] != 1.0 ||
		page["generation"] != generation || first["sequence"] != joined+1 || first["sender"] != "local.ada" || first["channel"] != "team.a" {
		t.Errorf("first page = %v", page)
	}
	page = bob.do("pull", object{"pattern": "team.>", "after": page["next"]})
	if !slices.Equal(ids(page), []string{"c"}) || page["through"] != joined+3 || page["next"] != nil {
		t.Errorf("last page = %v", page)
	}
	ack := func(floor float64, handled ...object) object {
		return object{"pattern": "team.>", "generation": generation, "floor": floor, "handled": append([]object{}, handled...)}
	}
	if got := bob.do("ack", ack(joined, object{"from": joined + 2, "to": joined + 2})); got["floor"] != joined || got["ended"] != nil {
		t.Errorf("ack of a range = %v", got)
	}
	if page := bob.do("pull", object{"pattern": "team.>"}); !slices.Equal(ids(page), []string{"a", "c"}) {
		t.Errorf("pull = %v, want what is not handled", page)
	}
	again := bob.do("join", object{"pattern": "team.>"})
	if again["resumed"] != true || again["generation"] != generation || again["joined"] != joined || again["frontier"] != joined+3 || len(again["handled"].([]any)) != 1 {
		t.Errorf("second join = %v", again)
	}
	bob.refused("ack", "failed-precondition", ack(joined+100))
	bob.refused("ack", "bad-request", ack(joined+3, object{"from": joined + 1, "to": joined + 1}))
	bob.refused("ack", "conflict", object{"pattern": "team.>", "generation": generation.(float64) + 1, "floor": joined})
	bob.refused("leave", "conflict", object{"pattern": "team.>", "generation": generation.(float64) + 1})

	left := bob.do("leave", object{"pattern": "team.>", "generation": generation})
	ada.post("team.x", "after", nil)
	page = bob.do("pull", object{"pattern": "team.>"})
	if left["left"] != joined+3 || !slices.Equal(ids(page), []string{"a", "c"}) || page["ended"] != true || page["through"] != joined+3 {
		t.Errorf("leave = %v, then pull = %v; want what was inside", left, page)
	}
	if got := bob.do("ack", ack(joined+3)); got["ended"] != true {
		t.Errorf("last ack = %v, want the end", got)
	}
	bob.refused("pull", "not-found", object{"pattern": "team.>"})
	bob.refused("ack", "not-found", ack(joined+3))
	bob.refused("leave", "not-found", object{"pattern": "team.>"})
}

func TestJoinIsRefusedOutsideTheReadList(t *testing.T) {
	t.Parallel()
	_, bob := member(t)
	for _, pattern := range []string{"secret", ">", "*.x"} {
		failure := bob.refused("join", "permission-denied", object{"pattern": pattern})
		details, _ := failure["details"].(object)
		if failure["outcome"] != "not-executed" || details["principal"] != "local.bob" || details["missing"] == nil || details["subject"] == nil {
			t.Errorf("join %q = %v, want principal, subject and what is missing", pattern, failure)
		}
	}
	bob.refused("join", "bad-request", object{"pattern": "team..x"})
	// Discarding leaves nothing.
	bob.do("join", object{"pattern": "team.x"})
	bob.do("leave", object{"pattern": "team.x", "discard": true})
	bob.refused("pull", "not-found", object{"pattern": "team.x"})
}

func TestMentions(t *testing.T) {
	t.Parallel()
	ada, bob := member(t)
	pointers := bob.subscribe(bob.subject("dlv.local.bob.%s", bob.uid))
	ada.post("secret", "unread", object{"mentions": []string{"bob"}})
	stored := ada.post("team.x", "named", object{"mentions": []string{"bob", "nobody"}})
	msg := next(t, pointers)
	if got := decode(t, msg.Data); msg.Reply != "" || got["v"] != 1.0 || got["channel"] != "team.x" || got["sequence"] != stored || got["sender"] != "local.ada" || len(got) != 4 {
		t.Errorf("pointer = %v, want where the message is and nothing of it", got)
	}
	page := bob.do("pull", object{"mentions": true})
	if !slices.Equal(ids(page), []string{"named"}) {
		t.Fatalf("mentions = %v", page)
	}
	entry := page["messages"].([]any)[0].(object)
	if entry["stored"] != stored || entry["channel"] != "team.x" || entry["sender"] != "local.ada" || page["through"] != entry["sequence"] {
		t.Errorf("mention = %v", page)
	}
	bob.refused("ack", "failed-precondition", object{"mentions": true, "floor": 1000})
	bob.refused("ack", "bad-request", object{"mentions": true, "pattern": "team.x", "floor": 1})
	if got := bob.do("ack", object{"mentions": true, "floor": page["through"]}); got["floor"] != page["through"] {
		t.Errorf("ack = %v", got)
	}
	if page := bob.do("pull", object{"mentions": true}); len(ids(page)) != 0 || page["next"] != nil {
		t.Errorf("mentions after it = %v", page)
	}
}

func TestReceiptAndReach(t *testing.T) {
	t.Parallel()
	sender, bob := member(t)
	ada := &asks{client: sender}
	answer := decode(t, ada.ask(ada.subject("inst.local.bob.local.ada"), nil, ada.message("dm", object{"to": "local.bob"})).Data)
	at := object{"id": "dm", "kind": "direct", "sequence": answer["seq"]}
	stage := func(want string) {
		t.Helper()
		got := ada.do("receipt", at)
		recipients := got["recipients"].([]any)
		if got["stage"] != want || got["kind"] != "direct" || got["to"] != "local.bob" || got["sender"] != "local.ada" || got["sequence"] != answer["seq"] ||
			got["storedMs"] == nil || got["size"] == nil || len(recipients) != 1 || recipients[0].(object)["stage"] != want {
			t.Errorf("receipt = %v, want %s", got, want)
		}
	}
	stage("stored")
	bob.refused("receipt", "not-found", object{"id": "never-sent"})
	other := decode(t, ada.ask(ada.subject("inst.local.ada.local.ada"), nil, ada.message("private", object{"to": "local.ada"})).Data)
	bob.refused("receipt", "not-found", object{"id": "private", "kind": "direct", "sequence": other["seq"]})
	if got := bob.do("receipt", at); got["stage"] != "stored" {
		t.Errorf("receipt of the recipient = %v", got)
	}
	got := ada.do("reach", object{"to": "local.bob"})
	for end := time.Now().Add(time.Minute); got["waiting"] != 1.0 && time.Now().Before(end); { // the queue may hear of a message after its sender
		got = ada.do("reach", object{"to": "local.bob"})
	}
	if got["tier"] != "stored" || got["live"] != 0.0 || got["waiting"] != 1.0 || got["reason"] == nil {
		t.Errorf("reach = %v", got)
	}
	if got := ada.do("reach", object{"to": "local.nobody"}); got["tier"] != "nobody" {
		t.Errorf("reach of nobody = %v", got)
	}
	msg := bob.ask("$JS.API.CONSUMER.MSG.NEXT.DM_test.dm_local-bob-"+bob.uid, nil, `{"batch":1,"expires":50000000000}`)
	if !strings.HasPrefix(msg.Reply, "$JS.ACK.") {
		t.Fatalf("pull = %v", msg.Header)
	}
	stage("handed-over")
	bob.ask(msg.Reply, nil, "+ACK")
	stage("handled")
	reply := bob.message("re", object{"to": "local.ada", "replyTo": "dm"})
	bob.ask(bob.subject("inst.local.ada.local.bob"), nil, reply)
	stage("answered")
	if got := ada.do("receipt", at)["recipients"].([]any)[0].(object)["answer"]; got != "re" {
		t.Errorf("answer = %v", got)
	}
	bob.refused("reach", "permission-denied", object{"channel": "secret", "mentions": []string{"ada"}})
}
