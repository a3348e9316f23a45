package delivery

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// shared lets those who want the same news share one look at it: a look that began after somebody asked is theirs too. So
// many requests at once cost what a few do.
type shared struct {
	asked atomic.Uint64
	mu    sync.Mutex // guards seen and what the look writes; held during it
	seen  uint64     // who asked up to here has been served
}

// look calls fn unless another's look does, and holds the lock until unlock is called.
func (s *shared) look(fn func() error) (unlock func(), err error) {
	me := s.asked.Add(1)
	s.mu.Lock()
	if me > s.seen {
		upTo := s.asked.Load()
		if err := fn(); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		s.seen = upTo
	}
	return s.mu.Unlock, nil
}

// grantees knows what the grants say, for requests about many principals at once, and is the directory of a space with
// grants. It follows the records in the order of their writing, so what it costs is what was written since.
type grantees struct {
	grants *space.Grants

	shared shared // guards the fields below
	after  uint64
	of     map[wire.Principal]granted
	byName map[string][]wire.Principal // by actor in lower case, those whose grant is active
}

// granted is what is kept of a grant.
type granted struct {
	uid     wire.UID
	cut     uint64
	role    string
	read    []string
	active  bool
	expires time.Time // zero: never
}

func grantedOf(grant *trust.Grant) granted {
	g := granted{uid: grant.UID, cut: grant.Cut, role: grant.Role, read: grant.AllowSubscribe, active: grant.State == trust.GrantActive}
	if grant.ExpiresAt != nil {
		g.expires = *grant.ExpiresAt
	}
	return g
}

// ended says why the grant permits nothing any more, "" while it does.
func (g granted) ended(now time.Time) string {
	switch {
	case !g.active:
		return reasonRevoked
	case !g.expires.IsZero() && !now.Before(g.expires):
		return reasonExpired
	}
	return ""
}

func newGrantees(g *space.Grants) *grantees {
	return &grantees{grants: g, of: map[wire.Principal]granted{}, byName: map[string][]wire.Principal{}}
}

// view calls fn with every grant that was acknowledged before the call. fn must not keep the map, change it or ask the
// broker. A record that cannot be read permits nothing and is not there.
func (g *grantees) view(ctx context.Context, fn func(map[wire.Principal]granted)) error {
	unlock, err := g.shared.look(func() error { return g.follow(ctx) })
	if err != nil {
		return err
	}
	defer unlock()
	fn(g.of)
	return nil
}

func (g *grantees) sync(ctx context.Context) error {
	return g.view(ctx, func(map[wire.Principal]granted) {})
}

func (g *grantees) follow(ctx context.Context) error {
	after, err := g.grants.Changes(ctx, g.after, g.take)
	if err == nil && after < g.after { // the bucket was made anew; whoever looks meanwhile must not see half of it
		anew := newGrantees(g.grants)
		if after, err = g.grants.Changes(ctx, 0, anew.take); err != nil {
			return err
		}
		g.of, g.byName = anew.of, anew.byName
	}
	g.after = after
	return err
}

// take replaces what was known of a principal. A record that cannot be read permits nothing.
func (g *grantees) take(p wire.Principal, grant *trust.Grant) {
	name := strings.ToLower(p.Actor)
	named := slices.DeleteFunc(g.byName[name], func(o wire.Principal) bool { return o == p })
	delete(g.of, p)
	if grant != nil {
		g.of[p] = grantedOf(grant)
		if g.of[p].active {
			named = append(named, p)
		}
	}
	if len(named) == 0 {
		delete(g.byName, name)
		return
	}
	g.byName[name] = named
}

func (g *grantees) holders(actor string, now time.Time) []wire.Lifecycle {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	var out []wire.Lifecycle
	for _, p := range g.byName[actor] {
		if grant := g.of[p]; grant.ended(now) == "" {
			out = append(out, wire.Lifecycle{Principal: p, UID: grant.uid})
		}
	}
	return out
}

func (g *grantees) reads(l wire.Lifecycle, channel string) bool {
	g.shared.mu.Lock()
	defer g.shared.mu.Unlock()
	grant := g.of[l.Principal]
	return grant.active && grant.uid == l.UID && matches(grant.read, channel)
}
