package delivery

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// registryReuse is how old a listing of all memberships may be that is given out. Reading ten thousand with their positions
// takes a few tenths of a second, so that however often it is asked for, it costs a fraction of one processor.
const registryReuse = 2 * time.Second

// registry lists all memberships, for display. It keeps the last listing until the next one is asked for.
type registry struct {
	members *space.Members
	cursors *space.Cursors

	mu   sync.Mutex // guards the two below; held while asking the broker
	last []wire.MemberInfo
	at   time.Time
}

// all returns every life of a principal that has a membership, sorted by principal. The list must not be changed.
func (r *registry) all(ctx context.Context) ([]wire.MemberInfo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < registryReuse {
		return r.last, nil
	}
	c := newCollection()
	if err := r.members.All(ctx, c.member); err != nil {
		return nil, err
	}
	if err := r.cursors.All(ctx, c.cursor); err != nil {
		return nil, err
	}
	r.last, r.at = c.sorted(), time.Now()
	return r.last, nil
}

// of returns the lives of one principal, read now.
func (r *registry) of(ctx context.Context, p wire.Principal) ([]wire.MemberInfo, error) {
	c := newCollection()
	all, err := r.members.OfPrincipal(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		_ = c.member(m)
	}
	err = r.cursors.OfPrincipal(ctx, p, c.cursor)
	return c.sorted(), err
}

// collection puts memberships and positions together by life.
type collection struct {
	lives map[wire.Lifecycle]*wire.MemberInfo
	place map[space.CursorKey]int // in Durable
}

func newCollection() *collection {
	return &collection{map[wire.Lifecycle]*wire.MemberInfo{}, map[space.CursorKey]int{}}
}

func (c *collection) life(l wire.Lifecycle) *wire.MemberInfo {
	info := c.lives[l]
	if info == nil {
		info = &wire.MemberInfo{Principal: l.Principal.String(), UID: l.UID}
		c.lives[l] = info
	}
	return info
}

func (c *collection) member(m space.Membership) error {
	info, last := c.life(m.Lifecycle), m.Last()
	c.place[space.CursorKey{Lifecycle: m.Lifecycle, Pattern: space.PatternKey(m.Pattern)}] = len(info.Durable)
	info.Durable = append(info.Durable, wire.DurableMembership{
		Pattern: m.Pattern, Generation: last.Generation, Joined: last.Join, Left: last.Leave, Floor: m.Spans[0].Join,
	})
	return nil
}

func (c *collection) cursor(k space.CursorKey, cur space.Cursor) error {
	if i, ok := c.place[k]; ok {
		d := &c.lives[k.Lifecycle].Durable[i]
		d.Floor = max(d.Floor, cur.Floor)
	}
	return nil
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
	size, whole, wholeSize := 0, 0, 0 // of the page as it was before the lives of the present principal
	for i := start; i < len(all); i++ {
		if n := len(reply.Members); n > 0 && reply.Members[n-1].Principal != all[i].Principal {
			whole, wholeSize = n, size
		}
		info, room := v.see(all[i])
		if room == 0 {
			continue
		}
		reply.Members, size = append(reply.Members, info), size+room
		if n := len(reply.Members); n > limit && whole > 0 || size > pageRoom && whole > 0 {
			reply.Members, size = reply.Members[:whole], wholeSize
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
		if size > pageRoom/2 || !own && !covers(v.a.read, pattern) || v.in.Channel != "" && !wire.PatternMatches(pattern, v.in.Channel) {
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
