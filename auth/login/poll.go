package login

import (
	"errors"
	"net/http"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// defaultGap is the pause between two questions when the provider names none (RFC 8628 section 3.2), and slower is what each
	// slow_down adds to it (section 3.5).
	defaultGap = 5 * time.Second
	slower     = 5 * time.Second
	// maxMissing is how often an address may be not found before it is believed to be wrong.
	maxMissing = 3
)

// schedule is how long to wait before the next question.
type schedule struct {
	gap     time.Duration // never shrinks
	after   time.Duration // what a Retry-After asked for, once
	missing int           // answers in a row that say that there is no such address
}

// next is measured from the last answer, so the provider sees at least the gap between two questions whatever the network does.
func (s *schedule) next() time.Duration {
	wait := max(s.gap, s.after)
	s.after = 0
	return wait + jitter(wait)
}

// judge reads what a question gave: the tokens, a final error, or neither and then an error that says why the provider could not be
// asked, nil when it still waits for the person.
func (d *device) judge(s *schedule, a answer, err error) (granted fields, why error, final bool) {
	if err != nil {
		if errors.Is(err, errTimeout) {
			s.gap += slower // RFC 8628 section 3.5: a client that timed out must ask less often
		}
		return nil, err, false
	}
	f, ok := a.fields()
	if ok {
		s.missing = 0
	}
	switch name := f.text("error"); {
	case name == "authorization_pending":
		return nil, nil, false
	case name == "slow_down", a.status == http.StatusTooManyRequests:
		s.gap += slower
		s.after = a.retryAfter()
		return nil, nil, false
	case !ok || a.status >= 500, name == "temporarily_unavailable", name == "server_error":
		return d.unclear(s, a, ok)
	case name != "" || a.status != http.StatusOK:
		return nil, d.refusal(a, f), true
	case f.text("access_token") == "" && f.text("id_token") == "":
		return nil, wire.Errorf(wire.CodeUnavailable, "sign in at %q: the provider answered with neither a token nor an error", d.p.Issuer), true
	}
	return f, nil, true
}

// unclear is an answer that decides nothing, but for one that says again and again that the address is wrong.
func (d *device) unclear(s *schedule, a answer, document bool) (fields, error, bool) {
	s.after = a.retryAfter()
	err := wire.Errorf(wire.CodeUnavailable, "sign in at %q: %s", d.p.Issuer, a.describe())
	if document {
		err = wire.Errorf(wire.CodeUnavailable, "sign in at %q: the provider is out of order (HTTP %d)", d.p.Issuer, a.status)
	}
	if a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
		s.missing = 0
		return nil, err, false
	}
	if s.missing++; s.missing < maxMissing {
		return nil, err, false
	}
	return nil, wire.Errorf(wire.CodeFailedPrecondition,
		"sign in at %q: the provider redeems no device codes at %q: configure its device token endpoint", d.p.Issuer, shown(d.tokenEndpoint())), true
}

// refusal is the sentence of an OAuth error (RFC 6749 section 5.2, RFC 8628 section 3.5).
func (d *device) refusal(a answer, f fields) error {
	said := f.text("error_description")
	if said == "" {
		said = f.text("message")
	}
	name := f.text("error")
	switch name {
	case "access_denied":
		return wire.Errorf(wire.CodePermissionDenied, "sign in at %q: the request was denied there: start again and approve it", d.p.Issuer)
	case "expired_token":
		return expired(d.p)
	case "invalid_grant":
		return wire.Errorf(wire.CodeExpired, "sign in at %q: the provider no longer knows the code: start again", d.p.Issuer)
	case "invalid_client", "unauthorized_client", "unsupported_grant_type":
		return wire.Errorf(wire.CodeFailedPrecondition, "sign in at %q: the provider does not let client %q use the device flow (%s, %q): allow it there",
			d.p.Issuer, d.p.ClientID, name, clip(said))
	case "invalid_scope":
		return wire.Errorf(wire.CodeFailedPrecondition, "sign in at %q: the provider does not give client %q the scope %q: allow it there",
			d.p.Issuer, d.p.ClientID, d.p.scope(false))
	case "invalid_target":
		return wire.Errorf(wire.CodeFailedPrecondition, "sign in at %q: the provider knows no resource %q for client %q: register it there",
			d.p.Issuer, d.p.Resource, d.p.ClientID)
	}
	return wire.Errorf(wire.CodeFailedPrecondition, "sign in at %q: the provider refuses (HTTP %d, error %q, %q)", d.p.Issuer, a.status, clip(name), clip(said))
}
