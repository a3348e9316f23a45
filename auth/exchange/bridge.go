package exchange

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// KindBridge is a proof that the program of the exchange made itself, see [Server.Bridge].
const KindBridge Kind = "bridge"

// Vouched is somebody whom the program that runs the exchange has signed in by its own means, such as the session of its web
// site. It vouches for them.
type Vouched struct {
	// Issuer and Subject say who it is: the owner is derived from both, so an issuer of the program's own keeps its people
	// apart from those of the pinned provider. Required.
	Issuer, Subject string
	// Until is the end of what the program knows. Required; no bearer outlives it.
	Until time.Time
	// Actor, View and Scope are as in the request of a person; an empty actor is the only one that there is.
	Actor string
	View  trust.View
	Scope []string
	// Life is how long the bearer should last. Default and most: 900 s.
	Life time.Duration
	// Key binds the bearer to a key of the client; nil does not.
	Key ed25519.PublicKey
}

// Bridged is a bearer that was given without a request over HTTP, as the JSON answer of POST /exchange. It prints, logs and encodes as a
// fixed word.
type Bridged struct{ reveal func() json.RawMessage }

// JSON returns the answer, the bearer in it; nil for the zero value. It is for the client whom the program vouches for, and for nobody else.
func (b Bridged) JSON() json.RawMessage {
	if b.reveal == nil {
		return nil
	}
	return b.reveal()
}

// Format writes a fixed word, whatever the verb.
func (Bridged) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[bearer]") }

// LogValue returns a fixed word.
func (Bridged) LogValue() slog.Value { return slog.StringValue("[bearer]") }

// MarshalText returns a fixed word.
func (Bridged) MarshalText() ([]byte, error) { return []byte("[bearer]"), nil }

// Bridge gives a bearer to somebody whom the caller vouches for. Everything but the identity token is checked as for a
// request: the grant, what is above it, the limits of an owner and an actor. It needs no Run. The decision goes to OnDecision.
//
// Errors: bad-request for what is incomplete; those of [auth.Authority.AdmitPerson]; resource-exhausted with reason
// too-many-requests.
func (s *Server) Bridge(ctx context.Context, v Vouched) (Bridged, error) {
	d := Decision{Face: Loopback, Kind: KindBridge, View: v.View}
	body, err := s.bridge(ctx, v, &d)
	if err != nil {
		a := refuse(err, false)
		d.Code, d.Reason, d.Message, d.Status = a.decision.Code, a.decision.Reason, a.decision.Message, a.status
	}
	if s.opts.OnDecision != nil {
		s.opts.OnDecision(ctx, d)
	}
	if err != nil {
		return Bridged{}, err
	}
	return Bridged{reveal: func() json.RawMessage { return body }}, nil
}

func (s *Server) bridge(ctx context.Context, v Vouched, d *Decision) ([]byte, error) {
	if v.Life == 0 {
		v.Life = bearer.MaxHumanLife
	}
	if v.Issuer == "" || v.Subject == "" || v.Until.IsZero() || v.Life < 0 || v.Key != nil && len(v.Key) != ed25519.PublicKeySize {
		return nil, wire.Errorf(wire.CodeBadRequest, "vouch for somebody: issuer, subject and end are required, and a key has %d bytes", ed25519.PublicKeySize)
	}
	return s.loopback.grant(ctx, request{
		kind: KindPerson, actor: v.Actor, view: v.View, scope: v.Scope, life: min(v.Life, bearer.MaxHumanLife), key: v.Key,
		vouched: &oidc.Claims{Issuer: v.Issuer, Subject: v.Subject, Expires: v.Until},
	}, d)
}
