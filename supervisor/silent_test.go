package supervisor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/wire"
)

// frozen is the terminal of a seat that is stopped.
type frozen struct{ relay.Terminal }

func (frozen) Input(ctx context.Context, _ []byte) error { return silence(ctx) }

func (frozen) Size(ctx context.Context) (cols, rows int, err error) { return 0, 0, silence(ctx) }

func silence(ctx context.Context) error {
	<-ctx.Done()
	return wire.Errorf(wire.CodeDeadlineExceeded, "ask seat: %w", ctx.Err())
}

// TestASeatThatDoesNotAnswer is blamed itself, before who asked gives its supervisor up.
func TestASeatThatDoesNotAnswer(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.th.set(func() { s.th.terminal = frozen{} })
		a := s.spawn(t, operator, named("a")).Agent
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		ctx, cancel := contextFor(t, 4*time.Second)
		defer cancel()
		_, err := s.Input(ctx, operator, wire.InputRequest{UID: a.UID, Text: "x"})
		codeIs(t, err, wire.CodeDeadlineExceeded, "input")
		if ctx.Err() != nil || !strings.Contains(err.Error(), "its seat does not answer") {
			t.Errorf("input: %v", err)
		}
		ctx, cancel = contextFor(t, 4*time.Second)
		defer cancel()
		_, err = s.Attach(ctx, operator, wire.AttachRequest{UID: a.UID})
		codeIs(t, err, wire.CodeFailedPrecondition, "attach")
		if ctx.Err() != nil || !strings.Contains(err.Error(), "its seat does not answer") {
			t.Errorf("attach: %v", err)
		}
	})
}
