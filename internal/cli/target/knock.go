package target

import (
	"context"
	"net"
	"net/url"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Bounds of looking at an address: one try, and the pause between two.
const (
	knockTimeout = time.Second
	knockEvery   = 20 * time.Millisecond
)

// Knock reports whether somebody listens at the address; unavailable when nobody does.
func Knock(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return wire.Errorf(wire.CodeBadRequest, "address %q: %v", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return wire.Errorf(wire.CodeUnavailable, "nobody listens at %q", address)
	}
	return conn.Close()
}

// AwaitSilence returns once nobody listens at the address any more, or the error of ctx.
func AwaitSilence(ctx context.Context, address string) error {
	tick := time.NewTicker(knockEvery)
	defer tick.Stop()
	for {
		if err := Knock(ctx, address); err != nil && ctx.Err() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
