package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/wire"
)

// BenchmarkHeartbeat is the cost of one record that changes nothing, decoding included, among a thousand members.
func BenchmarkHeartbeat(b *testing.B) {
	r := delivery.NewRoster()
	const members = 1000
	var lives [members]wire.Lifecycle
	var bodies [members][]byte
	for i := range members {
		lives[i] = lifecycle(fmt.Sprintf("a%04d", i))
		rec := presence(lives[i], wire.StatusWorking, "reading the tests")
		rec.Card.Description, rec.Card.Tags = "reviews what others wrote", []string{"go", "review"}
		bodies[i] = encodePresence(b, rec)
	}
	now := time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l := lives[i%members]
		rec, err := wire.DecodePresence(l.Principal.String(), bodies[i%members])
		if err != nil {
			b.Fatal(err)
		}
		r.Heard(l.Principal, rec, now)
		r.Due(now)
	}
}

// BenchmarkRosterSnapshot is one full snapshot of a thousand over the rails.
func BenchmarkRosterSnapshot(b *testing.B) {
	m := newMesh(b)
	m.serve(b, nil)
	for i := range 1000 {
		m.beat(b, lifecycle(fmt.Sprintf("a%04d", i)), wire.StatusIdle, "")
	}
	m.flush(b)
	c := m.caller(b, lifecycle("watcher"))
	for b.Loop() {
		if got := ask[wire.RosterReply](b, c, wire.CommandRoster, nil); got.Total < 900 {
			b.Fatalf("%d listed", got.Total)
		}
	}
}

// BenchmarkPull is ten thousand messages of three hundred bytes, from the broker into the hands of one member.
func BenchmarkPull(b *testing.B) {
	m := durableMesh(b)
	ada := m.participant(b, "ada", ">")
	ada.join(b, "general")
	const total = 10_000
	m.burst(b, "general", total, 300-len(encode(b, message(poster(), "general", "9999 "))))
	b.ReportAllocs()
	for b.Loop() {
		got := 0
		for after, first := uint64(0), true; first || after != 0; first = false {
			page := ada.pull(b, wire.PullRequest{Pattern: "general", After: after})
			got, after = got+len(page.Messages), page.Next
		}
		if got != total {
			b.Fatalf("pulled %d", got)
		}
	}
	b.ReportMetric(total*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkPullOfNothing is what the slow timer of a member that has everything costs.
func BenchmarkPullOfNothing(b *testing.B) {
	m := durableMesh(b)
	ada := m.participant(b, "ada", ">")
	gen := ada.join(b, "general").Generation
	ada.ack(b, "general", gen, m.burst(b, "general", 100, 100))
	m.burst(b, "other", 100, 100)
	b.ReportAllocs()
	for b.Loop() {
		ada.pull(b, wire.PullRequest{Pattern: "general"})
	}
}

// BenchmarkAck is one report of a position that moved.
func BenchmarkAck(b *testing.B) {
	m := durableMesh(b)
	ada := m.participant(b, "ada", ">")
	gen := ada.join(b, "general").Generation
	m.burst(b, "general", 100, 100)
	var floor uint64
	b.ReportAllocs()
	for b.Loop() {
		// Ranges above a floor that stays, so that each one is written.
		floor++
		seq := floor % 97
		ada.ack(b, "general", gen, 0, wire.SequenceRange{From: 2 + seq, To: 2 + seq})
	}
}

// BenchmarkMemberships reads ten thousand memberships with their positions for the first time, and what changed since.
func BenchmarkMemberships(b *testing.B) {
	m := newMesh(b)
	m.populate(b, 10_000)
	list := func(b *testing.B, l *delivery.Listing) {
		all, err := l.All(ctxFor(b))
		if err != nil || len(all) != 10_000 {
			b.Fatalf("%d listed, %v", len(all), err)
		}
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			list(b, delivery.NewListing(m.js, lab))
		}
	})
	b.Run("again", func(b *testing.B) {
		l := delivery.NewListing(m.js, lab)
		list(b, l)
		b.ReportAllocs()
		for b.Loop() {
			list(b, l)
		}
	})
}
