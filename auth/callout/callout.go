package callout

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Responder holds the keys of the callout account.
type Responder interface {
	// Account is the public key of the callout account (A…).
	Account() string
	// Open decrypts what a server sealed to the account with its curve key (X…). An error means that somebody else did.
	Open(sealed []byte, serverXKey string) ([]byte, error)
	// Seal encrypts an answer so that only that server can read it.
	Seal(plain []byte, serverXKey string) ([]byte, error)
	// SignResponse encodes and signs an answer with a key of the account.
	SignResponse(ctx context.Context, c *jwt.AuthorizationResponseClaims) (string, error)
}

// Validator checks bearers of the space; *[bearer.Validator] satisfies it. Errors carry a [trust.Reason].
type Validator interface {
	// Peek checks what can be checked without a signature and without waiting: size, form, a known key, the end.
	Peek(token string) (kid string, exp time.Time, err error)
	// Validate checks all of it.
	Validate(ctx context.Context, token string) (bearer.Claims, error)
}

// Authority decides about a connection by the grants as they are now; *[auth.Authority] satisfies it.
type Authority interface {
	// Connect returns the user JWT of the connection. It refuses a UserKey that it was asked about before. Errors carry a
	// [trust.Reason]; one without counts as unavailable.
	Connect(ctx context.Context, s wire.Space, req auth.ConnectRequest) (string, auth.Admission, error)
}

var _ Validator = (*bearer.Validator)(nil)

// Defaults of [Options].
const (
	DefaultQueue    = 1024
	DefaultDeadline = 1500 * time.Millisecond
)

// Options is what a [Service] works with. The first five are required.
type Options struct {
	// Space is whose bearers are accepted.
	Space wire.Space
	// Responder holds the keys of the callout account.
	Responder Responder
	// Validator checks bearers.
	Validator Validator
	// Authority decides.
	Authority Authority
	// Servers returns the public ids (N…) of the brokers that may ask. It is asked at the start, and again, at most once a
	// second, when an unknown one asks. While it fails the last list stands.
	Servers func(context.Context) ([]string, error)

	// Workers is how many questions are verified and decided at the same time. Deciding waits for the broker
	// most of the time. Default twice GOMAXPROCS, 16 at least.
	Workers int
	// Queue bounds, each for itself, the questions that wait for the cheap checks, for a worker, in the lane of suspect
	// addresses, and for the list of brokers. Default 1024.
	Queue int
	// RequireKeyProof refuses a bearer that names no key. A key that is named must always be proved.
	RequireKeyProof bool
	// Deadline bounds a decision from the arrival of the question. It must be below the time that the broker waits, 2 s; of a broker
	// that waits less it is three quarters of that. Default 1.5 s.
	Deadline time.Duration
	// OnDecision is told each decision, after the answer was sent. It is called from many goroutines, which it must not hold
	// up. Nil tells nobody.
	OnDecision func(context.Context, Decision)
	// Logger receives what is not a decision, and decisions at debug level. Nil discards.
	Logger *slog.Logger

	window time.Duration // how long a broker may wait for an answer; default maxWindow
}

// Decision is what became of one question of a broker of ours.
type Decision struct {
	// OK says that the connection was let in; otherwise Reason says why not.
	OK     bool
	Reason trust.Reason
	// Lifecycle is who asked, once the bearer's signature has been verified and its key proved; zero before that.
	Lifecycle wire.Lifecycle
	// View is what they asked for beyond an agent's rights.
	View trust.View
	// UserKey is the public key that the broker made for the connection.
	UserKey string
	// Server is the id of the broker, Host the address that the client comes from, ConnectionName what it calls itself. They
	// are empty in a decision that was made before the question was opened, which only load or a question's size can cause.
	Server, Host, ConnectionName string
	// Told says that the reason stands in the broker's log.
	Told bool
	// Duration is from the arrival of the question to the answer.
	Duration time.Duration
}

// Service answers for one space. Make one with [New].
type Service struct {
	nc       *nats.Conn
	o        Options
	account  string
	instance string
	log      *slog.Logger
	ready    chan struct{}
	ran      atomic.Bool
	sub      atomic.Pointer[nats.Subscription]

	gate   sync.RWMutex // held by whoever puts into intake; guards shut
	shut   bool         // nothing is taken any more
	intake chan *job

	lanes    lanes
	refusals chan refusal
	servers  *servers
	hosts    *hosts
	stats    *counters
	patient  sync.Once // has said that a broker waits too long
}

// New returns a service over a connection as the callout user of the callout account; the caller closes the connection after Run
// has returned. It panics without a connection, Responder, Validator or Authority.
//
// Errors: bad-request for options outside their limits, or without a way to know our brokers.
func New(nc *nats.Conn, o Options) (*Service, error) {
	if nc == nil || o.Responder == nil || o.Validator == nil || o.Authority == nil {
		panic("callout: New needs a connection, a responder, a validator and an authority")
	}
	if o.Servers == nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "serve auth callout: no list of brokers to answer; set Servers")
	}
	if err := o.Space.Validate(); err != nil {
		return nil, err
	}
	account := o.Responder.Account()
	if !nkeys.IsValidPublicAccountKey(account) {
		return nil, wire.Errorf(wire.CodeBadRequest, "serve auth callout of space %q: %.64q is not the public key of an account", o.Space, account)
	}
	if o.Workers < 0 || o.Queue < 0 || o.Deadline < 0 {
		return nil, wire.Errorf(wire.CodeBadRequest, "serve auth callout of space %q: workers, queue and deadline must not be negative", o.Space)
	}
	if o.Workers == 0 {
		o.Workers = max(16, 2*runtime.GOMAXPROCS(0))
	}
	if o.Queue == 0 {
		o.Queue = DefaultQueue
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.window == 0 {
		o.window = maxWindow
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		nc: nc, o: o, account: account, instance: wire.NewID(), ready: make(chan struct{}),
		intake: make(chan *job, o.Queue), lanes: newLanes(o.Queue), refusals: make(chan refusal, maxRefusals),
		hosts: newHosts(), stats: newCounters(),
	}
	s.log = log.With(logkey.Component, "callout", logkey.Space, o.Space, logkey.Instance, s.instance)
	s.servers = newServers(o.Servers, o.Queue, s.log)
	return s, nil
}

// Ready is closed when the service takes questions.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Instance names this service among those of the space.
func (s *Service) Instance() string { return s.instance }

// Stats returns what was counted.
func (s *Service) Stats() Stats {
	out := s.stats.snapshot()
	if sub := s.sub.Load(); sub != nil {
		if n, err := sub.Dropped(); err == nil && n > 0 {
			out.Lost = uint64(n)
		}
	}
	return out
}

// Run answers until ctx ends, then takes nothing more, answers what it has taken, and returns nil. It may be called once.
//
// Errors: failed-precondition for a second call; unavailable when the broker does not take the subscription, or the connection
// is closed before ctx ends. What was taken has been decided then, too.
func (s *Service) Run(ctx context.Context) error {
	if !s.ran.CompareAndSwap(false, true) {
		return wire.Errorf(wire.CodeFailedPrecondition, "serve auth callout of space %q: the service ran before; make a new one", s.o.Space)
	}
	work := context.WithoutCancel(ctx) // what was taken is answered after ctx has ended
	s.servers.read(ctx)
	stop := s.start(work)
	defer stop()
	sub, closed, err := s.subscribe(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "auth callout started", logkey.Account, s.account)
	close(s.ready)
	select {
	case <-ctx.Done():
	case <-closed:
		return wire.Errorf(wire.CodeUnavailable, "serve auth callout of space %q: the connection was closed", s.o.Space)
	}
	s.drain(work, sub, closed)
	stop()
	ctx, cancel := context.WithTimeout(work, s.o.Deadline)
	defer cancel()
	if err := s.nc.FlushWithContext(ctx); err != nil {
		s.log.WarnContext(work, "last answers not confirmed", logkey.Error, err)
	}
	s.log.InfoContext(work, "auth callout stopped")
	return nil
}

// start begins the stages and returns what ends them, in the order in which work passes them.
func (s *Service) start(ctx context.Context) (stop func()) {
	var sifters, lists, workers, signers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		sifters.Go(func() {
			for j := range s.intake {
				s.guard(ctx, j, s.sift)
			}
		})
	}
	lists.Go(func() { s.servers.run(ctx, func(j *job) { s.guard(ctx, j, s.identify) }) })
	for range s.o.Workers {
		workers.Go(func() {
			for next := s.lanes.reader(); ; {
				j, ok := next()
				if !ok {
					return
				}
				s.guard(ctx, j, s.decide)
			}
		})
	}
	signers.Go(func() {
		for r := range s.refusals {
			s.guard(ctx, r.job, func(ctx context.Context, j *job) { s.refuse(ctx, j, r.reason) })
		}
	})
	return sync.OnceFunc(func() {
		s.gate.Lock()
		s.shut = true
		s.gate.Unlock()
		close(s.intake)
		sifters.Wait()
		s.servers.end()
		lists.Wait()
		s.lanes.close()
		workers.Wait()
		close(s.refusals)
		signers.Wait()
	})
}

// subscribe begins to take questions. The channel is closed when the last one has been taken.
func (s *Service) subscribe(ctx context.Context) (*nats.Subscription, <-chan struct{}, error) {
	failed := func(err error) error {
		return wire.Errorf(wire.CodeUnavailable, "serve auth callout of space %q: subscribe: %v", s.o.Space, err)
	}
	sub, err := s.nc.QueueSubscribe(wire.CalloutSubject, wire.CalloutQueue, func(m *nats.Msg) { s.take(context.WithoutCancel(ctx), m) })
	if err != nil {
		return nil, nil, failed(err)
	}
	s.sub.Store(sub)
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if err = sub.SetPendingLimits(4*s.o.Queue, 4*s.o.Queue*(16<<10)); err == nil {
		ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
		defer cancel()
		err = s.nc.FlushWithContext(ctx) // a connection that was closed before the handler was set fails here
	}
	if err != nil {
		_ = sub.Unsubscribe() // fails only with the connection, which is what err says
		return nil, nil, failed(err)
	}
	return sub, closed, nil
}

// drain takes what the broker has sent already and nothing more. A broker that does not answer is not waited for: it has
// refused those connections by then.
func (s *Service) drain(ctx context.Context, sub *nats.Subscription, closed <-chan struct{}) {
	if err := sub.Drain(); err != nil {
		s.log.WarnContext(ctx, "subscription ended without the broker", logkey.Error, err)
		return
	}
	t := time.NewTimer(drainTimeout)
	defer t.Stop()
	select {
	case <-closed:
	case <-t.C:
		s.log.WarnContext(ctx, "broker did not confirm the end of the subscription")
	}
}

const (
	// subscribeTimeout bounds the wait for the broker to take the subscription.
	subscribeTimeout = 5 * time.Second
	// drainTimeout bounds the wait for it to confirm the end.
	drainTimeout = 3 * time.Second
)
