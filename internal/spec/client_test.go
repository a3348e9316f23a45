package spec_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/cotaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is written from SPEC.md alone.
type client struct {
	t                        *testing.T
	nc                       *nats.Conn
	space, owner, actor, uid string
	inbox                    string
	tags                     map[string][]string
	answers                  atomic.Int64
	violations               chan error
}

type object = map[string]any

// connect reads a credentials file and connects as section 2 says.
func connect(t *testing.T, m *cotaltest.Mesh, file []byte) *client {
	t.Helper()
	text := string(file)
	token := between(t, text, "-----BEGIN NATS USER JWT-----", "------END NATS USER JWT------")
	seed := between(t, text, "-----BEGIN USER NKEY SEED-----", "------END USER NKEY SEED------")
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Exp  int64 `json:"exp"`
		NATS struct {
			Tags []string `json:"tags"`
		} `json:"nats"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Exp == 0 {
		t.Error("the credential has no end")
	}
	c := &client{t: t, tags: map[string][]string{}, violations: make(chan error, 16)}
	for _, tag := range claims.NATS.Tags {
		name, value, _ := strings.Cut(tag, ":")
		c.tags[name] = append(c.tags[name], value)
	}
	c.space, c.owner, c.actor, c.uid, c.inbox = c.tag("space"), c.tag("owner"), c.tag("actor"), c.tag("uid"), "_INBOX_"+c.tag("inbox")
	c.nc, err = nats.Connect("", nats.InProcessServer(m.InProcess()), nats.UserJWTAndSeed(token, seed), nats.CustomInboxPrefix(c.inbox), nats.Timeout(time.Minute),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.violations <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.nc.Close)
	return c
}

func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, rest, ok1 := strings.Cut(text, begin)
	body, _, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("credentials file without %q and %q", begin, end)
	}
	return strings.TrimSpace(body)
}

func (c *client) tag(name string) string {
	c.t.Helper()
	if len(c.tags[name]) != 1 {
		c.t.Fatalf("tag %q is there %d times", name, len(c.tags[name]))
	}
	return c.tags[name][0]
}

func (c *client) subject(format string, args ...any) string {
	return "cotal." + c.space + "." + fmt.Sprintf(format, args...)
}

// feed is what arrives on a subscription, status messages included.
type feed struct {
	sub  *nats.Subscription
	msgs chan *nats.Msg
}

func (c *client) subscribe(subject string) feed {
	c.t.Helper()
	f := feed{msgs: make(chan *nats.Msg, 64)}
	var err error
	if f.sub, err = c.nc.ChanSubscribe(subject, f.msgs); err != nil {
		c.t.Fatal(err)
	}
	if err := c.nc.Flush(); err != nil {
		c.t.Fatal(err)
	}
	return f
}

// ask publishes with a reply subject below the inbox and returns what comes there.
func (c *client) ask(subject string, header nats.Header, payload string) *nats.Msg {
	c.t.Helper()
	return c.askAt(fmt.Sprintf("%s.%d", c.inbox, c.answers.Add(1)), subject, header, payload)
}

func (c *client) askAt(reply, subject string, header nats.Header, payload string) *nats.Msg {
	c.t.Helper()
	answers := c.subscribe(reply)
	defer func() { _ = answers.sub.Unsubscribe() }()
	if err := c.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Header: header, Data: []byte(payload)}); err != nil {
		c.t.Fatal(err)
	}
	return next(c.t, answers)
}

func next(t *testing.T, f feed) *nats.Msg {
	t.Helper()
	select {
	case msg := <-f.msgs:
		return msg
	case <-time.After(time.Minute):
		t.Fatalf("nothing on %q", f.sub.Subject)
		return nil
	}
}

// message is a payload of section 5.
func (c *client) message(id string, more object) string {
	body := object{
		"id": id, "ts": time.Now().UnixMilli(), "space": c.space,
		"from":  object{"id": c.owner + "." + c.actor, "name": c.actor},
		"parts": []object{{"kind": "text", "text": "text of " + id}},
	}
	for k, v := range more {
		body[k] = v
	}
	return encode(c.t, body)
}

func encode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decode(t *testing.T, data []byte) object {
	t.Helper()
	var v object
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("decode %q: %v", data, err)
	}
	return v
}

// call is a request of section 10 to delivery; it returns the decoded reply and its subject.
func (c *client) call(command, nonce string, args object) (object, string) {
	c.t.Helper()
	replies := c.subscribe(c.subject("ep.reply.*.*.*.%s.%s.%s.*", c.owner, c.actor, c.uid))
	defer func() { _ = replies.sub.Unsubscribe() }()
	body := object{
		"v": 1, "id": "r1", "class": "ephemeral", "replyExpected": true, "op": object{"endpoint": "delivery", "command": command},
		"from": object{"id": c.owner + "." + c.actor, "name": c.actor}, "deadlineMs": 30000,
	}
	if args != nil {
		body["args"] = args
	}
	request := encode(c.t, body)
	subject := c.subject("ep.one.delivery.%s.%s.%s.%s.%s", command, c.owner, c.actor, c.uid, nonce)
	reply := c.subject("ep.reply.delivery._.0.%s.%s.%s.%s", c.owner, c.actor, c.uid, nonce)
	if err := c.nc.PublishRequest(subject, reply, []byte(request)); err != nil {
		c.t.Fatal(err)
	}
	msg := next(c.t, replies)
	return decode(c.t, msg.Data), msg.Subject
}
