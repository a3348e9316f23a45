package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// maxTries bounds how often a compare-and-swap is repeated after somebody else was first.
const maxTries = 16

// membership is what the commands of members work with. All of its state is in the broker.
type membership struct {
	members  *space.Members
	cursors  *space.Cursors
	chat     *frontier
	mentions *frontier
	registry *registry
}

func newMembership(js jetstream.JetStream, s wire.Space) *membership {
	m := &membership{
		members: space.NewMembers(js, s), cursors: space.NewCursors(js, s),
		chat: &frontier{js: js, stream: wire.ChatStream(s)}, mentions: &frontier{js: js, stream: wire.MentionStream(s)},
	}
	m.registry = newRegistry(m.members, m.cursors)
	return m
}

func (d *Service) registerMembers() {
	control.Handle(d.serve, control.Command{
		Name: wire.CommandJoin, Effect: control.Write, Description: "Makes the caller a durable member of a pattern of channels.",
	}, func(ctx context.Context, req *control.Request, in wire.JoinRequest) (*wire.JoinReply, error) {
		return d.join(ctx, req.Caller, in)
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandLeave, Effect: control.Write, Description: "Ends a durable membership of the caller.",
	}, func(ctx context.Context, req *control.Request, in wire.LeaveRequest) (*wire.LeaveReply, error) {
		return d.leave(ctx, req.Caller, in)
	})
	// The reply is put together from stored messages, which were checked already; see pull.
	control.Handle(d.serve, control.Command{
		Name: wire.CommandPull, Effect: control.Read, Description: "A page of what the caller has not handled, of a membership or of its mentions.",
		Out: control.SchemaOf[*wire.PullReply](),
	}, func(ctx context.Context, req *control.Request, in wire.PullRequest) (json.RawMessage, error) {
		return d.pull(ctx, req.Caller, in)
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandAck, Effect: control.Write, Description: "Reports what the caller has handled, of a membership or of its mentions.",
	}, func(ctx context.Context, req *control.Request, in wire.AckRequest) (*wire.AckReply, error) {
		return d.ack(ctx, req.Caller, in)
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandMemberships, Effect: control.Read, Description: "A page of who is a member of which channels, for display.",
	}, func(ctx context.Context, req *control.Request, in *wire.MembershipsRequest) (*wire.MembershipsReply, error) {
		return d.memberships(ctx, req.Caller, value(in))
	})
}

// frontier knows how far a stream has come, at least.
type frontier struct {
	js     jetstream.JetStream
	stream string
	known  atomic.Uint64
	asked  atomic.Int64 // when, in seconds
}

// frontierReuse is how long that is believed, in seconds: a stream that was made anew is not as far.
const frontierReuse = 5

// read asks the broker.
func (f *frontier) read(ctx context.Context) (space.Bounds, error) {
	b, err := space.BoundsOf(ctx, f.js, f.stream)
	if err == nil {
		f.known.Store(b.Last)
		f.asked.Store(time.Now().Unix())
	}
	return b, err
}

// reached reports whether the stream has come to a sequence. It asks only about what is beyond all that was read a moment ago.
func (f *frontier) reached(ctx context.Context, sequence uint64) (bool, error) {
	if sequence <= f.known.Load() && time.Now().Unix()-f.asked.Load() < frontierReuse {
		return true, nil
	}
	b, err := f.read(ctx)
	return sequence <= b.Last, err
}

// living is the access of a caller whose life has a grant that stands. Others have no memberships, whatever is stored.
func (d *Service) living(ctx context.Context, caller wire.Lifecycle, pattern string) (access, error) {
	a, err := d.accessOf(ctx, caller)
	if err == nil && a.why != "" {
		err = d.lifeless(caller, pattern, a)
	}
	return a, err
}

// lifeless is the refusal of a caller without a grant. Without a pattern it was about all the caller has.
func (d *Service) lifeless(caller wire.Lifecycle, pattern string, a access) error {
	if pattern != "" {
		return d.denied(caller, pattern, a)
	}
	e := wire.Errorf(wire.CodePermissionDenied, "read memberships and mentions as %q: %s; ask an operator to grant it again", caller.Principal, a.why)
	e.Outcome = wire.OutcomeNotExecuted
	e.Details = map[string]any{
		"subject": wire.StreamSubjects(d.space, wire.KindChannel), "principal": caller.Principal.String(), "missing": "an active grant",
		"ask": fmt.Sprintf("ask an operator of space %q to grant %q again", d.space, caller.Principal),
	}
	return e
}

// meets reports whether a read list and a pattern have a channel in common.
func meets(list []string, pattern string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return overlap(p, pattern) })
}

// overlap reports whether two valid patterns have a channel in common.
func overlap(a, b string) bool {
	for {
		x, aRest, aMore := strings.Cut(a, ".")
		y, bRest, bMore := strings.Cut(b, ".")
		switch {
		case x == ">" || y == ">":
			return true
		case x != y && x != "*" && y != "*":
			return false
		case !aMore || !bMore:
			return aMore == bMore
		}
		a, b = aRest, bRest
	}
}

// classOf is the class of a channel, or durable for a pattern that may have a durable one.
func (d *Service) classOf(ctx context.Context, pattern string) (wire.DeliveryClass, error) {
	if wire.ValidateChannel(pattern) == nil {
		r, err := d.resolve(ctx, pattern)
		return r.Class, err
	}
	configs, _, err := d.channels.List(ctx)
	if err != nil {
		return "", err
	}
	var defaults *wire.ChannelConfig
	if i := slices.IndexFunc(configs, func(c space.Channel) bool { return c.Name == wire.DefaultsKey }); i >= 0 {
		defaults = &configs[i].Config
	}
	if wire.ResolveChannel(nil, defaults).Class == wire.ClassDurable {
		return wire.ClassDurable, nil
	}
	for _, c := range configs {
		if wire.PatternMatches(pattern, c.Name) && wire.ResolveChannel(&c.Config, defaults).Class == wire.ClassDurable {
			return wire.ClassDurable, nil
		}
	}
	return wire.ClassLive, nil
}

func (d *Service) join(ctx context.Context, caller wire.Lifecycle, in wire.JoinRequest) (*wire.JoinReply, error) {
	if err := wire.ValidatePattern(in.Pattern); err != nil {
		return nil, err
	}
	a, err := d.accessOf(ctx, caller)
	if err != nil {
		return nil, err
	}
	if !wire.PatternsCover(a.read, in.Pattern) {
		return nil, d.denied(caller, in.Pattern, a)
	}
	class, err := d.classOf(ctx, in.Pattern)
	if err != nil {
		return nil, d.refuse(ctx, "read channel settings", caller, err)
	}
	if class != wire.ClassDurable {
		b, err := d.member.chat.read(ctx)
		return &wire.JoinReply{Pattern: in.Pattern, Class: string(class), Joined: b.Last, Frontier: b.Last}, err
	}
	reply, err := d.enter(ctx, caller, in.Pattern)
	if err != nil {
		return nil, d.refuse(ctx, "join", caller, err)
	}
	reply.Class = string(class)
	if !reply.Resumed {
		d.joins.touch()
		d.log.InfoContext(ctx, "joined", logkey.Principal, caller.Principal.String(), logkey.Channel, in.Pattern, logkey.Sequence, reply.Joined)
	}
	return reply, nil
}

// enter opens a span unless one is open. Of two at once one finds what the other wrote.
func (d *Service) enter(ctx context.Context, caller wire.Lifecycle, pattern string) (*wire.JoinReply, error) {
	for try := 0; ; try++ {
		m, rev, cursor, err := d.stored(ctx, caller, pattern)
		if errors.Is(err, wire.ErrNotFound) {
			m, err = space.Membership{Lifecycle: caller, Pattern: pattern}, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := d.member.chat.read(ctx)
		if err != nil {
			return nil, err
		}
		open, resumed := m.Open()
		if !resumed {
			m = m.Waiting(cursor).Joined(b.Last)
			gen, err := d.member.members.Put(ctx, m, rev)
			if err := raced(err); errors.Is(err, errRaced) {
				if try < maxTries {
					continue
				}
				return nil, crowdedOut(err)
			}
			if err != nil {
				return nil, err
			}
			open = m.Last()
			open.Generation = gen
			if rev == 0 {
				if err := d.reserve(ctx, m, gen); err != nil {
					return nil, err
				}
			}
		}
		iv := intervalOf(m, cursor)
		return &wire.JoinReply{
			Pattern: pattern, Durable: true, Resumed: resumed, Generation: open.Generation, Joined: open.Join, Frontier: b.Last,
			Floor: iv.cursor.Floor, Handled: iv.cursor.Handled, Earlier: iv.before(),
		}, nil
	}
}

// reserve makes the position of a membership that is new, so that there is room for it whenever it moves. Without room the
// membership is taken back.
func (d *Service) reserve(ctx context.Context, m space.Membership, gen uint64) error {
	_, err := d.member.cursors.Put(ctx, m.Lifecycle, m.Pattern, space.Cursor{Floor: m.Last().Join}, 0)
	switch {
	case err == nil:
		return d.sweep(ctx, m.Lifecycle, m.Pattern)
	case errors.Is(err, wire.ErrConflict): // there is one
		return nil
	case errors.Is(err, wire.ErrExhausted):
		if undo := d.member.members.Remove(ctx, m.Lifecycle, m.Pattern, gen); undo != nil && !errors.Is(undo, wire.ErrConflict) {
			return errors.Join(err, undo)
		}
		d.joins.touch()
	}
	return err
}

// stored reads a membership and its position. Without a membership it is not-found, and the revision 0.
func (d *Service) stored(ctx context.Context, l wire.Lifecycle, pattern string) (space.Membership, uint64, space.Cursor, error) {
	m, rev, err := d.member.members.Get(ctx, l, pattern)
	if err != nil {
		return m, 0, space.Cursor{}, err
	}
	cursor, _, err := d.member.cursors.Get(ctx, l, pattern)
	return m, rev, cursor, err
}

func (d *Service) leave(ctx context.Context, caller wire.Lifecycle, in wire.LeaveRequest) (*wire.LeaveReply, error) {
	if err := wire.ValidatePattern(in.Pattern); err != nil {
		return nil, err
	}
	// Who may no longer read a channel may still leave it.
	if _, err := d.living(ctx, caller, in.Pattern); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		reply, err := d.leaveOnce(ctx, caller, in)
		if errors.Is(err, errRaced) && try < maxTries {
			continue
		}
		if err != nil {
			return nil, d.refuse(ctx, "leave", caller, crowdedOut(err))
		}
		d.joins.touch()
		d.log.InfoContext(ctx, "left", logkey.Principal, caller.Principal.String(), logkey.Channel, in.Pattern, logkey.Sequence, reply.Left)
		return reply, nil
	}
}

// errRaced says that a record changed between reading and writing it.
var errRaced = errors.New("the record changed meanwhile")

// raced tells a lost compare-and-swap from a refusal with the same code.
func raced(err error) error {
	if errors.Is(err, wire.ErrConflict) {
		return errors.Join(errRaced, err)
	}
	return err
}

// crowdedOut makes a compare-and-swap that others were always faster at what it is to the caller: it may try again. As a
// conflict it would mean that the membership is another one.
func crowdedOut(err error) error {
	if errors.Is(err, errRaced) {
		return wire.Errorf(wire.CodeUnavailable, "the record changed meanwhile, %d times", maxTries+1)
	}
	return err
}

func (d *Service) leaveOnce(ctx context.Context, caller wire.Lifecycle, in wire.LeaveRequest) (*wire.LeaveReply, error) {
	m, rev, cursor, err := d.stored(ctx, caller, in.Pattern)
	if err != nil {
		return nil, err
	}
	open, is := m.Open()
	switch {
	case !is && !in.Discard:
		return nil, wire.Errorf(wire.CodeNotFound, "leave %q as %q: the membership was left already", in.Pattern, caller.Principal)
	case in.Generation != 0 && in.Generation != m.Last().Generation:
		return nil, wire.Errorf(wire.CodeConflict, "leave %q as %q: the membership is of generation %d, not %d", in.Pattern, caller.Principal, m.Last().Generation, in.Generation)
	}
	left := m.Last().Leave
	if is {
		b, err := d.member.chat.read(ctx)
		if err != nil {
			return nil, err
		}
		left = max(b.Last, open.Join)
		m = m.Left(left)
	}
	reply := &wire.LeaveReply{Pattern: in.Pattern, Left: left}
	if in.Discard || intervalOf(m, cursor).over() {
		return reply, d.forget(ctx, caller, in.Pattern, rev)
	}
	_, err = d.member.members.Put(ctx, m, rev)
	return reply, raced(err)
}

// forget removes a membership, then its position. A position that is left behind by a crash does no harm: what lies before
// a join does not count.
func (d *Service) forget(ctx context.Context, l wire.Lifecycle, pattern string, rev uint64) error {
	if err := d.member.members.Remove(ctx, l, pattern, rev); err != nil {
		return raced(err)
	}
	d.joins.touch() // a removal is no message that others could follow
	if err := d.sweep(ctx, l, pattern); err != nil {
		d.log.WarnContext(ctx, "the position of an ended membership stays", logkey.Principal, l.Principal.String(), logkey.Channel, pattern, logkey.Error, err)
	}
	return nil
}

// sweep removes a position that has no membership. Whoever made one, and whoever ended a membership, does it: what was
// written between is found by one of them. A position that moved after it was read belongs to a membership again, or is
// read again.
func (d *Service) sweep(ctx context.Context, l wire.Lifecycle, pattern string) error {
	for {
		_, at, err := d.member.cursors.Get(ctx, l, pattern)
		if err != nil || at == 0 {
			return err
		}
		if _, _, err := d.member.members.Get(ctx, l, pattern); !errors.Is(err, wire.ErrNotFound) {
			return err
		}
		if err := d.member.cursors.Remove(ctx, l, pattern, at); !errors.Is(err, wire.ErrConflict) {
			return err
		}
	}
}
