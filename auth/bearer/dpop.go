package bearer

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// ProofHeader is the HTTP header that carries a proof (RFC 9449 section 4.1).
	ProofHeader = "DPoP"
	// MaxProof bounds a proof in bytes.
	MaxProof = 4 << 10
	// ProofWindow is how far the clocks of the two sides may differ, either way.
	ProofWindow = 60 * time.Second

	proofType = "dpop+jwt"
)

// proofHeader is the whole of a proof's header (RFC 9449 section 4.2).
type proofHeader struct {
	Typ string   `json:"typ"`
	Alg string   `json:"alg"`
	JWK proofJWK `json:"jwk"`
}

// proofJWK is a public key and what libraries put beside one. A private half ("d") is an unknown member, and refused.
type proofJWK struct {
	publicJWK
	Alg string `json:"alg,omitempty"`
	Use string `json:"use,omitempty"`
	ID  string `json:"kid,omitempty"`
}

// proofClaims are those that are looked at; "ath", "nonce" and others are the client's affair.
type proofClaims struct {
	ID       string `json:"jti"`
	Method   string `json:"htm"`
	URL      string `json:"htu"`
	IssuedAt int64  `json:"iat"`
}

// Prove returns a proof that the caller holds key, a user nkey, for one request (RFC 9449): its method as it is sent and
// its absolute URL, of which query and fragment are left out. A proof serves once, within [ProofWindow] of now; a caller
// whose clock is off passes the time of the server's Date header.
//
// Errors: bad-request for a key that is no user nkey, or a URL that is not absolute http or https; what the signer returns.
func Prove(ctx context.Context, key signer.Signer, method, target string, now time.Time) (string, error) {
	public, err := PublicKey(key.Public())
	if err != nil {
		return "", err
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", wire.Errorf(wire.CodeBadRequest, "make proof: the URL is not an absolute http or https URL without user")
	}
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", ""
	header, err := json.Marshal(proofHeader{Typ: proofType, Alg: algorithm, JWK: proofJWK{publicJWK: jwkOf(public)}})
	if err != nil {
		return "", wire.Errorf(wire.CodeInternal, "make proof: %v", err)
	}
	claims := proofClaims{ID: wire.NewNonce(), Method: method, URL: u.String(), IssuedAt: now.Unix()}
	return seal(base64.RawURLEncoding.EncodeToString(header), claims, func(signed []byte) ([]byte, error) { return key.Sign(ctx, signed) })
}

// PublicKey returns the Ed25519 key of a user nkey, "U…". Its error has code bad-request.
func PublicKey(nkey string) (ed25519.PublicKey, error) {
	raw, err := nkeys.Decode(nkeys.PrefixByteUser, []byte(nkey))
	if err != nil || len(raw) != ed25519.PublicKeySize || smallOrder(raw) {
		return nil, wire.Errorf(wire.CodeBadRequest, "read key %.64q: not a user nkey", nkey)
	}
	return bytes.Clone(raw), nil
}

// ProofOptions of a [ProofChecker].
type ProofOptions struct {
	// Memory is how many proofs of the last two minutes are remembered, at about 100 bytes each; default 65,536. When it
	// is full, proofs are refused rather than forgotten.
	Memory int
}

// ProofChecker checks proofs and takes each one once. What it took it remembers in this process only: of two replicas each
// takes a proof. It is safe for concurrent use.
type ProofChecker struct{ seen *memory }

// NewProofChecker returns a checker that has seen nothing. It panics for a negative memory.
func NewProofChecker(o *ProofOptions) *ProofChecker {
	limit := 1 << 16
	if o != nil && o.Memory != 0 {
		limit = o.Memory
	}
	if limit < 0 {
		panic("bearer: a proof checker needs a memory")
	}
	return &ProofChecker{seen: newMemory(limit)}
}

// Check returns the key that a proof is of, for a request of a method to one of the given URLs: those under which this
// server is reached, behind a proxy the public one. Anybody can make proofs of keys of their own, and each one takes room in
// the memory: check the credential of the request first.
//
// Errors, with a reason: unauthenticated for a proof that is malformed, signed otherwise, of another request, more than
// [ProofWindow] off, or used before; resource-exhausted when the memory is full.
func (c *ProofChecker) Check(proof, method string, urls ...string) (ed25519.PublicKey, error) {
	t, ok := parse(proof, MaxProof)
	var h proofHeader
	if !ok || !decodeClosed(t.header, &h, MaxProof) {
		return nil, deny(trust.ReasonKeyProof, "check proof: not a DPoP proof with exactly typ, alg and jwk; send one made for this request")
	}
	if h.Typ != proofType || h.Alg != algorithm {
		return nil, deny(trust.ReasonKeyProof, "check proof: it is a %.32q signed with %.32q, want %q with %q", h.Typ, h.Alg, proofType, algorithm)
	}
	key, ok := h.JWK.key()
	if !ok {
		return nil, deny(trust.ReasonKeyProof, "check proof: its jwk is not an Ed25519 public key")
	}
	var p proofClaims
	if wire.Decode(t.payload, &p, MaxProof) != nil || !validID(p.ID) {
		return nil, deny(trust.ReasonKeyProof, "check proof: its claims are not those of a DPoP proof")
	}
	if p.Method != method {
		return nil, deny(trust.ReasonKeyProof, "check proof: made for method %.16q, the request has %.16q", p.Method, method)
	}
	target, ok := normalize(p.URL)
	if !ok || !slices.ContainsFunc(urls, func(u string) bool { own, ok := normalize(u); return ok && own == target }) {
		return nil, deny(trust.ReasonKeyProof, "check proof: made for %.256q, which is not the URL of this request", target)
	}
	now := time.Now()
	if p.IssuedAt <= 0 || now.Sub(time.Unix(p.IssuedAt, 0)).Abs() > ProofWindow {
		return nil, deny(trust.ReasonKeyProof, "check proof: it is not of the last %d s; set the clocks of both machines", ProofWindow/time.Second)
	}
	if !t.verify(key) {
		return nil, deny(trust.ReasonKeyProof, "check proof: its signature is not of its key")
	}
	switch c.seen.take(key, p.ID, p.IssuedAt, now) {
	case outcomeUsed:
		return nil, deny(trust.ReasonReplayed, "check proof: it was used before; make one for each request")
	case outcomeFull:
		return nil, trust.Deny(wire.CodeResourceExhausted, trust.ReasonBusy, "check proof: too many proofs in the last minutes; try again later")
	}
	return key, nil
}

// normalize brings a URL into the one form in which two of them are compared: without query and fragment (RFC 9449 section
// 4.3), scheme and host in lower case, without the scheme's own port, an empty path as "/", escapes of unreserved
// characters undone and the others in upper case (RFC 3986 sections 6.2.2 and 6.2.3). Dot segments stay: no client sends
// them.
func normalize(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.User != nil || u.Hostname() == "" {
		return "", false
	}
	own := map[string]string{"http": "80", "https": "443"}[u.Scheme] // Parse writes schemes in lower case
	if own == "" {
		return "", false
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" && port != own {
		host += ":" + port
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return u.Scheme + "://" + host + normalizeEscapes(path), true
}

func normalizeEscapes(path string) string {
	const digits = "0123456789ABCDEF"
	if !strings.Contains(path, "%") {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+2 >= len(path) {
			b.WriteByte(path[i])
			continue
		}
		high, low := strings.IndexByte(digits, upper(path[i+1])), strings.IndexByte(digits, upper(path[i+2]))
		c := byte(high<<4 | low)
		switch i += 2; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&0xf])
		}
	}
	return b.String()
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'f' {
		return c - 'a' + 'A'
	}
	return c
}
