package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// largest mints the largest agent credential that a space permits: full lists, with patterns as long as the limit
// on all tags together leaves.
func largest(ctx context.Context, a *mint.Authority, s wire.Space) (*trust.Credentials, error) {
	var found *trust.Credentials
	var last error
	for long := 64; long >= 4 && found == nil; long-- {
		r := mint.UserRequest{
			Space: s, Profile: trust.Agent, Role: strings.Repeat("r", 32),
			Principal: wire.Principal{Owner: wire.LocalOwner, Actor: strings.Repeat("a", 64)},
		}
		for i := range trust.MaxPatterns {
			r.Subscribe = append(r.Subscribe, fmt.Sprintf("%0*d.>", long, i))
			r.Publish = append(r.Publish, fmt.Sprintf("%0*d.>", long, i))
		}
		for i := range trust.MaxCommands {
			r.Commands = append(r.Commands, fmt.Sprintf("e%d.%0*d", i, long, i))
		}
		found, last = a.User(ctx, r)
	}
	if found == nil {
		return nil, fmt.Errorf("mint the largest credential: %w", last)
	}
	return found, nil
}

// connectMeter dials and measures the CONNECT line that the client writes.
type connectMeter struct{ size *int }

func (m *connectMeter) Dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &meteredConn{Conn: c, size: m.size}, nil
}

type meteredConn struct {
	net.Conn
	size *int

	mu      sync.Mutex // guards the fields below
	written []byte
	done    bool
}

func (c *meteredConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	if !c.done {
		c.written = append(c.written, b...)
		if end := bytes.IndexByte(c.written, '\n'); end >= 0 && bytes.HasPrefix(c.written, []byte("CONNECT ")) {
			*c.size, c.done, c.written = end+1, true, nil
		}
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}
