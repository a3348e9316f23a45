package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// readyTimeout bounds the wait for the listener after the streams are recovered.
	readyTimeout = time.Minute
	// fetchTimeout is how long the broker asks its peers for an account it does not know.
	fetchTimeout = 200 * time.Millisecond
	// resolverSync is how often brokers of a cluster compare their accounts.
	resolverSync = time.Minute
	// keepClosed is how many ended connections the broker remembers; nothing here asks for them.
	keepClosed = 64
	// A client that is stopped, or whose machine is, keeps its place in queue groups, and what is sent to it is lost. The
	// broker asks who has been silent for pingInterval whether it lives, and ends the connection after maxPings without an
	// answer: nine seconds at the most. Whoever speaks, as everybody with a presence does, is never asked. The interval must
	// be longer than AuthTimeout.
	pingInterval = 3 * time.Second
	maxPings     = 2
)

// AuthTimeout is how long a connection may stay undecided, with and without TLS: until it has shown a credential that is
// accepted or, in a space that signs people in, until its callout has answered. Then it is ended.
const AuthTimeout = trust.AuthTimeout

// Version is the version of the nats-server that this package embeds.
const Version = server.VERSION

// Server is a running embedded broker. Make one with [Start]; Shutdown ends it.
type Server struct {
	store *storeDir
	cert  *certificate // nil without TLS
	opts  Options

	life sync.Mutex // held by Restart and Shutdown from beginning to end; taken before mu

	mu      sync.Mutex // guards everything below
	srv     *server.Server
	system  string   // public key of the system account, "" in open mode
	issuers *issuers // nil in open mode
	started time.Time
	ill     *illness
	pipes   map[*pipe]struct{}
	down    bool // no broker runs: shut down, or between two lives
	ended   bool // for good
}

// Start brings an embedded broker up and returns when it accepts connections. The account directory in the store is
// first made equal to t.Accounts: claims that are missing there are removed, older and newer ones replaced.
//
// ctx is looked at between the steps; the recovery of streams, which is one of them, is not interrupted. After an
// error nothing runs and nothing is locked.
//
// Errors: bad-request and failed-precondition for options, certificates, trust and store directories that do not fit
// together; conflict when the address or the store directory is in use.
func Start(ctx context.Context, t Trust, opts *Options) (*Server, error) {
	s := &Server{opts: opts.withDefaults(), pipes: map[*pipe]struct{}{}}
	if err := s.opts.check(); err != nil {
		return nil, err
	}
	if err := s.loadCertificate(); err != nil {
		return nil, err
	}
	is, err := s.admit(t)
	if err != nil {
		return nil, err
	}
	if s.store, err = claimStore(s.opts.StoreDir, is.owner(), is.signed); err != nil {
		return nil, err
	}
	if err := s.boot(ctx, t, is); err != nil {
		s.store.release()
		return nil, err
	}
	return s, nil
}

func (s *Server) loadCertificate() (err error) {
	if s.opts.NoListen || !s.opts.Transport.encrypted() {
		return nil
	}
	host := s.opts.Advertise
	if host == "" {
		host = s.opts.Host
	}
	s.cert, err = loadCertificate(s.opts.Transport, host)
	return err
}

// admit checks the trust that the broker is to run under; in open mode there is none.
func (s *Server) admit(t Trust) (*issuers, error) {
	if !s.opts.Open {
		is, err := t.check(time.Now())
		if err != nil {
			return nil, err
		}
		memory, disk := s.opts.caps()
		if err := t.promised().fits(memory, disk); err != nil {
			return nil, fmt.Errorf("start broker: %w", err)
		}
		return is, nil
	}
	if !t.empty() {
		return nil, wire.Errorf(wire.CodeBadRequest, "start broker: an open broker takes no trust records")
	}
	return nil, nil
}

// boot starts nats-server on the claimed store.
func (s *Server) boot(ctx context.Context, t Trust, is *issuers) error {
	began := time.Now()
	if err := ctx.Err(); err != nil {
		return startEnded(err)
	}
	if !s.opts.NoListen {
		if err := checkAddress(ctx, s.opts.address()); err != nil {
			return err
		}
	}
	so, err := s.serverOptions(t)
	if err != nil {
		return err
	}
	srv, err := server.NewServer(so)
	if err != nil {
		closeResolver(so)
		return wire.Errorf(wire.CodeFailedPrecondition, "start broker: %v", err)
	}
	logs := &logBridge{log: s.opts.Logger, ill: &illness{told: s.opts.OnImpaired}}
	srv.SetLoggerV2(logs, s.opts.Logger.Enabled(ctx, levelTrace), false, false)
	srv.Start()
	if err := s.startFailure(ctx, srv, logs); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		closeResolver(so)
		return err
	}
	logs.running()
	s.mu.Lock()
	s.srv, s.system, s.issuers, s.started, s.down, s.ill = srv, t.SystemPublic, is, began, false, logs.ill
	s.mu.Unlock()
	s.opts.Logger.Info("broker started", logkey.Server, srv.ID(), logkey.URL, s.ClientURL(), logkey.Path, s.store.path,
		logkey.Count, len(t.Accounts), logkey.Duration, time.Since(began))
	return nil
}

// startFailure is why the broker, though started, cannot be used; nil when it can.
func (s *Server) startFailure(ctx context.Context, srv *server.Server, logs *logBridge) error {
	text := logs.fatalText()
	switch {
	case ctx.Err() != nil:
		return startEnded(ctx.Err())
	case text != "" && !s.opts.NoListen:
		// The address may have been taken since it was checked; then that is the better sentence.
		if err := checkAddress(ctx, s.opts.address()); err != nil {
			return err
		}
		fallthrough
	case text != "":
		return wire.Errorf(wire.CodeFailedPrecondition, "start broker: %s", text)
	case !srv.ReadyForConnections(readyTimeout):
		return wire.Errorf(wire.CodeUnavailable, "start broker: not ready for connections after %s", readyTimeout)
	}
	return nil
}

func startEnded(cause error) error {
	return wire.Errorf(wire.CodeOf(cause), "start broker: %w", cause)
}

// closeResolver stops the goroutine of an account directory whose server never ran.
func closeResolver(so *server.Options) {
	if so.AccountResolver != nil {
		so.AccountResolver.Close()
	}
}

// serverOptions are made afresh for every start, because the server writes into them.
func (s *Server) serverOptions(t Trust) (*server.Options, error) {
	o := &s.opts
	memory, disk := o.caps()
	so := &server.Options{
		ServerName: o.ServerName, Host: o.Host, Port: o.Port, DontListen: o.NoListen,
		NoSigs: true, DisableJetStreamBanner: true, DisableShortFirstPing: true,
		MaxConn: o.MaxConnections, MaxPayload: int32(o.MaxPayload), MaxControlLine: int32(o.MaxControlLine),
		MaxClosedClients: keepClosed, PingInterval: pingInterval, MaxPingsOut: maxPings, AuthTimeout: AuthTimeout.Seconds(),
		JetStream: true, StoreDir: s.store.path, JetStreamMaxMemory: memory, JetStreamMaxStore: disk,
		SyncInterval: o.SyncInterval, SyncAlways: o.SyncAlways,
	}
	if s.cert != nil {
		so.TLS, so.TLSConfig = true, s.cert.config()
	}
	if o.Open {
		return so, nil
	}
	removed, err := s.store.sync(t.claims())
	if err != nil {
		return nil, err
	}
	for _, public := range removed {
		o.Logger.Info("account removed", logkey.Account, public, logkey.Reason, "not in the trust records")
	}
	resolver, err := server.NewDirAccResolver(s.store.accounts(), 0, resolverSync, server.HardDelete, server.FetchTimeout(fetchTimeout))
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "open account directory %q: %v", s.store.accounts(), err)
	}
	operator, err := jwt.DecodeOperatorClaims(t.OperatorJWT)
	if err != nil {
		resolver.Close()
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read operator claim: %v", err)
	}
	so.TrustedOperators = []*jwt.OperatorClaims{operator}
	so.SystemAccount = t.SystemPublic
	so.AccountResolver = resolver
	return so, nil
}

// checkAddress binds the address for a moment, so that the refusal is one sentence and comes before anything started.
func checkAddress(ctx context.Context, address string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err == nil {
		_ = l.Close()
		return nil
	}
	var op *net.OpError
	switch {
	case addressInUse(err):
		return wire.Errorf(wire.CodeConflict, "start broker: address %q is in use by another process", address)
	case errors.As(err, &op):
		err = op.Err
	}
	return wire.Errorf(wire.CodeFailedPrecondition, "start broker: cannot bind address %q: %v", address, err)
}

// Restart ends the broker and starts it again under t, on the same store and address, without giving the store up in
// between: what a new operator or system key needs, which nats-server reads only when it starts. Clients lose their
// connection and reconnect; providers from InProcess and Controls stay good. The operator must be the same.
//
// Trust that does not fit is refused before anything stops, with the errors of Start. When the broker cannot start
// again it stays down; Restart may then be called once more.
func (s *Server) Restart(ctx context.Context, t Trust) error {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return wire.Errorf(wire.CodeUnavailable, "restart broker: it is shut down")
	}
	if err := ctx.Err(); err != nil {
		return startEnded(err)
	}
	is, err := s.admit(t)
	if err != nil {
		return err
	}
	if err := s.store.mark(is.owner()); err != nil {
		return err
	}
	s.keepPort()
	s.halt()
	return s.boot(ctx, t, is)
}

// keepPort makes a port that the system chose the port of the next life.
func (s *Server) keepPort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if addr, ok := s.srv.Addr().(*net.TCPAddr); ok && !s.opts.NoListen && !s.down {
		s.opts.Port = addr.Port
	}
}

// Shutdown ends the broker: clients are disconnected, streams closed and the store unlocked. It returns when
// nothing of it runs any more, also when called again or by several goroutines at once.
func (s *Server) Shutdown() {
	s.life.Lock()
	defer s.life.Unlock()
	s.mu.Lock()
	again := s.ended
	s.ended = true
	s.mu.Unlock()
	if again {
		return
	}
	s.halt()
	s.store.release()
}

// halt ends nats-server and the connections within the process. The caller holds life.
func (s *Server) halt() {
	s.mu.Lock()
	srv, began, already := s.srv, s.started, s.down
	s.down = true
	s.mu.Unlock()
	if already {
		return
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	for _, p := range s.takePipes() {
		_ = p.Close()
	}
	s.opts.Logger.Info("broker stopped", logkey.Server, srv.ID(), logkey.Duration, time.Since(began))
}

// Down reports whether no broker runs: it was shut down, or could not start again in Restart.
func (s *Server) Down() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// running is nats-server while there is one.
func (s *Server) running() (*server.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, wire.Errorf(wire.CodeUnavailable, "the broker is shut down")
	}
	return s.srv, nil
}

func (s *Server) takePipes() []*pipe {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*pipe, 0, len(s.pipes))
	for p := range s.pipes {
		all = append(all, p)
	}
	return all
}

// InProcess is for nats.InProcessServer: connections that do not leave the process, need no listener and work inside
// a testing/synctest bubble in which the broker was started. They are for our own roles.
func (s *Server) InProcess() nats.InProcessConnProvider { return &provider{s} }

func (s *Server) dialInProcess() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, wire.Errorf(wire.CodeUnavailable, "connect in process: the broker is shut down")
	}
	inner, err := s.srv.InProcessConn()
	if err != nil {
		return nil, wire.Errorf(wire.CodeUnavailable, "connect in process: %v", err)
	}
	p := newPipe(inner, s.forget)
	s.pipes[p] = struct{}{}
	return p, nil
}

func (s *Server) forget(p *pipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pipes, p)
}

// Control connects to the broker's system account in process.
func (s *Server) Control(ctx context.Context, source Source, opts *DialOptions) (*Control, error) {
	if s.opts.Open {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "control broker: an open broker has no accounts to control")
	}
	var o DialOptions
	if opts != nil {
		o = *opts
	}
	o.InProcess = s.InProcess()
	if o.OperatorJWT == "" {
		o.issuers = s.currentIssuers
	}
	return Dial(ctx, "", source, &o)
}

func (s *Server) currentIssuers() *issuers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issuers
}

// ClientURL is the address for clients, nats:// or tls://, or "" when the broker does not listen. A broker that listens on
// every address names the advertised host, or else loopback.
func (s *Server) ClientURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr, ok := s.srv.Addr().(*net.TCPAddr)
	if s.opts.NoListen || !ok {
		return ""
	}
	scheme, host := "nats://", s.opts.Host
	if s.cert != nil {
		scheme = "tls://"
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = DefaultHost
	}
	if s.opts.Advertise != "" {
		host = s.opts.Advertise
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// ID is the broker's identity, new at each start and restart.
func (s *Server) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv.ID()
}

// Name is how the broker appears in listings: the name from the options, or the ID.
func (s *Server) Name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv.Name()
}

// StoreDir is where streams and account claims are kept.
func (s *Server) StoreDir() string { return s.store.path }

// ReloadCertificate reads the certificate and key files again; new connections use them. When they are not
// acceptable the old pair stays in use and the error says why.
func (s *Server) ReloadCertificate() error {
	if s.cert == nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "reload certificate: the broker does not use TLS")
	}
	return s.cert.reload(time.Now())
}

// Orphans lists accounts that have streams on disk but are not known to the broker any more. PruneAccount
// removes them.
func (s *Server) Orphans() ([]string, error) { return s.store.orphans() }

// PruneAccount deletes what an account that was removed, or was absent from the trust records at Start, left on disk.
// It cannot be undone. An account that the broker still knows is refused with failed-precondition; nothing to
// delete is no error.
func (s *Server) PruneAccount(public string) error {
	s.mu.Lock()
	defer s.mu.Unlock() // the store stays locked by us for as long as we are not down
	if s.down {
		return wire.Errorf(wire.CodeUnavailable, "prune account %q: the broker is shut down", public)
	}
	if public == s.system {
		return wire.Errorf(wire.CodeFailedPrecondition, "prune account %q: it is the system account", public)
	}
	if err := s.store.prune(public); err != nil {
		return err
	}
	s.opts.Logger.Info("account pruned", logkey.Account, public)
	return nil
}
