package bearer

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// algorithm is the one that is accepted anywhere here (RFC 8037 section 3.1).
const algorithm = "EdDSA"

// compact is a JWS in compact serialization (RFC 7515 section 3.1), taken apart and decoded, not verified.
type compact struct {
	protected string // the first part as it stands in the token
	header    []byte
	payload   []byte
	signed    string // what the signature is over
	signature []byte
}

// parse takes a token apart. Every part must be spelled as an encoder writes it, so one token has one spelling.
func parse(token string, limit int) (compact, bool) {
	if len(token) > limit {
		return compact{}, false
	}
	protected, rest, _ := strings.Cut(token, ".")
	body, sig, three := strings.Cut(rest, ".")
	if !three {
		return compact{}, false
	}
	c := compact{protected: protected, signed: token[:len(protected)+1+len(body)]}
	var ok [3]bool
	c.header, ok[0] = decodeText(protected)
	c.payload, ok[1] = decodeText(body)
	c.signature, ok[2] = decodeText(sig) // a fourth part would have a dot, which is no base64url
	return c, ok[0] && ok[1] && ok[2] && len(c.signature) == ed25519.SignatureSize
}

// verify reports whether key made the signature.
func (c *compact) verify(key ed25519.PublicKey) bool {
	return len(key) == ed25519.PublicKeySize && ed25519.Verify(key, []byte(c.signed), c.signature)
}

// seal returns the token of a protected header, already as base64url, and a payload.
func seal(protected string, v any, sign func(signed []byte) ([]byte, error)) (string, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return "", wire.Errorf(wire.CodeInternal, "encode token: %v", err)
	}
	text := base64.RawURLEncoding
	out := make([]byte, 0, len(protected)+2+text.EncodedLen(len(body))+text.EncodedLen(ed25519.SignatureSize))
	out = append(append(out, protected...), '.')
	out = text.AppendEncode(out, body)
	sig, err := sign(out)
	if err != nil {
		return "", err
	}
	if len(sig) != ed25519.SignatureSize {
		return "", wire.Errorf(wire.CodeInternal, "sign token: the signer made %d bytes, not an Ed25519 signature", len(sig))
	}
	return string(text.AppendEncode(append(out, '.'), sig)), nil
}

// bearerHeader is the whole of a bearer's header.
type bearerHeader struct {
	Alg string `json:"alg"`
	Kid string `json:"kid"`
	Typ string `json:"typ,omitempty"`
}

// The header of what the issuer signs is one text around the kid, which saves reading it as JSON.
const headerStart, headerEnd = `{"alg":"` + algorithm + `","kid":"`, `"}`

// protectedOf returns the header of bearers signed by a key, as base64url.
func protectedOf(kid string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(headerStart + kid + headerEnd))
}

// kidOf reads a bearer's header. What it does not know it refuses, so no header can bring its own key ("jwk", "jku", "x5c",
// "x5u") or ask for processing that does not happen ("crit", "b64", "zip").
func kidOf(header []byte) (string, error) {
	if rest, ok := strings.CutPrefix(string(header), headerStart); ok {
		if kid, ok := strings.CutSuffix(rest, headerEnd); ok && isThumbprint(kid) {
			return kid, nil
		}
	}
	var h bearerHeader
	if !decodeClosed(header, &h, MaxToken) {
		return "", deny(trust.ReasonSignature, "check bearer: its header is not exactly alg and kid; get one from the exchange of this space")
	}
	if h.Alg != algorithm {
		return "", deny(trust.ReasonSignature, "check bearer: signed with %.32q, this space takes %q only", h.Alg, algorithm)
	}
	if h.Typ != "" && !strings.EqualFold(h.Typ, "JWT") {
		return "", deny(trust.ReasonMalformed, "check bearer: it is a %.32q", h.Typ)
	}
	if !isThumbprint(h.Kid) {
		return "", deny(trust.ReasonSignature, "check bearer: its kid is not the thumbprint of a key")
	}
	return h.Kid, nil
}

// isThumbprint reports whether kid has the form of what [Thumbprint] returns.
func isThumbprint(kid string) bool {
	raw, ok := decodeText(kid)
	return ok && len(raw) == sha256.Size
}
