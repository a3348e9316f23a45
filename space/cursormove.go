package space

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cotal-go/cotal/wire"
)

// Move is one step of a position.
type Move struct {
	Lifecycle wire.Lifecycle
	// Pattern is that of the membership; empty for mentions.
	Pattern string
	// From is the position that has Revision; 0 for none.
	From     Cursor
	Revision uint64
	To       Cursor
	// Memberships tells how many memberships the life has; with many of them each has room for fewer ranges. It is
	// asked when that matters. Nil: one.
	Memberships func(context.Context) (int, error)
}

func (m *Move) key() string {
	if m.Pattern == "" {
		return mentionsKey
	}
	return PatternKey(m.Pattern)
}

// Move writes a step and returns the new revision. Of more ranges than there is room for the last ones are left out: what
// they cover counts as not handled. In a full bucket a position that is there moves on, with no more ranges than before.
//
// Errors: conflict when it changed meanwhile; resource-exhausted for a new one in a full bucket.
func (c *Cursors) Move(ctx context.Context, m Move) (uint64, error) {
	if err := m.Lifecycle.Validate(); err != nil {
		return 0, err
	}
	what := fmt.Sprintf("write cursor %q of %q", m.key(), m.Lifecycle.Principal)
	if !m.To.valid() {
		return 0, wire.Errorf(wire.CodeInternal, "%s: ranges out of order", what)
	}
	had := 0
	if m.Revision != 0 {
		had = m.From.rangeBytes()
	}
	most, err := m.room(ctx, had)
	if err != nil {
		return 0, err
	}
	rev, err := c.write(ctx, what, m, most, had)
	if m.Revision != 0 && errors.Is(err, wire.ErrExhausted) {
		rev, err = c.write(ctx, what, m, had, had)
	}
	return rev, err
}

// room is what the ranges of the new position may take.
func (m *Move) room(ctx context.Context, had int) (int, error) {
	if need := m.To.rangeBytes(); m.Memberships == nil || need <= had || need <= rangeRoom/wire.MaxMemberships {
		return max(maxRangeBytes, had), nil
	}
	n, err := m.Memberships(ctx)
	return max(min(maxRangeBytes, rangeRoom/max(n, 1)), had), err
}

// write puts the position with as many of its ranges as fit.
func (c *Cursors) write(ctx context.Context, what string, m Move, most, had int) (uint64, error) {
	to := m.To.fitting(most)
	if m.Revision != 0 && to.Equal(m.From) {
		return m.Revision, nil
	}
	body, key := padded(to.encode(), m.Revision), m.Lifecycle.String()+"."+m.key()
	grows := base64.RawURLEncoding.EncodedLen(to.rangeBytes()) - base64.RawURLEncoding.EncodedLen(had)
	if m.Revision == 0 {
		grows = len(body) + len(c.table.prefix) + len(key) + recordOverhead
	}
	if grows > 0 {
		if err := c.room.take(ctx, what, int64(grows), positions); err != nil {
			return 0, err
		}
	}
	return c.table.putBody(ctx, what, key, body, m.Revision)
}

// cursorRecord is the value of a key. At holds the floor in eight bytes, and for each range how far it begins after the end of
// the one before, less two, and how far it reaches, each as a varint; so a record without ranges is always as long. Version 1
// had the position as it is.
type cursorRecord struct {
	V  int    `json:"v"`
	At string `json:"at,omitempty"`
	Cursor
}

func (c Cursor) encode() []byte {
	at := appendRanges(binary.BigEndian.AppendUint64(nil, c.Floor), c.Floor, c.Handled)
	return fmt.Appendf(nil, `{"v":2,"at":%q}`, base64.RawURLEncoding.EncodeToString(at))
}

func appendRanges(b []byte, end uint64, ranges []wire.SequenceRange) []byte {
	for _, r := range ranges {
		b = binary.AppendUvarint(binary.AppendUvarint(b, r.From-end-2), r.To-r.From)
		end = r.To
	}
	return b
}

// rangeBytes is what the ranges take in a record, before they are made text.
func (c Cursor) rangeBytes() int { return len(appendRanges(nil, c.Floor, c.Handled)) }

// fitting returns c with the first of its ranges that take no more than most bytes.
func (c Cursor) fitting(most int) Cursor {
	var buf [2 * binary.MaxVarintLen64]byte
	end, size := c.Floor, 0
	for i, r := range c.Handled {
		if size += len(appendRanges(buf[:0], end, c.Handled[i:i+1])); size > most || i == MaxStoredRanges {
			c.Handled = c.Handled[:i]
			break
		}
		end = r.To
	}
	return c
}

func decodeCursor(data []byte) (Cursor, error) {
	var rec cursorRecord
	if err := wire.Decode(data, &rec, recordSize); err != nil {
		return Cursor{}, err
	}
	if rec.V == 2 {
		if err := rec.unpack(); err != nil {
			return Cursor{}, err
		}
	}
	if rec.V != 1 && rec.V != 2 || !rec.valid() {
		return Cursor{}, wire.Errorf(wire.CodeBadRequest, "decode cursor: version %d, or ranges out of order", rec.V)
	}
	return rec.Cursor, nil
}

func (r *cursorRecord) unpack() error {
	at, err := base64.RawURLEncoding.DecodeString(r.At)
	if err != nil || len(at) < 8 {
		return wire.Errorf(wire.CodeBadRequest, "decode cursor: no position in it")
	}
	r.Cursor = Cursor{Floor: binary.BigEndian.Uint64(at)}
	end := r.Floor
	for at = at[8:]; len(at) > 0; {
		gap, n := binary.Uvarint(at)
		length, k := binary.Uvarint(at[max(n, 0):])
		if n <= 0 || k <= 0 || end > math.MaxUint64-2 || gap > math.MaxUint64-2-end || length > math.MaxUint64-2-end-gap {
			return wire.Errorf(wire.CodeBadRequest, "decode cursor: a range that cannot be")
		}
		from := end + gap + 2
		end, at = from+length, at[n+k:]
		r.Handled = append(r.Handled, wire.SequenceRange{From: from, To: end})
	}
	return nil
}
