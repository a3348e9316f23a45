package auth

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// PersonRequest asks to act as one of a person's actors. Who the person is has been proved by an identity token.
type PersonRequest struct {
	// Owner is derived from the issuer and the subject of the token; see [trust.OwnerSecret].
	Owner string
	// Actor is the name under the owner; empty takes the only one that the person has.
	Actor string
	// View asks for more than an agent's rights for a short time; empty for none.
	View trust.View
	// Scope is what is wanted of the grant's scope; nil means all of it.
	Scope []string
}

// AgentRequest asks to act as a managed agent, which proves itself by the secret of its last start. It prints, logs and encodes as whom it
// is for; pass it on and drop it, since inside a field that is not exported a printer would see through it.
type AgentRequest struct {
	Owner, Actor string
	Token        []byte   // the secret
	Scope        []string // as in [PersonRequest]
}

func (r AgentRequest) describe() string {
	return fmt.Sprintf("[request of agent %.96q of owner %.96q]", r.Actor, r.Owner)
}

// Format writes whom it is for, whatever the verb.
func (r AgentRequest) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.describe()) }

// LogValue returns whom it is for.
func (r AgentRequest) LogValue() slog.Value { return slog.StringValue(r.describe()) }

// MarshalText returns whom it is for, so that an encoder that walks into it writes nothing of use.
func (r AgentRequest) MarshalText() ([]byte, error) { return []byte(r.describe()), nil }

// ConnectRequest asks for a connection under a bearer whose signature, issuer, audience and times have been checked.
type ConnectRequest struct {
	wire.Lifecycle
	Epoch uint64
	View  trust.View
	Scope []string
	// Expires is the end of the bearer, and so of the connection.
	Expires time.Time
	// UserKey is the public key that the broker made for the connection (U…).
	UserKey string
}

// Admission is what a proof lets its holder be for a short time.
type Admission struct {
	// Grant is the record as it is now.
	Grant trust.Grant
	// Profile is what connections are given: agent, or that of the view.
	Profile trust.Profile
	View    trust.View
	// Scope is the part of the grant's scope that was asked for.
	Scope []string
	// Until is the earliest end of the grant and of all it is held under, zero for none. Nothing that is handed out may
	// outlive it.
	Until time.Time
}
