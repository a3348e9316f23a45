package login

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	sessionVersion = 1
	// maxToken bounds one token in bytes; what fits neither an HTTP header nor our exchange is of no use.
	maxToken = 32 << 10
	// maxSession bounds a session as it is kept, in bytes.
	maxSession = 256 << 10
)

// Session is one person's sign-in at one identity provider. It prints, logs and encodes without its tokens; [Session.Reveal] is the one
// way to them. It never changes and is safe for concurrent use. The zero Session is nobody's.
type Session struct {
	// Provider is where the person signed in. Tokens of this session go to these addresses and no others.
	Provider Provider
	// Subject is the provider's name for the person.
	Subject string
	// Obtained is when the person signed in.
	Obtained time.Time
	// Expires is when the session ends if the provider said so; the zero time means that it did not say, not that the session
	// lasts.
	Expires time.Time

	hold func() tokens
}

// tokens are the secrets of a session. They live in closures only.
type tokens struct {
	refresh   string    // the refresh token, or the session token of the Better Auth shape; empty when there is none
	id        string    // the last id token
	idExpires time.Time // by the clock of this machine
}

func (s Session) tokens() tokens {
	if s.hold == nil {
		return tokens{}
	}
	return s.hold()
}

// with returns the session with new tokens, received at a time. It refuses an id token of somebody else, of another issuer or for another
// audience, with code unauthenticated and a reason.
func (s Session) with(t tokens, received time.Time) (Session, error) {
	c, err := readClaims(t.id)
	if err != nil {
		return s, trust.Deny(wire.CodeUnauthenticated, trust.ReasonMalformed,
			"sign in at %q: the provider gave an id token that is none: %v", s.Provider.Issuer, err)
	}
	switch {
	case c.issuer != s.Provider.Issuer:
		return s, trust.Deny(wire.CodeUnauthenticated, trust.ReasonIssuer,
			"sign in at %q: the provider calls itself %q in its tokens: configure that issuer, byte for byte", s.Provider.Issuer, clip(c.issuer))
	case c.subject == "":
		return s, trust.Deny(wire.CodeUnauthenticated, trust.ReasonSubject, "sign in at %q: the id token names no subject", s.Provider.Issuer)
	case s.Subject != "" && c.subject != s.Subject:
		return s, trust.Deny(wire.CodeUnauthenticated, trust.ReasonSubject,
			"renew sign-in at %q: the id token is of %q, not of %q: run cotal login", s.Provider.Issuer, clip(c.subject), clip(s.Subject))
	case !slices.Contains(c.audience, s.Provider.audience()):
		return s, trust.Deny(wire.CodeUnauthenticated, trust.ReasonAudience,
			"sign in at %q: the id token is meant for %q, the mesh wants %q: register that audience at the provider",
			s.Provider.Issuer, clip(strings.Join(c.audience, ", ")), s.Provider.audience())
	case c.expires.IsZero():
		return s, trust.Deny(wire.CodeUnauthenticated, trust.ReasonMalformed, "sign in at %q: the id token has no end", s.Provider.Issuer)
	}
	t.idExpires = c.expires
	if life := c.expires.Sub(c.issued); !c.issued.IsZero() && life > 0 {
		// A clock of this machine that is behind must not make the token seem to last longer than it does.
		t.idExpires = earlier(c.expires, received.Add(life))
	}
	s.Subject = c.subject
	return s.holding(t), nil
}

// holding returns the session with these tokens, unchecked.
func (s Session) holding(t tokens) Session {
	s.hold = func() tokens { return t }
	return s
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// sessionRecord is a session as it is kept.
type sessionRecord struct {
	Ver       int       `json:"ver"`
	Provider  Provider  `json:"provider"`
	Subject   string    `json:"subject"`
	Obtained  time.Time `json:"obtained"`
	Expires   time.Time `json:"expires,omitzero"`
	Refresh   string    `json:"refresh,omitempty"`
	ID        string    `json:"idToken,omitempty"`
	IDExpires time.Time `json:"idExpires,omitzero"`
}

// Reveal returns the session as a JSON document, its tokens included, for the body of a [Sessions] to keep.
func (s Session) Reveal() ([]byte, error) {
	t := s.tokens()
	data, err := json.Marshal(sessionRecord{
		Ver: sessionVersion, Provider: s.Provider, Subject: s.Subject, Obtained: s.Obtained, Expires: s.Expires,
		Refresh: t.refresh, ID: t.id, IDExpires: t.idExpires,
	})
	switch {
	case err != nil:
		return nil, wire.Errorf(wire.CodeBadRequest, "encode session of %q: its times are out of range", s.Provider.Issuer)
	case len(data) > maxSession:
		return nil, wire.Errorf(wire.CodeResourceExhausted, "encode session of %q: %d bytes, limit %d", s.Provider.Issuer, len(data), maxSession)
	}
	return data, nil
}

// ParseSession reads what [Session.Reveal] wrote. Its errors have code bad-request, or unsupported-version for a document of a later
// program, and quote nothing.
func ParseSession(data []byte) (Session, error) {
	var r sessionRecord
	if err := wire.Decode(data, &r, maxSession); err != nil {
		return Session{}, wire.Errorf(wire.CodeBadRequest, "read session: not a session of ours")
	}
	if r.Ver != sessionVersion {
		return Session{}, wire.Errorf(wire.CodeUnsupportedVersion, "read session: version %d, this program knows %d: use the newer program", r.Ver, sessionVersion)
	}
	p, err := r.Provider.check()
	switch {
	case err != nil:
		return Session{}, wire.Errorf(wire.CodeBadRequest, "read session: %w", err)
	case r.Subject == "":
		return Session{}, wire.Errorf(wire.CodeBadRequest, "read session of %q: it names no subject", r.Provider.Issuer)
	}
	s := Session{Provider: p, Subject: r.Subject, Obtained: r.Obtained, Expires: r.Expires}
	return s.holding(tokens{refresh: r.Refresh, id: r.ID, idExpires: r.IDExpires}), nil
}

func (s Session) describe() string {
	if s.Subject == "" {
		return "[no session]"
	}
	return fmt.Sprintf("[session of %q at %q]", s.Subject, s.Provider.Issuer)
}

// Format writes whose session it is, whatever the verb.
func (s Session) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.describe()) }

// LogValue returns whose session it is.
func (s Session) LogValue() slog.Value { return slog.StringValue(s.describe()) }

// claims are what is read of an id token without verifying it.
type claims struct {
	issuer, subject string
	audience        []string
	issued, expires time.Time
}

// readClaims reads the claims of a signed JWT in its compact form (RFC 7519 section 3). Its errors quote nothing.
func readClaims(token string) (claims, error) {
	if len(token) > maxToken {
		return claims{}, fmt.Errorf("%d bytes, limit %d", len(token), maxToken)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return claims{}, fmt.Errorf("%d parts, want the 3 of a signed JWT", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, fmt.Errorf("its claims are not base64url")
	}
	f, ok := parseFields(payload)
	if !ok {
		return claims{}, fmt.Errorf("its claims are not a JSON object")
	}
	return claims{
		issuer: f.text("iss"), subject: f.text("sub"), audience: f.texts("aud"),
		issued: numericDate(f.number("iat")), expires: numericDate(f.number("exp")),
	}, nil
}

// numericDate reads seconds since 1970 (RFC 7519 section 2) up to the year 9999; anything else is the zero time.
func numericDate(n float64) time.Time {
	const last = 253402300799
	if n <= 0 || n > last {
		return time.Time{}
	}
	return time.Unix(int64(n), 0).UTC()
}
