package bearer

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// MaxJWKS bounds a published key set in bytes.
const MaxJWKS = 64 << 10

// publicJWK is an Ed25519 public key (RFC 8037 section 2). Its members are in the order that RFC 7638 hashes.
type publicJWK struct {
	Curve string `json:"crv"`
	Type  string `json:"kty"`
	X     string `json:"x"`
}

func jwkOf(key ed25519.PublicKey) publicJWK {
	return publicJWK{Curve: "Ed25519", Type: "OKP", X: base64.RawURLEncoding.EncodeToString(key)}
}

// key returns the key, if it is one that a single holder can sign for.
func (j publicJWK) key() (ed25519.PublicKey, bool) {
	raw, ok := decodeText(j.X)
	if !ok || j.Type != "OKP" || j.Curve != "Ed25519" || len(raw) != ed25519.PublicKeySize || smallOrder(raw) {
		return nil, false
	}
	return raw, true
}

// smallOrder reports whether key is a point of small order, in any encoding. Signatures of such a key can be made by
// anybody, so holding it proves nothing.
func smallOrder(key []byte) bool {
	// y of the eight points of the torsion subgroup, and the two values that mean 0 and 1 above the field's prime.
	const y = "0000000000000000000000000000000000000000000000000000000000000000" +
		"0100000000000000000000000000000000000000000000000000000000000000" +
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05" +
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a" +
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f" +
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f" +
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"
	masked := [ed25519.PublicKeySize]byte(key)
	masked[31] &= 0x7f // the sign of x
	text := hex.EncodeToString(masked[:])
	for i := 0; i < len(y); i += len(text) {
		if y[i:i+len(text)] == text {
			return true
		}
	}
	return false
}

// Thumbprint returns the name of a key: the SHA-256 of its canonical JWK (RFC 7638, RFC 8037 appendix A.3) as 43
// characters of base64url.
func Thumbprint(key ed25519.PublicKey) string {
	hash := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(key) + `"}`))
	return base64.RawURLEncoding.EncodeToString(hash[:])
}

// setJWK is one key of a published set (RFC 7517 section 4).
type setJWK struct {
	publicJWK
	ID  string `json:"kid"`
	Alg string `json:"alg"`
	Use string `json:"use"`
}

type jwkSet struct {
	Keys []setJWK `json:"keys"`
}

func encodeSet(keys []*key) ([]byte, error) {
	set := jwkSet{Keys: []setJWK{}}
	for _, k := range keys {
		set.Keys = append(set.Keys, setJWK{publicJWK: jwkOf(k.public), ID: k.id, Alg: algorithm, Use: "sig"})
	}
	data, err := json.Marshal(set)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode key set: %v", err)
	}
	return data, nil
}

// KeySet is a key set as the issuer published it at some moment, for whoever checks bearers elsewhere. It never changes:
// its owner reads a new one at least every [JWKSMaxAge], and when a kid is unknown.
type KeySet struct{ keys map[string]ed25519.PublicKey }

var _ KeySource = (*KeySet)(nil)

// ParseJWKS reads what the issuer of a space publishes, at most [MaxJWKS] bytes. A key that is not an Ed25519 key under its own
// thumbprint refuses the whole set. Its error has code bad-request.
func ParseJWKS(data []byte) (*KeySet, error) {
	var set jwkSet
	if err := wire.Decode(data, &set, MaxJWKS); err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "read key set: %w", err)
	}
	out := &KeySet{keys: make(map[string]ed25519.PublicKey, len(set.Keys))}
	for _, j := range set.Keys {
		key, ok := j.key()
		if !ok || j.ID != Thumbprint(key) || j.Alg != algorithm || j.Use != "sig" {
			return nil, wire.Errorf(wire.CodeBadRequest, "read key set: key %.64q is not of a space's issuer", j.ID)
		}
		out.keys[j.ID] = key
	}
	if len(out.keys) == 0 {
		return nil, wire.Errorf(wire.CodeBadRequest, "read key set: it is empty")
	}
	return out, nil
}

// decodeText decodes base64url without padding, and only the one spelling that the encoder writes: no line breaks, no
// spare bits.
func decodeText(s string) ([]byte, bool) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return raw, err == nil
}
