package space

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// What one life of a principal may store of its positions: with the longest names there are, those of all its memberships
// take less than 256 KiB together.
const (
	// MaxStoredRanges bounds the ranges of one stored cursor.
	MaxStoredRanges = 256
	// maxRangeBytes bounds what they take. When the life has n memberships they also take no more than rangeRoom/n, or
	// what they took before: in the order in which records last grew the n-th was written beside n-1 others, so all of
	// them take the sum of those bounds at most.
	maxRangeBytes = 1536
	rangeRoom     = 9 << 10
)

// Cursor is a position: everything up to Floor is handled, and of what is above it the ranges of Handled, which ascend,
// do not touch each other and do not touch Floor. The zero value is the beginning.
type Cursor struct {
	Floor   uint64               `json:"floor"`
	Handled []wire.SequenceRange `json:"handled,omitempty"`
}

// Has reports whether the message with this sequence is handled.
func (c Cursor) Has(seq uint64) bool {
	if seq <= c.Floor {
		return true
	}
	_, ok := c.find(seq)
	return ok
}

// Past returns the first sequence at or after seq that is not handled.
func (c Cursor) Past(seq uint64) uint64 {
	seq = max(seq, c.Floor+1)
	if i, ok := c.find(seq); ok {
		return c.Handled[i].To + 1 // the next range does not touch this one
	}
	return seq
}

func (c Cursor) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(c.Handled, seq, func(r wire.SequenceRange, seq uint64) int {
		switch {
		case r.To < seq:
			return -1
		case r.From > seq:
			return 1
		}
		return 0
	})
}

// Merge returns the position that has handled what either has. Neither may have a range that ends before it begins.
func (c Cursor) Merge(o Cursor) Cursor {
	all := slices.Concat(c.Handled, o.Handled)
	slices.SortFunc(all, func(a, b wire.SequenceRange) int {
		switch {
		case a.From < b.From:
			return -1
		case a.From > b.From:
			return 1
		}
		return 0
	})
	out := Cursor{Floor: max(c.Floor, o.Floor)}
	for _, r := range all {
		n := len(out.Handled)
		switch {
		case n == 0 && r.From <= out.Floor+1:
			out.Floor = max(out.Floor, r.To)
		case n > 0 && r.From <= out.Handled[n-1].To+1:
			out.Handled[n-1].To = max(out.Handled[n-1].To, r.To)
		default:
			out.Handled = append(out.Handled, r)
		}
	}
	return out
}

// Equal reports whether both are the same position.
func (c Cursor) Equal(o Cursor) bool { return c.Floor == o.Floor && slices.Equal(c.Handled, o.Handled) }

// Last returns the last handled sequence.
func (c Cursor) Last() uint64 {
	if n := len(c.Handled); n > 0 {
		return c.Handled[n-1].To
	}
	return c.Floor
}

// valid reports whether c is in the form that [Cursor] says.
func (c Cursor) valid() bool {
	end := c.Floor
	for _, r := range c.Handled {
		if r.From <= end || r.From == end+1 || r.To < r.From {
			return false
		}
		end = r.To
	}
	return true
}

// Cursors is the store of the positions of a space's members: one for each membership, and one for the mentions of each
// life of a principal. Reads of one go to the leader, writes are compare-and-swap. What is spared of its bucket is room for
// what operators clear, which is noted there.
type Cursors struct {
	table table
	room  room
}

// NewCursors returns the cursors of s. It asks the broker nothing.
func NewCursors(js jetstream.JetStream, s wire.Space) *Cursors {
	t := newTable(js, wire.CursorsBucket(s))
	return &Cursors{table: t, room: room{table: t}}
}

// mentionsKey stands in the place of a pattern's key; no pattern has it.
const mentionsKey = "=mentions"

// Get returns the position of l in its membership of pattern and its revision. Without a record it is the beginning,
// and the revision 0.
//
// Errors: internal for a record that cannot be read.
func (c *Cursors) Get(ctx context.Context, l wire.Lifecycle, pattern string) (Cursor, uint64, error) {
	return c.get(ctx, l, PatternKey(pattern))
}

// Put is [Cursors.Move] of the position of one membership by whoever does not know what was there.
func (c *Cursors) Put(ctx context.Context, l wire.Lifecycle, pattern string, cur Cursor, rev uint64) (uint64, error) {
	return c.Move(ctx, Move{Lifecycle: l, Pattern: pattern, To: cur, Revision: rev})
}

// Remove removes the position that has revision rev; with revision 0 there is none, and nothing is done.
//
// Errors: conflict when it changed meanwhile or is gone.
func (c *Cursors) Remove(ctx context.Context, l wire.Lifecycle, pattern string, rev uint64) error {
	if rev == 0 {
		return nil
	}
	return c.table.remove(ctx, fmt.Sprintf("remove cursor of %q in %q", l.Principal, pattern), rev)
}

// Mentions is [Cursors.Get] for the mentions of l, whose positions are sequences of the stream of pointers.
func (c *Cursors) Mentions(ctx context.Context, l wire.Lifecycle) (Cursor, uint64, error) {
	return c.get(ctx, l, mentionsKey)
}

// PutMentions is [Cursors.Put] for the mentions of l.
func (c *Cursors) PutMentions(ctx context.Context, l wire.Lifecycle, cur Cursor, rev uint64) (uint64, error) {
	return c.Move(ctx, Move{Lifecycle: l, To: cur, Revision: rev})
}

// CursorKey names one position among those of a space.
type CursorKey struct {
	Lifecycle wire.Lifecycle
	// Pattern is the PatternKey of the membership.
	Pattern string
}

// All calls fn with the position of every membership, in no particular order, read by batches. It need not see what was
// written a moment ago. What cannot be read is left out, and mentions are.
func (c *Cursors) All(ctx context.Context, fn func(CursorKey, Cursor) error) error {
	return c.scan(ctx, fourTokens, fn)
}

// Total and Changes are those of [Members] for positions, under the same keys. Those of mentions count, and are given as
// nil.
func (c *Cursors) Total(ctx context.Context) (int, error) { return c.table.total(ctx, fourTokens) }

// Changes is described at [Cursors.Total].
func (c *Cursors) Changes(ctx context.Context, after uint64, fn func(key string, cur *Cursor)) (uint64, error) {
	return c.table.changes(ctx, fourTokens, after, func(r *Stored) {
		key := strings.TrimPrefix(r.Subject, c.table.prefix)
		cur, err := decodeCursor(r.Data)
		if err != nil || strings.HasSuffix(key, "."+mentionsKey) {
			fn(key, nil)
			return
		}
		fn(key, &cur)
	})
}

// Of is [Cursors.All] for one life of a principal.
func (c *Cursors) Of(ctx context.Context, l wire.Lifecycle, fn func(CursorKey, Cursor) error) error {
	return c.scan(ctx, l.String()+".*", fn)
}

// OfPrincipal is [Cursors.All] for all lives of a principal.
func (c *Cursors) OfPrincipal(ctx context.Context, p wire.Principal, fn func(CursorKey, Cursor) error) error {
	return c.scan(ctx, p.String()+".*.*", fn)
}

func (c *Cursors) scan(ctx context.Context, keys string, fn func(CursorKey, Cursor) error) error {
	return Scan(ctx, c.table.js, c.table.stream, c.table.prefix+keys, func(m *Stored) error {
		l, last, err := parseMemberKey(strings.TrimPrefix(m.Subject, c.table.prefix))
		if err != nil || last == mentionsKey {
			return nil
		}
		cur, err := decodeCursor(m.Data)
		if err != nil {
			return nil
		}
		return fn(CursorKey{l, last}, cur)
	})
}

// RemoveAll removes every position of a life that has ended, that of its mentions included.
func (c *Cursors) RemoveAll(ctx context.Context, l wire.Lifecycle) error {
	if err := l.Validate(); err != nil {
		return err
	}
	return c.table.removeAll(ctx, fmt.Sprintf("remove cursors of %q", l.Principal), l.String()+".*")
}

func (c *Cursors) get(ctx context.Context, l wire.Lifecycle, last string) (Cursor, uint64, error) {
	if err := l.Validate(); err != nil {
		return Cursor{}, 0, err
	}
	r, err := c.table.get(ctx, l.String()+"."+last)
	if errors.Is(err, wire.ErrNotFound) {
		return Cursor{}, 0, nil
	}
	if err != nil {
		return Cursor{}, 0, err
	}
	cur, err := decodeCursor(r.Data)
	if err != nil {
		return Cursor{}, 0, wire.Errorf(wire.CodeInternal, "read cursor %q of %q: %v", last, l.Principal, err)
	}
	return cur, r.Seq, nil
}
