package broker

import (
	"log/slog"
	"testing"
)

// TestLogTellsOfImpairments pins which lines of nats-server mean that nothing can be stored, and of whom.
func TestLogTellsOfImpairments(t *testing.T) {
	var told []Impairment
	b := &logBridge{log: slog.New(slog.DiscardHandler), ill: &illness{told: func(im Impairment) { told = append(told, im) }}}
	full := "write /s/1.blk: no space left on device"
	b.Errorf("JetStream failed to store a msg on stream '%s > %s': %v", "AAA", "S", full) // always followed by the next
	b.Errorf("JetStream stream '%s > %s' critical write error: %v", "AAA", "S", full)
	b.Errorf("JetStream stream '%s > %s' critical write error: %v", "AAA", "T", full) // known
	b.Errorf("JetStream consumer '%s > %s > %s' critical write error: %v", "BBB", "S", "c", "input/output error")
	b.Warnf("Filesystem permission denied while writing msg, disabling JetStream: %v", "denied")
	b.Warnf("Slow consumer %q", "critical write error")
	want := []Impairment{
		{Account: "AAA", Reason: "disk full"}, {Account: "BBB", Reason: "input/output error"},
		{Reason: "Filesystem permission denied while writing msg, disabling JetStream: denied"},
	}
	if len(told) != len(want) || len(b.ill.all()) != len(want) {
		t.Fatalf("told %+v, want %+v", told, want)
	}
	for i, im := range told {
		if im.Since.IsZero() || im.Account != want[i].Account || im.Reason != want[i].Reason {
			t.Errorf("impairment %d = %+v, want %+v", i, im, want[i])
		}
	}
}
