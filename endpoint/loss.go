package endpoint

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// String says what was lost, as far as it is known.
func (e EventLoss) String() string {
	of := fmt.Sprintf("channels %q", e.Pattern)
	switch {
	case e.Channel != "":
		of = fmt.Sprintf("channel %q", e.Channel)
	case e.Pattern == "":
		return "mentions may have been removed unread: " + e.Reason
	}
	what := "message"
	if e.Pattern == "" {
		what = "mention"
	}
	if e.Count == 0 {
		return fmt.Sprintf("%ss of %s between sequence %d and %d were removed unread: %s", what, of, e.From, e.To, e.Reason)
	}
	most, were := "", "were"
	if e.AtMost {
		most = "up to "
	}
	if e.Count == 1 {
		were = "was"
	}
	return fmt.Sprintf("%s%d %s of %s %s removed unread: %s", most, e.Count, plural(e.Count, what), of, were, e.Reason)
}

// plural is a noun after a number.
func plural(n uint64, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// lossWait is how long what follows a loss waits for the program to be told of the loss.
const lossWait = time.Second

// tellLosses reports those of a page that begin at or before a sequence, before what follows them is shown.
func (b *backlog) tellLosses(ctx context.Context, p *page, until uint64) {
	told := false
	for len(p.losses) > 0 && p.losses[0].From <= until {
		told = b.tellLoss(p.losses[0]) || told
		p.losses = p.losses[1:]
	}
	if told {
		b.e.events.settle(ctx, lossWait)
	}
}

// byPlace returns losses in the order of where they begin.
func byPlace(losses []wire.Loss) []wire.Loss {
	return slices.SortedStableFunc(slices.Values(losses), func(a, b wire.Loss) int { return cmp.Compare(a.From, b.From) })
}

// tellLoss reports a loss, or what is new of it, and whether there was something new.
func (b *backlog) tellLoss(l wire.Loss) bool {
	if l.Reason == wire.LossRetention && l.Channel == "" {
		l.From = max(l.From, b.lostUntil+1)
		if l.From > l.To {
			return false
		}
		b.lostUntil = l.To
	} else {
		if b.losses[l] {
			return false
		}
		if b.losses == nil || len(b.losses) >= maxLosses {
			b.losses = make(map[wire.Loss]bool)
		}
		b.losses[l] = true
	}
	ev := EventLoss{
		Pattern: b.sub.pattern, Channel: l.Channel, From: l.From, To: l.To, Reason: l.Reason, Count: l.Count, AtMost: l.AtMost,
	}
	if ev.Pattern == "" && ev.Channel == "" {
		ev.From, ev.To, ev.Count, ev.AtMost = 0, 0, 0, false // of pointers, of whomever they were
	}
	b.e.events.emit(ev)
	return true
}

// fence is an event that tells when those before it were told.
type fence chan struct{}

func (fence) String() string    { return "" }
func (fence) attrs() []any      { return nil }
func (fence) level() slog.Level { return slog.LevelDebug }

// settle waits until the events so far were told, but not for long: a slow OnEvent holds up nothing.
func (ev *events) settle(ctx context.Context, most time.Duration) {
	if ev.fn == nil {
		return
	}
	f := make(fence)
	select {
	case ev.ch <- f:
	default:
		return
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-f:
	case <-t.C:
	case <-ctx.Done():
	}
}
