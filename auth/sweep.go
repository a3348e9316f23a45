package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// sweepAfter is how long something must have been unfinished before a sweep finishes it: until then whoever began it is likely
// at it.
const sweepAfter = 15 * time.Second

// Sweeper finishes what was begun and not ended: revocations, and narrowings whose connections may still be open. One that is
// stopped in the middle is finished by the next. It belongs to one goroutine.
type Sweeper struct {
	a     *Authority
	space wire.Space
	after uint64
	open  map[wire.Principal]time.Time // since when it is known to be unfinished

	lapsed bool // the records of agents that ended under an earlier version were looked for
}

// NewSweeper returns a sweeper of a space. It asks the broker nothing.
func (a *Authority) NewSweeper(s wire.Space) *Sweeper {
	return &Sweeper{a: a, space: s, open: map[wire.Principal]time.Time{}}
}

// Sweep looks at the grants that changed since the last call, all of them at the first, finishes what has been unfinished for
// 15 s, and returns how much that was. Its writes go through write, so that they can carry the fence of a lease; nil means
// plain compare-and-swap.
//
// Errors: those of the store and of [Authority.Revoke]; what could not be finished is tried again by the next call.
func (sw *Sweeper) Sweep(ctx context.Context, write func(ctx context.Context, g trust.Grant, rev uint64) (uint64, error)) (int, error) {
	ses, err := sw.a.session(ctx, sw.space)
	if err != nil {
		return 0, fmt.Errorf("sweep space %q: %w", sw.space, err)
	}
	if write == nil {
		write = ses.grants.Update
	}
	next, err := ses.grants.Changes(ctx, sw.after, sw.note)
	if next < sw.after { // the bucket was made anew
		clear(sw.open)
		next = 0
	}
	sw.after = next
	if err != nil {
		return 0, fmt.Errorf("sweep space %q: %w", sw.space, err)
	}
	done := 0
	var failed error
	if !sw.lapsed {
		sw.lapsed = true // once, whatever comes of it: it reads every grant
		failed = lapse(ctx, ses)
	}
	for p, since := range maps.Clone(sw.open) {
		if time.Since(since) < sweepAfter {
			continue
		}
		finished, err := sw.finish(ctx, ses, p, write)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		delete(sw.open, p)
		if finished {
			done++
			sw.a.log.WarnContext(ctx, "unfinished change of a grant finished", logkey.Space, sw.space, logkey.Principal, p.String())
		}
	}
	return done, failed
}

// lapse has the records of agents go that ended under an earlier version, which kept them for ever.
func lapse(ctx context.Context, ses *session) error {
	lasting, err := ses.grants.Lasting(ctx)
	if err != nil {
		return fmt.Errorf("look for records of agents that ended: %w", err)
	}
	// In a full bucket the first may find no room, and have it once the others have made some.
	for tries := 2; tries > 0 && len(lasting) > 0; tries-- {
		left := lasting[:0:0]
		for _, p := range lasting {
			if err = ses.grants.Lapse(ctx, p); errors.Is(err, wire.ErrExhausted) {
				left = append(left, p)
			} else if err != nil {
				return fmt.Errorf("let the records of agents that ended go: %w", err)
			}
		}
		lasting = left
	}
	if len(lasting) > 0 {
		return fmt.Errorf("let the records of agents that ended go: %d are left: %w", len(lasting), err)
	}
	return nil
}

// note keeps which grants are unfinished, and those held under another, which are looked at once after they were written: whoever
// wrote it may have ended before the second look at what is above.
func (sw *Sweeper) note(p wire.Principal, g *trust.Grant) {
	if g == nil || g.State == trust.GrantRetired || g.State == trust.GrantActive && g.Refusing == 0 && g.Parent == "" {
		delete(sw.open, p)
		return
	}
	if _, ok := sw.open[p]; !ok {
		sw.open[p] = time.Now()
	}
}

// finish reports whether there was something to do.
func (sw *Sweeper) finish(ctx context.Context, ses *session, p wire.Principal, write update) (bool, error) {
	g, _, err := ses.grants.Get(ctx, p)
	if err != nil {
		return false, err
	}
	orphan, err := orphaned(ctx, ses, g)
	switch {
	case err != nil:
		return false, err
	case g.State == trust.GrantRetiring, orphan:
		_, err := sw.a.revoke(ctx, ses, sw.space, g.Lifecycle(), write)
		return true, err
	case g.State != trust.GrantActive || g.Refusing == 0:
		return false, nil
	}
	people, err := sw.a.People(ctx, sw.space)
	if err != nil {
		return false, err
	}
	if people {
		return true, sw.a.closeNarrowed(ctx, ses, sw.space, &GrantChange{Grant: g, Narrowed: true}, write)
	}
	_, err = sw.a.refuseEarlier(ctx, ses, sw.space, g, write)
	return true, err
}

// orphaned reports whether the life that an active grant is held under is over for good.
func orphaned(ctx context.Context, ses *session, g trust.Grant) (bool, error) {
	if g.State != trust.GrantActive || g.Parent == "" {
		return false, nil
	}
	name, err := wire.ParsePrincipal(g.Parent)
	if err != nil {
		return false, err
	}
	parent, _, err := ses.grants.Get(ctx, name)
	if errors.Is(err, wire.ErrNotFound) {
		return true, nil
	}
	return err == nil && (parent.UID != g.ParentUID || parent.State == trust.GrantRetired), err
}
