package delivery

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// Overlap exposes whether two patterns have a channel in common.
func Overlap(a, b string) bool { return overlap(a, b) }

// MaxLosses is how many losses a page lists.
const MaxLosses = maxLosses

// Interval is the arithmetic of positions, without input and output.
type Interval struct{ iv interval }

// IntervalOf puts a membership and a position together.
func IntervalOf(m space.Membership, c space.Cursor) Interval { return Interval{intervalOf(m, c)} }

// Over, End, Ahead, Lost and Floor are those of the interval.
func (i Interval) Over() bool                            { return i.iv.over() }
func (i Interval) End() (uint64, bool)                   { return i.iv.end() }
func (i Interval) Ahead(pos uint64) []wire.SequenceRange { return i.iv.ahead(pos) }
func (i Interval) Floor() uint64                         { return i.iv.cursor.Floor }
func (i Interval) Lost(pos, first, through uint64, seen []wire.SequenceRange) []wire.SequenceRange {
	return i.iv.lost(pos, first, through, seen)
}

// Few covers ranges with a number of them.
func Few(ranges []wire.SequenceRange, n int) []wire.SequenceRange { return few(ranges, n) }

// Listing is the list of all memberships that a service keeps.
type Listing struct{ r *registry }

// NewListing returns one that has read nothing.
func NewListing(js jetstream.JetStream, s wire.Space) *Listing {
	return &Listing{newMembership(js, s).registry}
}

// All brings it up to date, however fresh it is.
func (l *Listing) All(ctx context.Context) ([]wire.MemberInfo, error) {
	l.r.at = l.r.at.Add(-registryReuse)
	return l.r.all(ctx)
}

// Reached is how far a page may say that it goes when a read of a stream with several copies found nothing after through.
func Reached(ctx context.Context, d *Service, filter string, through, last uint64) (uint64, bool, error) {
	p := &pullPage{d: d, reply: wire.PullReply{Through: through}}
	err := p.reached(ctx, wire.ChatStream(d.space), filter, last, space.Bounds{Last: last, Replicas: 3})
	return p.reply.Through, p.more, err
}
