package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Connections tells who is connected to the account of the space that is served. It is for this one space: nothing of it
// reaches another. It ends no connection; that is the authority's.
type Connections interface {
	// Follow tells fn of connections that begin and end, from the calling goroutine, until ctx ends; then it returns
	// nil. The first call has Missed set, and so have those after which notices may be missing: once when they
	// stop and once when they are told again. Any other end is an error, after which it may be called again.
	Follow(ctx context.Context, fn func(ConnectionChange)) error
	// List returns every connection, with subscriptions when asked for, or an error: never some of them.
	List(ctx context.Context, subscriptions bool) ([]Connection, error)
}

// Connection is one connection of the space.
type Connection struct {
	// ID is unique among those that are and those that were.
	ID string
	// Profile and Lifecycle are those of its credential, which the broker vouches for.
	Profile   trust.Profile
	Lifecycle wire.Lifecycle
	// Subscriptions are its subjects, when asked for.
	Subscriptions []string
}

// ConnectionChange is one notice.
type ConnectionChange struct {
	// Missed says that notices before this one may be missing; everything else is zero then.
	Missed bool
	// Connected says that the connection began; else it ended.
	Connected bool
	// Moving says that it ended because its server does: its client is expected at another.
	Moving     bool
	Connection Connection
}

const (
	followPauseMin = time.Second
	followPauseMax = 30 * time.Second
)

// follow hands the notices of broker to those who want them until ctx ends. Without them it is as if there were none:
// heartbeats tell who is there.
func follow(ctx context.Context, broker Connections, log *slog.Logger, tell ...func(ConnectionChange)) {
	if broker == nil {
		return
	}
	all := func(c ConnectionChange) {
		for _, fn := range tell {
			fn(c)
		}
	}
	for pause := followPauseMin; ; pause = min(2*pause, followPauseMax) {
		began := time.Now()
		err := broker.Follow(ctx, all)
		if ctx.Err() != nil {
			return
		}
		all(ConnectionChange{Missed: true})
		log.Warn("connections are not followed; only heartbeats tell who is there", logkey.Error, err)
		if time.Since(began) > followPauseMax {
			pause = followPauseMin
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}
