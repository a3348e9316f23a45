package control

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// Defaults of [Options].
const (
	DefaultConcurrency = 64
	DefaultQueue       = 256
	DefaultMaxDeadline = time.Minute
	DefaultDrain       = 5 * time.Second
)

// Options adjusts a [Service]. The zero value works.
type Options struct {
	// Instance names this body of the endpoint, [A-Za-z0-9_-]{1,64} but "_". Default: a fresh random one.
	Instance string
	// Epoch names this start of the instance, [A-Za-z0-9_-]{1,64}. Default: the clock in milliseconds, so that a
	// later start of a named instance has a later epoch.
	Epoch string
	// Version of the software, for health.
	Version string
	// Concurrency bounds the handlers that run at a time. Default 64.
	Concurrency int
	// Queue bounds the requests that wait for a handler; one more is refused as resource-exhausted. Default 256.
	Queue int
	// Share bounds the requests of one principal that run or wait. Default: a quarter of Concurrency + Queue,
	// at least one. Whatever it is, one principal runs at most three quarters of Concurrency, and principals take turns.
	Share int
	// MaxDeadline bounds the time a request may take, whatever its caller grants. Default one minute.
	MaxDeadline time.Duration
	// Drain bounds how long accepted requests may go on once Run is asked to stop. Then their contexts end and
	// those still waiting are refused as unavailable. Default 5 s.
	Drain time.Duration
	// CheckResults validates results against the output schema too, as tests should: one that does not fit is logged
	// and answered as internal, executed. It costs time on every reply.
	CheckResults bool
	// Logger receives what went wrong and why. Nil discards.
	Logger *slog.Logger
}

func (o *Options) withDefaults() (Options, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	setDefault(&opts.Instance, string(wire.NewUID()))
	setDefault(&opts.Epoch, strconv.FormatInt(time.Now().UnixMilli(), 10))
	setDefault(&opts.Concurrency, DefaultConcurrency)
	setDefault(&opts.Queue, DefaultQueue)
	setDefault(&opts.Share, max(1, (opts.Concurrency+opts.Queue)/4))
	setDefault(&opts.MaxDeadline, DefaultMaxDeadline)
	setDefault(&opts.Drain, DefaultDrain)
	if opts.Logger == nil {
		opts.Logger = discard
	}
	if opts.Concurrency < 0 || opts.Queue < 0 || opts.Share < 0 || opts.MaxDeadline < 0 || opts.Drain < 0 {
		return opts, fmt.Errorf("a limit is negative: %d handlers, %d waiting, %d a principal, %v a request, %v to drain",
			opts.Concurrency, opts.Queue, opts.Share, opts.MaxDeadline, opts.Drain)
	}
	if opts.Instance == sentinelInstance {
		return opts, fmt.Errorf("instance %q is reserved for the broker's own answers", opts.Instance)
	}
	return opts, nil
}

var discard = slog.New(slog.DiscardHandler)

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Service serves the commands of one endpoint in one space. Make one with [New], register commands, then Run it
// once. All methods but the registering ones are safe for concurrent use.
type Service struct {
	name     string
	opts     Options
	log      *slog.Logger
	commands map[string]*command // fixed once running
	checks   *checker
	contract *Contract // of commands, made at start
	counts   counters
	ready    chan struct{}
	lost     chan struct{} // closed by lose when the service can serve no more
	current  atomic.Pointer[lane]
	outbox   outbox

	work    *pool[*job] // registered commands
	builtin *pool[*job] // health and describe, which must answer when work is full

	base   context.Context // of every handler; ends when a drain takes too long
	cancel context.CancelFunc

	mu          sync.Mutex // guards what follows
	phase       phase
	space       wire.Space
	since       time.Time
	lanes       []*lane // newest last
	cause       error   // why lost is closed
	replyPrefix string
}

type phase int

const (
	phaseNew phase = iota
	phaseRunning
	phaseDraining
	phaseStopped
)

// New returns a service of an endpoint. It panics when the name, the instance or a limit cannot be: that is a
// programmer's mistake.
func New(name string, opts *Options) *Service {
	o, err := opts.withDefaults()
	if err == nil {
		_, err = wire.ServeFilter("check", wire.RailInst, name, o.Instance)
	}
	if err == nil {
		_, err = replyPrefix("check", name, o.Instance, o.Epoch)
	}
	if err != nil {
		panic("control: New: " + err.Error())
	}
	s := &Service{
		name: name, opts: o, commands: map[string]*command{}, ready: make(chan struct{}), lost: make(chan struct{}),
		log: o.Logger.With(logkey.Endpoint, name, logkey.Instance, o.Instance),
	}
	s.checks = &checker{log: s.log}
	s.work = newPool(o.Concurrency, o.Queue, o.Share, (*job).caller, s.serve, s.send)
	s.builtin = newPool(builtinConcurrency, builtinQueue, builtinShare, (*job).caller, s.serve, s.send)
	s.base, s.cancel = context.WithCancel(context.Background())
	s.registerBuiltins()
	return s
}

// Limits of the pool that answers health and describe.
const (
	builtinConcurrency = 4
	builtinQueue       = 64
	builtinShare       = 8
)

// Name returns the name of the endpoint.
func (s *Service) Name() string { return s.name }

// Instance returns the instance and the epoch that replies carry.
func (s *Service) Instance() (instance, epoch string) { return s.opts.Instance, s.opts.Epoch }

// Ready is closed once the broker has accepted the subscriptions of Run's connection.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Stats returns the counters that health reports.
func (s *Service) Stats() Stats {
	st := s.counts.read()
	st.Running, st.Queued = s.work.load()
	return st
}

// Contract returns what describe answers. It must not be modified.
func (s *Service) Contract() (*Contract, error) { return contractOf(s.name, s.commands) }

// Check adds a check that health runs, in order of adding. It must end with its context. Results are given out for
// up to a second. It panics once the service runs, and for a nil fn.
func (s *Service) Check(name string, fn func(context.Context) error) {
	if fn == nil {
		panic("control: Check " + strconv.Quote(name) + " is nil")
	}
	s.mustBeNew("Check")
	s.checks.add(name, fn)
}

func (s *Service) mustBeNew(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseNew {
		panic("control: " + method + " after Run")
	}
}

// Run serves the space on nc until ctx ends; then it finishes what it accepted and returns nil. It can run once.
//
// It does not own nc. Errors: bad-request for a space that cannot be; permission-denied when the broker refuses a
// subscription, naming it, at the start or later (see [Service.Denied]); unavailable when the broker does not answer at the
// start, or when later every connection of the service has closed.
func (s *Service) Run(ctx context.Context, nc *nats.Conn, space wire.Space) error {
	if err := s.begin(space); err != nil {
		return fmt.Errorf("serve endpoint %q: %w", s.name, err)
	}
	err := s.AddConn(ctx, nc)
	if err == nil {
		close(s.ready)
		s.log.InfoContext(ctx, "endpoint serves", logkey.Space, string(space), logkey.Version, s.opts.Version)
		select {
		case <-ctx.Done():
		case <-s.lost:
			s.mu.Lock()
			err = fmt.Errorf("serve endpoint %q: %w", s.name, s.cause)
			s.mu.Unlock()
		}
	}
	s.drain(ctx)
	s.log.InfoContext(ctx, "endpoint stopped", logkey.Space, string(space), logkey.Count, s.Stats().Served)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *Service) begin(space wire.Space) error {
	prefix, err := replyPrefix(space, s.name, s.opts.Instance, s.opts.Epoch)
	if err != nil {
		return err
	}
	contract, err := s.Contract()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseNew {
		return wire.Errorf(wire.CodeFailedPrecondition, "it has run before")
	}
	s.phase, s.space, s.replyPrefix, s.contract, s.since = phaseRunning, space, prefix, contract, time.Now().UTC()
	return nil
}

// drain takes no more requests, finishes the accepted ones and leaves nothing running.
func (s *Service) drain(ctx context.Context) {
	s.mu.Lock()
	s.phase = phaseDraining
	lanes := s.lanes
	s.lanes = nil
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Drain)
	defer cancel()
	for _, l := range lanes {
		l.quiet(ctx)
	}
	s.work.close()
	s.builtin.close()
	stop := context.AfterFunc(ctx, s.cancel)
	s.work.wait()
	s.builtin.wait()
	stop()
	s.cancel()
	s.checks.wait()
	for _, l := range lanes {
		l.finish()
	}
	s.mu.Lock()
	s.phase = phaseStopped
	s.mu.Unlock()
}

// health is the handler of the health command.
func (s *Service) health(ctx context.Context) Health {
	s.mu.Lock()
	since, draining := s.since, s.phase != phaseRunning
	s.mu.Unlock()
	h := Health{
		Endpoint: s.name, Instance: s.opts.Instance, Epoch: s.opts.Epoch, Version: s.opts.Version, Since: since,
		State: StateServing, Stats: s.Stats(), Checks: s.checks.run(ctx),
	}
	for _, c := range h.Checks {
		if !c.OK {
			h.State = StateDegraded
		}
	}
	if draining {
		h.State = StateDraining
	}
	h.Ready = h.State == StateServing
	return h
}

func (s *Service) registerBuiltins() {
	Handle(s, Command{Name: CommandHealth, Effect: Read, Description: "Answers whether this instance serves, and how it is."},
		func(ctx context.Context, _ *Request, _ None) (Health, error) { return s.health(ctx), nil })
	Handle(s, Command{
		Name: CommandDescribe, Effect: Read, Description: "Answers the contract of the endpoint, or of one command.",
		Out: SchemaOf[*contractFields](),
	},
		func(_ context.Context, _ *Request, in *DescribeRequest) (*Contract, error) {
			if in == nil || in.Command == "" {
				return s.contract, nil
			}
			return s.contract.only(in.Command)
		})
	for _, c := range s.commands {
		c.builtin = true
	}
}

// DescribeRequest is the input of describe; it may be left out.
type DescribeRequest struct {
	// Command reduces the answer to one command.
	Command string `json:"command,omitempty"`
}

// counters is Stats while it changes.
type counters struct{ served, failed, refused, dropped, panics atomic.Uint64 }

func (c *counters) read() Stats {
	return Stats{
		Served: c.served.Load(), Failed: c.failed.Load(), Refused: c.refused.Load(),
		Dropped: c.dropped.Load(), Panics: c.panics.Load(),
	}
}
