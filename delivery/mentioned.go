package delivery

import (
	"context"
	"errors"
	"slices"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// pointerBatch bounds the pointers that are read at a time, and fetchBatch the messages, which may be large.
	pointerBatch = 256
	fetchBatch   = 16
)

// pointed is one pointer on its way to its message.
type pointed struct {
	at   uint64 // of the pointer
	to   *wire.MentionPointer
	msg  *space.Stored // nil when it cannot be read
	gone bool          // it is no longer stored
}

// mentions fills the page with the messages that unhandled pointers of the caller name.
func (p *pullPage) mentions(ctx context.Context, caller wire.Lifecycle, after uint64) error {
	d := p.d
	cursor, rev, err := d.member.cursors.Mentions(ctx, caller)
	if err != nil {
		return err
	}
	b, err := d.member.mentions.read(ctx)
	if err != nil {
		return err
	}
	filter, err := wire.MentionRecord(d.space, caller)
	if err != nil {
		return err
	}
	stream, pos := wire.MentionStream(d.space), max(cursor.Floor, min(after, b.Last))
	p.reply.Through = pos
	crowded := false
	for from := cursor.Past(pos + 1); from <= b.Last && !p.more; from = cursor.Past(p.reply.Through + 1) {
		p.reply.Through = max(p.reply.Through, from-1)
		if p.full() {
			p.more = true
			break
		}
		found, rest, err := p.pointers(ctx, stream, filter, from, cursor)
		if err != nil {
			return err
		}
		if from == cursor.Past(cursor.Floor+1) {
			crowded = p.crowded(found, rest, cursor.Floor)
		}
		if err := p.resolve(ctx, found, rest); err != nil {
			return err
		}
		if rest.Pending == 0 && !p.more {
			if err := p.reached(ctx, stream, filter, b.Last, b); err != nil {
				return err
			}
		}
	}
	p.finish()
	if !crowded && (rev != 0 || !p.a.since.IsZero()) {
		if err := p.pushedOut(ctx, stream, cursor, pos); err != nil {
			return err
		}
	}
	return p.lostMentions(ctx)
}

// pushedOut reports what may have been lost of the pointers up to Through because the stream dropped its oldest ones. Where it
// begins is asked for after the pointers were read. What was stored before the caller's life began was none of its own.
func (p *pullPage) pushedOut(ctx context.Context, stream string, cursor space.Cursor, pos uint64) error {
	if p.reply.Through == pos {
		return nil
	}
	st, err := space.State(ctx, p.d.js, stream)
	if err != nil {
		return err
	}
	oldest := st.FirstTime // nothing that is gone was stored later
	if st.Msgs == 0 {
		oldest = st.LastTime
	}
	if p.a.since.After(oldest) {
		return nil
	}
	iv := interval{[]space.Span{{}}, cursor}
	for _, r := range few(iv.lost(pos, st.FirstSeq, p.reply.Through, p.seen), maxLosses) {
		p.lose(wire.Loss{SequenceRange: r, Reason: wire.LossRetention})
	}
	return nil
}

// lostMentions reports the messages of pointers that are no longer stored, those of a channel together, and why.
func (p *pullPage) lostMentions(ctx context.Context) error {
	if len(p.gone) == 0 {
		return nil
	}
	cleared, err := space.Cleared(ctx, p.d.js, p.d.space, ">", 0)
	if err != nil {
		return err
	}
	type kind struct{ channel, reason string }
	var order []kind
	all := map[kind]wire.Loss{}
	for i, l := range p.gone {
		l.Reason = wire.LossRetention
		if slices.ContainsFunc(cleared, func(c wire.Loss) bool { return c.Channel == l.Channel && c.From <= p.goneAt[i] && p.goneAt[i] <= c.To }) {
			l.Reason = wire.LossCleared
		}
		k := kind{l.Channel, l.Reason}
		if l.Channel == "" { // where it was is not known
			p.lose(l)
			continue
		}
		l.From, l.To = p.goneAt[i], p.goneAt[i]
		if o, any := all[k]; any {
			l.From, l.To, l.Count = min(o.From, l.From), max(o.To, l.To), o.Count+l.Count
		} else {
			order = append(order, k)
		}
		all[k] = l
	}
	for _, k := range order {
		p.lose(all[k])
	}
	return nil
}

// pointers reads one batch of them.
func (p *pullPage) pointers(ctx context.Context, stream, filter string, from uint64, cursor space.Cursor) ([]pointed, space.Rest, error) {
	var found []pointed
	rest, _, err := p.batch(ctx, stream, space.Query{Filter: filter, From: from, Limit: pointerBatch}, func(m *space.Stored) error {
		if cursor.Has(m.Sequence) {
			return nil
		}
		to, err := wire.DecodeMentionPointer(m.Data)
		if err != nil {
			p.reply.Skipped++
			return nil
		}
		found = append(found, pointed{at: m.Sequence, to: to})
		return nil
	})
	return found, rest, err
}

// crowded reports the pointers that made room for later ones, which shows only in that no more are kept than wait, and whether
// there were some.
func (p *pullPage) crowded(found []pointed, rest space.Rest, floor uint64) bool {
	if len(found) == 0 || uint64(len(found))+rest.Pending < space.MentionsKept || found[0].at == floor+1 {
		return false
	}
	p.lose(wire.Loss{SequenceRange: wire.SequenceRange{From: floor + 1, To: found[0].at - 1}, Reason: wire.LossRetention})
	return true
}

// resolve takes the messages of pointers into the page, and moves Through back when they do not fit.
func (p *pullPage) resolve(ctx context.Context, found []pointed, rest space.Rest) error {
	for i := range found {
		if i%fetchBatch == 0 {
			if err := p.fetch(ctx, found[i:min(len(found), i+fetchBatch)]); err != nil {
				return err
			}
		}
		if err := p.mention(&found[i]); errors.Is(err, errStop) {
			p.more, p.reply.Remaining, p.reply.Through = true, rest.Pending+uint64(len(found)-i), found[i].at-1
			return nil
		}
		found[i].msg = nil
	}
	return nil
}

// fetch reads the messages that pointers name.
func (p *pullPage) fetch(ctx context.Context, found []pointed) error {
	sequences := make([]uint64, len(found))
	for i := range found {
		sequences[i] = found[i].to.Sequence
	}
	return space.ReadEach(ctx, p.d.js, wire.ChatStream(p.d.space), sequences, func(i int, m *space.Stored, gone bool) error {
		found[i].msg, found[i].gone = m, gone
		return nil
	})
}

// channel is where a pointer says that its message is, or where it is when the pointer leaves that to the message; empty when
// nobody knows.
func (f *pointed) channel() string {
	if f.to.Channel != "" || f.msg == nil {
		return f.to.Channel
	}
	sub, err := wire.ParseSubject(f.msg.Subject)
	if err != nil || sub.Kind != wire.KindChannel {
		return ""
	}
	return sub.Channel
}

// mention takes the message of one pointer into the page. A pointer proves nothing: the message must be where, and from
// whom, it says, and the caller may learn of a channel only what its read list covers now.
func (p *pullPage) mention(f *pointed) error {
	channel := f.channel()
	switch {
	case channel != "" && !p.mayRead(channel):
		p.reply.Withheld++
	case f.gone:
		p.gone = append(p.gone, wire.Loss{SequenceRange: wire.SequenceRange{From: f.at, To: f.at}, Channel: channel, Count: 1})
		p.goneAt = append(p.goneAt, f.to.Sequence)
	case f.msg == nil || channel == "":
		p.reply.Skipped++
	default:
		sender, ok := accept(p.d.space, channel, f.msg)
		if ok && sender == f.to.Sender {
			return p.add(f.at, f.to.Sequence, sender, channel, f.msg)
		}
		p.reply.Withheld++
	}
	return nil
}
