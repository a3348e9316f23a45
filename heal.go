package cotal

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

const (
	// roomEvery is how often the node looks whether a disk that was full has room again.
	roomEvery = 2 * time.Second
	// healEvery is the least time between two restarts of the broker that nobody asked for.
	healEvery = 30 * time.Second
)

// ill is the hook of the broker: it only wakes the goroutine that heals.
func (r *running) ill(im broker.Impairment) {
	r.n.log.Error("broker cannot store", logkey.Account, im.Account, logkey.Reason, im.Reason)
	wake(r.hurt)
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keepStoring restarts the broker when it cannot store any more and its disk takes data again, until the node stops. The
// broker gives a stream up at the first write error, and nothing else makes it try again.
func (r *running) keepStoring() {
	var last time.Time
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.hurt:
		case <-r.asked:
			last = time.Time{}
		}
		for len(r.srv.Impaired()) > 0 || r.srv.Down() {
			pause := max(roomEvery, time.Until(last.Add(healEvery)))
			if last.IsZero() {
				pause = 0
			}
			if pause > 0 && !r.pause(pause) {
				return
			}
			// The trust that it starts with must be that of all spaces. Whoever changes them may wait for us: never wait here.
			if r.srv.Room() != nil || !r.n.changes.TryLock() {
				if !r.pause(roomEvery) {
					return
				}
				continue
			}
			last = time.Now()
			err := r.restart(r.ctx)
			r.n.changes.Unlock()
			if err != nil && r.ctx.Err() == nil {
				r.n.log.Error("broker not restarted", logkey.Wait, healEvery, logkey.Error, err)
			}
		}
	}
}

// pause waits and reports whether the node still runs; being asked ends it early.
func (r *running) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-r.ctx.Done():
		return false
	case <-r.asked:
	case <-t.C:
	}
	return true
}

// restart starts the broker again on what it stored. Everybody who is connected reconnects. The caller holds the lock of
// changes.
func (r *running) restart(ctx context.Context) error {
	n := r.n
	var t broker.Trust
	var spaces []wire.Space
	if !n.opts.Open {
		var err error
		if spaces, err = r.mint.Spaces(ctx); err != nil {
			return err
		}
		if t, err = r.trust(ctx, spaces); err != nil {
			return err
		}
	}
	n.log.Warn("broker restarted, it could not store any more", logkey.Count, len(r.srv.Impaired()))
	if err := r.srv.Restart(ctx, t); err != nil {
		return err
	}
	for _, s := range spaces {
		if err := r.auth.Provision(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// trust is what the broker starts with.
func (r *running) trust(ctx context.Context, spaces []wire.Space) (broker.Trust, error) {
	accounts, err := r.accounts(ctx, spaces)
	if err != nil {
		return broker.Trust{}, err
	}
	return broker.Trust{
		OperatorJWT: r.mint.OperatorJWT(), SystemPublic: r.mint.SystemPublic(), SystemJWT: r.mint.SystemJWT(), Accounts: accounts,
	}, nil
}

// heal answers the command of the same name: it says why nothing can be done, or has it done.
func (r *running) heal() error {
	r.healPeople()
	if len(r.srv.Impaired()) == 0 {
		return nil
	}
	if err := r.srv.Room(); err != nil {
		return err
	}
	wake(r.asked)
	return nil
}
