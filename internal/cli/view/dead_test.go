package view_test

import (
	"testing"

	"github.com/cotal-go/cotal/internal/cli/view"
)

func TestWhy(t *testing.T) {
	for _, tt := range []struct {
		reason   string
		attempts int
		why      string
		counted  bool
	}{
		{"gave up after 2 attempts: inbox is full", 2, "inbox is full", false},
		{"gave up after 2 attempts", 2, "", false},
		{"gave up after 2 attempts at it", 2, "gave up after 2 attempts at it", false},
		{"gave up after 2 attempts: x", 3, "gave up after 2 attempts: x", false},
		{"not handled after 20 deliveries", 20, "not handled after 20 deliveries", true},
		{"cannot parse it", 1, "cannot parse it", false},
		{"", 3, "", false},
	} {
		if why, counted := view.Why(tt.reason, tt.attempts); why != tt.why || counted != tt.counted {
			t.Errorf("Why(%q, %d) = %q, %v, want %q, %v", tt.reason, tt.attempts, why, counted, tt.why, tt.counted)
		}
	}
}
