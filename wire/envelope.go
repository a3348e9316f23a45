package wire

import (
	"encoding/json"
	"time"
)

// EnvelopeVersion is the version of requests and replies. History: 1, 2026-09, first edition.
const EnvelopeVersion = 1

// ClassEphemeral is the class of every request: nothing of it is stored, and asking again is the recovery.
const ClassEphemeral = "ephemeral"

// MaxDeadline bounds a request's deadline.
const MaxDeadline = time.Hour

// Request asks an endpoint to run a command. The caller claims every field; CheckRequest ties the claims to the subject,
// which the broker vouches for.
type Request struct {
	V             int             `json:"v"`  // EnvelopeVersion
	ID            string          `json:"id"` // [A-Za-z0-9_-]{1,64}, chosen by the caller, the same when it repeats a request
	Op            Op              `json:"op"`
	Class         string          `json:"class"`         // ClassEphemeral
	ReplyExpected bool            `json:"replyExpected"` // false: the responder must not answer
	Target        *Target         `json:"target,omitempty"`
	Bind          *Bind           `json:"bind,omitempty"`
	Args          json.RawMessage `json:"args,omitempty"` // an object, checked against the command's input schema
	From          EndpointRef     `json:"from"`
	DeadlineMS    int64           `json:"deadlineMs,omitempty"` // time the caller allows, 1 ms to MaxDeadline; 0 only if no reply is expected
	Correlation   *Correlation    `json:"correlation,omitempty"`
}

// Op names the command and the contract the caller read. Both digests are "sha256:" and 64 of [0-9a-f]; describe and
// health take none.
type Op struct {
	Endpoint     string `json:"endpoint"`
	Command      string `json:"command"`
	InputDigest  string `json:"inputDigest,omitempty"`
	OutputDigest string `json:"outputDigest,omitempty"`
}

// Target names the lifecycle a command acts on, for the modes owner, any and exact.
type Target struct {
	Owner        string `json:"owner"`
	Actor        string `json:"actor"`
	LifecycleUID UID    `json:"lifecycleUid,omitempty"`
}

// Bind makes any other instance or epoch refuse the request before it does anything.
type Bind struct {
	InstanceID string `json:"instanceId"`
	Epoch      string `json:"epoch"`
}

// Correlation carries W3C Trace Context, without control characters.
type Correlation struct {
	Traceparent string `json:"traceparent,omitempty"` // at most 256 bytes
	Tracestate  string `json:"tracestate,omitempty"`  // at most 512 bytes
	Baggage     string `json:"baggage,omitempty"`     // at most 8,192 bytes
}

func (c *Correlation) ok() bool {
	return c == nil || plain(c.Traceparent, 256, false) && plain(c.Tracestate, 512, false) && plain(c.Baggage, 8192, false)
}

// Reply answers a request. Which endpoint answered is read from the reply subject, and the broker vouches for it; the rest, the instance in the
// subject too, is the responder's claim.
type Reply struct {
	V     int             `json:"v"`              // EnvelopeVersion
	ID    string          `json:"id"`             // the request's
	OK    bool            `json:"ok"`             // the command did what it is for
	Data  json.RawMessage `json:"data,omitempty"` // only if OK
	Error *Error          `json:"error,omitempty"`
}

// Validate reports whether r is a request of the contract. Its error has code bad-request, unsupported-version,
// class-mismatch or contract-mismatch, and ReasonJSON.
func (r *Request) Validate() error {
	if r.V != EnvelopeVersion {
		return malformedAs(CodeUnsupportedVersion, ReasonJSON, "check request: version %d, want %d", r.V, EnvelopeVersion)
	}
	if r.Class != ClassEphemeral {
		return malformedAs(CodeClassMismatch, ReasonJSON, "check request: class %q, want %q", clip(r.Class), ClassEphemeral)
	}
	if what := r.check(); what != "" {
		return malformed(ReasonJSON, "check request: %s", what)
	}
	if d := r.Op; d.InputDigest != "" && !digestOK(d.InputDigest) || d.OutputDigest != "" && !digestOK(d.OutputDigest) {
		return malformedAs(CodeContractMismatch, ReasonJSON, "check request: a digest is not sha256: and 64 of [0-9a-f]")
	}
	return nil
}

func (r *Request) check() string {
	from, err := ParsePrincipal(r.From.ID)
	switch {
	case !inClass(r.ID, classToken, MaxToken):
		return "id is not [A-Za-z0-9_-]{1,64}"
	case !endpointOK(r.Op.Endpoint):
		return "op.endpoint is not an endpoint"
	case !inClass(r.Op.Command, classLabel, MaxCommand):
		return "op.command is not a command"
	case err != nil || !from.OwnerKnown():
		return "from.id is not a principal of a known owner"
	case !nameOK(r.From.Name, false):
		return "from.name is not 1 to 128 characters"
	case r.From.Role != "" && !inClass(r.From.Role, classToken, MaxToken):
		return "from.role is not a role"
	case r.DeadlineMS < 0 || r.DeadlineMS > MaxDeadline.Milliseconds() || r.DeadlineMS == 0 && r.ReplyExpected:
		return "deadlineMs is not from 1 to 3600000"
	case r.Bind != nil && (!inClass(r.Bind.InstanceID, classToken, MaxToken) || !inClass(r.Bind.Epoch, classToken, MaxToken)):
		return "bind does not name an instance and an epoch"
	case !r.Correlation.ok():
		return "correlation has a field over its limit or a control character"
	}
	if t := r.Target; t != nil {
		if !(Principal{t.Owner, t.Actor}).ok() || t.LifecycleUID != "" && t.LifecycleUID.Validate() != nil {
			return "target does not name a principal, and a uid if any"
		}
	}
	return ""
}

// CheckRequest reports whether r is what its subject says: same command, same caller, same target. The subject decides;
// the body only repeats it. Errors have code op-mismatch, sender-mismatch, target-mismatch or bad-request, outcome
// not-executed.
func CheckRequest(sub RequestSubject, r *Request) error {
	refuse := func(code Code, format string, args ...any) error {
		e := Errorf(code, format, args...)
		e.Outcome = OutcomeNotExecuted
		return e
	}
	if r.Op.Endpoint != sub.Endpoint || r.Op.Command != sub.Command {
		return refuse(CodeOpMismatch, "check request: body names %q of %q, subject %q of %q",
			clip(r.Op.Command), clip(r.Op.Endpoint), sub.Command, sub.Endpoint)
	}
	if r.From.ID != sub.Caller.Principal.String() {
		return refuse(CodeSenderMismatch, "check request: body is from %q, subject from %q", clip(r.From.ID), sub.Caller.Principal)
	}
	if !targetAgrees(sub, r.Target) {
		return refuse(CodeTargetMismatch, "check request: body and subject disagree about the target of mode %q", sub.Mode)
	}
	switch {
	case r.Bind != nil && sub.Rail == RailAll:
		return refuse(CodeBadRequest, "check request: bind on rail all")
	case r.Bind != nil && sub.Rail == RailInst && r.Bind.InstanceID != sub.Instance:
		return refuse(CodeBadRequest, "check request: bind to %q on the rail of %q", r.Bind.InstanceID, sub.Instance)
	}
	return nil
}

func targetAgrees(sub RequestSubject, t *Target) bool {
	switch sub.Mode {
	case ModeOwner, ModeAny:
		return t != nil && t.Owner == sub.Target[0]
	case ModeExact:
		return t != nil && t.Owner == sub.Target[0] && t.Actor == sub.Target[1] && string(t.LifecycleUID) == sub.Target[2]
	}
	return t == nil
}

// Validate reports whether r is a reply of the contract: data only with OK, an error with a code exactly when not OK. Its
// error has code bad-request or unsupported-version, and ReasonJSON.
func (r *Reply) Validate() error {
	if r.V != EnvelopeVersion {
		return malformedAs(CodeUnsupportedVersion, ReasonJSON, "check reply: version %d, want %d", r.V, EnvelopeVersion)
	}
	switch {
	case !inClass(r.ID, classToken, MaxToken):
		return malformed(ReasonJSON, "check reply: id is not [A-Za-z0-9_-]{1,%d}", MaxToken)
	case r.OK && r.Error != nil, !r.OK && r.Error == nil:
		return malformed(ReasonJSON, "check reply: an error goes with ok=false, and only with it")
	case !r.OK && len(r.Data) > 0:
		return malformed(ReasonJSON, "check reply: data with ok=false")
	case !r.OK && !codeOK(r.Error.Code):
		return malformed(ReasonJSON, "check reply: code is neither of the catalog nor reverse-DNS")
	}
	if r.Error != nil {
		switch r.Error.Outcome {
		case "", OutcomeExecuted, OutcomeNotExecuted, OutcomeUnknown:
		default:
			return malformed(ReasonJSON, "check reply: outcome is not executed, not-executed or unknown")
		}
	}
	return nil
}

// codeOK accepts the catalog and extension codes: reverse-DNS, at most 64 bytes.
func codeOK(c Code) bool {
	return c.Known() || len(c) <= MaxToken && extensionOK(string(c))
}
