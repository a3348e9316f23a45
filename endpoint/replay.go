package endpoint

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// backfill is what a membership replays, and how far that is.
type backfill struct {
	channels []string // that are to be replayed still
	listed   bool
	from     uint64 // of the first channel
	until    uint64
	shown    []wire.SequenceRange // what came live before and is not shown again
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
		until = r.Frontier
		m.skipTo = until
	case r.Resumed && !m.settings.ReplayHandled:
		return
	}
	if until > 0 {
		m.backfill = &backfill{until: until, shown: slices.Clone(m.pos.beyond)}
	}
}

// replay shows what the channels held before the membership, or went on from where it was.
func (m *Membership) replay(ctx context.Context) error {
	bf := m.backfill
	if bf == nil {
		return nil
	}
	if !bf.listed {
		channels, err := m.channels(ctx)
		if err != nil {
			return err
		}
		bf.channels, bf.listed = channels, true
	}
	for len(bf.channels) > 0 {
		err := m.replayChannel(ctx, bf)
		switch {
		case errors.Is(err, errStale):
			continue
		case errors.Is(err, wire.ErrPermissionDenied):
			m.e.events.emit(EventDenied{Subject: "history of " + bf.channels[0], Err: m.e.failure(act{}, err, true)})
		case err != nil:
			return err
		}
		bf.channels, bf.from = bf.channels[1:], 0
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

func (m *Membership) replayChannel(ctx context.Context, bf *backfill) error {
	req := wire.HistoryRequest{Channel: bf.channels[0], Until: bf.until, Replay: true}
	return m.read(ctx, bf.from, m.history(req), func(ctx context.Context, p *wire.PulledMessage) error {
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
		err := m.read(ctx, h.from, m.history(req), func(ctx context.Context, p *wire.PulledMessage) error {
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
		case err != nil:
			return err
		}
		m.mu.Lock()
		m.holes = m.holes[1:]
		m.mu.Unlock()
	}
}
