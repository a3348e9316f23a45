package fault_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// stopping is a control at which everything stands still, once, when it is to end connections.
type stopping struct {
	auth.Control
	once    sync.Once
	stopped chan struct{}
	goOn    chan struct{}
}

func (c *stopping) EvictTagged(ctx context.Context, account string, tags ...string) (int, error) {
	c.once.Do(func() {
		close(c.stopped)
		<-c.goOn
	})
	return c.Control.EvictTagged(context.WithoutCancel(ctx), account, tags...)
}

// TestRow7APrimaryThatStoodStillWritesNothing lets a primary find a revocation, or a narrowing, that somebody left unfinished, and
// stand still in the middle of finishing it, until another one has the lease and has not written anything yet. When the first one goes
// on, the grant is as it read it: only the fence of the lease keeps its write away.
func TestRow7APrimaryThatStoodStillWritesNothing(t *testing.T) {
	for _, taking := range takings {
		if !taking.people {
			continue
		}
		t.Run(taking.deed, func(t *testing.T) {
			cotaltest.Bubble(t, func(t *testing.T) {
				st := newStage(t, memstore.New(), true, false)
				f := st.newFamily(t, "ada")
				if st.cutAt(t, taking.deed, f.root(), 2) {
					t.Fatal("it was not cut")
				}
				ctl := &stopping{Control: st.ctl, stopped: make(chan struct{}), goOn: make(chan struct{})}
				old := auth.New(st.a.Mint(), ctl, st.Node().Dial, nil)
				defer func() { _ = old.Close() }()
				first, endFirst := st.begin(t, old, "first", false)
				defer endFirst()
				<-ctl.stopped
				if !first.Primary() {
					t.Error("the first is not the primary")
				}
				second, endSecond := st.begin(t, st.a, "second", true)
				defer endSecond()
				for !second.Primary() {
					time.Sleep(time.Second)
				}
				before, lease := st.frozen(t, f.root()), st.leaseOf(t)
				close(ctl.goOn)
				time.Sleep(8 * time.Second) // it wrote what it had, and looked at the lease
				if after := st.frozen(t, f.root()); after != before {
					t.Errorf("the first changed the grant from %+v to %+v", before, after)
				}
				if now := st.leaseOf(t); first.Primary() || now.Holder != "second" || now.Fence != lease.Fence {
					t.Errorf("the first is primary: %v; the lease went from %+v to %+v", first.Primary(), lease, now)
				}
				time.Sleep(15 * time.Second)
				taking.done(f, t, "finished by the second")
			})
		})
	}
}

// begin does the work that one does for all, until it is ended.
func (st *stage) begin(t *testing.T, a *auth.Authority, holder string, wait bool) (*auth.Jobs, func()) {
	t.Helper()
	j, err := a.BeginJobs(t.Context(), st.Space(), holder, wait)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { j.Run(ctx, nil) })
	return j, func() { cancel(); wg.Wait() }
}

// grantAt is which version of a grant there is.
type grantAt struct {
	rev   uint64
	state trust.GrantState
	uid   wire.UID
}

func (st *stage) frozen(t *testing.T, p wire.Principal) grantAt {
	t.Helper()
	g, rev, err := st.grants.Get(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return grantAt{rev, g.State, g.UID}
}

func (st *stage) leaseOf(t *testing.T) space.Lease {
	t.Helper()
	l, err := space.NewLeases(st.js, st.Space()).Get(t.Context(), "primary")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
