package exchange

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// The routes of both faces.
const (
	pathHealth    = "/health"
	pathKeys      = "/jwks"
	pathExchange  = "/exchange"
	pathWellKnown = "/.well-known/cotal-mesh"
)

// maxDrain bounds what is read of a body that is too long, so that the client reads the answer before it sees the end of the
// connection.
const maxDrain = 8 << 20

// face is one of the two listeners' worth of HTTP.
type face struct {
	server *Server
	name   Face
	urls   atomic.Pointer[[]string] // under which /exchange is reached
	bodies *bodies                  // those that are being read
	places chan struct{}            // a place for each decision that is being made
	people chan struct{}            // one more for each that is about a person
}

func newFace(s *Server, name Face) *face {
	n := s.opts.Limits.InFlight
	f := &face{server: s, name: name, bodies: newBodies(bodiesPerPlace * n), places: make(chan struct{}, n), people: make(chan struct{}, (n+1)/2)}
	f.urls.Store(new([]string))
	return f
}

// reachedAt sets the base URLs of the face.
func (f *face) reachedAt(bases ...string) {
	urls := make([]string, len(bases))
	for i, b := range bases {
		urls[i] = b + pathExchange
	}
	f.urls.Store(&urls)
}

// call is one request on its way.
type call struct {
	id, peer string
	exchange bool // a POST to /exchange
	form     bool // of RFC 8693
	wrongCap bool
}

// ServeHTTP implements [http.Handler].
func (f *face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), f.server.opts.Limits.Deadline)
	defer cancel()
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	c := &call{
		id: wire.NewID(), peer: peerOf(r, f.name == Public && f.server.opts.TrustedProxy), form: strings.EqualFold(strings.TrimSpace(kind), typeForm),
	}
	a := protect(c.form, func() answer { return f.answer(ctx, w, r, c) })
	a = f.settle(context.WithoutCancel(ctx), c, a)
	a.write(w, r, c.id)
}

// protect turns a panic into an answer.
func protect(form bool, do func() answer) (a answer) {
	defer func() {
		if v := recover(); v != nil {
			a = refuse(&panicked{value: fmt.Sprintf("%T", v), stack: string(debug.Stack())}, form)
		}
	}()
	return do()
}

// panicked is a panic as an error. Of the value only the type is kept: it may hold a piece of a request.
type panicked struct{ value, stack string }

func (p *panicked) Error() string { return "panic with a " + p.value }

// route is what one path does. An open one needs no capability at the loopback face.
type route struct {
	method string
	open   bool
	serve  func(f *face, ctx context.Context, w http.ResponseWriter, r *http.Request, c *call) answer
}

var routes = map[string]route{
	pathHealth:    {http.MethodGet, true, (*face).health},
	pathKeys:      {http.MethodGet, true, (*face).keys},
	pathExchange:  {http.MethodPost, false, (*face).exchange},
	pathWellKnown: {http.MethodGet, false, (*face).wellKnown},
}

// answer passes a request through the guards, in their order.
func (f *face) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, c *call) answer {
	rt, known := routes[r.URL.Path]
	known = known && r.URL.RawPath == "" // spelled with escapes it is another path to whatever stands in front
	c.exchange = known && rt.method == http.MethodPost && r.Method == http.MethodPost
	c.form = c.form && c.exchange
	l := f.server.limits
	if !c.exchange {
		if wait := l.read(f.name, c.peer); wait > 0 {
			return refuse(tooMany("peer", f.server.opts.Limits.Reads, wait), false)
		}
	}
	switch {
	case !known:
		return refuseAs(http.StatusNotFound, speak(wire.CodeNotFound, "no such route; see %s", pathWellKnown), false)
	case r.Method != rt.method && (r.Method != http.MethodHead || rt.method != http.MethodGet):
		a := refuseAs(http.StatusMethodNotAllowed, bad("this route takes %s only", rt.method), false)
		if a.allow = rt.method; rt.method == http.MethodGet {
			a.allow = "GET, HEAD"
		}
		return a
	case len(r.Header.Values("Origin")) > 0:
		return refuseAs(http.StatusForbidden, speak(wire.CodePermissionDenied, "pages in a browser get no answer here; send no Origin"), c.form)
	}
	if f.name == Loopback && !rt.open && !f.server.opts.Capability.opens(r.Header) {
		c.wrongCap = true
		if wait := l.badCapability(); wait > 0 {
			return refuse(tooMany("capability", f.server.opts.Limits.BadCapabilities, wait), c.form)
		}
		return refuse(trust.Deny(wire.CodeUnauthenticated, trust.ReasonCapability,
			"this address wants Authorization: Bearer <capability>, from the file that the running space left"), c.form)
	}
	return rt.serve(f, ctx, w, r, c)
}

// exchange reads the body and decides.
func (f *face) exchange(ctx context.Context, w http.ResponseWriter, r *http.Request, c *call) answer {
	kind, err := mediaType(r.Header)
	if err != nil {
		return refuseAs(http.StatusUnsupportedMediaType, err, c.form)
	}
	body, no := f.body(ctx, w, r, c)
	if no != nil {
		return *no
	}
	var req request
	if kind == typeForm {
		req, err = decodeForm(body, f.server.opts.Space)
	} else {
		req, err = decodeJSON(body)
	}
	if err != nil {
		return refuse(err, c.form)
	}
	req.dpop = r.Header.Values("DPoP")
	return f.within(ctx, c, req.kind, func(ctx context.Context) answer { return f.decide(ctx, req) })
}

// body reads what fits. Reading has places of its own: who sends slowly keeps nobody from being decided.
func (f *face) body(ctx context.Context, w http.ResponseWriter, r *http.Request, c *call) ([]byte, *answer) {
	control := http.NewResponseController(w)
	if end, ok := ctx.Deadline(); ok {
		_ = control.SetReadDeadline(end) // a server of HTTP/1 has one; elsewhere the body is in memory
	}
	place := f.bodies.begin(c.peer, func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(data) > maxBody {
		_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
	}
	lost := f.bodies.end(place)
	var a answer
	switch {
	case lost:
		a = refuse(trust.Deny(wire.CodeUnavailable, trust.ReasonBusy, "the body came slowly while others waited to send theirs; try again in a moment"), c.form)
		a.slow = true
	case err != nil && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)):
		a = refuse(f.late(), c.form)
		a.slow = true
	case err != nil:
		a = refuse(bad("the body ended too early"), c.form)
	case len(data) > maxBody:
		a = refuseAs(http.StatusRequestEntityTooLarge,
			trust.Deny(wire.CodeResourceExhausted, trust.ReasonMalformed, "the body has more than %d bytes", maxBody), c.form)
	default:
		return data, nil
	}
	a.hangUp = true
	return nil, &a
}

func busy() error {
	return trust.Deny(wire.CodeUnavailable, trust.ReasonBusy, "too many requests at once; try again in a moment")
}

func (f *face) late() error {
	return trust.Deny(wire.CodeUnavailable, trust.ReasonUnavailable, "no answer within %s, and nothing was handed out; try again",
		f.server.opts.Limits.Deadline.Round(time.Millisecond))
}

// take takes a place, if there is one. Decisions about people have at most half of them, because the check of a token may wait for the
// keys of the identity provider; agents need no provider, and find a place while it does not answer.
func (f *face) take(kind Kind) (release func(), ok bool) {
	if kind != KindPerson {
		return enter(f.places)
	}
	leave, ok := enter(f.people)
	if !ok {
		return nil, false
	}
	free, ok := enter(f.places)
	if !ok {
		leave()
		return nil, false
	}
	return func() { free(); leave() }, true
}

func enter(places chan struct{}) (leave func(), ok bool) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, true
	default:
		return nil, false
	}
}

// within makes an answer by the deadline, on one of the places. What does not heed its context keeps its place until it
// returns, and the server waits for it when it stops.
func (f *face) within(ctx context.Context, c *call, kind Kind, do func(ctx context.Context) answer) answer {
	release, ok := f.take(kind)
	if !ok {
		return refuse(busy(), c.form)
	}
	done := make(chan answer, 1)
	form := c.form
	f.server.work.Go(func() {
		defer release()
		done <- protect(form, func() answer { return do(ctx) })
	})
	select {
	case a := <-done:
		return a
	case <-ctx.Done():
		return refuse(f.late(), c.form)
	}
}

func (f *face) health(context.Context, http.ResponseWriter, *http.Request, *call) answer {
	return answer{status: http.StatusOK, body: encode(struct {
		OK     bool       `json:"ok"`
		Space  wire.Space `json:"space"`
		Issuer string     `json:"issuer"`
	}{true, f.server.opts.Space, "urn:cotal:auth:" + string(f.server.opts.Space)})}
}

func (f *face) keys(ctx context.Context, _ http.ResponseWriter, _ *http.Request, c *call) answer {
	return f.within(ctx, c, KindNone, func(ctx context.Context) answer {
		set, err := f.server.opts.Keys.JWKS(ctx)
		if err == nil && len(set) == 0 {
			err = wire.Errorf(wire.CodeUnavailable, "no keys")
		}
		if err != nil {
			return refuse(fmt.Errorf("read key set: %w", err), false)
		}
		return answer{status: http.StatusOK, body: set, kind: typeKeySet, keep: true}
	})
}

func (f *face) wellKnown(ctx context.Context, _ http.ResponseWriter, _ *http.Request, c *call) answer {
	return f.within(ctx, c, KindNone, func(ctx context.Context) answer {
		doc, err := f.server.describe(ctx)
		if err != nil {
			return refuse(err, false)
		}
		return answer{status: http.StatusOK, body: encode(doc)}
	})
}
