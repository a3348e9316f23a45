package auth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func denied(target string, r trust.Reason) space.AuditEvent {
	return space.AuditEvent{By: "192.0.2.1", Action: space.ActionConnect, Target: target, Outcome: space.OutcomeDenied, Reason: r, Detail: "no"}
}

// auditOf is the audit stream of a mesh, as the authority has it.
func auditOf(t *testing.T, m *cotaltest.Mesh) *space.Audit {
	t.Helper()
	creds, err := m.Node().Authority().ServiceCredential(t.Context(), m.Space(), trust.Authority, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := m.Node().Dial(t.Context(), creds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return space.NewAudit(js, m.Space())
}

// Strangers that try 5,000 times a second leave two records a minute for each reason, which say how often it was.
func TestAStormOfStrangersLeavesFewRecords(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		audit := auditOf(t, m)
		_, before, err := audit.Read(t.Context(), space.AuditQuery{Newest: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		start := time.Now()
		d := auth.NewDenials(audit.Append, nil)
		reasons := []trust.Reason{trust.ReasonSignature, trust.ReasonExpired}
		const seconds, rate = 150, 5000
		for range seconds {
			for i := range rate {
				d.Note(denied("", reasons[i%2]))
			}
			time.Sleep(time.Second)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		entries, _, err := audit.Read(t.Context(), space.AuditQuery{After: before})
		if err != nil || len(entries) != 3*2*len(reasons) {
			t.Fatalf("%d records, %v, want two for each of two reasons in three minutes", len(entries), err)
		}
		total, stored := map[trust.Reason]uint64{}, map[time.Duration]int{}
		for _, e := range entries {
			if e.Unreadable != "" || e.By != "192.0.2.1" || e.Outcome != space.OutcomeDenied || e.Target != "" {
				t.Errorf("record = %+v", e)
			}
			total[e.Reason] += max(e.Count, 1)
			stored[e.Stored.Sub(start).Truncate(time.Second)]++
		}
		for _, r := range reasons {
			if total[r] != seconds*rate/2 {
				t.Errorf("%s was noted %d times, want %d", r, total[r], seconds*rate/2)
			}
		}
		if want := map[time.Duration]int{0: 2, time.Minute: 4, 2 * time.Minute: 4, 150 * time.Second: 2}; fmt.Sprint(stored) != fmt.Sprint(want) {
			t.Errorf("stored %v after the start, want %v", stored, want)
		}
		if got, want := entries[2].Detail, "149999 more from 00:"; entries[2].Count != 149_999 || !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "UTC, of which the first: no") {
			t.Errorf("detail = %q of %d, want %q…", got, entries[2].Count, want)
		}
	})
}

// sink keeps what it is given, or refuses it.
type sink struct {
	mu     sync.Mutex // guards those below
	events []space.AuditEvent
	err    error
}

func (s *sink) write(_ context.Context, e space.AuditEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.events = append(s.events, e)
	}
	return s.err
}

func (s *sink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// tally says how many records there are of each target, and for how much they stand.
func (s *sink) tally() (records map[string]int, total map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, total = map[string]int{}, map[string]uint64{}
	for _, e := range s.events {
		records[e.Target]++
		total[e.Target] += max(e.Count, 1)
	}
	return records, total
}

func TestDenialsOfAPrincipalAreFoldedLate(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var s sink
		d := auth.NewDenials(s.write, nil)
		for range 100 {
			d.Note(denied("local.ada", trust.ReasonRevoked))
			d.Note(denied("local.ada", trust.ReasonScope))
		}
		d.Note(denied("local.bob", trust.ReasonRevoked))
		synctest.Wait()
		if records, _ := s.tally(); records["local.ada"] != 30 || records["local.bob"] != 1 {
			t.Errorf("records at once = %v, want 30 and 1", records)
		}
		time.Sleep(time.Minute + time.Second)
		records, total := s.tally()
		if records["local.ada"] != 32 || total["local.ada"] != 200 || records["local.bob"] != 1 {
			t.Errorf("after the minute %v records for %v, want two more of ada's two reasons and all counted", records, total)
		}
		d.Note(denied("local.ada", trust.ReasonRevoked))
		synctest.Wait()
		if records, _ := s.tally(); records["local.ada"] != 33 {
			t.Errorf("in the next minute %d records, want one more at once", records["local.ada"])
		}
		for range 2 {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		d.Note(denied("local.ada", trust.ReasonRevoked))
		synctest.Wait()
		if records, _ := s.tally(); records["local.ada"] != 33 {
			t.Errorf("after Close %d records, want no more", records["local.ada"])
		}
	})
}

// Whatever is invented, a minute leaves a bounded number of records, and they stand for all of it.
func TestDenialsAreBounded(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var s sink
		block := make(chan struct{})
		d := auth.NewDenials(func(ctx context.Context, e space.AuditEvent) error {
			<-block
			return s.write(ctx, e)
		}, nil)
		const each = 50_000
		for i := range each {
			d.Note(denied(fmt.Sprintf("local.a%d", i), trust.ReasonRevoked))
			d.Note(denied("", trust.Reason(fmt.Sprintf("made-up-%d", i))))
		}
		close(block)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		_, total := s.tally()
		var sum uint64
		for _, n := range total {
			sum += n
		}
		if sum != 2*each || len(s.events) > 6000 {
			t.Errorf("%d records for %d, want at most 6000 for %d", len(s.events), sum, 2*each)
		}
	})
}

// While records cannot be written they are counted, and the log says so once.
func TestDenialsSurviveABrokerThatIsAway(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var s sink
		var log bytes.Buffer
		d := auth.NewDenials(s.write, slog.New(slog.NewTextHandler(&log, nil)))
		s.fail(wire.ErrUnavailable)
		for range 10 {
			d.Note(denied("local.ada", trust.ReasonRevoked))
			d.Note(denied("", trust.ReasonExpired))
			time.Sleep(30 * time.Second)
		}
		if got := strings.Count(log.String(), "audit records not written"); got != 1 {
			t.Errorf("the log says it %d times, want once:\n%s", got, log.String())
		}
		s.fail(nil)
		time.Sleep(2 * time.Minute)
		if _, total := s.tally(); total["local.ada"] != 10 || total[""] != 10 {
			t.Errorf("when the broker is back %v are written, want ten each", total)
		}
		s.mu.Lock()
		for _, e := range s.events {
			if e.Count > 0 && strings.Count(e.Detail, "more from") != 1 {
				t.Errorf("detail = %q", e.Detail)
			}
		}
		s.mu.Unlock()
		s.fail(wire.ErrUnavailable)
		d.Note(denied("", trust.ReasonExpired))
		if err := d.Close(); !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("Close = %v, want unavailable", err)
		}
	})
}

// What is not of the schema is told in the log, and does not keep back the others.
func TestDenialsDropWhatIsNoRecord(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var s sink
		var log bytes.Buffer
		d := auth.NewDenials(func(ctx context.Context, e space.AuditEvent) error {
			if e.Target == "nonsense" {
				return wire.ErrBadRequest
			}
			return s.write(ctx, e)
		}, slog.New(slog.NewTextHandler(&log, nil)))
		d.Note(denied("nonsense", trust.ReasonRevoked))
		d.Note(denied("local.ada", trust.ReasonRevoked))
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if records, _ := s.tally(); records["local.ada"] != 1 || !strings.Contains(log.String(), "not of the schema") {
			t.Errorf("records %v, log %q", records, log.String())
		}
	})
}

func TestDenialsByManyAtOnce(t *testing.T) {
	t.Parallel()
	var s sink
	d := auth.NewDenials(s.write, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 2000 {
				d.Note(denied([]string{"", "local.ada", "local.bob"}[(i+j)%3], trust.ReasonRevoked))
			}
		})
	}
	wg.Wait()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, total := s.tally()
	if total[""]+total["local.ada"]+total["local.bob"] != 16_000 {
		t.Errorf("noted %v, want 16000 in all", total)
	}
}
