package message_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli/message"
	"github.com/cotal-go/cotal/wire"
)

func TestSince(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"90m": now.Add(-90 * time.Minute), "3d": now.AddDate(0, 0, -3), "1h30m": now.Add(-90 * time.Minute),
		"2026-02-01T00:00:00Z": time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := message.Since(in, now); err != nil || !got.Equal(want) {
			t.Errorf("Since(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "yesterday", "-1h", "d", "99999999d", "2026-02-01"} {
		if got, err := message.Since(in, now); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("Since(%q) = %v, %v; want bad-request", in, got, err)
		}
	}
}
