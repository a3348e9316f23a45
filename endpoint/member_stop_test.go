package endpoint_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// TestStopSaysThatTheHandlerRuns when its time is up.
func TestStopSaysThatTheHandlerRuns(t *testing.T) {
	k := newKeeper(newOpenWorld(t))
	block := make(chan struct{})
	m := k.member(nil, func(*endpoint.Delivery) { <-block })
	k.store(ada, "1", true)
	m.wait(t, "1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := m.Stop(ctx)
	close(block)
	if e := wantError(t, err, wire.CodeDeadlineExceeded, wire.OutcomeUnknown); !strings.Contains(e.Error(), "handler still runs") {
		t.Errorf("error %v", e)
	}
	check(t, "stop", m.Stop(t.Context()), nil)
}
