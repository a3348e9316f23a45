package space

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

const (
	// roomReuse is how long it is believed how much room there is.
	roomReuse = time.Second
	// recordOverhead bounds what the broker adds to a record: lengths, time, checksum and the header with the revision.
	recordOverhead = 128
	// batchOverhead bounds the same of a record that was written in a batch, whose headers name it.
	batchOverhead = 256
)

// share is how far a bucket may be filled with new records of one sort.
type share struct {
	spare int64  // the part that is left alone, one in so many
	full  string // says what is full, and what makes room
}

// What is left of the other buckets is for records that do not grow, and for what takes members away.
var (
	positions   = share{8, "the store of positions is full; an operator has to end members or make it larger"}
	memberships = share{8, "the store of memberships is full; an operator has to end members or make it larger"}
)

// The shares of the authority bucket. Who may start agents can use up that of agents and, with their connections, that of the issuance
// log, but not what others need: the log has an eighth that agents cannot take for longer than a credential lives, and grants of people
// and revocations have the last eighth.
var (
	agents    = share{4, "the records of agents are full; there is room again as those of agents that ended go, 7 days after the end of each"}
	issuances = share{8, "the issuance log is full; there is room again as earlier credentials end, within minutes those of connections of people " +
		"and within a day those of agents, and as the records of agents go, 7 days after the end of each"}
)

// room is what new records of a bucket may take.
type room struct {
	table table

	mu         sync.Mutex // guards those below; held while asking the broker
	most, free int64
	asked      time.Time
}

// take takes room out of the bucket for records of a share, or refuses when there is none but for what is spared.
func (r *room) take(ctx context.Context, what string, size int64, of share) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.look(ctx, what, size, of)
	if err == nil {
		r.free -= size
	}
	return err
}

// has refuses as take does, and takes nothing.
func (r *room) has(ctx context.Context, what string, size int64, of share) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.look(ctx, what, size, of)
}

func (r *room) look(ctx context.Context, what string, size int64, of share) error {
	if size > r.free-r.most/of.spare || time.Since(r.asked) > roomReuse {
		ctx, cancel := bounded(ctx)
		defer cancel()
		st, err := received(ctx, func() (jetstream.Stream, error) { return r.table.js.Stream(ctx, r.table.stream) })
		if err != nil {
			return translate(what, err)
		}
		info := st.CachedInfo()
		r.asked, r.most, r.free = time.Now(), 0, math.MaxInt64
		if most := info.Config.MaxBytes; most > 0 {
			r.most, r.free = most, most-int64(info.State.Bytes)
		}
	}
	if allowed := r.most - r.most/of.spare; size > r.free-r.most/of.spare {
		e := wire.Errorf(wire.CodeResourceExhausted, "%s: %s (%d of %d bytes are used)", what, of.full, r.most-r.free, allowed)
		e.Details = map[string]any{"resource": "authority", "used": r.most - r.free, "allowed": allowed}
		return e
	}
	return nil
}
