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
