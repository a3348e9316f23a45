package target

import (
	"context"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
)

// Enter opens the target of a command and joins its space for a purpose; leave ends both.
func Enter(ctx context.Context, e *command.Env, why Purpose, opts ...Option) (t *Target, ep *endpoint.Endpoint, leave func(), err error) {
	if t, err = Open(e); err != nil {
		return nil, nil, nil, err
	}
	if ep, err = t.Endpoint(ctx, why, opts...); err != nil {
		t.Close()
		return nil, nil, nil, err
	}
	return t, ep, func() {
		_ = ep.Close() // what a command does is confirmed before it ends
		t.Close()
	}, nil
}
