package space

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// sparePart is the part of a bucket, one in so many, that is left alone by those who take room.
	sparePart = 8
	// roomReuse is how long it is believed how much room there is.
	roomReuse = time.Second
	// recordOverhead bounds what the broker adds to a record: lengths, time, checksum and the header with the revision.
	recordOverhead = 128
)

// room is what new records of a bucket may take.
type room struct {
	table table
	full  string // says what is full

	mu    sync.Mutex // guards those below; held while asking the broker
	free  int64
	asked time.Time
}

// take takes room out of the bucket, or refuses when there is none but for what is spared.
func (r *room) take(ctx context.Context, what string, size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if size > r.free || time.Since(r.asked) > roomReuse {
		ctx, cancel := bounded(ctx)
		defer cancel()
		st, err := r.table.js.Stream(ctx, r.table.stream)
		if err != nil {
			return translate(what, err)
		}
		info := st.CachedInfo()
		r.asked, r.free = time.Now(), math.MaxInt64
		if most := info.Config.MaxBytes; most > 0 {
			r.free = most - most/sparePart - int64(info.State.Bytes)
		}
	}
	if size > r.free {
		return wire.Errorf(wire.CodeResourceExhausted, "%s: %s is full; an operator has to end members or make it larger", what, r.full)
	}
	r.free -= size
	return nil
}
