package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// ServiceOptions adjusts a [Service]. The zero value works.
type ServiceOptions struct {
	// Version of the software, for health.
	Version string
	// Logger may be nil.
	Logger *slog.Logger
}

// The requests that are served at a time, and those that may wait: a team file asks for many agents at once, and an await takes its
// time.
const (
	concurrency = 256
	queueLength = 4096
	callerShare = 2048
)

// Service serves the endpoint manager over one connection, for a keeper. It comes and goes with its credential; two may serve one
// keeper while one takes over from the other, and share its instance. Make one with [New]; it runs once.
type Service struct {
	nc     *nats.Conn
	k      *Keeper
	space  wire.Space
	caller *control.Caller
	serve  *control.Service
	log    *slog.Logger
	events chan wire.AgentStatus
	fresh  chan struct{} // somebody new is there: say who this is
	roster rosterFeed
}

// eventBacklog is how many changes wait to be told. When more come, watchers learn them by asking.
const eventBacklog = 4096

// New returns the endpoint manager of the keeper's space over nc, which the caller owns and whose credential has the supervisor profile
// and is of the life self. It panics when nc or k is nil or self cannot be.
func New(nc *nats.Conn, self wire.Lifecycle, k *Keeper, opts *ServiceOptions) *Service {
	if nc == nil || k == nil {
		panic("supervisor: New needs a connection and a keeper")
	}
	var o ServiceOptions
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	log := o.Logger.With(logkey.Component, "supervisor", logkey.Space, string(k.space))
	caller, err := control.NewCaller(nc, k.space, self, wire.EndpointRef{Name: wire.ManagerEndpoint}, &control.CallerOptions{Logger: log})
	if err != nil {
		panic("supervisor: New: " + err.Error())
	}
	s := &Service{
		nc: nc, k: k, space: k.space, caller: caller, log: log, events: make(chan wire.AgentStatus, eventBacklog), fresh: make(chan struct{}, 1),
		serve: control.New(wire.ManagerEndpoint, &control.Options{
			Instance: k.instance, Version: o.Version, Concurrency: concurrency, Queue: queueLength, Share: callerShare, Logger: log,
		}),
	}
	s.roster = rosterFeed{nc: nc, caller: caller, space: k.space, k: k, log: log}
	s.register()
	return s
}

// Ready is closed once requests are served.
func (s *Service) Ready() <-chan struct{} { return s.serve.Ready() }

// Instance is the name under which the keeper answers, whichever service speaks for it.
func (s *Service) Instance() string { return s.k.instance }

// Epoch tells the services of one keeper apart.
func (s *Service) Epoch() string {
	_, epoch := s.serve.Instance()
	return epoch
}

// Denied takes note of a subject that the broker refused, see [control.Service.Denied] and [control.Caller.Denied].
func (s *Service) Denied(subject string) bool {
	return s.serve.Denied(subject) || s.caller.Denied(subject)
}

// Run serves until ctx ends; then it finishes what it accepted, says goodbye unless another service speaks for the keeper, and
// returns nil. The agents go on.
//
// Errors: permission-denied when the credential lacks a subscription; unavailable when the broker does not answer at the start, or
// when later the connection closes for good.
func (s *Service) Run(ctx context.Context) error {
	defer func() { _ = s.caller.Close() }() // ends a subscription, nothing can be done about a failure
	select {
	case <-s.k.ready:
	case <-ctx.Done():
		return nil
	}
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	peers, err := s.followPeers()
	if err != nil {
		return fmt.Errorf("serve manager of space %q: %w", s.space, err)
	}
	defer peers()
	if err := s.k.relay.AddConn(ctx, s.nc); err != nil {
		return fmt.Errorf("serve manager of space %q: %w", s.space, err)
	}
	defer s.k.relay.RemoveConn(s.nc)
	detach := s.k.attach(&face{ask: s.ask, tell: s.tell})
	wg.Go(func() { s.publish(beside) })
	wg.Go(func() { s.roster.run(beside) })
	err = s.serve.Run(ctx, s.nc, s.space)
	left := detach()
	stop()
	wg.Wait() // nothing is said after the goodbye
	if left == 0 {
		s.goodbye()
	}
	if err != nil {
		return fmt.Errorf("serve manager of space %q: %w", s.space, err)
	}
	return nil
}

// ask calls the authority for the keeper.
func (s *Service) ask(ctx context.Context, command string, args, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.caller.Call(ctx, control.Target{Endpoint: wire.AuthorityEndpoint, Command: command}, args, out)
}

// tell takes a change to be published.
func (s *Service) tell(a wire.AgentStatus) {
	select {
	case s.events <- a:
	default:
		s.log.Warn("change of agent not told: too many at once", logkey.UID, string(a.UID))
	}
}

// publish tells changes, and every other second that this supervisor is there.
func (s *Service) publish(ctx context.Context) {
	beat := time.NewTicker(peerEvery)
	defer beat.Stop()
	has := s.sayPeer()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-s.events:
			s.event(wire.TopicAgents, a)
			if !has { // should it be killed now, it is not one that had none
				has = s.sayPeer()
			}
		case <-beat.C:
			has = s.sayPeer()
		case <-s.fresh:
			has = s.sayPeer()
		}
	}
}

// sayPeer says that this supervisor is there, and reports whether it has agents.
func (s *Service) sayPeer() (has bool) {
	p := s.k.self()
	s.event(wire.TopicPeer, p)
	return p.Agents > 0
}

// goodbye is the last word of the keeper.
func (s *Service) goodbye() {
	p := s.k.self()
	p.Left = true
	s.event(wire.TopicPeer, p)
	if s.nc.IsConnected() {
		_ = s.nc.FlushTimeout(time.Second) // who does not hear it sees the silence
	}
}

// event publishes an event. One that is lost is made good by asking.
func (s *Service) event(topic string, v any) {
	instance, epoch := s.serve.Instance()
	subject, err := wire.EventSubject{Space: s.space, Endpoint: wire.ManagerEndpoint, Instance: instance, Epoch: epoch, Topic: topic}.Subject()
	var data []byte
	if err == nil {
		data, err = json.Marshal(v)
	}
	if err == nil {
		err = s.nc.Publish(subject, data)
	}
	if err != nil && !s.nc.IsClosed() {
		s.log.Debug("event not published", logkey.Subject, subject, logkey.Error, err)
	}
}

// followPeers listens to the other supervisors until the returned function is called.
func (s *Service) followPeers() (stop func(), err error) {
	var subs []*nats.Subscription
	stop = func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe() // a closed connection has ended it
		}
	}
	for topic, take := range map[string]func(instance string, data []byte){wire.TopicPeer: s.hearPeer, wire.TopicAgents: s.hearAgent} {
		filter, err := wire.EventFilter(s.space, wire.ManagerEndpoint, topic)
		if err != nil {
			return nil, err
		}
		sub, err := s.nc.Subscribe(filter, func(m *nats.Msg) {
			from, err := wire.ParseEventSubject(m.Subject)
			if err == nil && from.Space == s.space && from.Endpoint == wire.ManagerEndpoint && from.Instance != s.k.instance {
				take(from.Instance, m.Data)
			}
		})
		if err != nil {
			stop()
			return nil, wire.Errorf(wire.CodeUnavailable, "follow supervisors: %v", err)
		}
		subs = append(subs, sub)
	}
	return stop, nil
}

// maxEvent bounds what another supervisor says at once.
const maxEvent = 64 << 10

func (s *Service) hearPeer(instance string, data []byte) {
	var p wire.ManagerPeer
	if wire.Decode(data, &p, maxEvent) != nil {
		return
	}
	p.Instance = instance // of the subject: the broker vouches for it
	if s.k.heardPeer(p, time.Now()) {
		select {
		case s.fresh <- struct{}{}:
		default:
		}
	}
}

// hearAgent ends what was to end with an agent of another supervisor.
func (s *Service) hearAgent(_ string, data []byte) {
	var a wire.AgentStatus
	if wire.Decode(data, &a, maxEvent) != nil {
		return
	}
	if a.Ended() {
		s.k.parentEnded(a.UID)
	}
}
