package delivery

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// lastMS is the last point in time that the broker can compare with, in the year 2262; what is later is after everything.
const lastMS = math.MaxInt64 / int64(time.Millisecond)

const (
	// pageRoom is what a page may hold in messages: the reply around them takes the rest.
	pageRoom = wire.MaxPage - 8<<10
	// entryRoom bounds what an entry of a page has beside its body.
	entryRoom = 256
	// maxScan and maxScanBytes bound the stored messages that one request looks at, so that a channel full of what is
	// skipped costs no request more than this.
	maxScan      = 20_000
	maxScanBytes = 16 << 20
)

func (d *Service) history(ctx context.Context, caller wire.Lifecycle, in wire.HistoryRequest) (*wire.HistoryReply, error) {
	if err := checkHistoryRequest(in); err != nil {
		return nil, err
	}
	a, err := d.accessOf(ctx, caller)
	if err != nil {
		return nil, err
	}
	if !a.reads(in.Channel) {
		return nil, d.denied(caller, in.Channel, a)
	}
	p := newPage(d.space, in)
	if in.Replay {
		resolved, err := d.resolve(ctx, in.Channel)
		if err != nil {
			return nil, d.refuse(ctx, "read channel settings", caller, err)
		}
		if !resolved.Replay {
			return p.reply, nil
		}
		if resolved.Window > 0 {
			p.notBefore = time.Now().Add(-resolved.Window)
		}
	}
	if err := d.fill(ctx, p); err != nil {
		return nil, d.refuse(ctx, "read history", caller, err)
	}
	return p.reply, nil
}

func checkHistoryRequest(in wire.HistoryRequest) error {
	if err := wire.ValidateChannel(in.Channel); err != nil {
		return err
	}
	chosen := 0
	for _, set := range []bool{in.From != 0, in.Since != 0, in.Last != 0} {
		if set {
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return wire.Errorf(wire.CodeBadRequest, "read channel %q: more than one of from, since and last", in.Channel)
	case in.Since < 0:
		return wire.Errorf(wire.CodeBadRequest, "read channel %q: since %d is before 1970", in.Channel, in.Since)
	case in.Last < 0 || in.Last > wire.MaxHistoryLast:
		return wire.Errorf(wire.CodeBadRequest, "read channel %q: last %d outside 0 to %d", in.Channel, in.Last, wire.MaxHistoryLast)
	case in.Limit < 0 || in.Limit > wire.MaxHistoryPage:
		return wire.Errorf(wire.CodeBadRequest, "read channel %q: limit %d outside 0 to %d", in.Channel, in.Limit, wire.MaxHistoryPage)
	}
	return nil
}

// resolve is the one resolution of a channel's settings: record, defaults, contract.
func (d *Service) resolve(ctx context.Context, channel string) (wire.ResolvedChannel, error) {
	defaults, err := d.setting(ctx, wire.DefaultsKey)
	if err != nil {
		return wire.ResolvedChannel{}, err
	}
	cfg, err := d.setting(ctx, channel)
	if err != nil {
		return wire.ResolvedChannel{}, err
	}
	return wire.ResolveChannel(cfg, defaults), nil
}

// setting is the record of a channel, or of the defaults; nil when there is none.
func (d *Service) setting(ctx context.Context, name string) (*wire.ChannelConfig, error) {
	cfg, _, err := d.channels.Get(ctx, name)
	if errors.Is(err, wire.ErrNotFound) {
		return nil, nil
	}
	return &cfg, err
}

// fill reads batches until the page is full or there is nothing more.
func (d *Service) fill(ctx context.Context, p *page) error {
	filter, err := wire.ChannelFilter(d.space, p.reply.Channel)
	if err != nil {
		return err
	}
	stream := wire.ChatStream(d.space)
	q := space.Query{Filter: filter, From: p.in.From, Since: p.notBefore}
	switch {
	case p.in.Last > 0:
		if q.From, err = lastStart(ctx, d.js, stream, filter, p.in.Last); err != nil || q.From == 0 {
			return err
		}
	case p.in.Since > 0 && time.UnixMilli(p.in.Since).After(q.Since):
		q.Since = time.UnixMilli(min(p.in.Since, lastMS))
	}
	for scanned, bytes := 0, 0; ; {
		q.Limit, q.MaxBytes = min(p.left(), maxScan-scanned), pageRoom-p.size
		p.held = 0
		q.Unreadable = func(size int) {
			scanned, bytes = scanned+1, bytes+size
			p.skip()
		}
		rest, err := space.Read(ctx, d.js, stream, q, func(m *space.Stored) error {
			scanned, bytes = scanned+1, bytes+len(m.Data)
			p.add(m)
			return nil
		})
		if err != nil {
			return err
		}
		p.reply.Remaining = rest.Pending + uint64(p.held)
		switch {
		case p.ended, p.reply.Remaining == 0:
			return nil
		case p.next != 0:
			p.reply.Next = p.next
			return nil
		case p.in.Until != 0 && rest.Next > p.in.Until:
			return nil
		case p.left() == 0, p.size >= pageRoom, scanned >= maxScan, bytes >= maxScanBytes:
			p.reply.Next = rest.Next
			return nil
		}
		q.From, q.Since = rest.Next, time.Time{}
	}
}

// page collects the messages of one reply.
type page struct {
	space     wire.Space
	in        wire.HistoryRequest
	limit     int
	notBefore time.Time
	reply     *wire.HistoryReply
	size      int    // bytes of the entries
	held      int    // messages of the last batch that did not fit
	next      uint64 // the first of them
	ended     bool   // Until is reached
}

func newPage(s wire.Space, in wire.HistoryRequest) *page {
	p := &page{space: s, in: in, limit: in.Limit, reply: &wire.HistoryReply{Channel: in.Channel, Messages: []wire.HistoryMessage{}}}
	if p.limit == 0 {
		p.limit = wire.MaxHistoryPage
	}
	return p
}

// left is how many messages still fit by number.
func (p *page) left() int { return p.limit - len(p.reply.Messages) }

// add takes the next stored message into the page, or notes that it belongs to the next one. Once one did not fit,
// none after it is taken, whatever its size.
func (p *page) add(m *space.Stored) {
	if p.next != 0 || p.ended {
		p.held++
		return
	}
	if p.in.Until != 0 && m.Sequence > p.in.Until {
		p.ended = true
		p.held++
		return
	}
	if m.Time.Before(p.notBefore) {
		return
	}
	sender, ok := accept(p.space, p.in.Channel, m)
	if !ok {
		p.reply.Skipped++
		return
	}
	size := len(m.Data) + entryRoom
	if p.size+size > pageRoom && len(p.reply.Messages) > 0 {
		p.next = m.Sequence
		p.held++
		return
	}
	p.size += size
	p.reply.Messages = append(p.reply.Messages, wire.HistoryMessage{
		Sequence: m.Sequence, TimeMS: m.Time.UnixMilli(), Sender: sender, Message: m.Data,
	})
}

// skip counts a stored message that cannot be read, not even its place: it belongs to this page when the page goes on.
func (p *page) skip() {
	if p.next != 0 || p.ended {
		p.held++
		return
	}
	p.reply.Skipped++
}

// accept checks a stored message as a receiver of the live copy would: the broker can be made to store what nobody
// sent, such as its own acknowledgements.
func accept(s wire.Space, channel string, m *space.Stored) (sender string, ok bool) {
	sub, msg, err := wire.Receive(m.Subject, m.Data)
	if err != nil || sub.Kind != wire.KindChannel || sub.Space != s || sub.Channel != channel || msg.Channel != sub.Channel {
		return "", false
	}
	return sub.Sender.String(), true
}
