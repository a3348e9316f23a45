package auth

import (
	"context"
	"fmt"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Work counts the messages that wait for each role of a space, also of roles that nobody holds: a sender may name any.
func (a *Authority) Work(ctx context.Context, s wire.Space) (work map[string]uint64, err error) {
	err = a.oneShot(ctx, s, trust.Purger, func(ses *session) error {
		work, err = space.Work(ctx, ses.js, s)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count work of space %q: %w", s, err)
	}
	return work, nil
}

// ClearWork removes what waits for a role and returns how many messages that were. It is the remedy when work for a role
// that nobody holds fills the space, since accepted work never leaves by itself. It cannot be undone.
func (a *Authority) ClearWork(ctx context.Context, s wire.Space, role string) (gone uint64, err error) {
	err = a.oneShot(ctx, s, trust.Purger, func(ses *session) error {
		gone, err = space.ClearWork(ctx, ses.js, s, role)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("clear work of role %q in space %q: %w", role, s, err)
	}
	a.log.InfoContext(ctx, "work cleared", logkey.Space, s, logkey.Role, role, logkey.Count, gone)
	return gone, nil
}

// ClearHistory removes what is stored of a channel and returns how many messages that were. Its members are told what they
// can no longer read. It cannot be undone.
//
// Errors: bad-request for what is no channel; conflict when somebody else clears it at this moment.
func (a *Authority) ClearHistory(ctx context.Context, s wire.Space, channel string) (gone uint64, err error) {
	err = a.oneShot(ctx, s, trust.Purger, func(ses *session) error {
		gone, err = space.ClearHistory(ctx, ses.js, s, channel)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("clear history of space %q: %w", s, err)
	}
	a.log.InfoContext(ctx, "history cleared", logkey.Space, s, logkey.Channel, channel, logkey.Count, gone)
	return gone, nil
}
