package delivery

import (
	"context"
	"encoding/json"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// advisory is what the broker says about a message that it does not hand over any more.
type advisory struct {
	Sequence   uint64 `json:"stream_seq"`
	Deliveries int    `json:"deliveries"`
	Reason     string `json:"reason"` // what the recipient's client said, see [space.DeadReason]
}

const (
	// deadMessages and deadBytes bound the notices about one queue that one request looks at.
	deadMessages = 5000
	deadBytes    = 4 << 20
)

// deadSince calls fn with what the broker noted about a queue since a time.
func (d *Service) deadSince(ctx context.Context, stream, durable string, since time.Time, fn func(advisory)) error {
	q := space.Query{Filter: wire.DeadFilter(stream, durable), Since: since}
	_, err := d.walk(ctx, wire.DeadStream(d.space), q, &budget{deadMessages, deadBytes}, func(m *space.Stored) bool {
		var a advisory
		if json.Unmarshal(m.Data, &a) == nil {
			fn(a)
		}
		return true
	})
	return err
}
