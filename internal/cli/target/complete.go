package target

import (
	"context"
	"io"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
)

// completeTimeout bounds what a shell waits for candidates. A mesh that does not answer by then has none.
const completeTimeout = 2 * time.Second

// CompleteChannels proposes the channels of the space, or nothing when the mesh does not answer at once.
func CompleteChannels(ctx context.Context, e *command.Env) []string {
	var out []string
	complete(ctx, e, func(ctx context.Context, ep *endpoint.Endpoint) {
		list, err := ep.Channels(ctx)
		if err != nil {
			return
		}
		for _, c := range list.Channels {
			out = append(out, c.Channel)
		}
	})
	return out
}

// CompleteNames proposes the peers of the space, or nothing when the mesh does not answer at once.
func CompleteNames(ctx context.Context, e *command.Env) []string {
	var out []string
	complete(ctx, e, func(ctx context.Context, ep *endpoint.Endpoint) {
		r, err := ep.Roster(ctx)
		if err != nil {
			return
		}
		for _, en := range r.Entries {
			out = append(out, PeerOf(en).ID().Actor)
		}
	})
	return out
}

func complete(ctx context.Context, e *command.Env, fn func(context.Context, *endpoint.Endpoint)) {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	silent := *e
	silent.Stderr = io.Discard // what it says would stand in the line being completed
	t, err := Open(&silent)
	if err != nil {
		return
	}
	defer t.Close()
	if t.Config.Run == nil && !t.Config.Server.Explicit() {
		return // nothing runs that this machine knows of
	}
	ep, err := t.Endpoint(ctx, Looking)
	if err != nil {
		return
	}
	defer func() { _ = ep.Close() }()
	fn(ctx, ep)
}
