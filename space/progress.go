package space

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// progressKey holds no character of a token, so no cursor has it.
const progressKey = "=mentions"

// Progress is how far the channel stream of a space was searched for mentions, a record of the cursors bucket that all
// instances of delivery share.
type Progress struct{ table table }

// progress is the record.
type progress struct {
	Sequence uint64 `json:"sequence"`
}

// NewProgress returns the progress of s. It asks the broker nothing.
func NewProgress(js jetstream.JetStream, s wire.Space) *Progress {
	return &Progress{newTable(js, wire.CursorsBucket(s))}
}

// Get returns the sequence of the channel stream up to which every mention was served, and the revision of the record;
// zeros when there is none yet.
//
// Errors: internal for a record that cannot be read; failed-precondition when the space was not made.
func (p *Progress) Get(ctx context.Context) (sequence, rev uint64, err error) {
	r, err := p.table.get(ctx, progressKey)
	if errors.Is(err, wire.ErrNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	var rec progress
	if err := wire.Decode(r.Data, &rec, recordSize); err != nil {
		return 0, 0, wire.Errorf(wire.CodeInternal, "read progress of mentions: %w", err)
	}
	return rec.Sequence, r.Seq, nil
}

// Put replaces the record that has the given revision, 0 for none, and returns the new one.
//
// A record that is there is replaced also when the bucket is full.
//
// Errors: conflict when the record changed meanwhile.
func (p *Progress) Put(ctx context.Context, sequence, rev uint64) (uint64, error) {
	body := fmt.Appendf(nil, `{"sequence":%-20d}`, sequence)
	return p.table.putBody(ctx, fmt.Sprintf("write progress of mentions, %d", sequence), progressKey, padded(body, rev), rev)
}
