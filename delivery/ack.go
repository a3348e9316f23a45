package delivery

import (
	"context"
	"errors"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func (d *Service) ack(ctx context.Context, caller wire.Lifecycle, in wire.AckRequest) (*wire.AckReply, error) {
	if err := checkAck(in); err != nil {
		return nil, err
	}
	if _, err := d.living(ctx, caller, in.Pattern); err != nil {
		return nil, err
	}
	once := d.ackMembership
	if in.Mentions {
		once = d.ackMentions
	}
	for try := 0; ; try++ {
		reply, err := once(ctx, caller, in)
		if errors.Is(err, errRaced) && try < maxTries {
			continue
		}
		if err != nil {
			return nil, d.refuse(ctx, "acknowledge", caller, crowdedOut(err))
		}
		return reply, nil
	}
}

func checkAck(in wire.AckRequest) error {
	if err := checkPlace(in.Pattern, in.Mentions); err != nil {
		return err
	}
	if n := len(in.Handled); n > wire.MaxHandledRanges {
		return wire.Errorf(wire.CodeBadRequest, "acknowledge: %d ranges, at most %d", n, wire.MaxHandledRanges)
	}
	end := in.Floor
	for _, r := range in.Handled {
		if r.From <= end || r.To < r.From {
			return wire.Errorf(wire.CodeBadRequest, "acknowledge: range %d to %d is out of order, overlaps, or lies at or below floor %d", r.From, r.To, in.Floor)
		}
		end = r.To
	}
	return nil
}

// checkPlace refuses a request that names neither a membership nor the mentions, or both.
func checkPlace(pattern string, mentions bool) error {
	switch {
	case mentions && pattern != "":
		return wire.Errorf(wire.CodeBadRequest, "both a pattern, %q, and mentions", clip(pattern))
	case mentions:
		return nil
	}
	return wire.ValidatePattern(pattern)
}

// ackMembership records a position and forgets a membership that is over.
func (d *Service) ackMembership(ctx context.Context, caller wire.Lifecycle, in wire.AckRequest) (*wire.AckReply, error) {
	m, rev, err := d.member.members.Get(ctx, caller, in.Pattern)
	if err != nil {
		return nil, err
	}
	if !m.Knows(in.Generation) {
		return nil, wire.Errorf(wire.CodeConflict, "acknowledge %q as %q: generation %d is none of the membership, the last is %d",
			in.Pattern, caller.Principal, in.Generation, m.Last().Generation)
	}
	if err := d.bounded(ctx, d.member.chat, in); err != nil {
		return nil, err
	}
	old, at, err := d.member.cursors.Get(ctx, caller, in.Pattern)
	if err != nil {
		return nil, err
	}
	next := old.Merge(space.Cursor{Floor: in.Floor, Handled: in.Handled})
	iv := intervalOf(m, next)
	if iv.over() {
		d.joins.touch()
		return &wire.AckReply{Floor: iv.cursor.Floor, Ended: true}, d.forget(ctx, caller, in.Pattern, rev)
	}
	if next.Equal(old) {
		return &wire.AckReply{Floor: iv.cursor.Floor}, nil
	}
	_, err = d.member.cursors.Move(ctx, space.Move{
		Lifecycle: caller, Pattern: in.Pattern, From: old, Revision: at, To: next,
		Memberships: func(ctx context.Context) (int, error) { return d.member.members.Count(ctx, caller) },
	})
	if err == nil && at == 0 {
		err = d.sweep(ctx, caller, in.Pattern)
	}
	if err != nil {
		return nil, raced(err)
	}
	return &wire.AckReply{Floor: iv.cursor.Floor}, nil
}

// ackMentions records the position among the pointers. They stay where they are: the stream bounds them.
func (d *Service) ackMentions(ctx context.Context, caller wire.Lifecycle, in wire.AckRequest) (*wire.AckReply, error) {
	if err := d.bounded(ctx, d.member.mentions, in); err != nil {
		return nil, err
	}
	old, at, err := d.member.cursors.Mentions(ctx, caller)
	if err != nil {
		return nil, err
	}
	next := old.Merge(space.Cursor{Floor: in.Floor, Handled: in.Handled})
	if !next.Equal(old) {
		rev, err := d.member.cursors.Move(ctx, space.Move{Lifecycle: caller, From: old, Revision: at, To: next})
		if err != nil {
			return nil, raced(err)
		}
		if at == 0 {
			if err := d.outlived(ctx, caller, rev); err != nil {
				return nil, err
			}
		}
	}
	return &wire.AckReply{Floor: next.Floor}, nil
}

// outlived removes the first position among the mentions of a life that ended meanwhile, whose records are gone already.
func (d *Service) outlived(ctx context.Context, caller wire.Lifecycle, rev uint64) error {
	_, refusal := d.living(ctx, caller, "")
	if !errors.Is(refusal, wire.ErrPermissionDenied) {
		return refusal
	}
	if err := d.member.cursors.Remove(ctx, caller, "its mentions", rev); err != nil && !errors.Is(err, wire.ErrConflict) {
		return err
	}
	return refusal
}

// bounded refuses a position beyond the end of a stream: nobody can have handled what is not there.
func (d *Service) bounded(ctx context.Context, f *frontier, in wire.AckRequest) error {
	last := in.Floor
	if n := len(in.Handled); n > 0 {
		last = in.Handled[n-1].To
	}
	ok, err := f.reached(ctx, last)
	if err != nil || ok {
		return err
	}
	return wire.Errorf(wire.CodeFailedPrecondition, "acknowledge up to %d: the stream ends at %d", last, f.known.Load())
}
