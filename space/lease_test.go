package space_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func TestLeaseHasOneHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ctx := t.Context()
		leases := space.NewLeases(js, lab)
		if _, err := leases.Get(ctx, "sweep"); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("Get of a lease that nobody held = %v, want not-found", err)
		}
		start := time.Now()
		a := must(leases.Acquire(ctx, "sweep", "node a", time.Minute))(t)
		if a.Fence != 1 || a.Holder != "node a" || !a.Since.Equal(start) || !a.Until.Equal(start.Add(time.Minute)) {
			t.Errorf("first lease = %+v", a)
		}
		_, err := leases.Acquire(ctx, "sweep", "node b", time.Minute)
		if !errors.Is(err, wire.ErrPrecondition) || !strings.Contains(err.Error(), `"node a" holds it since 2000-01-01T00:00:00Z and until 2000-01-01T00:01:00Z`) {
			t.Errorf("Acquire of a held lease = %v, want failed-precondition that names the holder, since when and until when", err)
		}
		var we *wire.Error
		if errors.As(err, &we); we.Details["holder"] != "node a" || we.Details["since"] == "" || we.Details["until"] != "2000-01-01T00:01:00Z" {
			t.Errorf("details = %v", we.Details)
		}
		if other := must(leases.Acquire(ctx, "rotate", "node b", time.Minute))(t); other.Fence != 1 {
			t.Errorf("another lease = %+v, want one of its own", other)
		}
		again := must(leases.Acquire(ctx, "sweep", "node a", time.Minute))(t)
		if again.Fence != 2 {
			t.Errorf("its own holder took it over with fence %d, want 2", again.Fence)
		}
		if _, err := leases.Renew(ctx, a, time.Minute); !errors.Is(err, space.ErrLeaseLost) || !errors.Is(err, wire.ErrConflict) {
			t.Errorf("Renew under the earlier fence = %v, want lost", err)
		}
		if err := leases.Release(ctx, a); err != nil {
			t.Errorf("Release of what was lost = %v, want nothing", err)
		}
		time.Sleep(50 * time.Second)
		renewed := must(leases.Renew(ctx, again, time.Minute))(t)
		if renewed.Fence != 2 || !renewed.Since.Equal(again.Since) || !renewed.Until.Equal(start.Add(110*time.Second)) {
			t.Errorf("renewed = %+v", renewed)
		}
		if twice, err := leases.Renew(ctx, again, 2*time.Minute); err != nil || twice.Fence != 2 {
			t.Errorf("Renew of a value that is not up to date = %+v, %v, want it renewed", twice, err)
		}
		if err := leases.Release(ctx, renewed); err != nil {
			t.Fatal(err)
		}
		if free, err := leases.Get(ctx, "sweep"); err != nil || free.Held(time.Now()) || free.Fence != 2 {
			t.Errorf("released = %+v, %v", free, err)
		}
		if _, err := leases.Renew(ctx, renewed, time.Minute); !errors.Is(err, space.ErrLeaseLost) {
			t.Errorf("Renew after Release = %v, want lost", err)
		}
		if b := must(leases.Acquire(ctx, "sweep", "node b", time.Minute))(t); b.Fence != 3 {
			t.Errorf("after a release the fence is %d, want 3", b.Fence)
		}
	})
}

func TestLeaseEndsByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ctx := t.Context()
		leases := space.NewLeases(js, lab)
		a := must(leases.Acquire(ctx, "sweep", "a", time.Minute))(t)
		for _, step := range []struct {
			at   time.Duration
			held bool
		}{{time.Minute, true}, {time.Minute + space.LeaseMargin - time.Millisecond, true}, {time.Minute + space.LeaseMargin, false}} {
			time.Sleep(time.Until(a.Since.Add(step.at)))
			if now := must(leases.Get(ctx, "sweep"))(t); now.Held(time.Now()) != step.held {
				t.Errorf("after %s held = %v, want %v", step.at, !step.held, step.held)
			}
		}
		late := must(leases.Renew(ctx, a, time.Minute))(t) // nobody took it
		if _, err := leases.Acquire(ctx, "sweep", "b", time.Minute); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("Acquire of what was renewed late = %v, want failed-precondition", err)
		}
		time.Sleep(time.Until(late.Until.Add(space.LeaseMargin)))
		if b, err := leases.Acquire(ctx, "sweep", "b", time.Minute); err != nil || b.Fence != 2 {
			t.Errorf("Acquire after the end = %+v, %v", b, err)
		}
		if _, err := leases.Renew(ctx, late, time.Minute); !errors.Is(err, space.ErrLeaseLost) {
			t.Errorf("Renew by who lost it = %v, want lost", err)
		}
	})
}

func TestLeaseRefusesNonsense(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	leases := space.NewLeases(js, lab)
	for _, c := range []struct {
		name, holder string
		ttl          time.Duration
	}{
		{"", "a", time.Minute}, {"a.b", "a", time.Minute}, {"*", "a", time.Minute}, {">", "a", time.Minute}, {"Sweep", "a", time.Minute}, {"sweep", "", time.Minute},
		{"sweep", "a\nb", time.Minute}, {"sweep", strings.Repeat("a", 129), time.Minute}, {"sweep", "a", 0}, {"sweep", "a", space.MinLease - 1}, {"sweep", "a", space.MaxLease + 1},
	} {
		if l, err := leases.Acquire(ctx, c.name, c.holder, c.ttl); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("Acquire(%q, %q, %s) = %+v, %v, want bad-request", c.name, c.holder, c.ttl, l, err)
		}
	}
	a := must(leases.Acquire(ctx, "sweep", "a", time.Minute))(t)
	if _, err := leases.Renew(ctx, a, 0); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("Renew for nothing = %v, want bad-request", err)
	}
	g := grantOf(lifecycle("ada"))
	rev := must(space.NewGrants(js, lab).Create(ctx, g))(t)
	if _, err := space.NewGrants(js, lab).UpdateFenced(ctx, g, rev, space.Lease{}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("UpdateFenced without a lease = %v, want bad-request", err)
	}
	for _, body := range []string{"", "{}", `{"ver":2,"fence":9}`} { // what cannot be read is nobody's to take
		must(js.Publish(ctx, wire.RecordPrefix(wire.AuthorityBucket(lab))+"lease.sweep", []byte(body)))(t)
		if _, err := leases.Acquire(ctx, "sweep", "a", time.Minute); !errors.Is(err, wire.ErrInternal) {
			t.Errorf("Acquire over %q = %v, want internal", body, err)
		}
	}
}

// A is paused for longer than its lease, B takes over, and A goes on: nothing that A writes is stored, and A is told why.
func TestAPausedHolderWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ctx := t.Context()
		leases, grants := space.NewLeases(js, lab), space.NewGrants(js, lab)
		ada := grantOf(lifecycle("ada"))
		rev := must(grants.Create(ctx, ada))(t)
		a := must(leases.Acquire(ctx, "sweep", "a", time.Minute))(t)
		ada.Label = "by a"
		rev = must(grants.UpdateFenced(ctx, ada, rev, a))(t)
		must(leases.Renew(ctx, a, time.Minute))(t)
		rev = must(grants.UpdateFenced(ctx, ada, rev, a))(t) // renewed meanwhile: still its own
		if _, err := grants.UpdateFenced(ctx, ada, rev-1, a); !errors.Is(err, wire.ErrConflict) || errors.Is(err, space.ErrLeaseLost) {
			t.Errorf("UpdateFenced of an old revision = %v, want conflict and no word of the lease", err)
		}
		foreign := ada
		foreign.UID = wire.NewUID()
		if _, err := grants.UpdateFenced(ctx, foreign, rev, a); !errors.Is(err, wire.ErrConflict) {
			t.Errorf("UpdateFenced to another life = %v, want conflict", err)
		}
		time.Sleep(time.Minute + space.LeaseMargin)
		b := must(leases.Acquire(ctx, "sweep", "b", time.Minute))(t)
		ada.Label = "by a, which was paused"
		if _, err := grants.UpdateFenced(ctx, ada, rev, a); !errors.Is(err, space.ErrLeaseLost) || !errors.Is(err, wire.ErrConflict) || !strings.Contains(err.Error(), `held by "b"`) {
			t.Errorf("UpdateFenced by who lost the lease = %v, want that it lost it to b", err)
		}
		if got, gotRev, err := grants.Get(ctx, ada.Principal()); err != nil || gotRev != rev || got.Label != "by a" {
			t.Errorf("grant = %q at %d, %v, want untouched", got.Label, gotRev, err)
		}
		ada.Label = "by b"
		rev = must(grants.UpdateFenced(ctx, ada, rev, b))(t)
		if err := leases.Release(ctx, b); err != nil {
			t.Fatal(err)
		}
		if _, err := grants.UpdateFenced(ctx, ada, rev, b); !errors.Is(err, space.ErrLeaseLost) {
			t.Errorf("UpdateFenced after Release = %v, want lost", err)
		}
		// It is the guard that refuses: without it the same write at the same revision is taken.
		must(grants.Update(ctx, ada, rev))(t)
	})
}

// The broker checks the guard whatever stands behind it, and stores all of the batch or none of it.
func TestGuardIsCheckedByTheBroker(t *testing.T) {
	t.Parallel()
	js := newSpace(t)
	ctx := ctxFor(t)
	prefix := wire.RecordPrefix(wire.AuthorityBucket(lab))
	leases := space.NewLeases(js, lab)
	old := must(leases.Acquire(ctx, "sweep", "a", time.Minute))(t)
	now := must(leases.Acquire(ctx, "sweep", "a", time.Minute))(t)
	write := func(guard *nats.Msg, n int) error {
		batch := []*nats.Msg{guard}
		for i := range n {
			m := nats.NewMsg(fmt.Sprintf("%sx.%d", prefix, i))
			m.Data = []byte("x")
			batch = append(batch, m)
		}
		_, err := jetstreamext.PublishMsgBatch(ctx, js, batch, jetstreamext.BatchFlowControl{})
		return err
	}
	last := func() uint64 { return must(js.Stream(ctx, "KV_cotal_authority_lab"))(t).CachedInfo().State.LastSeq }
	before := last()
	for _, n := range []int{1, 3} {
		var api *jetstream.APIError
		if err := write(old.Guard(), n); !errors.As(err, &api) || api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
			t.Errorf("%d records under an earlier fence: %v, want the wrong last sequence", n, err)
		}
	}
	if got := last(); got != before {
		t.Errorf("refused batches moved the bucket from %d to %d", before, got)
	}
	for _, n := range []int{1, 3, 1} {
		if err := write(now.Guard(), n); err != nil {
			t.Errorf("%d records under the lease: %v", n, err)
		}
	}
	if got := last(); got != before+8 {
		t.Errorf("the bucket moved from %d to %d, want 8 further", before, got)
	}
	fence := must(must(js.Stream(ctx, "KV_cotal_authority_lab"))(t).GetLastMsgForSubject(ctx, prefix+"fence.sweep"))(t)
	if string(fence.Data) != `{"ver":1,"fence":2}` {
		t.Errorf("the fence of the last write is noted as %s", fence.Data)
	}
}

// written is something that was stored under a fence.
type written struct {
	seq, fence uint64
	acquired   bool
}

// wantOneOrder fails when writes of two fences interleave.
func wantOneOrder(t *testing.T, all []written) (fences int) {
	t.Helper()
	slices.SortFunc(all, func(a, b written) int { return cmp.Compare(a.seq, b.seq) })
	at := written{}
	for _, w := range all {
		if w.seq == at.seq || w.fence < at.fence || w.acquired && w.fence != at.fence+1 {
			t.Errorf("%+v was stored after %+v", w, at)
		}
		if w.acquired {
			fences++
		}
		if w.fence != at.fence && !w.acquired {
			t.Errorf("a write under fence %d was stored before it was given", w.fence)
		}
		at = w
	}
	return fences
}

// contest is several contenders for one lease, each of which writes to one grant under it.
type contest struct {
	grant wire.Principal

	mu   sync.Mutex // guards those below
	all  []written
	left int // how much is yet to be stored
	lost int // how often somebody learned that the lease was lost
}

func (c *contest) note(w written) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, w)
	c.left--
}

func (c *contest) stored() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

func (c *contest) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left <= 0
}

// take takes part until all is stored: it pauses before it writes, and waits before it acquires a lease again.
func (c *contest) take(ctx context.Context, js jetstream.JetStream, holder string, wait, pause func()) error {
	leases := space.NewLeases(js, lab)
	for ; !c.over(); wait() {
		l, err := leases.Acquire(ctx, "sweep", holder, 2*time.Second)
		if errors.Is(err, wire.ErrPrecondition) {
			continue
		}
		if err != nil {
			return err
		}
		c.note(written{l.Rev(), l.Fence, true})
		if err := c.write(ctx, js, l, pause); err != nil {
			return err
		}
	}
	return nil
}

// write goes on until the lease is lost.
func (c *contest) write(ctx context.Context, js jetstream.JetStream, l space.Lease, pause func()) error {
	grants, leases := space.NewGrants(js, lab), space.NewLeases(js, lab)
	for n := 1; !c.over(); n++ {
		g, rev, err := grants.Get(ctx, c.grant)
		if err != nil {
			return err
		}
		if n > 2 {
			pause()
		}
		g.Epoch++
		rev, err = grants.UpdateFenced(ctx, g, rev, l)
		if err == nil {
			c.note(written{rev, l.Fence, false})
			if n%4 == 0 {
				l, err = leases.Renew(ctx, l, 2*time.Second)
			}
		}
		switch {
		case errors.Is(err, space.ErrLeaseLost):
			c.mu.Lock()
			c.lost++
			c.mu.Unlock()
			return nil
		case err != nil && !errors.Is(err, wire.ErrConflict): // the grant changed: another one has the lease, or had it
			return err
		}
	}
	return nil
}

// verdict fails when writes of two fences interleave, or one was lost or was not worth a contest.
func (c *contest) verdict(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	fences := wantOneOrder(t, c.all)
	g, _, err := space.NewGrants(js, lab).Get(t.Context(), c.grant)
	if writes := len(c.all) - fences; err != nil || int(g.Epoch) != 1+writes {
		t.Errorf("epoch = %d, %v after %d writes", g.Epoch, err, writes)
	} else if t.Logf("%d fences, %d writes, %d times lost", fences, writes, c.lost); fences < 5 || writes < 15 || c.lost < 3 {
		t.Errorf("%d fences, %d writes, %d times lost: no contest", fences, writes, c.lost)
	}
}

func newContest(t *testing.T, js jetstream.JetStream, all int) *contest {
	t.Helper()
	ada := grantOf(lifecycle("ada"))
	must(space.NewGrants(js, lab).Create(t.Context(), ada))(t)
	return &contest{grant: ada.Principal(), left: all}
}

// Eight replicas contend. Now and then one is paused for longer than its lease stands, and goes on.
func TestGuardedWritesAreOrderedByFence(t *testing.T) {
	inBubble(t, func(t *testing.T, js jetstream.JetStream) {
		c := newContest(t, js, 150)
		var wg sync.WaitGroup
		for i := range uint64(8) {
			random := rand.New(rand.NewPCG(1, i))
			pause := func() {
				most := 800 * time.Millisecond
				if random.IntN(8) == 0 {
					most = 20 * time.Second
				}
				time.Sleep(time.Duration(random.Int64N(int64(most))))
			}
			wg.Go(func() {
				if err := c.take(t.Context(), js, fmt.Sprint("node ", i), pause, pause); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		c.verdict(t, js)
	})
}

// Eight replicas believe that they are the same one: the lease changes hands between any two of their steps.
func TestGuardedWritesAreOrderedByFenceAtFullSpeed(t *testing.T) {
	t.Parallel()
	js, srv := newSpaceOn(t)
	c := newContest(t, js, 120)
	var wg sync.WaitGroup
	for i := range uint64(8) {
		own, random := connect(t, srv), rand.New(rand.NewPCG(2, i))
		wait := func() {
			for enough := c.stored() + random.IntN(16); c.stored() < enough && !c.over(); {
				_ = own.Conn().Flush()
			}
		}
		wg.Go(func() {
			if err := c.take(ctxFor(t), own, "node", wait, func() {}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c.verdict(t, js)
}
