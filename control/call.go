package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// Invocation is a call with everything that can be said about it.
type Invocation struct {
	Target
	// Args are encoded as JSON; json.RawMessage is sent as it is, nil means none.
	Args any
	// ID is [A-Za-z0-9_-]{1,64}; the same one again says that it is the same request. Empty makes a fresh one.
	ID string
	// Correlation is the trace context to pass on.
	Correlation *wire.Correlation
}

// Answer is what one instance answered. Instance and Epoch are from the reply subject: the broker vouches that somebody answered who serves the
// endpoint, and that one says which instance it is.
type Answer struct {
	Instance, Epoch string
	// Data is the result, nil when there is none.
	Data json.RawMessage
	// Err is the refusal, nil when the command was done.
	Err *wire.Error
}

// Details of the errors of a call that nobody received or answered.
const (
	DetailEndpoint = "endpoint" // string: who was asked
	DetailWaited   = "waitedMS" // int64: for how long; absent when nobody received the request
)

// Call runs a command and decodes its result into out, a pointer, or nil to ignore it. Without a deadline in ctx it takes
// at most the caller's timeout.
//
// Errors are a *wire.Error: what the endpoint said, or else
//   - bad-request: the target or the arguments cannot be sent, not-executed;
//   - unavailable: nobody listens, or there is no connection, not-executed;
//   - permission-denied: the broker refused the request, not-executed (see [Caller.Denied]);
//   - deadline-exceeded or cancelled: ctx ended. The outcome is unknown, unless the request had not left;
//   - contract-mismatch: the result does not fit out, executed.
func (c *Caller) Call(ctx context.Context, t Target, args, out any) error {
	a, err := c.Invoke(ctx, Invocation{Target: t, Args: args})
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if len(a.Data) == 0 {
		a.Data = null
	}
	if err := json.Unmarshal(a.Data, out); err != nil {
		e := wire.Errorf(wire.CodeContractMismatch, "call %s.%s: decode result: %w", t.Endpoint, t.Command, err)
		e.Outcome = wire.OutcomeExecuted
		return e
	}
	return nil
}

// Invoke runs a command and returns who answered what. Its error is that of Call; when an endpoint refused, the answer
// says which instance.
func (c *Caller) Invoke(ctx context.Context, inv Invocation) (Answer, error) {
	a, err := c.invoke(ctx, inv)
	if err == nil && a.Err != nil {
		err = a.Err
	}
	if err != nil {
		return a, fmt.Errorf("call %s.%s: %w", inv.Endpoint, inv.Command, err)
	}
	return a, nil
}

func (c *Caller) invoke(ctx context.Context, inv Invocation) (Answer, error) {
	rail := wire.RailOne
	if inv.Instance != "" {
		rail = wire.RailInst
	}
	f, err := c.send(ctx, &inv, rail, c.deadline(ctx, c.timeout), replyRoom)
	if err != nil {
		return Answer{}, err
	}
	defer f.end()
	for {
		select {
		case r := <-f.replies:
			if a, ok, err := f.read(r); ok || err != nil {
				return a, err
			}
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return Answer{}, f.silent()
			}
			return Answer{}, ended(ctx, true)
		case <-f.timer.C:
			return Answer{}, f.silent()
		}
	}
}

// Cast publishes a request that nobody answers. It reports only what is known before the request leaves: whether anyone
// received it, or was permitted to, is not.
func (c *Caller) Cast(ctx context.Context, inv Invocation) error {
	if err := c.cast(ctx, &inv); err != nil {
		return fmt.Errorf("cast %s.%s: %w", inv.Endpoint, inv.Command, err)
	}
	return nil
}

func (c *Caller) cast(ctx context.Context, inv *Invocation) error {
	rail := wire.RailOne
	if inv.Instance != "" {
		rail = wire.RailInst
	}
	rt, err := c.routes.of(inv.Target, rail, true)
	if err != nil {
		return err
	}
	if err := c.identify(inv); err != nil {
		return err
	}
	f := &flight{c: c, nonce: wire.NewID(), allowed: c.deadline(ctx, c.timeout)}
	f.subject = rt.subject + f.nonce
	if err := f.enter(); err != nil {
		return err
	}
	defer f.leave()
	return f.publish(ctx, inv, rt, "")
}

// deadline is how long a request may take: what is left of ctx, or def.
func (c *Caller) deadline(ctx context.Context, def time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		def = time.Until(at)
	}
	return min(def, wire.MaxDeadline)
}

// awaitConnected waits for a connection that is being made again. A request published before would leave whenever
// that succeeds, perhaps long after its caller gave up.
func awaitConnected(ctx context.Context, nc *nats.Conn, allowed time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, allowed)
	defer cancel()
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	for !nc.IsConnected() {
		if nc.IsClosed() || nc.IsDraining() {
			return wire.Errorf(wire.CodeUnavailable, "the connection is closed")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ended(ctx, false)
			}
			return wire.Errorf(wire.CodeUnavailable, "no connection to the broker within %v", allowed)
		}
	}
	return nil
}

// noTime is the error of a request that did not leave.
func noTime(why string) *wire.Error {
	e := wire.Errorf(wire.CodeDeadlineExceeded, "%s", why)
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

// ended is the error of a call whose context has ended.
func ended(ctx context.Context, sent bool) *wire.Error {
	code, why := wire.CodeDeadlineExceeded, "no answer in time"
	if !sent {
		why = "no time left to send"
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		code, why = wire.CodeCancelled, "the caller gave up"
	}
	e := wire.Errorf(code, "%s: %w", why, ctx.Err())
	if !sent {
		e.Outcome = wire.OutcomeNotExecuted
	}
	return e
}
