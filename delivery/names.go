package delivery

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
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

// grantNames is the directory of a space with grants: who has an active one. It follows the records in the order of their
// writing, so what it costs is what was written since.
type grantNames struct {
	grants *space.Grants

	shared shared // guards the two below
	after  uint64
	byName map[string][]holder
}

// holder is one active grant.
type holder struct {
	life    wire.Lifecycle
	expires time.Time // zero: never
	read    []string
}

func newGrantNames(g *space.Grants) *grantNames {
	return &grantNames{grants: g, byName: map[string][]holder{}}
}

func (n *grantNames) sync(ctx context.Context) error {
	unlock, err := n.shared.look(func() error { return n.follow(ctx) })
	if err != nil {
		return err
	}
	unlock()
	return nil
}

func (n *grantNames) follow(ctx context.Context) error {
	after, err := n.grants.Changes(ctx, n.after, n.take)
	if err == nil && after < n.after { // the bucket was made anew; whoever looks meanwhile must not see half of it
		anew := newGrantNames(n.grants)
		if after, err = n.grants.Changes(ctx, 0, anew.take); err != nil {
			return err
		}
		n.byName = anew.byName
	}
	n.after = after
	return err
}

// take replaces what was known of a principal. A record that cannot be read permits nothing.
func (n *grantNames) take(p wire.Principal, grant *trust.Grant) {
	name := strings.ToLower(p.Actor)
	rest := slices.DeleteFunc(n.byName[name], func(h holder) bool { return h.life.Principal == p })
	if grant != nil && grant.State == trust.GrantActive {
		h := holder{life: grant.Lifecycle(), read: grant.AllowSubscribe}
		if grant.ExpiresAt != nil {
			h.expires = *grant.ExpiresAt
		}
		rest = append(rest, h)
	}
	if len(rest) == 0 {
		delete(n.byName, name)
		return
	}
	n.byName[name] = rest
}

func (n *grantNames) holders(actor string, now time.Time) []wire.Lifecycle {
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	var out []wire.Lifecycle
	for _, h := range n.byName[actor] {
		if h.expires.IsZero() || now.Before(h.expires) {
			out = append(out, h.life)
		}
	}
	return out
}

func (n *grantNames) reads(l wire.Lifecycle, channel string) bool {
	n.shared.mu.Lock()
	defer n.shared.mu.Unlock()
	return slices.ContainsFunc(n.byName[strings.ToLower(l.Actor)], func(h holder) bool { return h.life == l && matches(h.read, channel) })
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
