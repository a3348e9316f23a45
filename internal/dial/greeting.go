package dial

import (
	"bytes"
	"net"

	"github.com/cotal-go/cotal/wire"
)

// maxGreeting bounds the first line of a broker, in bytes. nats.go reads it whole, however long it is.
const maxGreeting = 1 << 20

// Greeted bounds the greeting of what listens at the other end of conn: it may be anybody. The read that goes beyond it fails.
func Greeted(conn net.Conn) net.Conn { return &greeted{Conn: conn, left: maxGreeting} }

// greeted is read by one goroutine at a time.
type greeted struct {
	net.Conn
	left int // of the greeting; negative once it has come
}

// Read implements net.Conn.
func (g *greeted) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	switch {
	case g.left < 0:
	case bytes.IndexByte(p[:n], '\n') >= 0:
		g.left = -1
	case n >= g.left:
		g.left = 0
		_ = g.Close() // nats.go leaves it to the collector
		return 0, wire.Errorf(wire.CodeUnavailable, "connect to broker: what answers is none, its first line is longer than %d bytes", maxGreeting)
	default:
		g.left -= n
	}
	return n, err
}
