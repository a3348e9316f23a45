package delivery

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// MaxWaiting is how many messages with mentions wait in memory.
const MaxWaiting = maxWaiting

// Names is the directory of a space with grants.
type Names struct{ n *grantees }

// NewNames returns an empty one.
func NewNames(g *space.Grants) *Names { return &Names{newGrantees(g)} }

// Sync and Resolve are those of a mention.
func (n *Names) Sync(ctx context.Context) error { return n.n.sync(ctx) }
func (n *Names) Resolve(name string, now time.Time) (wire.Lifecycle, int) {
	return resolve(n.n, name, now)
}

// Len is how many names are known.
func (n *Names) Len() int { return len(n.n.byName) }

// Window is what was heard live.
type Window struct{ w window }

// Hear and Anchor are those of the window.
func (w *Window) Hear(seq uint64, candidate bool) bool {
	c := newCandidate(seq, candidate)
	return w.w.hear(c)
}
func (w *Window) Anchor(last uint64, anew bool) { w.w.anchor(last, anew) }

// Next says up to where to read, or what to serve, or up to where nothing waits.
func (w *Window) Next(done uint64) (readTo uint64, serve []uint64, served uint64) {
	n := w.w.next(done)
	for _, c := range n.waiting {
		serve = append(serve, c.seq)
	}
	return n.readTo, serve, n.served
}

// Bytes is what waits.
func (w *Window) Bytes() int { return w.w.bytes }

func newCandidate(seq uint64, mentions bool) candidate {
	c := candidate{seq: seq}
	if mentions {
		c.data = []byte{0}
	}
	return c
}

// HearOf returns the handler of live copies of a service.
func HearOf(d *Service) func(*nats.Msg) { return d.mentions.hear }

// MentionsFresh is the health check of mentions.
func MentionsFresh(d *Service) error { return d.mentions.fresh() }

// Quota counts mentions of senders.
type Quota struct{ q quota }

// Take is that of a message.
func (q *Quota) Take(sender wire.Principal, at time.Time, n int) (int, bool) {
	return q.q.take(sender, at, n)
}
