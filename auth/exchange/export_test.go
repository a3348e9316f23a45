package exchange

import (
	"net"
	"net/http"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Request shows what a body was read as.
type Request struct {
	Kind         Kind
	Proof        string
	Owner, Actor string
	View         trust.View
	Scope        []string
	Life         time.Duration
	Issued       string
}

func shown(r request, err error) (Request, error) {
	if err != nil {
		return Request{}, err
	}
	return Request{r.kind, r.proof(), r.owner, r.actor, r.view, r.scope, r.life, r.issued}, nil
}

func DecodeJSON(data []byte) (Request, error) { return shown(decodeJSON(data)) }

func DecodeForm(data []byte, s wire.Space) (Request, error) { return shown(decodeForm(data, s)) }

// Careless is a request as a careless log line would print it.
func Careless(data []byte) any {
	r, _ := decodeJSON(data)
	return r
}

func PeerOf(r *http.Request, trustedProxy bool) string { return peerOf(r, trustedProxy) }

const TypeIDToken, TypeJWT, TypeAccessToken = typeIDToken, typeJWT, typeAccessToken

// Window is a window of a limit.
type Window struct {
	w     window
	limit int
}

func NewWindow(limit int) *Window { return &Window{limit: limit} }

func (w *Window) Take(tick int64) (wait int) { return w.w.take(tick, w.limit) }

// Table is a table of windows.
type Table struct{ t *table }

func NewTable(limit, room int) Table { return Table{newTable(limit, room)} }

func (t Table) Take(key string, tick int64) (wait int) { return t.t.take(key, tick) }

func (t Table) Len() (keys, order int) { return len(t.t.keys), t.t.order.Len() }

func (f CapabilityFile) Write(path string) error { return f.write(path) }

func (f CapabilityFile) Remove(path string) error { return f.remove(path) }

// ServeOn serves a face on a listener until the listener is closed and stop is called.
func (s *Server) ServeOn(name Face, l net.Listener) (stop func()) {
	f := s.loopback
	if name == Public {
		f = s.public
	}
	on := s.serve(f, l)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = on.http.Serve(on.listener)
	}()
	return func() {
		_ = on.http.Close()
		<-done
	}
}
