package auth

import (
	"context"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// settle is how long a broker may take to admit a connection that was decided before: its own limit for a
	// decision, and room.
	settle = trust.AuthTimeout + 800*time.Millisecond
	// clockMargin is how far the clocks of brokers may be apart that lead the records one after the other.
	clockMargin = 5 * time.Second
)

// closing is a life whose connections are to be ended: all of them, or those that were decided under an epoch before one.
type closing struct {
	wire.Lifecycle
	before uint64 // 0: all
}

// closeLives ends connections of some lives, whose grants have been changed so that no later decision lets in what is meant, and
// proves it. The change is the grant of the first of them, which all later decisions look at. A connection that was decided before
// the change and is not admitted yet is in the issuance log: if such a one may be left, it waits until the broker cannot admit it
// any more and ends connections once more. It returns how many were ended.
func (a *Authority) closeLives(ctx context.Context, ses *session, s wire.Space, lives []closing) (int, error) {
	rec, err := a.mint.Account(ctx, s)
	if err != nil {
		return 0, err
	}
	changed, err := ses.grants.Written(ctx, lives[0].Principal)
	if err != nil {
		return 0, err
	}
	ended := 0
	again := lives[:0:0]
	for _, l := range lives {
		all, young, err := decided(ctx, ses, l, changed)
		if err != nil {
			return ended, err
		}
		seen, err := a.evictKeys(ctx, rec.Public, young)
		ended += seen
		if err != nil {
			return ended, err
		}
		rest, err := a.evict(ctx, rec.Public, l, all)
		ended += rest
		if err != nil {
			return ended, err
		}
		if seen < len(young) {
			again = append(again, l)
		}
	}
	if len(again) == 0 {
		return ended, nil
	}
	if err := pause.For(ctx, settle); err != nil {
		return ended, fmt.Errorf("wait for connections under way: %w", err)
	}
	for _, l := range again {
		all, _, err := decided(ctx, ses, l, changed)
		if err != nil {
			return ended, err
		}
		n, err := a.evict(ctx, rec.Public, l, all)
		ended += n
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// evict ends what is meant of a life: whoever holds it, or the connections of the log, so that those who came back under the
// new grant stay.
func (a *Authority) evict(ctx context.Context, account string, l closing, keys []string) (int, error) {
	if l.before == 0 {
		return a.ctl.EvictTagged(ctx, account, "uid:"+string(l.UID))
	}
	return a.evictKeys(ctx, account, keys)
}

func (a *Authority) evictKeys(ctx context.Context, account string, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	return a.ctl.EvictKeys(ctx, account, keys...)
}

// decided returns the keys of the connections that are meant, and of those which the broker may not have admitted yet: they were
// logged less than its patience before the change, and room for clocks. Both times are the broker's. Where all connections of a life are
// meant, older ones are left out: nobody needs their keys, and a life that connects often would put off its end by them.
func decided(ctx context.Context, ses *session, l closing, changed time.Time) (all, young []string, err error) {
	since := changed.Add(-settle - clockMargin)
	read := ses.grants.Mints
	if l.before == 0 {
		read = func(ctx context.Context, uid wire.UID) ([]space.Mint, error) {
			return ses.grants.MintsSince(ctx, uid, since.Add(-clockMargin))
		}
	}
	mints, err := read(ctx, l.UID)
	if err != nil {
		return nil, nil, fmt.Errorf("read issuance log: %w", err)
	}
	for _, m := range mints {
		if !m.Connection || l.before > 0 && m.Epoch >= l.before {
			continue
		}
		all = append(all, m.UserKey)
		if m.Stored.After(since) {
			young = append(young, m.UserKey)
		}
	}
	return all, young, nil
}
