package space

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// Server error codes that nats.go has no name for.
const (
	codeAccountResources = 10002
	codeNoResources      = 10023
	codeMaxStreams       = 10027
	codeMemory           = 10028
	codeStorage          = 10047
	codeStreamFull       = 10077
	codeWrongLastID      = 10070
	codeAtomicConflict   = 10176
)

// figuresTimeout bounds asking for the account's figures, which the credential may not permit.
const figuresTimeout = 2 * time.Second

// translate turns an error of the broker's client into one of the wire's codes. what says what was tried.
func translate(what string, err error) error {
	var we *wire.Error
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &we):
		return fmt.Errorf("%s: %w", what, err)
	case errors.As(err, &api):
		return wire.Errorf(apiCode(api), "%s: %s", what, api.Description)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrReconnectBufExceeded):
		e := wire.Errorf(wire.CodeUnavailable, "%s: %v", what, err)
		e.Outcome = wire.OutcomeNotExecuted
		return e
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrTimeout):
		e := wire.Errorf(wire.CodeDeadlineExceeded, "%s: %v", what, err)
		e.Outcome = wire.OutcomeUnknown
		return e
	}
	return wire.Errorf(wire.CodeInternal, "%s: %v", what, err)
}

func apiCode(e *jetstream.APIError) wire.Code {
	switch e.ErrorCode {
	case jetstream.JSErrCodeConsumerNotFound, jetstream.JSErrCodeMessageNotFound:
		return wire.CodeNotFound
	case jetstream.JSErrCodeStreamNotFound:
		return wire.CodeFailedPrecondition
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant, codeWrongLastID, codeAtomicConflict:
		return wire.CodeConflict
	case codeAccountResources, codeNoResources, codeMaxStreams, codeMemory, codeStorage, codeStreamFull,
		jetstream.JSErrCodeMaximumConsumersLimit, jetstream.JSErrCodeStreamMessageExceedsMaximum,
		jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return wire.CodeResourceExhausted
	}
	switch {
	case e.Code == 503:
		return wire.CodeUnavailable
	case e.Code == 400:
		return wire.CodeFailedPrecondition
	}
	return wire.CodeInternal
}

// shortage is translate with figures when a limit was met: what the stream needed, what the account uses and what
// it is allowed. Where the account has no limit of its own the broker's store is what is full, and only the broker
// knows that figure.
func shortage(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig, what string, cause error) error {
	err := translate(what, cause)
	var e *wire.Error
	if !errors.Is(err, wire.ErrExhausted) || !errors.As(err, &e) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), figuresTimeout)
	defer cancel()
	info, ierr := js.AccountInfo(ctx)
	if ierr != nil {
		e.Message += "; the account's limits do not fit what the broker has left"
		e.Details = map[string]any{"resource": "account", "needed": c.MaxBytes * int64(max(c.Replicas, 1))}
		return e
	}
	resource, used, allowed, needed := "storage", info.ReservedStore, info.Limits.MaxStore, c.MaxBytes*int64(max(c.Replicas, 1))
	var api *jetstream.APIError
	switch {
	case errors.As(cause, &api) && api.ErrorCode == codeMaxStreams:
		resource, used, allowed, needed = "streams", uint64(info.Streams), int64(info.Limits.MaxStreams), 1
	case c.Storage == jetstream.MemoryStorage:
		resource, used, allowed = "memory", info.ReservedMemory, info.Limits.MaxMemory
	}
	e.Details = map[string]any{"resource": resource, "needed": needed, "used": used}
	if allowed < 0 {
		e.Message += fmt.Sprintf(": needs %d of %s, the space reserves %d and the broker has no room for more", needed, resource, used)
		return e
	}
	e.Details["allowed"] = allowed
	e.Message += fmt.Sprintf(": needs %d of %s, %d used of %d allowed", needed, resource, used, allowed)
	return e
}
