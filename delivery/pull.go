package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// pullRoom is what a page of unhandled messages may hold in entries: what else it says takes the rest.
	pullRoom = wire.MaxPage - 48<<10
	// maxLosses bounds the losses of each reason that a page lists, maxLossBytes the names of channels in them.
	maxLosses    = 64
	maxLossBytes = 16 << 10
)

// pull reads forward from the position of the caller. Whether it may read a message, and whether the channel keeps it for
// members, is decided for each message by what the records say during this request.
func (d *Service) pull(ctx context.Context, caller wire.Lifecycle, in wire.PullRequest) (json.RawMessage, error) {
	if err := checkPlace(in.Pattern, in.Mentions); err != nil {
		return nil, err
	}
	if in.Limit < 0 || in.Limit > wire.MaxPullPage {
		return nil, wire.Errorf(wire.CodeBadRequest, "pull: limit %d outside 0 to %d", in.Limit, wire.MaxPullPage)
	}
	a, err := d.living(ctx, caller, in.Pattern)
	if err != nil {
		return nil, err
	}
	buffer := entryBuffers.Get().(*[]byte)
	defer entryBuffers.Put(buffer)
	p := &pullPage{d: d, a: a, limit: in.Limit, classes: classes{d: d}, reads: map[string]bool{}, entries: (*buffer)[:0]}
	defer func() { *buffer = p.entries }()
	if p.limit == 0 {
		p.limit = wire.MaxPullPage
	}
	if in.Mentions {
		err = p.mentions(ctx, caller, in.After)
	} else {
		err = p.membership(ctx, caller, in)
	}
	if err != nil {
		return nil, d.refuse(ctx, "pull", caller, err)
	}
	return p.encode()
}

// pullPage collects one reply.
type pullPage struct {
	d       *Service
	a       access
	limit   int
	classes classes
	reads   map[string]bool // by channel

	reply   wire.PullReply // but for the messages
	entries []byte         // the messages as JSON, with commas between
	count   int

	scanned, bytes int
	lossBytes      int
	more           bool                 // the page ended before the stream did
	seen           []wire.SequenceRange // what batches went through without a hole
	gone           []wire.Loss          // pointers whose message is not there, and
	goneAt         []uint64             // where it was
}

// entryBuffers hold the entries of a page until they are copied into the reply.
var entryBuffers = sync.Pool{New: func() any { return new([]byte) }}

// errStop ends a batch before its end.
var errStop = errors.New("the page ends here")

// membership fills the page with what is unhandled of one membership.
func (p *pullPage) membership(ctx context.Context, caller wire.Lifecycle, in wire.PullRequest) error {
	d := p.d
	m, _, cursor, err := d.stored(ctx, caller, in.Pattern)
	if err != nil {
		return err
	}
	if !meets(p.a.read, in.Pattern) {
		return d.denied(caller, in.Pattern, p.a)
	}
	b, err := d.member.chat.read(ctx)
	if err != nil {
		return err
	}
	filter, err := wire.ChannelFilter(d.space, in.Pattern)
	if err != nil {
		return err
	}
	iv := intervalOf(m, cursor)
	pos := max(iv.cursor.Floor, min(in.After, b.Last))
	p.reply.Pattern, p.reply.Generation, p.reply.Through = in.Pattern, m.Last().Generation, pos
	for _, part := range iv.ahead(pos) {
		if part.From > b.Last || p.more {
			break
		}
		p.reply.Through = max(p.reply.Through, part.From-1)
		if err := p.part(ctx, iv.cursor, filter, part, b); err != nil {
			return err
		}
	}
	end, closed := iv.end()
	if !closed {
		end = b.Last
	}
	if !p.more && end <= b.Last {
		p.reply.Through = max(p.reply.Through, end) // past what is handled, or holds nothing
	}
	p.reply.Ended = closed && p.reply.Through >= end
	p.finish()
	return p.losses(ctx, iv, pos)
}

// finish says where to go on.
func (p *pullPage) finish() {
	if !p.more {
		p.reply.Remaining = 0
		return
	}
	p.reply.Next = p.reply.Through
}

// part reads one part of the interval, to its end, the end of the stream as it was before, or that of the page.
func (p *pullPage) part(ctx context.Context, cursor space.Cursor, filter string, part wire.SequenceRange, b space.Bounds) error {
	stream := wire.ChatStream(p.d.space)
	for from := cursor.Past(part.From); from <= min(part.To, b.Last); from = cursor.Past(p.reply.Through + 1) {
		p.reply.Through = max(p.reply.Through, from-1)
		if p.full() {
			p.more = true
			return nil
		}
		rest, beyond, err := p.batch(ctx, stream, space.Query{Filter: filter, From: from}, func(m *space.Stored) error {
			switch {
			case m.Sequence > part.To:
				return errBeyond
			case cursor.Has(m.Sequence):
				return nil
			}
			return p.message(ctx, m)
		})
		if err != nil || p.more {
			return err
		}
		if beyond || rest.Pending == 0 {
			return p.reached(ctx, stream, filter, min(part.To, b.Last), b)
		}
	}
	// What is left of the part is handled.
	p.reply.Through = max(p.reply.Through, min(part.To, b.Last))
	return nil
}

// errBeyond ends a batch at a message that belongs to a later part.
var errBeyond = errors.New("the part ends here")

// batch reads once and moves Through to what was gone through. Beyond says that fn came to the end of its part.
func (p *pullPage) batch(ctx context.Context, stream string, q space.Query, fn func(*space.Stored) error) (rest space.Rest, beyond bool, err error) {
	if most := min(p.limit-p.count, maxScan-p.scanned); q.Limit == 0 || q.Limit > most {
		q.Limit = most
	}
	q.MaxBytes = max(pullRoom-len(p.entries), 1)
	q.Unreadable = func(size int) {
		p.scanned, p.bytes = p.scanned+1, p.bytes+size
		p.reply.Skipped++
	}
	first, last := uint64(0), uint64(0)
	rest, err = space.Read(ctx, p.d.js, stream, q, func(m *space.Stored) error {
		if first == 0 {
			first = m.Sequence
		}
		if err := fn(m); err != nil {
			return err
		}
		last = m.Sequence
		p.scanned, p.bytes = p.scanned+1, p.bytes+len(m.Data)
		return nil
	})
	through := rest.Next - 1
	switch {
	case errors.Is(err, errStop): // the message belongs to the next page
		p.more, p.reply.Remaining = true, rest.Pending+1
		through, err = through-1, nil
	case errors.Is(err, errBeyond):
		beyond, through, err = true, through-1, nil
	case err != nil:
		return rest, false, err
	}
	if first != 0 && last >= first {
		p.seen = append(p.seen, wire.SequenceRange{From: first, To: max(last, through)})
	}
	if !p.more {
		p.reply.Remaining = rest.Pending
	}
	p.reply.Through = max(p.reply.Through, through)
	return rest, beyond, nil
}

// reached moves Through to a sequence up to which a batch found nothing more. A copy of the stream that lags may have
// answered; then the leader is asked, and what it knows beyond is left to the next page.
func (p *pullPage) reached(ctx context.Context, stream, filter string, last uint64, b space.Bounds) error {
	if b.Replicas > 1 && p.reply.Through < last {
		next, err := space.NextAtLeader(ctx, p.d.js, stream, filter, p.reply.Through+1)
		if err != nil {
			return err
		}
		if next != 0 && next <= last {
			p.reply.Through, p.more = max(p.reply.Through, next-1), true
			return nil
		}
	}
	p.reply.Through = max(p.reply.Through, last)
	return nil
}

// full reports whether the page takes nothing more, or has looked at enough.
func (p *pullPage) full() bool {
	return p.count >= p.limit || len(p.entries) >= pullRoom || p.scanned >= maxScan || p.bytes >= maxScanBytes
}

// message takes a stored message into the page if the caller is to have it.
func (p *pullPage) message(ctx context.Context, m *space.Stored) error {
	sub, err := wire.ParseSubject(m.Subject)
	if err != nil || sub.Kind != wire.KindChannel || sub.Space != p.d.space {
		p.reply.Skipped++
		return nil
	}
	class, err := p.classes.of(ctx, sub.Channel)
	if err != nil {
		return err
	}
	switch {
	case class != wire.ClassDurable:
		return nil
	case !p.mayRead(sub.Channel):
		p.reply.Withheld++
		return nil
	}
	sender, ok := accept(p.d.space, sub.Channel, m)
	if !ok {
		p.reply.Skipped++
		return nil
	}
	return p.add(m.Sequence, 0, sender, sub.Channel, m)
}

func (p *pullPage) mayRead(channel string) bool {
	may, known := p.reads[channel]
	if !known {
		may = p.a.reads(channel)
		p.reads[channel] = may
	}
	return may
}

// add appends an entry, or ends the page when it does not fit. A message is JSON that was checked when it was accepted, and
// the names are of plain characters, so nothing is encoded twice.
func (p *pullPage) add(sequence, stored uint64, sender, channel string, m *space.Stored) error {
	start := len(p.entries)
	if size := len(m.Data) + len(channel) + entryRoom; start > 0 && start+size > pullRoom {
		return errStop
	}
	e := p.entries
	if start > 0 {
		e = append(e, ',')
	}
	e = strconv.AppendUint(append(e, `{"sequence":`...), sequence, 10)
	e = strconv.AppendInt(append(e, `,"timeMs":`...), m.Time.UnixMilli(), 10)
	e = append(append(e, `,"sender":"`...), sender...)
	e = append(append(e, `","message":`...), m.Data...)
	e = append(append(e, `,"channel":"`...), channel...)
	e = append(e, '"')
	if stored != 0 {
		e = strconv.AppendUint(append(e, `,"stored":`...), stored, 10)
	}
	p.entries = append(e, '}')
	p.count++
	return nil
}

// losses adds what of the interval up to Through the stream no longer has. Where it begins is asked for after the messages
// were read: what went away in between shows as a hole before the first message of a batch.
func (p *pullPage) losses(ctx context.Context, iv interval, pos uint64) error {
	if p.reply.Through == pos {
		return nil
	}
	b, err := p.d.member.chat.read(ctx)
	if err != nil {
		return err
	}
	cleared, err := space.Cleared(ctx, p.d.js, p.d.space, p.reply.Pattern, 0)
	if err != nil {
		return err
	}
	known := p.seen
	for _, l := range cleared {
		lost, any := iv.cleared(l, pos, p.reply.Through)
		if !any || !p.mayRead(l.Channel) {
			continue
		}
		p.lose(lost)
		if l.Channel == p.reply.Pattern {
			known = merged(known, l.SequenceRange)
		}
	}
	for _, r := range few(iv.lost(pos, b.First, p.reply.Through, known), maxLosses) {
		p.lose(wire.Loss{SequenceRange: r, Reason: wire.LossRetention})
	}
	return nil
}

// lose adds a loss, to the one of its kind that it adjoins if there is one. When there are too many of a kind the last one
// covers what there is beyond.
func (p *pullPage) lose(l wire.Loss) {
	for i := range p.reply.Losses {
		if o := &p.reply.Losses[i]; o.Reason == l.Reason && o.Channel == l.Channel && o.To+1 == l.From {
			o.To, o.Count, o.AtMost = l.To, o.Count+l.Count, o.AtMost || l.AtMost
			return
		}
	}
	p.lossBytes += len(l.Channel)
	last := len(p.reply.Losses) - 1
	if last < 0 || last+1 < maxLosses && p.lossBytes < maxLossBytes || p.reply.Losses[last].Reason != l.Reason {
		p.reply.Losses = append(p.reply.Losses, l)
		return
	}
	p.lossBytes -= len(l.Channel)
	o := &p.reply.Losses[last]
	o.From, o.To, o.Count, o.AtMost = min(o.From, l.From), max(o.To, l.To), o.Count+l.Count, o.AtMost || l.AtMost
	if o.Channel != l.Channel {
		o.Channel = ""
	}
}

// held is the JSON of an empty list of messages in a page.
var held = []byte(`"messages":[]`)

// encode puts the entries into the reply.
func (p *pullPage) encode() (json.RawMessage, error) {
	p.reply.Messages = []wire.PulledMessage{}
	frame, err := json.Marshal(&p.reply)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode page: %v", err)
	}
	// No pattern holds a quote, so the first place is the list.
	before, after, ok := bytes.Cut(frame, held)
	if !ok {
		return nil, wire.Errorf(wire.CodeInternal, "encode page: no list of messages in it")
	}
	return slices.Concat(before, held[:len(held)-1], p.entries, held[len(held)-1:], after), nil
}

// classes resolves the delivery classes of channels for one request.
type classes struct {
	d        *Service
	known    map[string]wire.DeliveryClass
	defaults *wire.ChannelConfig
	configs  map[string]*wire.ChannelConfig // all of them, once several were read one by one
}

// classReads is how many channels' settings one request reads one by one before it reads all.
const classReads = 16

func (c *classes) of(ctx context.Context, channel string) (wire.DeliveryClass, error) {
	if class, ok := c.known[channel]; ok {
		return class, nil
	}
	if c.known == nil {
		var err error
		if c.defaults, err = c.d.setting(ctx, wire.DefaultsKey); err != nil {
			return "", err
		}
		c.known = map[string]wire.DeliveryClass{}
	}
	cfg, err := c.config(ctx, channel)
	if err != nil {
		return "", err
	}
	class := wire.ResolveChannel(cfg, c.defaults).Class
	c.known[channel] = class
	return class, nil
}

func (c *classes) config(ctx context.Context, channel string) (*wire.ChannelConfig, error) {
	if c.configs == nil && len(c.known) < classReads {
		return c.d.setting(ctx, channel)
	}
	if c.configs == nil {
		all, _, err := c.d.channels.List(ctx)
		if err != nil {
			return nil, err
		}
		c.configs = make(map[string]*wire.ChannelConfig, len(all))
		for i := range all {
			c.configs[all[i].Name] = &all[i].Config
		}
	}
	return c.configs[channel], nil
}
