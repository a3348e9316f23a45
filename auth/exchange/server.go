package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

const (
	// grace is how long a stop waits for requests that are being answered.
	grace = 5 * time.Second
	// maxHeader bounds the headers of a request in bytes: a capability and a key proof with room.
	maxHeader = 16 << 10
	// bodiesPerPlace and connectionsPerPlace are how many may be sending a body, or are open, for each request that may be decided.
	bodiesPerPlace, connectionsPerPlace = 8, 16
)

// Server is the exchange of one space. Make one with [New].
type Server struct {
	opts     Options
	log      *slog.Logger
	limits   *limiter
	loopback *face
	public   *face          // nil for none
	work     sync.WaitGroup // what is being decided
	started  atomic.Bool
	ready    chan struct{}
	bound    atomic.Pointer[addresses]
}

// addresses are what the faces listen on.
type addresses struct{ loopback, public net.Addr }

// New checks the options and returns a server that listens to nothing yet. It panics when something required is nil.
//
// Errors: bad-request for a name, address, URL or limit that cannot be.
func New(o Options) (*Server, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	s := &Server{opts: o, limits: newLimiter(o.Limits), ready: make(chan struct{})}
	s.log = o.Logger.With(logkey.Component, "exchange", logkey.Space, string(o.Space))
	s.loopback = newFace(s, Loopback)
	s.loopback.reachedAt("http://" + o.Loopback)
	if o.Public != "" || o.Mounted {
		s.public = newFace(s, Public)
		s.public.reachedAt(s.publicBase(o.Public))
	}
	s.bound.Store(&addresses{})
	return s, nil
}

// publicBase is the base URL of the public face when it listens on addr.
func (s *Server) publicBase(addr string) string {
	if s.opts.PublicURL != "" {
		return s.opts.PublicURL
	}
	return "http://" + addr
}

// LoopbackHandler returns the loopback face without its listener, for a test or a host with a listener of its own.
func (s *Server) LoopbackHandler() http.Handler { return s.loopback }

// PublicHandler returns the public face without its listener; what there is none of answers 404 to everything.
func (s *Server) PublicHandler() http.Handler {
	if s.public == nil {
		return http.NotFoundHandler()
	}
	return s.public
}

// Ready is closed once both faces are reachable and the capability file is written.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// LoopbackAddr returns "host:port" of the loopback face, empty before [Server.Ready].
func (s *Server) LoopbackAddr() string { return addrText(s.bound.Load().loopback) }

// PublicAddr returns "host:port" of the public face, empty before [Server.Ready] and when there is none.
func (s *Server) PublicAddr() string { return addrText(s.bound.Load().public) }

func addrText(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// URL returns the base under which clients reach the exchange: that of the public face, or of the loopback face when there is
// no other. It is final after [Server.Ready].
func (s *Server) URL() string {
	b := s.bound.Load()
	switch {
	case s.public != nil && b.public == nil:
		return s.publicBase(s.opts.Public)
	case s.public != nil:
		return s.publicBase(b.public.String())
	case b.loopback == nil:
		return "http://" + s.opts.Loopback
	}
	return "http://" + b.loopback.String()
}

// Run listens, leaves the capability file and serves until ctx ends; it returns nil then, once all it started has ended and its
// file is gone. It runs once.
//
// Errors: failed-precondition when it ran before; unavailable when an address or the file cannot be had, and nothing is left
// then.
func (s *Server) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return wire.Errorf(wire.CodeFailedPrecondition, "run exchange of space %q: it ran before; make another", s.opts.Space)
	}
	servers, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer s.work.Wait()
	b := s.bound.Load()
	file := CapabilityFile{URL: "http://" + b.loopback.String(), PID: os.Getpid(), Capability: s.opts.Capability}
	if s.public != nil {
		file.PublicURL = s.URL()
	}
	if path := s.opts.CapabilityFile; path != "" {
		if err := file.write(path); err != nil {
			for _, l := range servers {
				err = errors.Join(err, l.listener.Close())
			}
			return err
		}
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a stop lets requests finish
	defer cancel()
	failed := make(chan error, len(servers))
	var serving sync.WaitGroup
	for _, l := range servers {
		l.http.BaseContext = func(net.Listener) context.Context { return base }
		serving.Go(func() { failed <- l.http.Serve(l.listener) })
	}
	s.log.InfoContext(ctx, "exchange started", logkey.URL, s.URL())
	close(s.ready)
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = wire.Errorf(wire.CodeUnavailable, "serve exchange of space %q: %w", s.opts.Space, err)
	}
	if path := s.opts.CapabilityFile; path != "" {
		err = errors.Join(err, file.remove(path))
	}
	stop(ctx, servers)
	cancel()
	serving.Wait()
	s.log.InfoContext(ctx, "exchange stopped")
	return err
}

// stop ends the servers, those that answer requests after a grace.
func stop(ctx context.Context, servers []served) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, l := range servers {
		wg.Go(func() {
			if l.http.Shutdown(ctx) != nil {
				_ = l.http.Close()
			}
		})
	}
}

type served struct {
	listener net.Listener
	http     *http.Server
}

// listen binds both faces, or neither.
func (s *Server) listen(ctx context.Context) ([]served, error) {
	var out []served
	var b addresses
	for _, f := range []struct {
		face *face
		addr string
		got  *net.Addr
	}{{s.loopback, s.opts.Loopback, &b.loopback}, {s.public, s.opts.Public, &b.public}} {
		if f.face == nil || f.addr == "" { // the program serves a mounted face itself
			continue
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.addr)
		if err != nil {
			for _, have := range out {
				_ = have.listener.Close()
			}
			return nil, wire.Errorf(wire.CodeUnavailable, "listen for the %s face of the exchange on %q: %w", f.face.name, f.addr, err)
		}
		*f.got = l.Addr()
		out = append(out, s.serve(f.face, l))
	}
	_, port, err := net.SplitHostPort(b.loopback.String())
	if err != nil {
		return nil, fmt.Errorf("read address of the loopback face: %w", err)
	}
	s.loopback.reachedAt("http://"+b.loopback.String(), "http://"+net.JoinHostPort("localhost", port))
	if b.public != nil {
		s.public.reachedAt(s.publicBase(b.public.String()))
	}
	s.bound.Store(&b)
	return out, nil
}

// serve makes the server of a face. It has a bound on its connections and on every phase of one, so that nobody keeps one by sending
// nothing.
func (s *Server) serve(f *face, listener net.Listener) served {
	l := s.opts.Limits
	open := newConnections(listener, connectionsPerPlace*l.InFlight)
	return served{listener: open, http: &http.Server{
		Handler: open.answering(f), DisableGeneralOptionsHandler: true, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: l.HeaderTimeout, ReadTimeout: l.HeaderTimeout + l.Deadline, WriteTimeout: l.HeaderTimeout + 2*l.Deadline, IdleTimeout: l.IdleTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}}
}
