package trust

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/wire"
)

// MaxBearer bounds a bearer in bytes: the CONNECT that carries it beside the sentinel stays inside [MaxControlLine].
const MaxBearer = 8 << 10

// Bearer is what [NewBearerCredentials] joins. It prints, logs and encodes as whose it is; keep the credentials, not the Bearer,
// since inside a field that is not exported a printer would see through it.
type Bearer struct {
	// Sentinel is the public user JWT of the space's callout account, which permits nothing.
	Sentinel string
	// Token is the bearer: printable ASCII without spaces, at most MaxBearer bytes.
	Token string
	// Seed is the seed of a user nkey (SU…) that the client made. It signs the nonce of the broker, for whoever decides to
	// compare with the key that the bearer names.
	Seed []byte
	// Identity is what the bearer says. IssuedAt and Expires are those of the bearer. UserKey is empty or the public half of
	// Seed.
	Identity Identity
}

// NewBearerCredentials returns the credentials of somebody who was signed in: they show the sentinel to the broker, which asks
// the callout of the space about the bearer. Whether it is accepted is for them to say. The identity that the credentials
// state has the public half of the seed as UserKey; the key of the connection itself is made by the broker and known to
// it alone.
//
// Such credentials live in memory: [Credentials.Reveal] gives a sentence in place of a file.
//
// Errors have code bad-request, or resource-exhausted for lists that are too long, and quote neither token nor seed.
func NewBearerCredentials(b Bearer) (*Credentials, error) {
	id := b.Identity.clone()
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("read bearer: %w", err)
	}
	if id.Space == "" || id.Profile == Callout {
		return nil, wire.Errorf(wire.CodeBadRequest, "read bearer of %q: profile %q is not for people and agents of a space", id.Principal, id.Profile)
	}
	if id.IssuedAt.IsZero() || !id.Expires.After(id.IssuedAt) {
		return nil, wire.Errorf(wire.CodeBadRequest, "read bearer of %q: it has no lifetime", id.Principal)
	}
	if !validBearer(b.Token) {
		return nil, wire.Errorf(wire.CodeBadRequest, "read bearer of %q: not a token of 1 to %d bytes without spaces", id.Principal, MaxBearer)
	}
	if c, err := jwt.DecodeUserClaims(b.Sentinel); err != nil || c.IssuerAccount == "" || !c.HasEmptyPermissions() {
		return nil, wire.Errorf(wire.CodeBadRequest, "read bearer of %q: its sentinel is not the user JWT of a callout account", id.Principal)
	}
	private, public, err := userKey(b.Seed)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "read bearer of %q: its seed is not the seed of a user", id.Principal)
	}
	if id.UserKey != "" && id.UserKey != public {
		return nil, wire.Errorf(wire.CodeBadRequest, "read bearer of %q: the seed is not that of key %q", id.Principal, id.UserKey)
	}
	id.UserKey = public
	sentinel, token := b.Sentinel, b.Token
	return &Credentials{identity: id, jwt: func() string { return sentinel }, token: func() string { return token }, sign: private}, nil
}

func validBearer(token string) bool {
	for _, c := range []byte(token) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return token != "" && len(token) <= MaxBearer
}

func (b Bearer) describe() string {
	id := b.Identity
	return fmt.Sprintf("[bearer of %s, profile %s, space %q, until %s]", id.Principal, id.Profile, id.Space, id.Expires.UTC().Format(time.RFC3339))
}

// Format writes whose it is, whatever the verb.
func (b Bearer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, b.describe()) }

// LogValue returns whose it is.
func (b Bearer) LogValue() slog.Value { return slog.StringValue(b.describe()) }

// MarshalText returns whose it is, so that an encoder that walks into it writes nothing of use.
func (b Bearer) MarshalText() ([]byte, error) { return []byte(b.describe()), nil }
