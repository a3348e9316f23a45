package endpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

// ErrClosed is returned by every call on an endpoint that was closed.
var ErrClosed error = errClosed

var errClosed = wire.Errorf(wire.CodeUnavailable, "endpoint is closed")

// ErrSettled is returned when a delivery is settled a second time.
var ErrSettled error = wire.Errorf(wire.CodeFailedPrecondition, "delivery is already acknowledged, returned or terminated")

// Causes inside the package; none of them leaves it.
var (
	errRetired      = errors.New("link is retired")
	errNoResponders = errors.New("no responders")
	errLinkClosed   = errors.New("link is closed")
	errNoAnswer     = errors.New("no answer")
)

// act describes what a call does, for its errors.
type act struct {
	verb    string // "post to channel"
	operand string
	subject string
	missing string // the grant without which the broker denies it
}

// denied is the error of an act the broker refused: it names subject, principal and missing grant, and how to ask.
func (e *Endpoint) denied(a act) *wire.Error {
	id := e.identity
	err := wire.Errorf(wire.CodePermissionDenied, "%s %q: the broker denies %q to %s, whose credential lacks %s",
		a.verb, a.operand, a.subject, id.Principal, a.missing)
	err.Outcome = wire.OutcomeNotExecuted
	err.Details = map[string]any{
		"subject": a.subject, "principal": id.Principal.String(), "missing": a.missing,
		"ask": fmt.Sprintf("ask an operator of space %q to grant %s to %s", id.Space, a.missing, id.Principal),
	}
	return err
}

// failure translates what an exchange returned. sent says whether the broker may have received it.
func (e *Endpoint) failure(a act, err error, sent bool) *wire.Error {
	var out *wire.Error
	switch {
	case errors.As(err, &out):
		return out
	case errors.Is(err, nats.ErrPermissionViolation):
		return e.denied(a)
	case errors.Is(err, errNoResponders):
		return wire.Errorf(wire.CodeUnavailable, "%s %q: nothing in space %q takes it", a.verb, a.operand, e.identity.Space)
	case errors.Is(err, nats.ErrMaxPayload):
		out = wire.Errorf(wire.CodeResourceExhausted, "%s %q: larger than the broker accepts", a.verb, a.operand)
		out.Outcome = wire.OutcomeNotExecuted
		return out
	}
	code, why := wire.CodeUnavailable, "connection closed"
	switch {
	case errors.Is(err, errLinkClosed) && !sent:
		return errClosed
	case errors.Is(err, errLinkClosed):
		code, why = wire.CodeDeadlineExceeded, "the endpoint was closed before the broker answered"
	case errors.Is(err, context.Canceled):
		code, why = wire.CodeCancelled, "cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errNoAnswer):
		code, why = wire.CodeDeadlineExceeded, "no answer from the broker in time"
		if !sent {
			code, why = wire.CodeUnavailable, "not sent, the broker could not be reached in time"
		}
	case !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrConnectionDraining):
		code, why = wire.CodeInternal, err.Error()
	}
	out = wire.Errorf(code, "%s %q: %s", a.verb, a.operand, why)
	out.Outcome = wire.OutcomeUnknown
	if !sent {
		out.Outcome = wire.OutcomeNotExecuted
	}
	return out
}

// connectError translates what nats.Connect returned.
func connectError(where string, err error) error {
	var we *wire.Error
	var unknown x509.UnknownAuthorityError
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &we):
		return we
	case errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAccountAuthExpired):
		return wire.Errorf(wire.CodeExpired, "connect to broker %q: credential expired", where)
	case isAuthError(err):
		return wire.Errorf(wire.CodeUnauthenticated, "connect to broker %q: credential refused", where)
	case errors.Is(err, nats.ErrSecureConnRequired):
		return wire.Errorf(wire.CodeFailedPrecondition, "connect to broker %q: it requires TLS, use tls://", where)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return wire.Errorf(wire.CodeFailedPrecondition, "connect to broker %q: it does not speak TLS", where)
	case errors.As(err, &unknown), errors.As(err, &verify), errors.As(err, &record):
		return wire.Errorf(wire.CodeFailedPrecondition, "connect to broker %q: TLS: %v", where, err)
	case errors.Is(err, context.Canceled):
		return wire.Errorf(wire.CodeUnavailable, "connect to broker %q: cancelled", where)
	case errors.Is(err, nats.ErrNoServers):
		return wire.Errorf(wire.CodeUnavailable, "nothing answers at %q", where)
	}
	return wire.Errorf(wire.CodeUnavailable, "connect to broker %q: %v", where, err)
}

// isAuthError reports whether the broker refused the credential, rather than the connection.
func isAuthError(err error) bool {
	for _, target := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// violation takes apart a permission violation of the broker: the subject, and whether it was a subscription.
func violation(err error) (subject string, subscribe, ok bool) {
	subject, ok = control.DeniedSubject(err)
	return subject, ok && strings.Contains(err.Error(), "Violation for Subscription"), ok
}
