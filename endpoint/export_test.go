package endpoint

import (
	"context"
	"time"

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

// ParseStored and ParseOrigin read what the broker says.
var (
	ParseStored = parseStored
	NewDedupKey = newDedupKey
	ParseOrigin = parseOrigin
)

// Stored and Origin are what they return.
type (
	Stored = stored
	Origin = origin
)

// Fields of an origin.
func (o origin) Fields() (delivered, sequence uint64, at time.Time) {
	return o.delivered, o.sequence, o.at
}

// Outage is an outage.
type Outage struct{ o outage }

// Fail and Over are its methods, for tests.
func (o *Outage) Fail(now time.Time, answers uint64, connected bool) {
	o.o.fail(now, contact{answers: answers}, connected)
}
func (o *Outage) Over(now time.Time) bool {
	over, _ := o.o.over(now)
	return over
}
