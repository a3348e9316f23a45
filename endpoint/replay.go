package endpoint

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// backfill is what a membership replays, and how far that is. What an earlier interval of the membership holds still is none
// of it, for that is pulled: before it comes what was stored before it, and after it what was stored when it had been left.
type backfill struct {
	channels []string
	listed   bool
	parts    []wire.SequenceRange // that are to be replayed still, ascending
	channel  int                  // of channels, in the first part
	from     uint64               // of that channel
	until    uint64               // the end of what comes before anything pulled
	shown    []wire.SequenceRange // what came live before and is not shown again
}

// outside returns the parts of the stream up to a join that are not waiting: up to the floor, and beyond it what lies
// between the intervals before.
func outside(r *wire.JoinReply) []wire.SequenceRange {
	at := uint64(0)
	var out []wire.SequenceRange
	for _, w := range append(slices.Clone(r.Earlier), wire.SequenceRange{From: max(r.Joined, r.Floor) + 1, To: math.MaxUint64}) {
		end := w.From - 1
		if at < r.Floor && r.Floor < end { // so that it comes first
			out, at = append(out, wire.SequenceRange{From: at + 1, To: r.Floor}), r.Floor
		}
		if at < end {
			out = append(out, wire.SequenceRange{From: at + 1, To: end})
		}
		at = max(at, w.To)
	}
	return out
}

// planReplay decides what is replayed after the first answer to a join. m.mu is held.
func (m *Membership) planReplay(r wire.JoinReply) {
	if !m.settings.Replay || m.planned {
		return
	}
	m.planned = true
	until := r.Floor // what is unhandled begins there
	switch {
	case !r.Durable:
		r.Floor, until = r.Frontier, r.Frontier
		m.skipTo = until
	case r.Resumed && !m.settings.ReplayHandled:
		return
	}
	if parts := outside(&r); len(parts) > 0 {
		m.backfill = &backfill{parts: parts, until: until, shown: slices.Clone(m.pos.beyond)}
	}
}

// replaysBefore reports whether something is to be replayed before a message that was pulled.
func (m *Membership) replaysBefore(sequence uint64) bool {
	return m.backfill != nil && m.backfill.parts[0].To < sequence
}

// replayFirst replays what comes before anything that is pulled.
func (m *Membership) replayFirst(ctx context.Context) error {
	if m.backfill == nil {
		return nil
	}
	return m.replay(ctx, m.backfill.until)
}

// replay shows what the channels held up to a sequence before the membership, or went on from where it was.
func (m *Membership) replay(ctx context.Context, through uint64) error {
	bf := m.backfill
	if bf == nil || bf.parts[0].To > through {
		return nil
	}
	if !bf.listed {
		channels, err := m.channels(ctx)
		if err != nil {
			return err
		}
		bf.channels, bf.listed = channels, true
	}
	for len(bf.parts) > 0 && bf.parts[0].To <= through {
		if err := m.replayPart(ctx, bf); err != nil {
			return err
		}
		bf.parts, bf.channel = bf.parts[1:], 0
	}
	if len(bf.parts) > 0 {
		return nil
	}
	m.sub.run.Lock()
	defer m.sub.run.Unlock()
	m.skip = m.skipTo
	m.backfill = nil
	return nil
}

// channels are those of the pattern that exist.
func (m *Membership) channels(ctx context.Context) ([]string, error) {
	if wire.ValidateChannel(m.sub.pattern) == nil {
		return []string{m.sub.pattern}, nil
	}
	list, err := m.e.Channels(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range list.Channels {
		if c.Readable && wire.PatternMatches(m.sub.pattern, c.Channel) {
			out = append(out, c.Channel)
		}
	}
	return out, nil
}

// replayPart shows the first part, of one channel after the other.
func (m *Membership) replayPart(ctx context.Context, bf *backfill) error {
	for bf.channel < len(bf.channels) {
		err := m.replayChannel(ctx, bf, bf.channels[bf.channel])
		switch {
		case errors.Is(err, errStale):
			continue
		case errors.Is(err, wire.ErrPermissionDenied):
			m.e.events.emit(EventDenied{Subject: "history of " + bf.channels[bf.channel], Err: m.e.failure(act{}, err, true)})
		case err != nil:
			return err
		}
		bf.channel, bf.from = bf.channel+1, 0
	}
	return nil
}

func (m *Membership) replayChannel(ctx context.Context, bf *backfill, channel string) error {
	req := wire.HistoryRequest{Channel: channel, Until: bf.parts[0].To, Replay: true}
	return m.read(ctx, max(bf.from, bf.parts[0].From), m.history(req), func(ctx context.Context, _ *page, p *wire.PulledMessage) error {
		bf.from = p.Sequence + 1
		if slices.ContainsFunc(bf.shown, func(r wire.SequenceRange) bool { return r.From <= p.Sequence && p.Sequence <= r.To }) {
			return nil
		}
		return m.giveApart(ctx, p)
	})
}

// giveApart shows a stored message that is no part of the position.
func (m *Membership) giveApart(ctx context.Context, p *wire.PulledMessage) error {
	d, err := m.pulled(p)
	if err != nil {
		return nil // it was reported
	}
	d.place = apart
	return m.showNew(ctx, d, p.Sender)
}

// history fetches pages of a channel's history.
func (m *Membership) history(req wire.HistoryRequest) fetch {
	return func(ctx context.Context, from uint64, limit int) (*page, error) {
		req := req
		req.From, req.Limit = from, min(limit, wire.MaxHistoryPage)
		p, r := &page{at: time.Now()}, new(wire.HistoryReply)
		if err := m.call(ctx, wire.CommandHistory, req, r); err != nil {
			return nil, err
		}
		m.hold()
		p.next, p.messages = r.Next, make([]wire.PulledMessage, len(r.Messages))
		for i, h := range r.Messages {
			p.messages[i] = wire.PulledMessage{HistoryMessage: h, Channel: req.Channel}
		}
		return p, nil
	}
}

// mend reads what one sender said on one channel while it was passed over: the pull gives only what is after the position.
func (m *Membership) mend(ctx context.Context) error {
	for {
		m.mu.Lock()
		if len(m.holes) == 0 {
			m.mu.Unlock()
			return nil
		}
		h := m.holes[0]
		m.mu.Unlock()
		req := wire.HistoryRequest{Channel: h.channel, Until: h.to}
		err := m.read(ctx, h.from, m.history(req), func(ctx context.Context, _ *page, p *wire.PulledMessage) error {
			if p.Sender != h.sender.String() {
				return nil
			}
			return m.giveApart(ctx, p)
		})
		switch {
		case errors.Is(err, errStale):
			continue // what was shown is recognised
		case errors.Is(err, wire.ErrPermissionDenied):
			m.e.events.emit(EventGap{Sender: h.sender, Channel: h.channel, From: h.from, To: h.to})
			m.sub.run.Lock()
			m.given(h.sender, h.channel, h.to)
			m.sub.run.Unlock()
		case err != nil:
			return err
		}
		m.mu.Lock()
		m.holes = m.holes[1:]
		m.mu.Unlock()
	}
}
