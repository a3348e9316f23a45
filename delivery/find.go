package delivery

import (
	"bytes"
	"context"
	"errors"
	"math"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// maxWays is how many patterns of a read list are searched one by one; a longer list is matched message by message.
	maxWays = 8
	// firstStep is how many messages a search from the newest backwards looks at first; each step is four times the last.
	firstStep = 500
)

// span is a time before and after the one that an id names.
type span struct{ before, after time.Duration }

// spans are where a message is looked for, one after the other. Most are stored at once, by clocks that agree, and their
// sender may have stored thousands in the seconds before; but clocks differ, and a sender may have waited. In the last
// one, what a participant itself sent or got is looked through to its end.
var spans = [...]span{{50 * time.Millisecond, 5 * time.Second}, {5 * time.Second, time.Minute}, {farBefore, farAfter}}

const farBefore, farAfter = 5 * time.Minute, 15 * time.Minute

// found is a stored message that keeps to the contract.
type found struct {
	sub      wire.Subject // Channel, To and Sender are the broker's word
	msg      *wire.Message
	sequence uint64
	at       time.Time
	size     int
}

// viewer is who asks, and what it may know of.
type viewer struct {
	who    wire.Principal
	access access
	// all is an operator who traces: everything is its to know.
	all bool
	// role is the one whose messages are its own; every role where nobody is checked.
	role string
	open bool
	// cut is the last direct message, and born the time, before this life of the name began: what an earlier one sent
	// and got is not its own.
	cut  uint64
	born time.Time
}

// viewerOf reads what the caller's grant allows now.
func (d *Service) viewerOf(ctx context.Context, caller wire.Lifecycle) (viewer, error) {
	v := viewer{who: caller.Principal, access: everything, open: d.open}
	if d.open {
		return v, nil
	}
	grant, _, err := d.grants.Get(ctx, caller.Principal)
	if errors.Is(err, wire.ErrNotFound) {
		v.access = access{why: "it has no grant"}
		return v, nil
	}
	if err != nil {
		return v, d.refuse(ctx, "read grant", caller, err)
	}
	if v.access = decide(grant, caller, time.Now()); v.access.why == "" {
		v.role, v.cut, v.born = grant.Role, grant.Cut, grant.CreatedAt
	}
	return v, nil
}

// knows reports whether a message is one that the viewer sent, received or may read.
func (v viewer) knows(f *found) bool {
	switch {
	case v.all, f.sub.Kind == wire.KindChannel && v.access.reads(f.sub.Channel):
		return true
	case f.sub.Kind == wire.KindDirect:
		return (f.sub.Sender == v.who || f.sub.To == v.who) && f.sequence > v.cut
	case f.sub.Kind == wire.KindRole && (v.open || v.role != "" && f.sub.Role == v.role):
		return true
	}
	return f.sub.Sender == v.who && !f.at.Before(v.born)
}

// way is one filter to look through.
type way struct {
	kind   wire.Kind
	filter string
	wide   bool // others decide how much there is
}

// ways are the filters that cover what the viewer knows of a kind, its own messages first; kind 0 is every kind.
func (v viewer) ways(s wire.Space, kind wire.Kind) ([]way, error) {
	var out []way
	var failed error
	add := func(k wire.Kind, wide bool, filter string, err error) {
		switch {
		case err != nil:
			failed = err
		case kind == 0 || kind == k:
			out = append(out, way{k, filter, wide})
		}
	}
	kinds := []wire.Kind{wire.KindDirect, wire.KindRole, wire.KindChannel}
	for _, k := range kinds {
		if v.all {
			add(k, true, wire.StreamSubjects(s, k), nil)
			continue
		}
		filter, err := wire.SentFilter(s, k, v.who)
		add(k, false, filter, err)
	}
	if v.all {
		return out, nil
	}
	filter, err := wire.DirectFilter(s, v.who)
	add(wire.KindDirect, false, filter, err)
	switch {
	case v.open:
		add(wire.KindRole, true, wire.StreamSubjects(s, wire.KindRole), nil)
	case v.role != "":
		filter, err := wire.RoleFilter(s, v.role)
		add(wire.KindRole, false, filter, err)
	}
	if len(v.access.read) > maxWays {
		add(wire.KindChannel, true, wire.StreamSubjects(s, wire.KindChannel), nil)
		return out, failed
	}
	for _, pattern := range v.access.read {
		filter, err := wire.ChannelFilter(s, pattern)
		add(wire.KindChannel, true, filter, err)
	}
	return out, failed
}

// streamOf names the stream of a kind of message.
func (d *Service) streamOf(k wire.Kind) string {
	switch k {
	case wire.KindDirect:
		return wire.DirectStream(d.space)
	case wire.KindRole:
		return wire.RoleStream(d.space)
	}
	return wire.ChatStream(d.space)
}

// budget is what one request may still look at.
type budget struct{ messages, bytes int }

func newBudget() *budget { return &budget{maxScan, maxScanBytes} }

func (b *budget) left() bool { return b.messages > 0 && b.bytes > 0 }

// share takes a part of what is left.
func (b *budget) share(of int) *budget {
	part := &budget{max(b.messages/of, 1), max(b.bytes/of, 1)}
	b.messages, b.bytes = b.messages-part.messages, b.bytes-part.bytes
	return part
}

// giveBack returns what a part has left.
func (b *budget) giveBack(part *budget) {
	b.messages, b.bytes = b.messages+max(part.messages, 0), b.bytes+max(part.bytes, 0)
}

// errEnough ends a read; it never leaves this package.
var errEnough = errors.New("delivery: enough was read")

// walk calls fn with the stored messages of a stream on a filter, in order, within the budget, until fn returns false. next is where to
// go on when the budget was spent before the end, else 0. Limits and Unreadable of q are set here.
func (d *Service) walk(ctx context.Context, stream string, q space.Query, b *budget, fn func(*space.Stored) bool) (next uint64, err error) {
	q.Unreadable = func(size int) { b.messages, b.bytes = b.messages-1, b.bytes-size }
	for b.left() {
		q.Limit, q.MaxBytes = min(b.messages, 1000), min(b.bytes, 1<<20)
		rest, err := space.Read(ctx, d.js, stream, q, func(m *space.Stored) error {
			b.messages, b.bytes = b.messages-1, b.bytes-len(m.Data)
			if !fn(m) {
				return errEnough
			}
			return nil
		})
		switch {
		case errors.Is(err, errEnough):
			return 0, nil
		case err != nil || rest.Pending == 0:
			return 0, err
		}
		q.From, q.Since = rest.Next, time.Time{}
	}
	return max(q.From, 1), nil
}

// hunt looks for one id among what a viewer knows of.
type hunt struct {
	d      *Service
	id     string
	v      viewer
	budget *budget
	cut    bool // something was not looked at
	taken  bool // there is a message at the place that was named
	hit    *found
}

// find returns the message that a request names.
//
// The answer to somebody who neither sent nor got a message is found in the same way, from the same filters, as that
// about a message that never was.
func (d *Service) find(ctx context.Context, v viewer, kind wire.Kind, in wire.ReceiptRequest) (*hunt, error) {
	h := &hunt{d: d, id: in.ID, v: v, budget: newBudget()}
	if in.Sequence != 0 {
		if err := h.at(ctx, kind, in.Sequence); err != nil || h.hit != nil {
			return h, err
		}
	}
	ways, err := v.ways(d.space, kind)
	if err != nil {
		return nil, err
	}
	made, dated := wire.IDTime(in.ID)
	switch {
	case in.Since > 0:
		return h, h.sweep(ctx, ways, h.budget, time.UnixMilli(min(in.Since, lastMS)), func(way) time.Time { return time.Time{} })
	case dated:
		return h, h.around(ctx, ways, made)
	}
	return h, h.backwards(ctx, ways)
}

// at looks at one place.
func (h *hunt) at(ctx context.Context, kind wire.Kind, sequence uint64) error {
	q := space.Query{Filter: wire.StreamSubjects(h.d.space, kind), From: sequence}
	_, err := h.d.walk(ctx, h.d.streamOf(kind), q, &budget{1, 1}, func(m *space.Stored) bool {
		h.taken = m.Sequence == sequence
		return h.taken && h.look(m)
	})
	return err
}

// look takes a stored message if it is the one, and reports whether the search goes on.
func (h *hunt) look(m *space.Stored) bool {
	if !mayHold(m.Data, h.id) {
		return true
	}
	sub, msg, err := wire.Receive(m.Subject, m.Data)
	if err != nil || sub.Space != h.d.space || msg.ID != h.id {
		return true
	}
	f := &found{sub: sub, msg: msg, sequence: m.Sequence, at: m.Time, size: len(m.Data)}
	if !h.v.knows(f) {
		return true
	}
	h.hit = f
	return false
}

// mayHold reports whether a body can have a string in it. Decoding every message would be most of the work of a search. What
// has no backslash is written plainly.
func mayHold(body []byte, text string) bool {
	return bytes.Contains(body, []byte(text)) || bytes.IndexByte(body, '\\') >= 0
}

// around looks near a time first, then further away. Each try has half of what is left to look at.
func (h *hunt) around(ctx context.Context, ways []way, made time.Time) error {
	for i, s := range spans {
		last := i == len(spans)-1
		part := h.budget
		if !last {
			part = h.budget.share(2)
		}
		h.cut = false // by the try before
		err := h.sweep(ctx, ways, part, made.Add(-s.before), func(w way) time.Time {
			if last && !w.wide {
				return time.Time{}
			}
			return made.Add(s.after)
		})
		if !last {
			h.budget.giveBack(part)
		}
		if err != nil || h.hit != nil {
			return err
		}
	}
	return nil
}

// sweep looks through every way from a time on, each with half of what is left of a budget and the last with all. until,
// when not zero, ends the look through one.
func (h *hunt) sweep(ctx context.Context, ways []way, b *budget, since time.Time, until func(way) time.Time) error {
	for i, w := range ways {
		part := b.share(min(2, len(ways)-i))
		err := h.along(ctx, w, part, since, until(w))
		b.giveBack(part)
		if err != nil || h.hit != nil {
			return err
		}
	}
	return nil
}

// along looks through one way.
func (h *hunt) along(ctx context.Context, w way, part *budget, since, until time.Time) error {
	late := false
	next, err := h.d.walk(ctx, h.d.streamOf(w.kind), space.Query{Filter: w.filter, Since: since}, part, func(m *space.Stored) bool {
		late = !until.IsZero() && m.Time.After(until)
		return !late && h.look(m)
	})
	h.cut = h.cut || next != 0 || late
	return err
}

// backwards looks at the newest messages first. The broker reads forward only, so each step reads a block before the last.
func (h *hunt) backwards(ctx context.Context, ways []way) error {
	for i, w := range ways {
		part := h.budget.share(min(2, len(ways)-i))
		err := h.back(ctx, w, part)
		h.budget.giveBack(part)
		if err != nil || h.hit != nil {
			return err
		}
	}
	return nil
}

func (h *hunt) back(ctx context.Context, w way, part *budget) error {
	stream, before := h.d.streamOf(w.kind), uint64(math.MaxUint64)
	for n := firstStep; part.left(); n *= 4 {
		n = min(n, maxScan)
		start, err := lastStart(ctx, h.d.js, stream, w.filter, n)
		if err != nil || start == 0 {
			return err
		}
		if start >= before {
			return nil // all of it was looked at
		}
		if _, err = h.d.walk(ctx, h.d.streamOf(w.kind), space.Query{Filter: w.filter, From: start}, part, func(m *space.Stored) bool {
			return m.Sequence < before && h.look(m)
		}); err != nil || h.hit != nil {
			return err
		}
		before = start
		if n == maxScan {
			break
		}
	}
	h.cut = true
	return nil
}

// missing is the answer about a message that was not found, whatever the reason.
func (h *hunt) missing(kind wire.Kind) error {
	hint := "give its kind and sequence if you know them, or since if its id does not begin with its time"
	if h.cut {
		hint = "there is more than one request looks through; " + hint
	}
	whose := "that you sent or may read"
	if h.v.all {
		whose = "here"
	}
	note := ""
	if kind == 0 || kind == wire.KindRole {
		note = "; a finished job leaves the queue of its role, and what became of it is known by kind, sequence and role alone"
	}
	e := wire.Errorf(wire.CodeNotFound, "find message %q: no such message %s is stored%s; %s", clip(h.id), whose, note, hint)
	e.Details = map[string]any{"id": h.id, "complete": !h.cut}
	return e
}

// clip bounds what came from outside in a message for people.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
