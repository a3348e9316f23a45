package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// exchangePath is below the base address of an exchange.
	exchangePath = "/exchange"
	// clockTolerance is by how much two clocks may differ without a proof being refused for it.
	clockTolerance = 10 * time.Second
	// maxSentence bounds the sentence of a refusal, in bytes.
	maxSentence = 2048
)

// ExchangeOptions say where the exchange is.
type ExchangeOptions struct {
	// URL is the base address, such as https://mesh.example; /exchange is appended. It is required.
	URL string
	// Capability returns the capability of a loopback exchange, which is sent as "Authorization: Bearer <capability>". It is asked for each
	// request anew, because a node that starts again has another one. Nil sends none.
	Capability func(ctx context.Context) (string, error)
	// HTTP asks the exchange; nil means a client of its own.
	HTTP *http.Client
	// Patience bounds one call with all its tries. Default 20 s, in which a cluster finds a new leader; the context may end it sooner.
	Patience time.Duration
}

// Exchange asks a token exchange for bearers that are bound to one key, which it makes and which never leaves the process. It prints and logs
// as its address.
type Exchange struct {
	url        string
	capability func(ctx context.Context) (string, error)
	hc         *http.Client
	patience   time.Duration
	key        *signer.Local
	ahead      atomic.Int64 // how far the exchange's clock is ahead of ours, a duration; set once a proof was refused for it
}

// NewExchange returns a client with a key of its own. Its error is bad-request for an address that cannot be used.
func NewExchange(opts *ExchangeOptions) (*Exchange, error) {
	if opts == nil || opts.URL == "" {
		return nil, wire.Errorf(wire.CodeBadRequest, "use exchange: no address given")
	}
	if err := checkAddress(opts.URL); err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "use exchange: %w", err)
	}
	if strings.Contains(opts.URL, "?") {
		return nil, wire.Errorf(wire.CodeBadRequest, "use exchange: address %q has a query", shown(opts.URL))
	}
	key, err := signer.Generate(signer.User)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "use exchange: %v", err)
	}
	x := &Exchange{url: strings.TrimSuffix(opts.URL, "/") + exchangePath, capability: opts.Capability, hc: client(opts.HTTP), patience: opts.Patience, key: key}
	if x.patience <= 0 {
		x.patience = defaultPatience
	}
	return x, nil
}

// UserKey returns the public nkey that the bearers of this exchange are bound to.
func (x *Exchange) UserKey() string { return x.key.Public() }

// Format writes the address.
func (x *Exchange) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, x.describe()) }

// LogValue returns the address.
func (x *Exchange) LogValue() slog.Value { return slog.StringValue(x.describe()) }

func (x *Exchange) describe() string { return fmt.Sprintf("[exchange %q]", shown(x.url)) }

// HumanRequest asks for the bearer of a person.
type HumanRequest struct {
	// IDToken returns the proof of the identity provider. It is a function so that a request prints without it.
	IDToken func() string
	// Actor is the name to act under, one that the person was granted. Empty leaves the choice to the exchange.
	Actor string
	// View asks for more than an agent's rights; most have none.
	View trust.View
	// Scope narrows what the grant holds; empty asks for all of it.
	Scope []string
	// TTL is how long the bearer should last, rounded up to seconds. Zero leaves it to the exchange, which also bounds it.
	TTL time.Duration
}

// AgentRequest asks for the bearer of an agent.
type AgentRequest struct {
	// Owner and Actor name the agent.
	Owner, Actor string
	// ActorToken returns the agent's secret. It is a function so that a request prints without it.
	ActorToken func() string
	// TTL is as in [HumanRequest].
	TTL time.Duration
}

// exchangeRequest is the body of a request.
type exchangeRequest struct {
	IDPToken   string   `json:"idpToken,omitempty"`
	Actor      string   `json:"actor,omitempty"`
	Owner      string   `json:"owner,omitempty"`
	ActorToken string   `json:"actorToken,omitempty"`
	TTL        int64    `json:"ttlSec,omitempty"`
	View       string   `json:"view,omitempty"`
	Scope      []string `json:"scope,omitempty"`
}

// Human asks for the bearer of a person. It tries again for a while when the exchange cannot be reached or has no room, never after a
// refusal.
//
// Errors carry the code and, in [trust.ReasonOf], the reason that the exchange gave; unavailable when it could not be asked or when
// what answered is no exchange; the code of ctx when that ended.
func (x *Exchange) Human(ctx context.Context, req HumanRequest) (Bearer, error) {
	if req.IDToken == nil {
		return Bearer{}, wire.Errorf(wire.CodeBadRequest, "exchange token for %q: no id token given", clip(req.Actor))
	}
	return x.bearer(ctx, exchangeRequest{IDPToken: req.IDToken(), Actor: req.Actor, View: string(req.View), Scope: req.Scope, TTL: wholeSeconds(req.TTL)})
}

// Agent asks for the bearer of an agent. Tries and errors are those of [Exchange.Human].
func (x *Exchange) Agent(ctx context.Context, req AgentRequest) (Bearer, error) {
	if req.ActorToken == nil {
		return Bearer{}, wire.Errorf(wire.CodeBadRequest, "exchange token for %q: no actor token given", clip(req.Actor))
	}
	return x.bearer(ctx, exchangeRequest{Owner: req.Owner, Actor: req.Actor, ActorToken: req.ActorToken(), TTL: wholeSeconds(req.TTL)})
}

func wholeSeconds(d time.Duration) int64 { return int64((max(d, 0) + time.Second - 1) / time.Second) }

func (x *Exchange) bearer(ctx context.Context, req exchangeRequest) (Bearer, error) {
	b, err := again(ctx, x.patience, func(ctx context.Context) (Bearer, error) {
		was := x.ahead.Load()
		b, err := x.try(ctx, req)
		if trust.ReasonOf(err) == trust.ReasonKeyProof && x.ahead.Load() != was {
			return x.try(ctx, req)
		}
		return b, err
	})
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) && trust.ReasonOf(err) == "" {
		return Bearer{}, wire.Errorf(wire.CodeOf(ctx.Err()), "exchange token for %q: %w (%v)", clip(req.Actor), ctx.Err(), err)
	}
	return b, err
}

// try asks once, with a proof of its own.
func (x *Exchange) try(ctx context.Context, req exchangeRequest) (Bearer, error) {
	proof, err := bearer.Prove(ctx, x.key, http.MethodPost, x.url, time.Now().Add(time.Duration(x.ahead.Load())))
	if err != nil {
		return Bearer{}, err
	}
	header := http.Header{}
	header.Set(bearer.ProofHeader, proof)
	if x.capability != nil {
		word, err := x.capability(ctx)
		if err != nil {
			return Bearer{}, err
		}
		header.Set("Authorization", "Bearer "+word)
	}
	a, err := postJSON(ctx, x.hc, x.url, header, req)
	if err != nil {
		return Bearer{}, passing{err: err}
	}
	if a.status == http.StatusOK {
		return x.read(a, req)
	}
	err = refused(a, req.Actor)
	if at, parseErr := http.ParseTime(a.header.Get("Date")); parseErr == nil && trust.ReasonOf(err) == trust.ReasonKeyProof {
		if d := time.Until(at); (d - time.Duration(x.ahead.Load())).Abs() > clockTolerance {
			x.ahead.Store(int64(d)) // the next proof is dated by the clock that it is compared with
		}
	}
	return Bearer{}, err
}

// exchangeError is the body of a refusal.
type exchangeError struct {
	Error      string  `json:"error"`
	Code       string  `json:"code"`
	RetryAfter float64 `json:"retryAfter"`
}

// refused makes the exchange's refusal an error of ours, marked as passing when asking again may help.
func refused(a answer, actor string) error {
	var e exchangeError
	if wire.Decode(a.body, &e, maxAnswer) != nil || e.Error == "" || len(e.Error) > maxSentence {
		err := wire.Errorf(wire.CodeUnavailable, "exchange token for %q: %s", clip(actor), a.describe())
		if a.status == http.StatusBadGateway || a.status == http.StatusServiceUnavailable || a.status == http.StatusGatewayTimeout {
			return passing{err, a.retryAfter()}
		}
		return err
	}
	code, reason := meaning(a.status, e.Code)
	after := max(a.retryAfter(), seconds(e.RetryAfter))
	err := trust.Deny(code, reason, "exchange token for %q: %s", clip(actor), e.Error)
	if after > 0 {
		err.Details["retryAfter"] = after.Seconds()
	}
	switch {
	case reason == trust.ReasonIDP && after == 0:
		return err // the exchange has tried already: everybody who asks again makes it worse
	case a.status == http.StatusTooManyRequests, a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable,
		a.status == http.StatusGatewayTimeout:
		return passing{err, after}
	}
	return err
}

// meaning is the code and reason of a refusal. An exchange that has no reason to name says a code of ours instead; a name that this
// program does not know is kept as a reason, if it has the form of one.
func meaning(status int, name string) (wire.Code, trust.Reason) {
	reason := trust.Reason(name)
	if len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		reason = ""
	}
	if code := wire.Code(name); code.Known() && reason != trust.ReasonExpired && reason != trust.ReasonUnavailable {
		return code, ""
	}
	switch status {
	case http.StatusBadRequest:
		return wire.CodeBadRequest, reason
	case http.StatusUnauthorized:
		return wire.CodeUnauthenticated, reason
	case http.StatusForbidden:
		return wire.CodePermissionDenied, reason
	case http.StatusNotFound:
		return wire.CodeNotFound, reason
	case http.StatusConflict:
		if reason == trust.ReasonSuperseded || reason == trust.ReasonRetiring {
			return wire.CodeConflict, reason
		}
		return wire.CodeFailedPrecondition, reason
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return wire.CodeResourceExhausted, reason
	case http.StatusInternalServerError:
		return wire.CodeInternal, reason
	case http.StatusNotImplemented:
		return wire.CodeUnimplemented, reason
	}
	return wire.CodeUnavailable, reason
}
