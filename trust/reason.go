package trust

import (
	"errors"

	"github.com/cotal-go/cotal/wire"
)

// Reason is the stable name of why somebody was not let in. It stands in the answer of the token exchange, in the audit
// record and in the detail "reason" of the error, so that programs branch on it and people search for it.
type Reason string

// The reasons. A client learns them from the exchange; the broker itself only says that a connection was refused.
const (
	ReasonMalformed     Reason = "malformed"           // not the form of a token or request
	ReasonSignature     Reason = "bad-signature"       // signed by nobody we trust, or by a way that is not allowed
	ReasonIssuer        Reason = "wrong-issuer"        // of another identity provider, or another space
	ReasonAudience      Reason = "wrong-audience"      // meant for somebody else
	ReasonExpired       Reason = "expired"             // past its end
	ReasonNotYet        Reason = "not-yet-valid"       // before its beginning
	ReasonSubject       Reason = "bad-subject"         // names no usable subject
	ReasonIDP           Reason = "idp-unavailable"     // the keys of the identity provider cannot be had
	ReasonNotGranted    Reason = "not-granted"         // nobody granted this principal anything here
	ReasonRevoked       Reason = "grant-revoked"       // the grant was taken away
	ReasonRetiring      Reason = "grant-retiring"      // the life before is still being taken down
	ReasonGrantExpired  Reason = "grant-expired"       // the grant had an end, and it has come
	ReasonSuperseded    Reason = "grant-changed"       // the proof is of an earlier life or epoch of the grant
	ReasonParent        Reason = "parent-gone"         // somebody above in the chain is missing, revoked or of another life
	ReasonExceedsParent Reason = "exceeds-parent"      // holds more than somebody above in the chain
	ReasonScope         Reason = "scope-missing"       // asks for what the grant does not hold
	ReasonView          Reason = "view-refused"        // this view is not for this caller or this address
	ReasonActorToken    Reason = "actor-token-refused" // no such agent, or another secret
	ReasonKeyProof      Reason = "key-proof-refused"   // the key of the token was not proved
	ReasonReplayed      Reason = "replayed"            // a proof that was used before
	ReasonCapability    Reason = "capability-missing"  // the loopback face wants the capability of its file
	ReasonTooMany       Reason = "too-many-requests"   // asked too often
	ReasonBusy          Reason = "busy"                // no room at this moment
	ReasonUnavailable   Reason = "unavailable"         // what decides cannot be asked at this moment
	ReasonUserMode      Reason = "user-mode"           // a space of people hands out no credential files
	ReasonStaticMode    Reason = "static-mode"         // a space of credential files knows no people
	reasonDetail               = "reason"
)

// Deny returns an error with a reason. The message is one sentence that says what would allow it.
func Deny(code wire.Code, r Reason, format string, args ...any) *wire.Error {
	e := wire.Errorf(code, format, args...)
	e.Details = map[string]any{reasonDetail: string(r)}
	return e
}

// ReasonOf returns the reason in the chain of an error, or the empty string.
func ReasonOf(err error) Reason {
	var e *wire.Error
	if !errors.As(err, &e) {
		return ""
	}
	r, _ := e.Details[reasonDetail].(string)
	return Reason(r)
}
