package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// inbox lists what waits for a principal. Nobody is checked here: the broker lets only operators and admins publish the
// request.
func (d *Service) inbox(ctx context.Context, caller wire.Lifecycle, in wire.InboxRequest) (*wire.InboxReply, error) {
	p, err := wire.ParsePrincipal(in.Principal)
	if err != nil {
		return nil, err
	}
	if in.Limit < 0 || in.Limit > wire.MaxInboxPage {
		return nil, wire.Errorf(wire.CodeBadRequest, "list inbox of %q: limit %d outside 0 to %d", p, in.Limit, wire.MaxInboxPage)
	}
	if in.Limit == 0 {
		in.Limit = wire.MaxInboxPage
	}
	d.feed.catchUp(ctx)
	s, err := d.standingOf(ctx, p)
	if err != nil {
		return nil, d.refuse(ctx, "list inbox", caller, err)
	}
	if s.life.UID == "" || s.ended == reasonRevoked {
		return nil, wire.Errorf(wire.CodeNotFound, "list inbox of %q: it has no life that reads one", p)
	}
	r, err := d.inboxPage(ctx, s, in)
	return r, d.refuse(ctx, "list inbox", caller, err)
}

func (d *Service) inboxPage(ctx context.Context, s standing, in wire.InboxRequest) (*wire.InboxReply, error) {
	stream, durable := wire.DirectStream(d.space), wire.DirectDurable(s.life)
	queue, err := space.InspectQueue(ctx, d.js, stream, durable)
	if errors.Is(err, wire.ErrNotFound) { // it is made again when the life comes back, from its start
		queue, err = space.QueueState{Delivered: s.cut, Floor: s.cut}, nil
	}
	if err != nil {
		return nil, err
	}
	r := &wire.InboxReply{
		Principal: s.life.Principal.String(), UID: s.life.UID, Waiting: queue.Waiting, Held: queue.Held, Messages: []wire.InboxMessage{},
	}
	filter, err := wire.DirectFilter(d.space, s.life.Principal)
	if err != nil {
		return nil, err
	}
	// What lies between is settled, or held: which of it the broker does not tell one by one.
	q := space.Query{Filter: filter, From: max(in.After, queue.Floor, s.cut) + 1}
	last, size := uint64(0), 0
	next, err := d.walk(ctx, stream, q, newBudget(), func(m *space.Stored) bool {
		e := waiting(m, queue)
		if size += len(encode(e)) + 1; len(r.Messages) == in.Limit || size > pageRoom {
			r.Next = last
			return false
		}
		r.Messages, last = append(r.Messages, e), m.Sequence
		return true
	})
	if err != nil {
		return nil, err
	}
	if next != 0 {
		r.Next = next - 1
	}
	return r, d.dead(ctx, r, stream, durable)
}

// waiting is the entry of a stored message. One that breaks the contract has no id that could be believed.
func waiting(m *space.Stored, queue space.QueueState) wire.InboxMessage {
	e := wire.InboxMessage{Sequence: m.Sequence, Size: len(m.Data), TimeMS: m.Time.UnixMilli(), Stage: wire.StageStored}
	if m.Sequence <= queue.Delivered {
		e.Stage = wire.StageHanded
	}
	sub, msg, err := wire.Receive(m.Subject, m.Data)
	if e.Sender = sub.Sender.String(); err == nil {
		e.ID = msg.ID
	}
	return e
}

// dead marks the messages of a page that the queue gave up.
func (d *Service) dead(ctx context.Context, r *wire.InboxReply, stream, durable string) error {
	held := map[uint64]int{}
	var since time.Time
	for i, m := range r.Messages {
		if m.Stage != wire.StageHanded {
			continue
		}
		if len(held) == 0 {
			since = time.UnixMilli(m.TimeMS).Add(-clockSlack)
		}
		held[m.Sequence] = i
	}
	if len(held) == 0 {
		return nil
	}
	return d.deadSince(ctx, stream, durable, since, func(a advisory) {
		if i, ok := held[a.Sequence]; ok {
			r.Messages[i].Stage = wire.StageDead
		}
	})
}
