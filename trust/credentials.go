package trust

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/wire"
)

// maxCredentials bounds a credentials file in bytes.
const maxCredentials = 64 << 10

// Credentials is what one holder connects with: a user JWT and the seed of its key, or what [NewBearerCredentials] joins. It
// is safe to print, log and encode; nothing but [Credentials.Reveal] shows the seed, and nothing but [Credentials.Token] the
// bearer. It never changes and is safe for concurrent use.
type Credentials struct {
	identity Identity
	jwt      func() string
	seed     func() string // nil for a bearer, which has no file
	token    func() string // nil but for a bearer
	sign     func(nonce []byte) []byte
}

// NewCredentials joins a user JWT and the seed of its key. It checks that they belong together, that the JWT's own
// signature is whole and that its tags name a valid identity; whether a broker accepts it is the broker's say. Errors
// have code bad-request and never quote the seed.
func NewCredentials(token string, seed []byte) (*Credentials, error) {
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "read credential: not a user JWT: %v", err)
	}
	id, err := identityOf(claims)
	if err != nil {
		return nil, err
	}
	private, public, err := userKey(seed)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "read credential of %q: its seed is not the seed of a user", id.Principal)
	}
	if public != claims.Subject {
		return nil, wire.Errorf(wire.CodeBadRequest, "read credential of %q: the seed is not that of the JWT", id.Principal)
	}
	kept := string(seed)
	return &Credentials{identity: id, jwt: func() string { return token }, seed: func() string { return kept }, sign: private}, nil
}

// errNotUser is the only way in which a seed is refused; it quotes nothing.
var errNotUser = errors.New("not the seed of a user")

// userKey returns what signs with a user's seed, and its public key.
func userKey(seed []byte) (sign func(nonce []byte) []byte, public string, err error) {
	prefix, raw, err := nkeys.DecodeSeed(seed)
	if err != nil || prefix != nkeys.PrefixByteUser || len(raw) != ed25519.SeedSize {
		return nil, "", errNotUser
	}
	private := ed25519.NewKeyFromSeed(raw)
	text, err := nkeys.Encode(nkeys.PrefixByteUser, private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, "", errNotUser
	}
	return func(nonce []byte) []byte { return ed25519.Sign(private, nonce) }, string(text), nil
}

// The lines that frame the two parts of a credentials file, as NATS tools write them.
const (
	jwtBegin  = "-----BEGIN NATS USER JWT-----"
	jwtEnd    = "------END NATS USER JWT------"
	seedBegin = "-----BEGIN USER NKEY SEED-----"
	seedEnd   = "------END USER NKEY SEED------"
)

// noFile stands where the credentials file of a bearer would.
const noFile = "its holder was signed in, and a bearer is kept in no file; sign in again"

// ParseCredentials reads a NATS credentials file: one user JWT and one user seed in their frames. Text between the
// frames is ignored, anything else is a bad-request that quotes nothing of the file.
func ParseCredentials(data []byte) (*Credentials, error) {
	if len(data) > maxCredentials {
		return nil, wire.Errorf(wire.CodeBadRequest, "read credentials: %d bytes, limit %d", len(data), maxCredentials)
	}
	if bytes.HasPrefix(data, []byte(noFile)) {
		return nil, wire.Errorf(wire.CodeBadRequest, "read credentials: %s", noFile)
	}
	token, err := framed(data, jwtBegin, jwtEnd)
	if err != nil {
		return nil, err
	}
	seed, err := framed(data, seedBegin, seedEnd)
	if err != nil {
		return nil, err
	}
	return NewCredentials(string(token), seed)
}

// framed returns the one line between two frame lines that occur once.
func framed(data []byte, begin, end string) ([]byte, error) {
	if bytes.Count(data, []byte(begin)) != 1 || bytes.Count(data, []byte(end)) != 1 {
		return nil, wire.Errorf(wire.CodeBadRequest, "read credentials: want the line %q once, with its end", begin)
	}
	_, rest, _ := bytes.Cut(data, []byte(begin))
	body, _, ok := bytes.Cut(rest, []byte(end))
	body = bytes.TrimSpace(body)
	if !ok || len(body) == 0 || bytes.ContainsAny(body, " \t\r\n") {
		return nil, wire.Errorf(wire.CodeBadRequest, "read credentials: want one line after %q", begin)
	}
	return body, nil
}

// Identity returns what the credential says about its holder.
func (c *Credentials) Identity() Identity { return c.identity.clone() }

// JWT returns the user JWT. It is no secret by itself, but is not for logs either.
func (c *Credentials) JWT() string { return c.jwt() }

// Sign signs the nonce of a broker, as a nats.SignatureHandler. The key of a bearer signs proofs for its exchange too (RFC 9449): a
// broker that calls one of those a nonce is refused, with code bad-request. Otherwise it never fails.
func (c *Credentials) Sign(nonce []byte) ([]byte, error) {
	if c.token != nil && (len(nonce) == 0 || len(nonce) > maxNonce || bytes.IndexByte(nonce, '.') >= 0) {
		return nil, wire.Errorf(wire.CodeBadRequest, "sign nonce: the broker sent %d bytes that are not a nonce", len(nonce))
	}
	return c.sign(nonce), nil
}

// maxNonce bounds the nonce of a broker in bytes; theirs have 15.
const maxNonce = 64

// Token returns the bearer to send beside the JWT, and the empty string for credentials that are not from a bearer. It is a
// secret. Use it as a nats.TokenHandler when it is not empty.
func (c *Credentials) Token() string {
	if c.token == nil {
		return ""
	}
	return c.token()
}

// Same reports whether both present the same to a broker.
func (c *Credentials) Same(o *Credentials) bool { return c.JWT() == o.JWT() && c.Token() == o.Token() }

// Reveal returns the credentials file, the seed included. Write it to private places only. Credentials from a bearer have
// none: Reveal returns a sentence that says so, without any secret, and [ParseCredentials] refuses it with the same words.
func (c *Credentials) Reveal() []byte {
	if c.seed == nil {
		return []byte(noFile + "\n")
	}
	var b bytes.Buffer
	_, _ = fmt.Fprintf(&b, "%s\n%s\n%s\n\n", jwtBegin, c.jwt(), jwtEnd)
	_, _ = io.WriteString(&b, "Whoever holds the seed below is the holder of this credential. Keep it secret.\n\n")
	_, _ = fmt.Fprintf(&b, "%s\n%s\n%s\n", seedBegin, c.seed(), seedEnd)
	return b.Bytes()
}

// Expired reports whether the credential must no longer be presented at now.
func (c *Credentials) Expired(now time.Time) bool { return !now.Before(c.identity.Expires) }

// RenewAt returns when three quarters of the credential's life are over.
func (c *Credentials) RenewAt() time.Time {
	life := c.identity.Expires.Sub(c.identity.IssuedAt)
	return c.identity.IssuedAt.Add(life / 4 * 3)
}

func (c *Credentials) describe() string {
	if c == nil || c.jwt == nil {
		return "[no credentials]"
	}
	return fmt.Sprintf("[credentials of %s, profile %s, space %q]", c.identity.Principal, c.identity.Profile, c.identity.Space)
}

// Format writes who the credential is for, whatever the verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.describe()) }

// LogValue returns who the credential is for.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.describe()) }

// MarshalText returns who the credential is for, so that an encoder that walks into it writes nothing of use.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.describe()), nil }
