package supervisor

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
)

// heed waits after a try, from 0, until a seat that does not answer is tried again, and takes meanwhile what the agent is told: when that is to
// end, it is tried at once, and soon again. It reports false when ctx ended.
func (a *agent) heed(ctx context.Context, try *int) bool {
	before := a.snapshot().State.Goal
	again := time.NewTimer(backoff(*try))
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again.C:
			return true
		case <-a.mail.ready:
			for _, l := range a.mail.take() {
				a.step(ctx, l.Event)
				close(l.read)
			}
			if a.snapshot().State.Goal != before {
				*try = -1 // the next is the first one
				return true
			}
		}
	}
}

// endUnheard asks the seat of a run that does not answer to end, if that is wanted: an agent must be endable as long as it is known which
// process it is.
func (a *agent) endUnheard(ctx context.Context, run int) {
	if a.k.ender == nil || a.snapshot().State.Goal != GoalEnd {
		return
	}
	if err := a.k.ender.End(seatDir(a.dir, run)); err != nil {
		a.k.log.WarnContext(ctx, "seat that does not answer not asked to end", logkey.UID, string(a.uid), logkey.Error, err)
		return
	}
	a.k.log.WarnContext(ctx, "seat that does not answer asked to end by a signal", logkey.UID, string(a.uid))
}
