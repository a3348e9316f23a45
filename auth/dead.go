package auth

import (
	"context"
	"fmt"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// DeadLetters returns the direct and role messages of a space that are not handed over any more, after the given id and at
// most limit of them, and the id to go on from: 0 at the end. See [space.DeadLetters].
func (a *Authority) DeadLetters(ctx context.Context, s wire.Space, after uint64, limit int) (letters []space.DeadLetter, next uint64, err error) {
	err = a.oneShot(ctx, s, trust.Undertaker, func(ses *session) error {
		letters, next, err = space.DeadLetters(ctx, ses.js, s, after, limit)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list dead letters of space %q: %w", s, err)
	}
	return letters, next, nil
}

// DeadLetter returns one of them with its body. It is logged: somebody else's message was read.
//
// Errors: not-found when there is none with that id.
func (a *Authority) DeadLetter(ctx context.Context, s wire.Space, id uint64) (letter space.DeadLetter, err error) {
	err = a.oneShot(ctx, s, trust.Undertaker, func(ses *session) error {
		letter, err = space.GetDeadLetter(ctx, ses.js, s, id)
		return err
	})
	if err != nil {
		return space.DeadLetter{}, fmt.Errorf("read dead letter of space %q: %w", s, err)
	}
	a.log.InfoContext(ctx, "dead letter read", logkey.Space, s, logkey.Sequence, id)
	return letter, nil
}

// Requeue puts the message of a dead letter back into its queue and returns its new sequence, 0 when an earlier call that
// was interrupted had put it back. Errors are those of [space.Requeue].
func (a *Authority) Requeue(ctx context.Context, s wire.Space, id uint64) (sequence uint64, err error) {
	err = a.oneShot(ctx, s, trust.Undertaker, func(ses *session) error {
		sequence, err = space.Requeue(ctx, ses.js, s, id)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("put back dead letter of space %q: %w", s, err)
	}
	a.log.InfoContext(ctx, "dead letter put back", logkey.Space, s, logkey.Sequence, id)
	return sequence, nil
}

// DropDead removes a dead letter and its message. It cannot be undone.
//
// Errors: not-found when there is none with that id.
func (a *Authority) DropDead(ctx context.Context, s wire.Space, id uint64) error {
	err := a.oneShot(ctx, s, trust.Undertaker, func(ses *session) error { return space.DropDeadLetter(ctx, ses.js, s, id) })
	if err != nil {
		return fmt.Errorf("drop dead letter of space %q: %w", s, err)
	}
	a.log.InfoContext(ctx, "dead letter dropped", logkey.Space, s, logkey.Sequence, id)
	return nil
}
