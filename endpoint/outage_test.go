package endpoint_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/endpoint"
)

// TestPatience: what shows that delivery may be there, and being without a connection, begins it anew.
func TestPatience(t *testing.T) {
	type step struct {
		after     time.Duration
		answers   uint64
		unplugged bool
		over      bool
	}
	for name, steps := range map[string][]step{
		"silence":       {{after: 0}, {after: 14 * time.Second}, {after: time.Second, over: true}, {after: time.Second, over: true}},
		"answers":       {{after: 0}, {after: 14 * time.Second, answers: 1}, {after: 14 * time.Second, answers: 1}, {after: time.Second, answers: 1, over: true}},
		"no connection": {{after: 0}, {after: time.Hour, unplugged: true}, {after: 14 * time.Second}, {after: time.Second, over: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var o endpoint.Outage
			now := time.Unix(1, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				o.Fail(now, s.answers, !s.unplugged)
				if got := o.Over(now); got != s.over {
					t.Errorf("step %d: over is %v", i, got)
				}
			}
		})
	}
}
