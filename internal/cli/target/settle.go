package target

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

// Settle waits until an agent that starts is ready or has failed or ended, at most for a time, and returns it as it was last known:
// one that is still starting then is no error. An agent that is ended to start again counts as starting. Who watches is told meanwhile how long it takes.
//
// Errors: cancelled when the person ends the command, which ends nothing of the agent; those of the supervisor.
func (t *Target) Settle(ctx context.Context, m *manager.Client, a wire.AgentStatus, wait time.Duration) (wire.AgentStatus, error) {
	begun := time.Now()
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	name := AgentName(a)
	now, err := m.Settle(within, a, []string{wire.AgentStarting, wire.AgentStopping}, func(now wire.AgentStatus, err error) {
		since := time.Since(begun).Round(time.Second)
		if err != nil {
			t.env.Progress("%s: %s… %s; its supervisor does not answer at the moment", command.Safe(name), command.Safe(now.State), since)
			return
		}
		t.env.Progress("%s: %s… %s", command.Safe(name), command.Safe(now.State), since)
	})
	switch {
	case err == nil && now.State == wire.AgentReady && now.Mesh.Status == wire.StatusOffline:
		return lasting(ctx, m, now), nil
	case err == nil:
		return now, nil
	case ctx.Err() != nil:
		return now, command.Hint(command.Cancelledf("cancelled; agent %s goes on starting", name), "how it is: cotal ps")
	case within.Err() != nil:
		return now, nil
	}
	return now, t.Explain(err)
}

// lastsFor is how long an agent that is ready because its process runs is looked at: a program that is called wrongly ends at once.
const lastsFor = 750 * time.Millisecond

// lasting returns an agent as it is a moment later, or sooner when it changes.
func lasting(ctx context.Context, m *manager.Client, a wire.AgentStatus) wire.AgentStatus {
	ctx, cancel := context.WithTimeout(ctx, lastsFor)
	defer cancel()
	if later, err := m.Await(ctx, a, a.State); err == nil {
		return later
	}
	return a
}

// Verdict is what a command that started an agent ends with, once the person has seen how the agent is: nil when it is ready, still
// starting or ended as it should.
//
// Errors: failed-precondition.
func Verdict(a wire.AgentStatus) error {
	name := AgentName(a)
	switch {
	case a.State == wire.AgentFailed:
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "agent %s failed%s", name, because(a)), "try again when that is put right: cotal restart "+name)
	case a.State == wire.AgentBackoff:
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "agent %s ended%s and is started again", name, because(a)),
			"how it goes on: cotal ps", "to give it up: cotal stop "+name)
	case a.State == wire.AgentExited && (a.Process.Code != 0 || a.Process.Signal != ""):
		return wire.Errorf(wire.CodeFailedPrecondition, "agent %s ended%s", name, because(a))
	}
	return nil
}

func because(a wire.AgentStatus) string {
	if a.Reason == "" {
		return ""
	}
	return ": " + a.Reason
}
