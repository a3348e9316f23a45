package exchange

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// connections is a listener with a bounded number of open connections. When one more comes, the one that has waited longest for a
// request is closed. Those whose request is being answered stay: bodies and decisions have bounds of their own.
type connections struct {
	net.Listener
	room int

	mu      sync.Mutex             // guards the rest
	open    map[string]*connection // by the address of the client
	waiting *list.List             // of *connection, the longest in front
}

type connection struct {
	net.Conn
	of   *connections
	addr string
	wait *list.Element // nil while a request is answered, and once it is closed
}

func newConnections(l net.Listener, room int) *connections {
	return &connections{Listener: l, room: room, open: map[string]*connection{}, waiting: list.New()}
}

// Accept implements [net.Listener].
func (l *connections) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: raw, of: l, addr: raw.RemoteAddr().String()}
	l.mu.Lock()
	l.open[c.addr] = c
	c.wait = l.waiting.PushBack(c)
	var over *connection
	if len(l.open) > l.room {
		over = l.waiting.Front().Value.(*connection)
	}
	l.mu.Unlock()
	if over != nil {
		_ = over.Close() // its server finds out when it reads
	}
	return c, nil
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.of.mu.Lock()
	if c.of.open[c.addr] == c {
		delete(c.of.open, c.addr)
	}
	c.rest(false)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends what is sent, as net/http does before it closes a connection whose client has not sent all: else the answer
// could be lost.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// rest says whether a connection waits for a request from now on. The caller holds mu.
func (c *connection) rest(waits bool) {
	switch {
	case c.wait != nil && !waits:
		c.of.waiting.Remove(c.wait)
		c.wait = nil
	case c.wait == nil && waits:
		c.wait = c.of.waiting.PushBack(c)
	}
}

// answering is a handler whose connections count as waiting except while it runs.
func (l *connections) answering(h http.Handler) http.Handler {
	mark := func(addr string, waits bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if c := l.open[addr]; c != nil {
			c.rest(waits)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mark(r.RemoteAddr, false)
		defer mark(r.RemoteAddr, true)
		h.ServeHTTP(w, r)
	})
}
