package target

import (
	"context"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// Ask runs a command of delivery and decodes its answer into out.
func Ask(ctx context.Context, ep *endpoint.Endpoint, name string, args, out any) error {
	return ep.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: name}, args, out)
}
