package callout

import (
	"maps"
	"sync"

	"github.com/cotal-go/cotal/trust"
)

// Stats counts since the service was made.
type Stats struct {
	// Taken is how many messages arrived. Each ends in Admitted, Denied or Dropped.
	Taken uint64
	// Admitted is how many connections were let in.
	Admitted uint64
	// Denied counts refusals by reason. Of all of them, Bare were sent without a text.
	Denied map[trust.Reason]uint64
	// Bare is how many refusals had no text: for load, for junk, and for junk that came too fast to sign.
	Bare uint64
	// Dropped counts what was not answered, by [Drop].
	Dropped map[Drop]uint64
	// Panics is how many decisions were ended by a bug. Each was refused.
	Panics uint64
	// Lost is how many messages the connection threw away because they were not fetched in time.
	Lost uint64
}

// Drop says why a message got no answer. The broker then refuses the connection after its own time.
type Drop string

// The drops. All but stale and unanswerable are of what comes from no broker of ours.
const (
	DropUnsealed     Drop = "unsealed"     // not encrypted to the callout account by a key that its header names
	DropMalformed    Drop = "malformed"    // no question, or one that contradicts itself or is for another account
	DropForeign      Drop = "foreign"      // from a server that is not on the list
	DropForged       Drop = "forged"       // not signed by the server that it names
	DropStale        Drop = "stale"        // the broker does not wait for the answer any more
	DropUnanswerable Drop = "unanswerable" // without a reply subject or a user key
	DropPatient      Drop = "patient"      // the broker would wait so long for the answer that a revocation could miss the connection
	DropUnsent       Drop = "unsent"       // decided, but the connection is gone
)

// counters are Stats that grow.
type counters struct {
	mu sync.Mutex // guards s
	s  Stats
}

func newCounters() *counters {
	return &counters{s: Stats{Denied: map[trust.Reason]uint64{}, Dropped: map[Drop]uint64{}}}
}

func (c *counters) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.s)
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.s
	out.Denied, out.Dropped = maps.Clone(c.s.Denied), maps.Clone(c.s.Dropped)
	return out
}
