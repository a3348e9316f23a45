package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// Options adjusts a [Service]. The zero value works.
type Options struct {
	// Open serves an open space: everybody may read everything, and enrol makes queues for whoever asks. False
	// outside a space whose broker checks nobody.
	Open bool
	// Broker tells whose connections end and who subscribes to what. Nil: only heartbeats tell who is there, and live
	// memberships are not known.
	Broker Connections
	// Instance names this body among several. Default: a fresh random one.
	Instance string
	// Version of the software, for health.
	Version string
	// Logger may be nil.
	Logger *slog.Logger
}

// concurrency bounds the requests that are served at a time, each of which may hold a page and a batch.
const concurrency = 32

// Service serves the endpoint delivery of one space. Make one with [New]; it runs once.
type Service struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	space    wire.Space
	open     bool
	broker   Connections
	log      *slog.Logger
	serve    *control.Service
	feed     *feed
	grants   *space.Grants
	channels *space.Channels
	counts   *counts
	grantees *grantees
	notices  *notices
	mentions *mentions
	member   *membership
	live     *liveView // nil when nobody watches the connections
	joins    *membershipFeed
}

// New returns the delivery of s over nc, which the caller owns and whose credential has the delivery profile. It
// panics when nc is nil or s or the instance cannot be.
func New(nc *nats.Conn, s wire.Space, opts *Options) *Service {
	if nc == nil {
		panic("delivery: New needs a connection")
	}
	if err := s.Validate(); err != nil {
		panic("delivery: New: " + err.Error())
	}
	js, err := jetstream.New(nc)
	if err != nil {
		panic("delivery: New: " + err.Error())
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	log := o.Logger.With(logkey.Component, "delivery", logkey.Space, string(s))
	d := &Service{
		nc: nc, js: js, space: s, open: o.Open, broker: o.Broker, log: log, grants: space.NewGrants(js, s), channels: space.NewChannels(js, s),
		serve: control.New(wire.DeliveryEndpoint, &control.Options{Instance: o.Instance, Version: o.Version, Concurrency: concurrency, Logger: log}),
	}
	d.counts = newCounts(js, s)
	d.feed = newFeed(nc, js, o.Broker, s, d.serve, log)
	d.grantees, d.notices = newGrantees(d.grants), newNotices(nc, js, s, d.serve, log)
	d.mentions = newMentions(d)
	d.member = newMembership(js, s)
	live := newLiveView(o.Broker, s)
	if o.Broker != nil {
		d.live = live
	}
	d.joins = newMembershipFeed(nc, space.NewMembers(js, s), live, s, d.serve, log)
	d.register()
	return d
}

// Ready is closed once the roster has been read and requests are served.
func (d *Service) Ready() <-chan struct{} { return d.serve.Ready() }

// Instance is the name under which this body answers among several.
func (d *Service) Instance() string {
	name, _ := d.serve.Instance()
	return name
}

// Run serves until ctx ends; then it finishes what it accepted, tells the watchers of its feed, and returns nil.
//
// Errors: permission-denied when the credential lacks a subscription; unavailable when the broker does not answer at
// the start, or when later the connection closes for good.
func (d *Service) Run(ctx context.Context) error {
	err := d.mentions.start(ctx)
	if err == nil {
		defer d.mentions.stop()
		err = d.feed.start(ctx)
	}
	if err != nil {
		return fmt.Errorf("serve delivery of space %q: %w", d.space, err)
	}
	d.notices.subscribe()
	followCtx, stopFollowing := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { d.feed.run(followCtx) })
	wg.Go(func() { d.notices.run(followCtx) })
	wg.Go(func() { follow(followCtx, d.broker, d.log, d.feed.noticed, d.joins.noticed) })
	wg.Go(func() { d.joins.run(followCtx) })
	wg.Go(func() { d.mentions.run(followCtx) })
	err = d.serve.Run(ctx, d.nc, d.space)
	stopFollowing()
	wg.Wait()
	if err != nil {
		return fmt.Errorf("serve delivery of space %q: %w", d.space, err)
	}
	return nil
}

// register adds every command and check, a group each.
func (d *Service) register() {
	d.registerRoster()
	d.registerChannels()
	d.registerReceipts()
	d.registerMembers()
}

func (d *Service) registerRoster() {
	control.Handle(d.serve, control.Command{
		Name: wire.CommandRoster, Effect: control.Read, Description: "A page of who is there, with the position of the roster feed.",
	}, func(ctx context.Context, _ *control.Request, in *wire.RosterRequest) (*wire.RosterReply, error) {
		return d.feed.page(ctx, value(in))
	})
	d.serve.Check("roster", func(context.Context) error { return d.feed.fresh() })
	d.serve.Check("mentions", func(context.Context) error { return d.mentions.fresh() })
}

func (d *Service) registerChannels() {
	control.Handle(d.serve, control.Command{
		Name: wire.CommandChannels, Effect: control.Read, Description: "A page of the channels, with their settings and, where the caller may read, their sizes.",
	}, func(ctx context.Context, req *control.Request, in *wire.ChannelsRequest) (*wire.ChannelsReply, error) {
		return d.listChannels(ctx, req.Caller, value(in))
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandChannelSet, Effect: control.Write, Description: "Writes or removes the settings of a channel, or writes the defaults.",
	}, func(ctx context.Context, req *control.Request, in wire.ChannelSetRequest) (*wire.ChannelSetReply, error) {
		return d.setChannel(ctx, req.Caller, in)
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandHistory, Effect: control.Read, Description: "A page of the stored messages of one channel within the caller's read list.",
	}, func(ctx context.Context, req *control.Request, in wire.HistoryRequest) (*wire.HistoryReply, error) {
		return d.history(ctx, req.Caller, in)
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandEnrol, Effect: control.Write, Description: "Open spaces only: makes the queues of the caller's lifecycle.",
	}, func(ctx context.Context, req *control.Request, in *wire.EnrolRequest) (*wire.EnrolReply, error) {
		return d.enrol(ctx, req.Caller, value(in))
	})
	d.serve.Check("history", d.checkHistory)
}

// checkHistory reads one message of the channel stream, wherever it is.
func (d *Service) checkHistory(ctx context.Context) error {
	_, err := space.Read(ctx, d.js, wire.ChatStream(d.space), space.Query{Filter: wire.StreamSubjects(d.space, wire.KindChannel), Limit: 1, MaxBytes: 1},
		func(*space.Stored) error { return nil })
	return err
}

// value is *v, or nothing when the caller sent no arguments.
func value[T any](v *T) T {
	var zero T
	if v == nil {
		return zero
	}
	return *v
}

// refuse keeps the code of an error and hides the rest of what is our trouble, not the caller's, which stays in the log.
func (d *Service) refuse(ctx context.Context, what string, caller wire.Lifecycle, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wire.ErrInternal):
		d.log.ErrorContext(ctx, what, logkey.Principal, caller.Principal.String(), logkey.Error, err)
		return wire.Errorf(wire.CodeInternal, "%s: a record cannot be read; see the log", what)
	}
	return err
}
