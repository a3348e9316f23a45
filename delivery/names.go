package delivery

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// A directory tells whom a mention means. Several goroutines may use one.
type directory interface {
	// sync brings the directory up to every grant that was acknowledged before the call. Without it nothing may be
	// looked up: from half of the names one that several share looks like that of one.
	sync(ctx context.Context) error
	// holders returns who holds an actor's name, in lower case, at a time.
	holders(actor string, now time.Time) []wire.Lifecycle
	// reads reports whether a holder that was returned may read a channel.
	reads(l wire.Lifecycle, channel string) bool
}

// resolve returns whom a mention means: the principal that it names in dot form, else the one holder of an actor's
// name. What peers call themselves has no part in it. When holders is not 1 it means nobody.
func resolve(d directory, name string, now time.Time) (l wire.Lifecycle, holders int) {
	owner, actor, dotted := strings.Cut(name, ".")
	if !dotted {
		owner, actor = "", name
	}
	found := d.holders(actor, now)
	if dotted {
		found = slices.DeleteFunc(slices.Clone(found), func(l wire.Lifecycle) bool { return l.Owner != owner })
		if i := slices.IndexFunc(found, func(l wire.Lifecycle) bool { return l.Actor == actor }); i >= 0 {
			return found[i], 1
		}
	}
	if len(found) != 1 {
		return wire.Lifecycle{}, len(found)
	}
	return found[0], 1
}

// rosterNames is the directory of an open space, which has no grants: who is there, or was a while ago.
type rosterNames struct{ feed *feed }

func (n rosterNames) sync(ctx context.Context) error {
	n.feed.catchUp(ctx)
	return nil
}

func (n rosterNames) holders(actor string, _ time.Time) []wire.Lifecycle {
	n.feed.mu.Lock()
	defer n.feed.mu.Unlock()
	var out []wire.Lifecycle
	for p, m := range n.feed.roster.members {
		if strings.ToLower(p.Actor) == actor {
			out = append(out, wire.Lifecycle{Principal: p, UID: m.now.LifecycleUID})
		}
	}
	return out
}

func (n rosterNames) reads(wire.Lifecycle, string) bool { return true }
