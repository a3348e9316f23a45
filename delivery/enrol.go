package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// enrolIdle is how long the queues of a lifecycle in an open space outlive their last reader: nobody retires it, and
// a lifecycle that comes back after that starts a new one.
const enrolIdle = time.Hour

func (d *Service) enrol(ctx context.Context, caller wire.Lifecycle, in wire.EnrolRequest) (*wire.EnrolReply, error) {
	if !d.open {
		return nil, wire.Errorf(wire.CodeUnimplemented, "enrol %q: only open spaces enrol; here an operator mints a credential", caller.Principal)
	}
	if err := space.EnsureTransient(ctx, d.js, d.space, caller, in.Role, enrolIdle); err != nil {
		return nil, fmt.Errorf("enrol %q: %w", caller.Principal, err)
	}
	reply := &wire.EnrolReply{
		Principal: caller.Principal.String(), UID: caller.UID,
		Queues: []string{wire.DirectDurable(caller)},
	}
	if in.Role != "" {
		reply.Queues = append(reply.Queues, wire.RoleDurable(in.Role))
	}
	return reply, nil
}
