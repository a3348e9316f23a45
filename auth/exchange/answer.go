package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	typeJSON   = "application/json"
	typeForm   = "application/x-www-form-urlencoded"
	typeKeySet = "application/jwk-set+json" // RFC 7517 section 8.5.1

	detailLimit  = "limit"      // which limit is in the way
	detailRetry  = "retryAfter" // seconds
	detailSpoken = "spoken"     // the text is for the client
	detailStatus = "status"     // that of the answer, in place of that of the code
	detailOAuth  = "oauth"      // the error of RFC 6749 section 5.2 and of what extends it
)

// answer is what goes back, and what is said about it elsewhere.
type answer struct {
	status    int
	body      []byte
	kind      string // content type, default JSON
	keep      bool   // may be cached
	retry     int    // seconds, 0 for none
	allow     string // the methods of a 405
	challenge string // of a 401
	hangUp    bool   // the rest of the request is not read
	slow      bool   // the body did not come in time, which counts against the peer

	err      error    // why it is a refusal
	decision Decision // as far as it is known where the answer is made
}

// refusalJSON is a refusal as this package's own form of the exchange has it.
type refusalJSON struct {
	Error string `json:"error"`
	Code  string `json:"code"`
	Limit string `json:"limit,omitempty"`
	Retry int    `json:"retryAfter,omitempty"`
}

// refusalForm is the same for the form of RFC 8693, whose section 2.2.2 takes it from RFC 6749 section 5.2.
type refusalForm struct {
	Error       string `json:"error"`
	Description string `json:"error_description"`
	Code        string `json:"code"`
	Limit       string `json:"limit,omitempty"`
	Retry       int    `json:"retryAfter,omitempty"`
}

// refuse makes the answer to an error. The error itself stays here; what crosses is the sentence of a denial, which was
// written for the caller, or the fixed sentence of the code.
func refuse(err error, form bool) answer {
	status := statusOf(err)
	if form && status >= 400 && status < 500 && status != http.StatusTooManyRequests && trust.ReasonOf(err) != trust.ReasonCapability {
		status = http.StatusBadRequest // RFC 6749 section 5.2, RFC 8693 section 2.2.2
	}
	return refuseAs(status, err, form)
}

// refuseAs is refuse with a status of its own.
func refuseAs(status int, err error, form bool) answer {
	code, reason := codeOf(err), trust.ReasonOf(err)
	a := answer{status: status, err: err}
	a.retry, _ = detail[int](err, detailRetry)
	switch {
	case a.retry != 0 || status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests:
	case reason == trust.ReasonBusy:
		a.retry = 1
	default:
		a.retry = 5
	}
	r := refusalJSON{Error: sentence(err), Code: string(reason), Retry: a.retry}
	if reason == "" {
		r.Code = string(code)
	}
	r.Limit, _ = detail[string](err, detailLimit)
	a.decision.Code, a.decision.Reason, a.decision.Message = code, reason, r.Error
	if form {
		a.body = encode(refusalForm{Error: oauthName(status, reason, err), Description: description(r.Error), Code: r.Code, Limit: r.Limit, Retry: r.Retry})
	} else {
		a.body = encode(r)
	}
	if a.status == http.StatusUnauthorized {
		a.challenge = challenge(reason)
	}
	return a
}

// challenge is what RFC 9110 section 11.6.1 wants with a 401.
func challenge(r trust.Reason) string {
	switch r {
	case trust.ReasonKeyProof, trust.ReasonReplayed:
		return `DPoP error="invalid_dpop_proof", algs="EdDSA"` // RFC 9449 section 7.1
	case trust.ReasonCapability:
		return `Bearer realm="cotal capability"`
	}
	return `Bearer realm="cotal"`
}

// codeOf is the code of an error as it crosses: what was not answered in time was not done, because no bearer left.
func codeOf(err error) wire.Code {
	switch code := wire.CodeOf(err); {
	case code == wire.CodeDeadlineExceeded || code == wire.CodeCancelled:
		return wire.CodeUnavailable
	case !code.Known():
		return wire.CodeInternal
	default:
		return code
	}
}

// statusOf gives a denial by the grants 403 whatever state they are in: a client can do nothing about the state.
func statusOf(err error) int {
	code, reason := codeOf(err), trust.ReasonOf(err)
	if status, ok := detail[int](err, detailStatus); ok {
		return status
	}
	if reason == trust.ReasonBusy {
		return http.StatusServiceUnavailable
	}
	switch code {
	case wire.CodeNotFound, wire.CodeFailedPrecondition, wire.CodeConflict, wire.CodeAlreadyExists:
		if reason != "" {
			return http.StatusForbidden
		}
		return http.StatusConflict
	}
	return code.HTTP()
}

// speak makes an error without a reason whose text is for the client.
func speak(code wire.Code, format string, args ...any) *wire.Error {
	e := wire.Errorf(code, format, args...)
	e.Details = map[string]any{detailSpoken: true}
	return e
}

func spoken(err error) bool {
	yes, _ := detail[bool](err, detailSpoken)
	return yes
}

// sentence is what the client reads. Only what was made with a reason, or here, was written for it.
func sentence(err error) string {
	e, ok := errors.AsType[*wire.Error](err)
	code := codeOf(err)
	switch {
	case ok && code != wire.CodeInternal && (trust.ReasonOf(err) != "" || spoken(err)):
		return e.Error()
	case code == wire.CodeUnavailable:
		return "what decides this cannot be asked at this moment, and nothing was handed out; try again"
	}
	return code.Sentence()
}

// oauthName is the error code that RFC 6749 section 5.2, RFC 8693 section 2.2.2 or RFC 9449 section 5 has for a refusal. A
// token that is not accepted is invalid_request there, not invalid_grant.
func oauthName(status int, reason trust.Reason, err error) string {
	if name, ok := detail[string](err, detailOAuth); ok {
		return name
	}
	switch reason {
	case trust.ReasonKeyProof, trust.ReasonReplayed:
		return "invalid_dpop_proof"
	case trust.ReasonScope:
		return "invalid_scope"
	case trust.ReasonCapability:
		return "invalid_client"
	}
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return "temporarily_unavailable"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request"
}

// description leaves out what RFC 6749 section 5.2 does not let an error_description hold.
func description(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case r == '\\' || r < ' ' || r > '~':
			return '?'
		}
		return r
	}, s)
}

// detail reads a detail of the error that carries the code.
func detail[T any](err error, name string) (T, bool) {
	var none T
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return none, false
	}
	v, ok := e.Details[name].(T)
	return v, ok
}

// bad refuses a request for its form.
func bad(format string, args ...any) *wire.Error {
	return trust.Deny(wire.CodeBadRequest, trust.ReasonMalformed, format, args...)
}

// badAs is bad with the error code of the form of RFC 8693.
func badAs(oauth, format string, args ...any) *wire.Error {
	e := bad(format, args...)
	e.Details[detailOAuth] = oauth
	return e
}

func tooMany(limit string, allowed, wait int) *wire.Error {
	what := map[string]string{
		"owner": "bearers of one owner", "actor": "bearers of one actor", "peer": "requests from one address", "capability": "wrong capabilities",
		"refusals": "refused requests from one address, though a valid credential still passes",
	}[limit]
	e := trust.Deny(wire.CodeResourceExhausted, trust.ReasonTooMany, "over the limit of %d %s per minute; try again in %d s", allowed, what, wait)
	e.Details[detailLimit], e.Details[detailRetry] = limit, wait
	return e
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("exchange: encode %T: %v", v, err)) // only strings, numbers and lists of them
	}
	return append(data, '\n')
}

// write sends the answer. What comes back on one connection is JSON whatever happened, and never for a page of another origin.
func (a answer) write(w http.ResponseWriter, r *http.Request, id string) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Request-Id", id)
	h.Set("Cache-Control", "no-store")
	if a.keep {
		h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(bearer.JWKSMaxAge/time.Second)))
	}
	kind := a.kind
	if kind == "" {
		kind = typeJSON
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	for _, f := range []struct{ name, value string }{{"Allow", a.allow}, {"WWW-Authenticate", a.challenge}} {
		if f.value != "" {
			h.Set(f.name, f.value)
		}
	}
	if a.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(a.retry))
	}
	if a.hangUp {
		h.Set("Connection", "close")
	}
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.body) // a client that is gone needs no answer
	}
}
