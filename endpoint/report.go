package endpoint

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// What was handled is reported reportEvery after the first of it, or as soon as there are reportAtOnce messages of
	// it, but not sooner than reportGap after the last report.
	reportEvery  = time.Second
	reportAtOnce = 16384
	reportGap    = 100 * time.Millisecond
	// A report that failed is made again after a pause that doubles.
	reportRetryMin = time.Second
	reportRetryMax = time.Minute
	// reportIdle is how far a position is ahead of what delivery has, without a message in between, before that alone is
	// worth a report.
	reportIdle = 10_000
)

// handledLocked notes that something is to be reported.
func (b *backlog) handledLocked() {
	b.version++
	b.news++
	switch {
	case b.over:
	case !b.reporting:
		b.reporting = true
		b.reportInLocked(reportEvery)
	case b.news == reportAtOnce && b.reportTimer.Stop():
		b.reportInLocked(b.reportWait())
	}
}

// skippedLocked notes that the position moved without a message, which is reported when it is worth it.
func (b *backlog) skippedLocked(lost bool) {
	if floor, _ := b.pos.report(); lost || floor > b.floor+reportIdle {
		b.handledLocked()
	}
}

// reportWait is how long the next report waits when much was handled.
func (b *backlog) reportWait() time.Duration { return max(0, reportGap-time.Since(b.reportAt)) }

func (b *backlog) reportInLocked(d time.Duration) {
	if b.reportTimer == nil {
		b.reportTimer = time.AfterFunc(d, b.reportSoon)
		return
	}
	b.reportTimer.Reset(d)
}

// reportSoon runs on the timer: it reports, and sees to the next report.
func (b *backlog) reportSoon() {
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return
	}
	b.tasks.Add(1)
	b.mu.Unlock()
	defer b.tasks.Done()
	err := b.report(b.ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
	case err != nil:
		b.reportInLocked(min(reportRetryMin<<min(b.failures, 10), reportRetryMax))
		b.failures++
	case b.version == b.reported || b.mute:
		b.reporting = false
	case b.news >= reportAtOnce:
		b.reportInLocked(b.reportWait())
	default:
		b.reportInLocked(reportEvery)
	}
	if err == nil {
		b.failures = 0
	}
}

// report tells delivery what was handled, if there is anything that it does not know.
func (b *backlog) report(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return b.e.failure(act{verb: "report position of", operand: b.sub.pattern}, ctx.Err(), false)
	}
	b.mu.Lock()
	version, news := b.version, b.news
	if version == b.reported {
		b.mu.Unlock()
		return nil
	}
	floor, handled := b.pos.report()
	req, ok := b.of.request(floor, handled)
	b.mute = !ok
	if nothing := floor == 0 && len(handled) == 0; !ok || nothing {
		if nothing {
			b.reported = version
		}
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	var reply wire.AckReply
	err := b.call(ctx, wire.CommandAck, req, &reply)
	if err != nil {
		if ctx.Err() == nil {
			b.of.refused(err)
		}
		return err
	}
	b.mu.Lock()
	b.reported, b.floor, b.reportAt = version, max(b.floor, reply.Floor), time.Now()
	b.news -= news
	b.mu.Unlock()
	if reply.Ended {
		b.of.refused(nil)
	}
	return nil
}
