package exchange

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/wire"
)

// Authority decides by the grants of one space. Its errors are those of [auth.Authority.AdmitPerson] and
// [auth.Authority.AdmitAgent].
type Authority interface {
	AdmitPerson(ctx context.Context, req auth.PersonRequest) (auth.Admission, error)
	AdmitAgent(ctx context.Context, req auth.AgentRequest) (auth.Admission, error)
}

// Identity checks the tokens of the identity provider; *oidc.Verifier satisfies it.
type Identity interface {
	Verify(ctx context.Context, token string) (oidc.Claims, error)
}

// Bearers signs bearers; *bearer.Issuer satisfies it. It fills in what is the same for every bearer of the space, and ends the
// bearer at c.Expires or after life, whichever is first.
type Bearers interface {
	Sign(ctx context.Context, c bearer.Claims, life time.Duration) (token string, signed bearer.Claims, err error)
}

// Keys are the public halves of what bearers are signed with; *bearer.Keys satisfies it.
type Keys interface {
	JWKS(ctx context.Context) ([]byte, error)
}

// Proofs checks one DPoP proof (RFC 9449 section 4.3) for a request to one of the URLs, that it was not used before included,
// and returns the key that was proved; *bearer.ProofChecker satisfies it.
type Proofs interface {
	Check(proof, method string, urls ...string) (ed25519.PublicKey, error)
}

// Options are what an exchange is made of. The fields of the first group are required.
type Options struct {
	// Space is the one space that bearers are for.
	Space wire.Space
	// Authority decides what a proof is worth.
	Authority Authority
	// Identity checks people's tokens.
	Identity Identity
	// Owner derives the owner of a person, see [trust.OwnerSecret].
	Owner func(issuer, sub string) (string, error)
	// Bearers signs.
	Bearers Bearers
	// Keys are what /jwks publishes.
	Keys Keys
	// Sentinel returns the public credential with which one connects to the broker. See docs/architecture.md.
	Sentinel func(ctx context.Context) (string, error)
	// Mesh says how to sign in; the server fills in what it knows itself. It is called for each answer and must not wait.
	Mesh func() WellKnown

	// Proofs checks DPoP headers. Nil refuses every request that has one.
	Proofs Proofs
	// RequireKeyProof refuses whoever proves no key. The callout must be told the same.
	RequireKeyProof bool
	// Loopback is the address of the loopback face. Default "127.0.0.1:0", a free port.
	Loopback string
	// Public is the address of the public face, on loopback as well; empty for no public face.
	Public string
	// Mounted makes a public face without an address of its own: the program serves [Server.PublicHandler] under PublicURL, which
	// is required then.
	Mounted bool
	// PublicURL is where the proxy in front of the public face is reached, https or on a loopback host. It may have a path,
	// which the proxy takes off. Default: the address of the public face itself.
	PublicURL string
	// TrustedProxy takes the last hop of X-Forwarded-For as the peer of the public face. Set it only when nothing but the proxy
	// reaches that face, and the proxy appends the header.
	TrustedProxy bool
	// Capability opens the loopback face. Default: a fresh one.
	Capability Capability
	// CapabilityFile is where the capability is left for programs of the same user, mode 0600, in a folder that exists; empty
	// for nowhere.
	CapabilityFile string
	// Limits bound what peers and principals may ask.
	Limits Limits
	// OnDecision is told of every outcome of an exchange and of every wrong capability, before the answer leaves. It must
	// not block and may be called by several goroutines. Nil for nobody.
	OnDecision func(ctx context.Context, d Decision)
	// Logger receives refusals at Info, failures above. Nil discards.
	Logger *slog.Logger
}

// Limits of an exchange. A zero field means its default. "Per minute" is any 60 seconds, not a minute of the clock.
type Limits struct {
	// Refusals are answered per peer and minute and face with their reason; 429 beyond. A body that does not come in time is
	// one. Default 30.
	Refusals int
	// BadCapabilities are answered per minute, of all peers together; 429 beyond. Default 30.
	BadCapabilities int
	// Reads are requests per peer and minute and face other than an exchange. Default 1,200.
	Reads int
	// PerOwner and PerActor are bearers per minute. An owner's agents together have the allowance of the owner once more. Defaults 120
	// and 60.
	PerOwner, PerActor int
	// Peers is how many peers are told apart at once per face, an IPv6 /64 counting as one; who finds no room shares one
	// allowance with the others that found none. Default 1,024.
	Peers int
	// Principals is the same for owners and for actors. Default 8,192.
	Principals int
	// InFlight is how many requests each face decides at once, those of people at most half; 503 beyond. Eight times as many may be sending their body; one
	// more, and of the peer that sends most of them the slowest is answered 503. Sixteen times as many connections may be open to
	// a listener; one more, and the one that has waited longest for a request is closed. Default 64.
	InFlight int
	// Deadline is from the headers to the answer; 503 beyond. Default 10 s.
	Deadline time.Duration
	// HeaderTimeout is how long a connection may take to send headers. Default 5 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection may wait between requests. Default 60 s.
	IdleTimeout time.Duration
}

// maxLimit is what a slot of a window can count.
const maxLimit = 60_000

func (l *Limits) fill() error {
	for _, f := range []struct {
		name  string
		field *int
		def   int
	}{
		{"Refusals", &l.Refusals, 30}, {"BadCapabilities", &l.BadCapabilities, 30}, {"Reads", &l.Reads, 1200},
		{"PerOwner", &l.PerOwner, 120}, {"PerActor", &l.PerActor, 60}, {"Peers", &l.Peers, 1024},
		{"Principals", &l.Principals, 8192}, {"InFlight", &l.InFlight, 64},
	} {
		if *f.field == 0 {
			*f.field = f.def
		}
		if *f.field < 0 || *f.field > maxLimit {
			return wire.Errorf(wire.CodeBadRequest, "make exchange: limit %s is %d, not 1 to %d", f.name, *f.field, maxLimit)
		}
	}
	for _, f := range []struct {
		name  string
		field *time.Duration
		def   time.Duration
	}{
		{"Deadline", &l.Deadline, 10 * time.Second}, {"HeaderTimeout", &l.HeaderTimeout, 5 * time.Second},
		{"IdleTimeout", &l.IdleTimeout, time.Minute},
	} {
		if *f.field == 0 {
			*f.field = f.def
		}
		if *f.field < 0 {
			return wire.Errorf(wire.CodeBadRequest, "make exchange: limit %s is %s, not above zero", f.name, *f.field)
		}
	}
	return nil
}

// fill checks the options and puts the defaults in. It panics for what only a programmer can forget.
func (o *Options) fill() error {
	if o.Authority == nil || o.Identity == nil || o.Owner == nil || o.Bearers == nil || o.Keys == nil || o.Sentinel == nil || o.Mesh == nil {
		panic("exchange: New needs an authority, an identity, an owner, a signer, a key set, a sentinel and a mesh")
	}
	if err := o.Space.Validate(); err != nil {
		return err
	}
	if o.Loopback == "" {
		o.Loopback = "127.0.0.1:0"
	}
	if err := checkListen("loopback", o.Loopback); err != nil {
		return err
	}
	switch {
	case o.Public != "":
		if err := checkListen("public", o.Public); err != nil {
			return err
		}
	case o.Mounted && o.PublicURL == "":
		return wire.Errorf(wire.CodeBadRequest, "make exchange: a mounted public face needs the URL under which it is served")
	case !o.Mounted && (o.PublicURL != "" || o.TrustedProxy):
		return wire.Errorf(wire.CodeBadRequest, "make exchange: a public URL and a trusted proxy need a public face; give it an address")
	}
	if err := o.fillURL(); err != nil {
		return err
	}
	if o.Capability.reveal == nil {
		o.Capability = newCapability()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o.Limits.fill()
}

// checkListen refuses an address that is reachable from elsewhere: neither face speaks TLS.
func checkListen(face, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err == nil {
		var ip netip.Addr
		if ip, err = netip.ParseAddr(host); err == nil && ip.IsLoopback() {
			return nil
		}
	}
	return wire.Errorf(wire.CodeBadRequest,
		"make exchange: the %s face cannot listen on %.64q; use 127.0.0.1:<port>, and a TLS proxy in front to be reached from elsewhere", face, addr)
}

func (o *Options) fillURL() error {
	if o.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(o.PublicURL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return wire.Errorf(wire.CodeBadRequest, "make exchange: the public URL is not https://<host>[/<path>]")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopbackHost(u.Hostname())) {
		return wire.Errorf(wire.CodeBadRequest, "make exchange: public URL %.128q sends credentials in the clear; use https", o.PublicURL)
	}
	o.PublicURL = strings.TrimRight(o.PublicURL, "/")
	return nil
}

func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
