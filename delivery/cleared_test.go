package delivery_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func TestClearedChannelIsReportedOnce(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	gen := ada.join(t, "general").Generation
	m.burst(t, "general", 4, 10)
	m.burst(t, "other", 2, 10)
	if n, err := space.ClearHistory(ctxFor(t), m.js, lab, "general"); err != nil || n != 4 {
		t.Fatalf("cleared %d, %v", n, err)
	}
	after := m.post(t, poster(), "general", "after")
	page := ada.pull(t, wire.PullRequest{Pattern: "general"})
	if !slices.Equal(sequences(page.Messages), []uint64{after}) || len(page.Losses) != 1 {
		t.Fatalf("page = %+v, want one message and one loss", page)
	}
	if l := page.Losses[0]; l.Reason != wire.LossCleared || l.Channel != "general" || l.Count != 4 || l.From != 1 || l.AtMost {
		t.Errorf("loss = %+v", l)
	}
	ada.ack(t, "general", gen, page.Through)
	if page = ada.pull(t, wire.PullRequest{Pattern: "general"}); page.Losses != nil {
		t.Errorf("after handling: %+v", page.Losses)
	}
}

// What was cleared twice is one loss when nothing lies between. How many of it were unread is said as far as it is known.
func TestClearedTwiceIsOneLoss(t *testing.T) {
	t.Parallel()
	m := durableMesh(t)
	ada := m.participant(t, "ada", ">")
	m.burst(t, "general", 1, 10)
	gen := ada.join(t, "general").Generation // after 1
	m.burst(t, "general", 3, 10)
	ada.ack(t, "general", gen, 2)
	for range 2 {
		if _, err := space.ClearHistory(ctxFor(t), m.js, lab, "general"); err != nil {
			t.Fatal(err)
		}
		m.burst(t, "general", 2, 10)
	}
	m.burst(t, "other", 1, 10)
	if _, err := space.ClearHistory(ctxFor(t), m.js, lab, "other"); err != nil {
		t.Fatal(err)
	}
	// 1 and 2 were handled, 3 to 6 are gone, 7 and 8 are there, 9 is of another channel.
	page := ada.pull(t, wire.PullRequest{Pattern: "general"})
	want := []wire.Loss{{SequenceRange: wire.SequenceRange{From: 3, To: 6}, Reason: wire.LossCleared, Channel: "general", Count: 4}}
	if !cmp.Equal(page.Losses, want) || !slices.Equal(sequences(page.Messages), []uint64{7, 8}) {
		t.Errorf("losses = %+v with %v, want %+v with 7 and 8", page.Losses, sequences(page.Messages), want)
	}
	// Of 5 sequences 3 were cleared, and the first of them was handled.
	m.burst(t, "general", 1, 10) // 10
	m.burst(t, "other", 1, 10)   // 11
	ada.ack(t, "general", gen, 8)
	if _, err := space.ClearHistory(ctxFor(t), m.js, lab, "general"); err != nil {
		t.Fatal(err)
	}
	want = []wire.Loss{{SequenceRange: wire.SequenceRange{From: 9, To: 11}, Reason: wire.LossCleared, Channel: "general", Count: 3, AtMost: true}}
	if page := ada.pull(t, wire.PullRequest{Pattern: "general"}); !cmp.Equal(page.Losses, want) {
		t.Errorf("losses = %+v, want %+v", page.Losses, want)
	}
}
