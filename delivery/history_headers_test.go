package delivery_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/header/headertest"
	"github.com/cotal-go/cotal/wire"
)

// What a publisher can store to hide or forge: headers that look like the broker's.
func TestHistorySurvivesForgedHeaders(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, boss := lifecycle("ada"), lifecycle("boss")
	m.grant(t, ada, "general")
	c := m.caller(t, ada)
	own, err := wire.ChannelSubject(lab, ada.Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	asBoss, err := wire.ChannelSubject(lab, boss.Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	m.post(t, ada.Principal, "general", "first")
	for _, h := range []nats.Header{
		{"Nats-Subject": {asBoss}, "Nats-Sequence": {"1"}},
		{"Status": {"204"}, "Description": {"EOB"}},
		{"Status": {"503"}},
	} {
		body := encode(t, message(boss.Principal, "general", "forged"))
		if h.Get("Status") != "" {
			body = nil
		}
		if _, err := m.js.PublishMsg(ctxFor(t), &nats.Msg{Subject: own, Header: h, Data: body}); err != nil {
			t.Fatal(err)
		}
	}
	m.post(t, ada.Principal, "general", "last")
	page := ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "general"})
	if got, want := texts(t, page), []string{"first", "last"}; !slices.Equal(got, want) || page.Skipped != 3 {
		t.Errorf("history = %q, %d skipped, want %q, 3", got, page.Skipped, want)
	}
}

// TestHistorySurvivesHiddenHeaders: a publisher who ends his header block early hides what the broker says about the
// message, and puts his own in its place.
func TestHistorySurvivesHiddenHeaders(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, boss := lifecycle("ada"), lifecycle("boss")
	m.grant(t, ada, "general")
	c := m.caller(t, ada)
	own, err := wire.ChannelSubject(lab, ada.Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	asBoss, err := wire.ChannelSubject(lab, boss.Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	raw := headertest.Dial(t, m.srv, nil)
	blocks := []string{
		"NATS/1.0\r\nnocolon\r\n\r\n",
		"NATS/1.0 404\r\n\r\nx: y\r\n\r\n",
		"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\nx: y\r\n\r\n",
		"NATS/1.0\r\nNats-Subject: " + asBoss + "\r\nNats-Sequence: 2\r\nNats-Last-Sequence: 1\r\n" +
			"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\nNats-Num-Pending: 1\r\n\r\nx: y\r\n\r\n",
	}
	var want []string
	for i, block := range blocks {
		text := fmt.Sprintf("honest %d", i)
		m.post(t, ada.Principal, "general", text)
		want = append(want, text)
		raw.Publish(t, own, block, encode(t, message(boss.Principal, "general", "forged")))
	}
	page := ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "general"})
	if got := texts(t, page); !slices.Equal(got, want) || page.Skipped != len(blocks) || page.Remaining != 0 {
		t.Errorf("history = %q, %d skipped, %d remaining, want %q, %d, 0", got, page.Skipped, page.Remaining, want, len(blocks))
	}
	// By pages of one, and from the end: the search for the place probes messages that cannot be read.
	var got []string
	skipped := 0
	for next := uint64(1); next != 0; {
		page := ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "general", From: next, Limit: 1})
		got, skipped, next = append(got, texts(t, page)...), skipped+page.Skipped, page.Next
	}
	if !slices.Equal(got, want) || skipped != len(blocks) {
		t.Errorf("history by pages of one = %q, %d skipped, want %q, %d", got, skipped, want, len(blocks))
	}
	for last := 1; last <= 2*len(blocks); last++ {
		page := ask[wire.HistoryReply](t, c, wire.CommandHistory, wire.HistoryRequest{Channel: "general", Last: last})
		if got := texts(t, page); !slices.Equal(got, want[len(want)-last/2:]) || len(got)+page.Skipped != last {
			t.Errorf("last %d = %q, %d skipped", last, got, page.Skipped)
		}
	}
}
