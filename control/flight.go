package control

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// flight is a call, a scatter or a cast on its way.
type flight struct {
	c        *Caller
	on       *line
	subject  string // of the request
	nonce    string // its last token
	id       string
	endpoint string
	instance string // "" when any may answer
	allowed  time.Duration
	replies  chan reply
	timer    *time.Timer // fires after allowed
}

// reply is what reaches a flight: a message from an instance, or the reason why none will come.
type reply struct {
	from wire.ReplySubject
	data []byte
	err  *wire.Error
}

// replyRoom is how many replies a call keeps while it decodes one: more than one comes only when somebody is wrong.
const replyRoom = 4

func newFlight(room int) *flight {
	f := &flight{replies: make(chan reply, room), timer: time.NewTimer(time.Hour)}
	f.timer.Stop()
	return f
}

// send registers and publishes a request. Room is how many replies may wait; end must follow.
func (c *Caller) send(ctx context.Context, inv *Invocation, rail wire.Rail, allowed time.Duration, room int) (*flight, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ended(ctx, false)
	case allowed <= 0:
		return nil, noTime("no time left to send")
	}
	rt, err := c.routes.of(inv.Target, rail, false)
	if err != nil {
		return nil, err
	}
	if err := c.identify(inv); err != nil {
		return nil, err
	}
	f := c.takeFlight(room)
	f.c, f.nonce, f.id, f.endpoint, f.instance, f.allowed = c, wire.NewID(), inv.ID, inv.Endpoint, inv.Instance, allowed
	f.subject = rt.subject + f.nonce
	if err := f.enter(); err != nil {
		return nil, err
	}
	f.timer.Reset(allowed)
	if err := f.publish(ctx, inv, rt, rt.reply+f.nonce); err != nil {
		f.end()
		return nil, err
	}
	return f, nil
}

// identify gives the request an ID, or checks the one it has.
func (c *Caller) identify(inv *Invocation) error {
	if inv.ID == "" {
		inv.ID = c.nextID()
	}
	if !validID(inv.ID) {
		return wire.Errorf(wire.CodeBadRequest, "request id %q is not [A-Za-z0-9_-]{1,%d}", clip(inv.ID), wire.MaxToken)
	}
	return nil
}

// takeFlight reuses one of the caller's finished flights. The pool is the caller's own: channels and timers belong to the
// synctest bubble they were made in.
func (c *Caller) takeFlight(room int) *flight {
	if room == replyRoom {
		if f, ok := c.flights.Get().(*flight); ok {
			return f
		}
	}
	return newFlight(room)
}

// end forgets the request. No reply is pushed afterwards, so the flight can serve another.
func (f *flight) end() {
	c := f.c
	f.leave()
	f.timer.Stop()
	for len(f.replies) > 0 {
		<-f.replies
	}
	if cap(f.replies) == replyRoom {
		*f = flight{replies: f.replies, timer: f.timer}
		c.flights.Put(f)
	}
}

// enter registers the flight on the newest connection.
func (f *flight) enter() error {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return wire.Errorf(wire.CodeUnavailable, "the caller is closed")
	case c.deaf != nil:
		e := *c.deaf
		e.Outcome = wire.OutcomeNotExecuted
		return &e
	case len(c.lines) == 0:
		return wire.Errorf(wire.CodeUnavailable, "every connection of the caller is closed")
	}
	f.on = c.lines[len(c.lines)-1]
	f.on.calls++
	c.waiting[f.nonce] = f
	return nil
}

func (f *flight) leave() {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, f.nonce)
	f.on.calls--
	if f.on.calls == 0 && f.on.leaving != nil {
		close(f.on.leaving)
	}
}

// push hands a reply over, unless more are waiting than there can rightly be. The caller's lock is held.
func (f *flight) push(r reply) {
	select {
	case f.replies <- r:
	default:
	}
}

// read decodes a reply. It is not ok when it is a reply to another request. What cannot be decoded is an error: it came
// under the nonce of this request, so nothing better will.
func (f *flight) read(r reply) (a Answer, ok bool, err error) {
	if r.err != nil {
		return Answer{}, false, r.err
	}
	env, err := wire.DecodeReply(r.data)
	if err != nil {
		return Answer{}, false, wire.Errorf(wire.CodeInternal, "instance %q of endpoint %q sent what is no reply: %w", r.from.Instance, f.endpoint, err)
	}
	if env.ID != f.id {
		f.c.log.Debug("reply names another request", logkey.RequestID, f.id)
		return Answer{}, false, nil
	}
	a = Answer{Instance: r.from.Instance, Epoch: r.from.Epoch, Data: env.Data, Err: env.Error}
	if a.Err != nil && a.Err.Outcome == "" {
		a.Err.Outcome = wire.OutcomeUnknown
	}
	return a, true, nil
}

// unheard is the error of a request that no instance received.
func (f *flight) unheard() *wire.Error {
	e := wire.Errorf(wire.CodeUnavailable, "no endpoint %q is listening", f.endpoint)
	if f.instance != "" {
		e = wire.Errorf(wire.CodeUnavailable, "no instance %q of endpoint %q is listening", f.instance, f.endpoint)
	}
	e.Details = map[string]any{DetailEndpoint: f.endpoint}
	return e
}

// silent is the error of a request that got no answer in the time that it was given.
func (f *flight) silent() *wire.Error {
	e := wire.Errorf(wire.CodeDeadlineExceeded, "no answer within %v: %w", f.allowed.Round(time.Millisecond), context.DeadlineExceeded)
	e.Details = map[string]any{DetailEndpoint: f.endpoint, DetailWaited: f.allowed.Round(time.Millisecond).Milliseconds()}
	return e
}

// publish encodes and sends. With a reply subject the broker says there when nobody listens.
func (f *flight) publish(ctx context.Context, inv *Invocation, rt *route, reply string) error {
	b := takeBuffer()
	defer b.free()
	data, err := rt.encode(b, inv, f.allowed)
	if err != nil {
		return err
	}
	nc := f.on.nc
	if !nc.IsConnected() {
		if err := awaitConnected(ctx, nc, f.allowed); err != nil {
			return err
		}
	}
	if reply == "" {
		err = nc.Publish(f.subject, data)
	} else {
		err = nc.PublishRequest(f.subject, reply, data)
	}
	if err != nil {
		return connError(err)
	}
	return nil
}

// encode makes the request of an invocation. The bytes are good until b is freed.
func (rt *route) encode(b *buffer, inv *Invocation, allowed time.Duration) ([]byte, error) {
	req := rt.request
	req.ID, req.DeadlineMS, req.Correlation = inv.ID, max(1, allowed.Milliseconds()), inv.Correlation
	args, err := b.value(inv.Args)
	if err == nil {
		req.Args = args
		err = b.envelope(&req, len(args), wire.MaxRequest)
	}
	if err != nil {
		return nil, asRefusal(err)
	}
	return b.out, nil
}
