package space

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// AuditVersion is the version of [AuditEvent] that this build reads and writes. History: 1, first edition.
const AuditVersion = 1

// MaxAudit bounds an encoded audit record in bytes, MaxAuditDetail its sentence in characters.
const (
	MaxAudit       = 8 << 10
	MaxAuditDetail = 512
)

// The actions of an [AuditEvent]: what was done, or tried. What it was done to is the target.
const (
	ActionGrant       = "grant"        // a principal was granted something for the first time, or anew
	ActionNarrow      = "narrow"       // a grant lost something
	ActionWiden       = "widen"        // a grant gained something
	ActionRevoke      = "revoke"       // a grant, or one credential, was taken away
	ActionRetire      = "retire"       // what a life held was taken down
	ActionExchange    = "exchange"     // a proof was exchanged for a bearer
	ActionConnect     = "connect"      // a connection under a bearer was decided about
	ActionView        = "view"         // a bearer with a view was asked for
	ActionRotate      = "rotate"       // a signing key or a secret got a successor
	ActionLease       = "lease"        // a lease of the authority changed hands
	ActionSpaceAdd    = "space-add"    // the space was made, or completed
	ActionSpaceRemove = "space-remove" // the space is being removed
	ActionRenew       = "renew"        // a credential was issued under a grant that stands
	ActionConfigure   = "configure"    // a setting of the space changed
	ActionStart       = "start"        // an agent that a supervisor runs got what it starts with
	ActionStop        = "stop"         // what such an agent was started with was taken away
)

// AuditActions returns all actions.
func AuditActions() []string {
	return []string{
		ActionGrant, ActionNarrow, ActionWiden, ActionRevoke, ActionRetire, ActionExchange, ActionConnect, ActionView, ActionRotate, ActionLease,
		ActionSpaceAdd, ActionSpaceRemove, ActionRenew, ActionConfigure, ActionStart, ActionStop,
	}
}

// The outcomes of an [AuditEvent].
const (
	OutcomeOK     = "ok"
	OutcomeDenied = "denied" // a rule said no
	OutcomeFailed = "failed" // it was allowed and did not work, or not to its end
)

// AuditOutcomes returns all outcomes.
func AuditOutcomes() []string { return []string{OutcomeOK, OutcomeDenied, OutcomeFailed} }

// AuditEvent is one audit record: who did what to whom, and how it ended. All of it is the authority's word; At is its clock.
// A record holds no secret.
type AuditEvent struct {
	Ver int `json:"ver"`
	// ID is unique, of wire.NewID. The broker takes a record once, so that one of which it is not known whether it was stored
	// can be appended again.
	ID string    `json:"id"`
	At time.Time `json:"at"`
	// By is who acted: a principal, or the name that the authority gives to who asked it, at most 128 characters.
	By string `json:"by"`
	// Action and Outcome are of [AuditActions] and [AuditOutcomes].
	Action string `json:"action"`
	// Target is the principal that it was about, in dot form, and UID its life. Both are empty for what is about nobody, such
	// as a stranger; UID alone is empty where no life is known.
	Target  string   `json:"target,omitempty"`
	UID     wire.UID `json:"uid,omitempty"`
	Outcome string   `json:"outcome"`
	// Reason is why it was denied.
	Reason trust.Reason `json:"reason,omitempty"`
	// Detail is one sentence for a person, at most [MaxAuditDetail] characters.
	Detail string `json:"detail,omitempty"`
	// Count says that the record stands for so many like it, besides those that have records of their own.
	Count uint64 `json:"count,omitempty"`
	// Op ties the records of one operation together, at most 128 characters.
	Op string `json:"op,omitempty"`
}

var (
	// auditID is the form of what wire.NewID makes.
	auditID = regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{9}[a-z2-7]{17}$`)
	// reasonWord is the form of a reason. Which there are is not checked: a later build of the same version may know more.
	reasonWord = regexp.MustCompile(`^[a-z][a-z-]{0,63}$`)
)

// target returns the principal that the record is about, the zero one for nobody.
func (e AuditEvent) target() (wire.Principal, error) {
	if e.Target == "" {
		return wire.Principal{}, nil
	}
	return wire.ParsePrincipal(e.Target)
}

// Validate checks every field. Errors: bad-request; unsupported-version for a record of another version.
func (e AuditEvent) Validate() error {
	if e.Ver != AuditVersion {
		return wire.Errorf(wire.CodeUnsupportedVersion, "check audit record: version %d, this build knows %d", e.Ver, AuditVersion)
	}
	target, err := e.target()
	switch {
	case !auditID.MatchString(e.ID):
		return wire.Errorf(wire.CodeBadRequest, "check audit record: %.64q is no id", e.ID)
	case e.At.IsZero() || e.By == "":
		return wire.Errorf(wire.CodeBadRequest, "check audit record %q: at and by are required", e.ID)
	case !slices.Contains(AuditActions(), e.Action):
		return wire.Errorf(wire.CodeBadRequest, "check audit record %q: unknown action %.64q", e.ID, e.Action)
	case !slices.Contains(AuditOutcomes(), e.Outcome):
		return wire.Errorf(wire.CodeBadRequest, "check audit record %q: unknown outcome %.64q", e.ID, e.Outcome)
	case err != nil || e.Target != "" && !target.OwnerKnown():
		return wire.Errorf(wire.CodeBadRequest, "check audit record %q: target %.64q is no principal", e.ID, e.Target)
	case e.UID != "" && (e.Target == "" || e.UID.Validate() != nil):
		return wire.Errorf(wire.CodeBadRequest, "check audit record %q: uid %.64q is no life of its target", e.ID, string(e.UID))
	case e.Reason != "" && !reasonWord.MatchString(string(e.Reason)):
		return wire.Errorf(wire.CodeBadRequest, "check audit record %q: reason %.64q is no word", e.ID, string(e.Reason))
	case !plainText(e.By, wire.MaxName) || !plainText(e.Op, wire.MaxName) || !plainText(e.Detail, MaxAuditDetail):
		return wire.Errorf(wire.CodeBadRequest, "check audit record %q: by and op are text of at most %d characters, detail of at most %d, on one line",
			e.ID, wire.MaxName, MaxAuditDetail)
	}
	return nil
}

// plainText reports whether s can be shown on one line of at most limit characters.
func plainText(s string, limit int) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= limit && !strings.ContainsFunc(s, unicode.IsControl)
}

// clipText makes a plain text of whatever it is given.
func clipText(s string, limit int) string {
	if plainText(s, limit) {
		return s
	}
	out := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd")))
	if len(out) > limit {
		out = append(out[:limit-1], '…')
	}
	return string(out)
}

// Encode returns the record as JSON after validating it.
func (e AuditEvent) Encode() ([]byte, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(e)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode audit record %q: %v", e.ID, err)
	}
	if len(data) > MaxAudit {
		return nil, wire.Errorf(wire.CodeResourceExhausted, "encode audit record %q: %d bytes, limit %d", e.ID, len(data), MaxAudit)
	}
	return data, nil
}

// DecodeAudit reads a record. The JSON is closed: an unknown or doubled field or an invalid value is refused.
//
// Errors: unsupported-version for a record of another version, whatever else it holds; bad-request.
func DecodeAudit(data []byte) (AuditEvent, error) {
	var e AuditEvent
	var version struct {
		Ver int `json:"ver"`
	}
	if err := wire.Decode(data, &version, MaxAudit); err != nil {
		return AuditEvent{}, wire.Errorf(wire.CodeBadRequest, "read audit record: not the JSON that this build writes")
	}
	if version.Ver != AuditVersion {
		return AuditEvent{}, wire.Errorf(wire.CodeUnsupportedVersion, "read audit record: version %d, this build knows %d", version.Ver, AuditVersion)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if wire.Decode(data, &e, MaxAudit) != nil || d.Decode(&e) != nil {
		return AuditEvent{}, wire.Errorf(wire.CodeBadRequest, "read audit record: not the JSON that this build writes")
	}
	if err := e.Validate(); err != nil {
		return AuditEvent{}, err
	}
	return e, nil
}

//go:embed schema/audit.schema.json
var auditSchema []byte

// AuditSchema returns the JSON Schema (draft 2020-12) of [AuditEvent]. Whatever is written validates against it. The slice is
// the caller's own.
func AuditSchema() []byte { return slices.Clone(auditSchema) }
