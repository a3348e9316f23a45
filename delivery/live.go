package delivery

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// liveFresh is how old the view may be when somebody asks.
	liveFresh = time.Second
	// liveAsked is how long after somebody asked the view is kept fresh although nobody follows the feed.
	liveAsked = time.Minute
	// liveWait bounds how long who asks waits for a fresh view.
	liveWait = 2 * time.Second
)

// liveView is who subscribes to which channels at the moment, as the broker's connections show it. One goroutine renews it,
// that of the membership feed; anybody may ask.
type liveView struct {
	broker Connections
	space  wire.Space
	wanted chan chan struct{} // asked to renew it now, closed when that is done

	mu       sync.Mutex // guards those below
	patterns map[wire.Lifecycle][]string
	at       time.Time // as of; zero: not known
	asked    time.Time
}

func newLiveView(broker Connections, s wire.Space) *liveView {
	return &liveView{broker: broker, space: s, wanted: make(chan chan struct{})}
}

// live returns the patterns that each life subscribes to, wildcards kept, and as of when; the zero time when that is not
// known. Do not change what it returns.
func (v *liveView) live() (map[wire.Lifecycle][]string, time.Time) {
	if v.broker == nil {
		return nil, time.Time{}
	}
	now := time.Now()
	v.mu.Lock()
	fresh := !v.at.IsZero() && now.Sub(v.at) < liveFresh
	v.asked = now
	v.mu.Unlock()
	if !fresh {
		v.renewed()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.patterns, v.at
}

// renewed waits until the view was renewed, not for ever: an older one says how old it is.
func (v *liveView) renewed() {
	t := time.NewTimer(liveWait)
	defer t.Stop()
	done := make(chan struct{})
	select {
	case v.wanted <- done:
	case <-t.C:
		return
	}
	select {
	case <-done:
	case <-t.C:
	}
}

// askedSince reports whether somebody asked after a time.
func (v *liveView) askedSince(t time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked.After(t)
}

// renew reads the view from the broker.
func (v *liveView) renew(ctx context.Context) error {
	at := time.Now()
	all, err := v.broker.List(ctx, true)
	if err != nil {
		return err
	}
	patterns := livePatterns(v.space, all)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.patterns, v.at = patterns, at
	return nil
}

// livePatterns reads the patterns from connections. Services listen to everything and take part in nothing: only who may
// name channels in its credential counts.
func livePatterns(s wire.Space, all []Connection) map[wire.Lifecycle][]string {
	out := map[wire.Lifecycle][]string{}
	for _, c := range all {
		if !c.Profile.Lists() {
			continue
		}
		for _, subject := range c.Subscriptions {
			if p, ok := wire.ParseLiveFilter(s, subject); ok {
				out[c.Lifecycle] = append(out[c.Lifecycle], p)
			}
		}
	}
	for l, patterns := range out {
		slices.Sort(patterns)
		out[l] = slices.Compact(patterns)
	}
	return out
}
