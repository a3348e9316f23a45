package endpoint

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

// Call runs a command of a service as this endpoint and decodes its result into out, which may be nil. Errors are those
// of [control.Caller.Call], and [ErrClosed].
func (e *Endpoint) Call(ctx context.Context, t control.Target, args, out any) error {
	c, err := e.controlCaller()
	if err != nil {
		return err
	}
	return c.Call(ctx, t, args, out)
}

// Invoke is Call with a request id, a trace context, and who answered. Errors are those of [control.Caller.Invoke], and
// [ErrClosed].
func (e *Endpoint) Invoke(ctx context.Context, inv control.Invocation) (control.Answer, error) {
	c, err := e.controlCaller()
	if err != nil {
		return control.Answer{}, err
	}
	return c.Invoke(ctx, inv)
}

// Scatter asks every instance of a service and gathers the answers that come within the window, or until expect of them
// came when it is positive. Errors are those of [control.Caller.Scatter], and [ErrClosed].
func (e *Endpoint) Scatter(ctx context.Context, t control.Target, args any, window time.Duration, expect int) ([]control.Answer, error) {
	c, err := e.controlCaller()
	if err != nil {
		return nil, err
	}
	return c.Scatter(ctx, t, args, window, expect)
}

// Describe asks a service for its contract. Errors are those of [control.Caller.Describe], and [ErrClosed].
func (e *Endpoint) Describe(ctx context.Context, service string) (*control.Contract, error) {
	c, err := e.controlCaller()
	if err != nil {
		return nil, err
	}
	return c.Describe(ctx, service)
}

// Health asks every instance of a service how it is. Errors are those of [control.Caller.Health], and [ErrClosed].
func (e *Endpoint) Health(ctx context.Context, service string, window time.Duration, expect int) ([]control.Health, error) {
	c, err := e.controlCaller()
	if err != nil {
		return nil, err
	}
	return c.Health(ctx, service, window, expect)
}

// controlCaller returns the endpoint's caller, made at the first use: many endpoints never call.
func (e *Endpoint) controlCaller() (*control.Caller, error) {
	if _, err := e.current(); err != nil {
		return nil, err
	}
	if c := e.caller.Load(); c != nil {
		return c, nil
	}
	e.topo.Lock()
	defer e.topo.Unlock()
	if c := e.caller.Load(); c != nil {
		return c, nil
	}
	l, err := e.current()
	if err != nil {
		return nil, err
	}
	c, err := control.NewCaller(l.nc, e.identity.Space, e.identity.Lifecycle, e.from,
		&control.CallerOptions{Timeout: e.opts.RequestTimeout, Logger: e.opts.Logger})
	if err != nil {
		return nil, err
	}
	e.caller.Store(c)
	return c, nil
}

// delivery calls a command of the delivery service.
func (e *Endpoint) delivery(ctx context.Context, command string, in, out any) error {
	return e.Call(ctx, control.Target{Endpoint: wire.DeliveryEndpoint, Command: command}, in, out)
}

// enrol asks for what the authority provides in spaces that are not open.
func (e *Endpoint) enrol(ctx context.Context) error {
	return e.delivery(ctx, wire.CommandEnrol, wire.EnrolRequest{Role: e.identity.Role}, new(wire.EnrolReply))
}

// ChannelList is what [Endpoint.Channels] returns.
type ChannelList struct {
	// Defaults apply to channels that do not say otherwise.
	Defaults wire.ChannelConfig
	Channels []wire.ChannelInfo
	// Partial says that more channels hold messages than are worth listing, so that only configured ones are here.
	Partial bool
}

// Channels lists the channels that have settings, and those with messages that this endpoint may read. Errors are
// those of Call.
func (e *Endpoint) Channels(ctx context.Context) (ChannelList, error) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	var list ChannelList
	for after := ""; ; {
		var page wire.ChannelsReply
		if err := e.delivery(ctx, wire.CommandChannels, wire.ChannelsRequest{After: after}, &page); err != nil {
			return ChannelList{}, err
		}
		list.Defaults = page.Defaults
		list.Channels = append(list.Channels, page.Channels...)
		list.Partial = list.Partial || page.Partial
		if page.Next == "" || page.Next <= after {
			return list, nil
		}
		after = page.Next
	}
}

// HistoryPage is one page of stored messages.
type HistoryPage struct {
	// Messages are in stored order. Settling them does nothing.
	Messages []*Delivery
	// Next is the From of the next page, 0 at the end.
	Next uint64
	// Remaining is how many stored messages of the channel followed this page.
	Remaining uint64
	// Skipped counts stored messages that do not keep to the contract.
	Skipped int
}

// History reads one page of a channel's stored messages. Errors are those of Call; permission-denied when the channel is
// outside the read list of the endpoint's grant.
func (e *Endpoint) History(ctx context.Context, req wire.HistoryRequest) (HistoryPage, error) {
	var reply wire.HistoryReply
	if err := e.delivery(ctx, wire.CommandHistory, req, &reply); err != nil {
		return HistoryPage{}, err
	}
	page := HistoryPage{
		Messages: make([]*Delivery, 0, len(reply.Messages)), Next: reply.Next, Remaining: reply.Remaining, Skipped: reply.Skipped,
	}
	for _, h := range reply.Messages {
		d, err := e.historic(req.Channel, h)
		if err != nil {
			e.events.emit(EventDropped{Reason: wire.ReasonOf(err), Subject: "history of " + req.Channel, Err: err})
			page.Skipped++
			continue
		}
		page.Messages = append(page.Messages, d)
	}
	return page, nil
}

func (e *Endpoint) historic(channel string, h wire.HistoryMessage) (*Delivery, error) {
	sender, err := wire.ParsePrincipal(h.Sender)
	if err != nil {
		return nil, err
	}
	msg, err := decode(wire.Subject{Kind: wire.KindChannel, Space: e.identity.Space, Sender: sender, Channel: channel}, h.Message)
	if err != nil {
		return nil, err
	}
	return &Delivery{
		Message: msg, Kind: wire.KindChannel, Sender: sender, Channel: channel, Sequence: h.Sequence, Time: time.UnixMilli(h.TimeMS),
	}, nil
}
