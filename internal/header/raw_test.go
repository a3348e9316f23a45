package header_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// raw speaks the client protocol by hand: nats.go does not send a broken header block.
type raw struct{ conn net.Conn }

func dialRaw(tb testing.TB, srv *server.Server) *raw {
	tb.Helper()
	conn, err := srv.InProcessConn()
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // until it is closed
	tb.Cleanup(func() { _ = conn.Close(); wg.Wait() })
	r := &raw{conn}
	r.write(tb, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"protocol\":1}\r\n")
	return r
}

func (r *raw) write(tb testing.TB, s string) {
	tb.Helper()
	if _, err := io.WriteString(r.conn, s); err != nil {
		tb.Fatalf("write to broker: %v", err)
	}
}
