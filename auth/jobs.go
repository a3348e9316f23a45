package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// primaryLease is the lease of the process that does what one does for all.
	primaryLease = "primary"
	primaryLife  = 12 * time.Second
	primaryEvery = 3 * time.Second
	// keepEvery is how often the work that is not about grants is done.
	keepEvery = time.Minute
)

// Jobs is the work that one of the processes which serve a space does for all of them: it finishes what was interrupted, and
// what its owner adds. The others wait to take it over. Its writes carry the fence of its lease: one that was stopped for so
// long that another took over writes nothing more.
type Jobs struct {
	a      *Authority
	space  wire.Space
	holder string
	sweep  *Sweeper

	mu    sync.Mutex // guards the fields below
	lease *space.Lease
	err   error
}

// BeginJobs takes the lease of a space for a holder, which is the same again after a restart of the same process. With wait it
// returns also while another one has it.
//
// Errors: failed-precondition, without wait, while another one has it: the error says how to join it; those of the store.
func (a *Authority) BeginJobs(ctx context.Context, s wire.Space, holder string, wait bool) (*Jobs, error) {
	j := &Jobs{a: a, space: s, holder: holder, sweep: a.NewSweeper(s)}
	err := j.take(ctx)
	switch {
	case held(err) && wait:
		return j, nil
	case held(err):
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "space %q has a primary authority; join it with: cotal serve authority --replica (%w)", s, err)
	case err != nil:
		return nil, fmt.Errorf("begin work for space %q: %w", s, err)
	}
	return j, nil
}

// Primary reports whether this process has the lease.
func (j *Jobs) Primary() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lease != nil
}

// Err is what went wrong at the last try, nil when nothing did.
func (j *Jobs) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Run works until ctx ends, and gives the lease back then. keep is called about once a minute while this process has it; nil
// for nothing.
func (j *Jobs) Run(ctx context.Context, keep func(context.Context) error) {
	t := time.NewTicker(primaryEvery)
	defer t.Stop()
	defer j.release(ctx)
	var kept time.Time
	for {
		err := j.take(ctx)
		if j.Primary() && err == nil {
			_, err = j.sweep.Sweep(ctx, j.write)
			if keep != nil && time.Since(kept) >= keepEvery {
				kept = time.Now()
				err = errors.Join(err, keep(ctx))
			}
		} else if held(err) {
			err = nil
		}
		if err != nil && ctx.Err() == nil {
			j.a.log.WarnContext(ctx, "work of the primary not done", logkey.Space, j.space, logkey.Error, err)
		}
		j.mu.Lock()
		j.err = err
		j.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// held reports whether somebody else has the lease.
func held(err error) bool {
	return wire.CodeOf(err) == wire.CodeFailedPrecondition || errors.Is(err, space.ErrLeaseLost)
}

// take takes the lease or makes it longer.
func (j *Jobs) take(ctx context.Context) error {
	ses, err := j.a.session(ctx, j.space)
	if err != nil {
		return err
	}
	leases := space.NewLeases(ses.js, j.space)
	j.mu.Lock()
	have := j.lease
	j.mu.Unlock()
	var next space.Lease
	if have != nil {
		next, err = leases.Renew(ctx, *have, primaryLife)
	} else {
		next, err = leases.Acquire(ctx, primaryLease, j.holder, primaryLife)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		if have != nil && held(err) {
			j.a.log.WarnContext(ctx, "lease lost", logkey.Space, j.space, logkey.Error, err)
			j.lease = nil
		}
		return err
	}
	if have == nil {
		j.a.log.InfoContext(ctx, "lease taken", logkey.Space, j.space, logkey.Instance, j.holder)
		j.a.audit(ctx, j.space, change{action: space.ActionLease, by: j.holder, detail: fmt.Sprintf("lease %s taken with fence %d", next.Name, next.Fence)})
	}
	j.lease = &next
	return nil
}

// write replaces a grant under the fence of the lease.
func (j *Jobs) write(ctx context.Context, g trust.Grant, rev uint64) (uint64, error) {
	j.mu.Lock()
	lease := j.lease
	j.mu.Unlock()
	if lease == nil {
		return 0, fmt.Errorf("write grant of %q: %w", g.Principal(), space.ErrLeaseLost)
	}
	ses, err := j.a.session(ctx, j.space)
	if err != nil {
		return 0, err
	}
	return ses.grants.UpdateFenced(ctx, g, rev, *lease)
}

func (j *Jobs) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	j.mu.Lock()
	lease := j.lease
	j.lease = nil
	j.mu.Unlock()
	if lease == nil {
		return
	}
	ses, err := j.a.session(ctx, j.space)
	if err == nil {
		err = space.NewLeases(ses.js, j.space).Release(ctx, *lease)
	}
	if err != nil {
		j.a.log.Warn("lease not given back; it ends by itself", logkey.Space, j.space, logkey.Error, err)
	}
}
