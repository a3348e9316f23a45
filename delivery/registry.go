package delivery

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// registryReuse is how old a listing of all memberships may be that is given out.
const registryReuse = time.Second

// registry lists all memberships, for display. From the first time that somebody asks it keeps them, and reads what was
// written since: reading ten thousand with their positions takes a few tenths of a second.
type registry struct {
	members *space.Members
	cursors *space.Cursors

	shared    shared // guards those below
	records   followed[space.Membership]
	positions followed[space.Cursor]
	last      []wire.MemberInfo
	at        time.Time
}

func newRegistry(members *space.Members, cursors *space.Cursors) *registry {
	r := &registry{members: members, cursors: cursors}
	r.records.source, r.positions.source = members, cursors
	return r
}

// all returns every life of a principal that has a membership, sorted by principal. The list must not be changed.
func (r *registry) all(ctx context.Context) ([]wire.MemberInfo, error) {
	r.shared.mu.Lock()
	defer r.shared.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < registryReuse {
		return r.last, nil
	}
	changed, err := r.records.sync(ctx)
	if err != nil {
		return nil, err
	}
	moved, err := r.positions.sync(ctx)
	if err != nil {
		return nil, err
	}
	if changed || moved || r.at.IsZero() {
		c := newCollection()
		for key, m := range r.records.by {
			if m != nil {
				c.add(*m, r.positions.by[key])
			}
		}
		r.last = c.sorted()
	}
	r.at = time.Now()
	return r.last, nil
}

// source is a bucket whose records can be followed, but for removals.
type source[V any] interface {
	Changes(ctx context.Context, after uint64, fn func(key string, v *V)) (uint64, error)
	Total(ctx context.Context) (int, error)
}

// followed is what a bucket holds, by key; nil for what cannot be read.
type followed[V any] struct {
	source source[V]
	by     map[string]*V
	after  uint64
}

// sync brings it up to date and reports whether anything changed. When the numbers say that something was removed,
// everything is read again. A record may have come in between, so it looks twice.
func (f *followed[V]) sync(ctx context.Context) (changed bool, err error) {
	for try := 0; ; try++ {
		if f.by == nil || try == 2 {
			f.by, f.after, changed = map[string]*V{}, 0, true
		}
		if f.after, err = f.source.Changes(ctx, f.after, func(key string, v *V) { f.by[key], changed = v, true }); err != nil {
			return changed, err
		}
		n, err := f.source.Total(ctx)
		if err != nil || n == len(f.by) || try == 2 {
			return changed, err
		}
	}
}

// of returns the lives of one principal, read now.
func (r *registry) of(ctx context.Context, p wire.Principal) ([]wire.MemberInfo, error) {
	c := newCollection()
	positions := map[space.CursorKey]*space.Cursor{}
	err := r.cursors.OfPrincipal(ctx, p, func(k space.CursorKey, cur space.Cursor) error {
		positions[k] = &cur
		return nil
	})
	if err != nil {
		return nil, err
	}
	all, err := r.members.OfPrincipal(ctx, p)
	for _, m := range all {
		c.add(m, positions[space.CursorKey{Lifecycle: m.Lifecycle, Pattern: space.PatternKey(m.Pattern)}])
	}
	return c.sorted(), err
}

// collection puts memberships and positions together by life.
type collection struct {
	lives map[wire.Lifecycle]*wire.MemberInfo
}

func newCollection() *collection { return &collection{map[wire.Lifecycle]*wire.MemberInfo{}} }

// add takes a membership with its position, nil for none.
func (c *collection) add(m space.Membership, at *space.Cursor) {
	info := c.lives[m.Lifecycle]
	if info == nil {
		info = &wire.MemberInfo{Principal: m.Lifecycle.Principal.String(), UID: m.Lifecycle.UID}
		c.lives[m.Lifecycle] = info
	}
	last, floor := m.Last(), m.Spans[0].Join
	if at != nil {
		floor = max(floor, at.Floor)
	}
	info.Durable = append(info.Durable, wire.DurableMembership{
		Pattern: m.Pattern, Generation: last.Generation, Joined: last.Join, Left: last.Leave, Floor: floor,
	})
}

func (c *collection) sorted() []wire.MemberInfo {
	out := make([]wire.MemberInfo, 0, len(c.lives))
	for _, info := range c.lives {
		slices.SortFunc(info.Durable, func(a, b wire.DurableMembership) int { return strings.Compare(a.Pattern, b.Pattern) })
		out = append(out, *info)
	}
	slices.SortFunc(out, byPrincipal)
	return out
}

func byPrincipal(a, b wire.MemberInfo) int {
	return cmp.Or(strings.Compare(a.Principal, b.Principal), strings.Compare(string(a.UID), string(b.UID)))
}

func (d *Service) memberships(ctx context.Context, caller wire.Lifecycle, in wire.MembershipsRequest) (*wire.MembershipsReply, error) {
	only, err := checkMemberships(in)
	if err != nil {
		return nil, err
	}
	a, err := d.living(ctx, caller, "")
	if err != nil {
		return nil, err
	}
	var all []wire.MemberInfo
	if in.Principal != "" {
		all, err = d.member.registry.of(ctx, only)
	} else {
		all, err = d.member.registry.all(ctx)
	}
	if err != nil {
		return nil, d.refuse(ctx, "list memberships", caller, err)
	}
	v := memberView{caller: caller, a: a, in: in}
	reply := &wire.MembershipsReply{Members: []wire.MemberInfo{}}
	if d.live != nil {
		if live, at := d.live.live(); !at.IsZero() {
			all, reply.LiveAt = withLive(all, live, only), at.UnixMilli()
		}
	}
	v.fill(reply, all)
	return reply, nil
}

func checkMemberships(in wire.MembershipsRequest) (only wire.Principal, err error) {
	if in.Limit < 0 || in.Limit > wire.MaxMembershipsPage {
		return only, wire.Errorf(wire.CodeBadRequest, "list memberships: limit %d outside 0 to %d", in.Limit, wire.MaxMembershipsPage)
	}
	if in.Channel != "" {
		if err := wire.ValidateChannel(in.Channel); err != nil {
			return only, err
		}
	}
	if in.Principal != "" {
		return wire.ParsePrincipal(in.Principal)
	}
	return only, nil
}

// withLive adds what lives listen to, of one principal or, for the zero one, of all. It leaves all alone.
func withLive(all []wire.MemberInfo, live map[wire.Lifecycle][]string, only wire.Principal) []wire.MemberInfo {
	out := make([]wire.MemberInfo, 0, len(all)+len(live))
	used := 0
	for _, info := range all {
		if p, err := wire.ParsePrincipal(info.Principal); err == nil {
			if info.Live = live[wire.Lifecycle{Principal: p, UID: info.UID}]; info.Live != nil {
				used++
			}
		}
		out = append(out, info)
	}
	if only.IsZero() && used == len(live) {
		return out
	}
	known := len(out)
	for l, patterns := range live {
		info := wire.MemberInfo{Principal: l.Principal.String(), UID: l.UID, Live: patterns}
		if _, there := slices.BinarySearchFunc(out[:known], info, byPrincipal); !there && (only.IsZero() || only == l.Principal) {
			out = append(out, info)
		}
	}
	slices.SortFunc(out, byPrincipal)
	return out
}

// memberView is what one caller may see of the memberships.
type memberView struct {
	caller wire.Lifecycle
	a      access
	in     wire.MembershipsRequest
}

// fill adds a page. The lives of a principal are never apart, so that After can name it.
func (v memberView) fill(reply *wire.MembershipsReply, all []wire.MemberInfo) {
	limit := v.in.Limit
	if limit == 0 {
		limit = wire.MaxMembershipsPage
	}
	start, found := slices.BinarySearchFunc(all, v.in.After, func(m wire.MemberInfo, after string) int { return strings.Compare(m.Principal, after) })
	for found && start < len(all) && all[start].Principal == v.in.After {
		start++
	}
	size, whole := 0, 0 // whole is how many came before the lives of the present principal
	for i := start; i < len(all); i++ {
		if n := len(reply.Members); n > 0 && reply.Members[n-1].Principal != all[i].Principal {
			whole = n
		}
		info, room := v.see(all[i])
		if room == 0 {
			continue
		}
		reply.Members, size = append(reply.Members, info), size+room
		if n := len(reply.Members); n > limit && whole > 0 || size > pageRoom && whole > 0 {
			reply.Members = reply.Members[:whole]
			reply.Next = reply.Members[whole-1].Principal
			return
		}
	}
}

// see returns what of a life the caller may see, and a bound of its JSON; 0 when there is nothing. What is more than half
// a page of one life is left out.
func (v memberView) see(info wire.MemberInfo) (wire.MemberInfo, int) {
	own := info.Principal == v.caller.Principal.String() && info.UID == v.caller.UID
	size := entryRoom
	may := func(pattern string) bool {
		if size > pageRoom/2 || !own && !wire.PatternsCover(v.a.read, pattern) || v.in.Channel != "" && !wire.PatternMatches(pattern, v.in.Channel) {
			return false
		}
		size += len(pattern) + entryRoom
		return true
	}
	out := wire.MemberInfo{Principal: info.Principal, UID: info.UID}
	for _, p := range info.Live {
		if may(p) {
			out.Live = append(out.Live, p)
		}
	}
	for _, m := range info.Durable {
		if may(m.Pattern) {
			out.Durable = append(out.Durable, m)
		}
	}
	if len(out.Live)+len(out.Durable) == 0 {
		return out, 0
	}
	return out, size
}
