package attack_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/header/headertest"
	"github.com/cotal-go/cotal/wire"
)

// The broker appends its headers to those of the publisher, and a client reads a header block to the first empty line
// only. So an agent who ends its block early hides what the broker says, and can put its own in its place.

// TestHideTheBrokersHeaders tries that on a channel: to speak in another's name in history, to end everybody's reading
// of it, and to forge the place and time of a live message.
func TestHideTheBrokersHeaders(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	s := m.Space()
	victim, boss := m.Endpoint(t, "victim", nil), m.Endpoint(t, "boss", nil)
	seen := &surfaced{}
	if _, err := victim.Listen(t.Context(), ">", func(d *endpoint.Delivery) {
		seen.add(d)
		if d.Time.After(time.Now().Add(time.Hour)) || d.Sequence > 1000 {
			t.Errorf("message %q at %d of %s", d.Message.Text(), d.Sequence, d.Time)
		}
	}); err != nil {
		t.Fatal(err)
	}
	creds := m.Credentials(t, "mallory", &cotaltest.Peer{Publish: []string{"general"}, Subscribe: []string{"general"}})
	raw := headertest.Dial(t, m.InProcess(), creds)
	me := creds.Identity().Principal
	subject := must[string](t)
	own, asBoss := subject(wire.ChannelSubject(s, me, "general")), subject(wire.ChannelSubject(s, boss.Principal(), "general"))
	body := func(from wire.Principal, text string) []byte {
		msg := wire.Message{ID: wire.NewID(), TS: 1, Space: s, From: wire.EndpointRef{ID: from.String(), Name: "x"}, Channel: "general", Parts: []wire.Part{wire.Text(text)}}
		return must[[]byte](t)(msg.AppendJSON(nil))
	}
	say := func(text string) {
		t.Helper()
		if _, err := boss.Post(t.Context(), "general", endpoint.Text(text)); err != nil {
			t.Fatal(err)
		}
	}
	place := func(seq, last int) string {
		return fmt.Sprintf("Nats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Last-Sequence: %d\r\nNats-Time-Stamp: 2099-01-01T00:00:00Z\r\nNats-Num-Pending: 1\r\n", asBoss, seq, last)
	}
	blocks := []string{
		"NATS/1.0\r\n" + place(2, 1) + "\r\nx: y\r\n\r\n",
		"NATS/1.0\r\n" + place(999999, 0) + "\r\nx: y\r\n\r\n",
		"NATS/1.0\n" + place(4, 3) + "\n\r\n",
		"NATS/1.0\r\nnocolon\r\n\r\n",
		"NATS/1.0 404\r\n\r\nx: y\r\n\r\n",
		"NATS/1.0 503\r\n\r\nx: y\r\n\r\n",
		"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\nx: y\r\n\r\n",
	}
	say("honest 0")
	for i, block := range blocks {
		raw.Publish(t, own, block, body(boss.Principal(), "forged in the name of boss"))
		raw.Publish(t, own, block, body(me, "forged place"))
		say(fmt.Sprintf("honest %d", i+1))
	}
	honest := len(blocks) + 1
	eventually(t, "honest messages", func() bool { seen.mu.Lock(); defer seen.mu.Unlock(); return len(seen.text) >= honest })
	if seen.has("forged") {
		t.Errorf("application saw %q", seen.text)
	}
	page, err := victim.History(t.Context(), wire.HistoryRequest{Channel: "general"})
	if err != nil {
		t.Fatalf("history after the attack: %v", err)
	}
	for i, msg := range page.Messages {
		if want := fmt.Sprintf("honest %d", i); msg.Sender != boss.Principal() || msg.Message.Text() != want {
			t.Errorf("history %d is %q of %s, want %q", i, msg.Message.Text(), msg.Sender, want)
		}
	}
	if len(page.Messages) != honest || page.Skipped != 2*len(blocks) {
		t.Errorf("history has %d messages and skipped %d, want %d and %d", len(page.Messages), page.Skipped, honest, 2*len(blocks))
	}
	page, err = victim.History(t.Context(), wire.HistoryRequest{Channel: "general", Last: 4})
	if err != nil || len(page.Messages)+page.Skipped != 4 {
		t.Errorf("last four = %d messages and %d skipped, %v", len(page.Messages), page.Skipped, err)
	}
}

// TestHideHeadersOfPresence tries the same with the agent's own presence record, which delivery reads when it starts and
// before it calls anybody offline.
func TestHideHeadersOfPresence(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	creds := m.Credentials(t, "mallory", &cotaltest.Peer{Publish: []string{}, Subscribe: []string{}})
	raw := headertest.Dial(t, m.InProcess(), creds)
	victim := m.Endpoint(t, "victim", nil)
	asVictim := must[string](t)(wire.PresenceSubject(m.Space(), victim.Principal()))
	poison := func(raw *headertest.Conn) {
		own := must[string](t)(wire.PresenceSubject(m.Space(), creds.Identity().Principal))
		for _, block := range []string{
			"NATS/1.0\r\nNats-Subject: " + asVictim + "\r\nNats-Sequence: 1\r\nNats-Last-Sequence: 0\r\nNats-Time-Stamp: 2026-01-01T00:00:00Z\r\nNats-Num-Pending: 0\r\n\r\nx: y\r\n\r\n",
			"NATS/1.0\r\nnocolon\r\n\r\n",
		} {
			raw.Publish(t, own, block, []byte("{}"))
		}
	}
	poison(raw)
	listed := func(ep *endpoint.Endpoint, when string) {
		t.Helper()
		eventually(t, "victim in the roster "+when, func() bool {
			roster, err := ep.Roster(t.Context())
			if err != nil {
				t.Fatalf("roster %s: %v", when, err)
			}
			return len(roster.Entries) == 1 && roster.Entries[0].Principal == victim.Principal().String() && roster.StaleSince.IsZero()
		})
	}
	listed(victim, "before")
	m.Restart(t) // delivery starts anew and reads the record
	eventually(t, "connection of the victim", victim.Connected)
	poison(headertest.Dial(t, m.InProcess(), creds))
	listed(victim, "after delivery has started anew")
}
