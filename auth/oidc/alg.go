package oidc

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// The signature algorithms of RFC 7518 section 3.1 and RFC 8037 that a pin may name. Left out are "none", everything with
// a shared secret, and what no provider signs identity tokens with.
const (
	rs256 = "RS256"
	rs384 = "RS384"
	rs512 = "RS512"
	ps256 = "PS256"
	es256 = "ES256"
	es384 = "ES384"
	edDSA = "EdDSA"
)

// ed25519Name is what RFC 9864 calls EdDSA with Ed25519; a key may carry it.
const ed25519Name = "Ed25519"

// minRSABits is RFC 7518 section 3.3. The most is 4096, by the parser.
const minRSABits = 2048

var accepted = []string{rs256, rs384, rs512, ps256, es256, es384, edDSA}

// Algorithms returns every algorithm that a [Pin] may name, in no order of merit.
func Algorithms() []string { return slices.Clone(accepted) }

// fits reports whether a key may check signatures of an algorithm: the algorithm belongs to the key's type and curve, is
// the key's own where it names one, and the key is for signatures and long enough.
func fits(k *jose.JSONWebKey, alg string) bool {
	if k.Use != "" && k.Use != "sig" {
		return false
	}
	if k.Algorithm != "" && k.Algorithm != alg && (alg != edDSA || k.Algorithm != ed25519Name) {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		switch alg {
		case rs256, rs384, rs512, ps256:
			return key != nil && key.N != nil && key.N.BitLen() >= minRSABits
		}
	case *ecdsa.PublicKey:
		switch alg {
		case es256:
			return key != nil && key.Curve == elliptic.P256()
		case es384:
			return key != nil && key.Curve == elliptic.P384()
		}
	case ed25519.PublicKey:
		return alg == edDSA && len(key) == ed25519.PublicKeySize
	}
	return false
}
