package endpoint

import (
	"context"

	"github.com/cotal-go/cotal/trust"
)

// Quitting is closed when Close has begun.
func (e *Endpoint) Quitting() <-chan struct{} { return e.quit }

// LinkClosed is closed when the connection in use has ended for good.
func (e *Endpoint) LinkClosed() <-chan struct{} { return e.link.Load().closed }

// Renew moves the endpoint to a connection with creds, now.
func (e *Endpoint) Renew(ctx context.Context, creds *trust.Credentials) error {
	return e.replace(ctx, creds)
}
