package exchange

import (
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Face is one of the two listeners.
type Face string

// The faces.
const (
	Loopback Face = "loopback"
	Public   Face = "public"
)

// Kind is what a proof was of.
type Kind string

// The kinds of proof.
const (
	KindNone   Kind = "" // the request named none that could be read
	KindPerson Kind = "person"
	KindAgent  Kind = "agent"
)

// Decision is one outcome of an exchange, for the audit log. It holds no token.
type Decision struct {
	// RequestID stands in the header X-Request-Id of the answer as well, and in the log.
	RequestID string
	Face      Face
	// Peer is the address, or the /64 of an IPv6 address; see [Options.TrustedProxy].
	Peer string
	Kind Kind
	// Lifecycle is who was proved, as far as it was: nobody, an owner with the actor that was asked for, or all of it.
	Lifecycle wire.Lifecycle
	// Epoch of the grant, 0 when it was not reached.
	Epoch uint64
	// View that was asked for.
	View trust.View
	// Bound says that a key was proved, which the bearer names.
	Bound bool
	// TokenID and Expires are of the bearer that was handed out.
	TokenID string
	Expires time.Time
	// Code is empty when a bearer was handed out, and Reason as well; a refusal may have no reason.
	Code   wire.Code
	Reason trust.Reason
	// Message is the sentence that the client sees, or would see without Throttled.
	Message string
	// Status is that of the HTTP answer.
	Status int
	// Throttled says that the client sees 429 instead, because of earlier refusals.
	Throttled bool
}

// Allowed reports whether a bearer was handed out.
func (d Decision) Allowed() bool { return d.Code == "" }
