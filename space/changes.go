package space

import (
	"context"
	"errors"
	"strings"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Changes calls fn with every grant that was written after a sequence of the authority bucket, in the order of writing,
// and returns the sequence to go on from: whoever repeats that knows every grant that was acknowledged before the last
// call. A grant that was written several times is given once, as it is now; one that cannot be read is given as nil and
// permits nothing. It takes one request when nothing has changed, and one more for each grant.
//
// A sequence lower than after says that the bucket was made anew: nothing was given, start over from it. After an error
// go on from the sequence that comes with it.
func (g *Grants) Changes(ctx context.Context, after uint64, fn func(wire.Principal, *trust.Grant)) (uint64, error) {
	// The bucket also holds records that are no grants. Knowing its end, what was looked through is not looked through
	// again. The end is not found when its record has expired.
	end, err := leaderGet(ctx, g.js, g.stream, leaderRequest{Last: ">"})
	switch {
	case errors.Is(err, wire.ErrNotFound):
		end.Seq = after
	case err != nil:
		return after, err
	case end.Seq <= after:
		return end.Seq, nil
	}
	for {
		r, err := leaderGet(ctx, g.js, g.stream, leaderRequest{Seq: after + 1, Next: g.prefix + "grant.>"})
		if errors.Is(err, wire.ErrNotFound) {
			return max(after, end.Seq), nil
		}
		if err != nil {
			return after, err
		}
		after = r.Seq
		p, err := wire.ParsePrincipal(strings.TrimPrefix(r.Subject, g.prefix+"grant."))
		if err != nil {
			continue // the key of nobody
		}
		if grant, err := decodeGrant(r.Data, p); err == nil {
			fn(p, &grant)
		} else {
			fn(p, nil)
		}
	}
}
