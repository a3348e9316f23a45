package oidc_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth/oidc"
)

// BenchmarkVerify times the check of a token like those of real providers beside the bare check of its signature.
func BenchmarkVerify(b *testing.B) {
	for _, bm := range []struct {
		alg string
		key any
	}{{"EdDSA", keys().ed}, {"RS256", keys().rsa}, {"ES256", keys().p256}} {
		l := newLogin()
		signedWith(bm.alg, bm.key, "k", nil)(l)
		for name, v := range map[string]any{
			"azp": us, "jti": "onrtro:5f0b9a3e-7a53-4a6e-8d2c-2c4f3d1e0b9a", "auth_time": l.claims["iat"], "typ": "ID", "acr": "1", "scope": "openid profile email",
			"sid": "8f4ad0b8-54e0-4a2e-9b42-0d1c1d0f6a11", "at_hash": "bFSUTE2CE1dzHJ8bGSqJ5g", "name": "Ada Example", "preferred_username": "ada",
			"given_name": "Ada", "family_name": "Example", "email": "ada@example.com", "email_verified": true,
			"realm_access":    map[string]any{"roles": []string{"default-roles-main", "offline_access", "uma_authorization"}},
			"resource_access": map[string]any{"account": map[string]any{"roles": []string{"manage-account", "view-profile"}}},
		} {
			l.claims[name] = v
		}
		token := l.token()
		at := strings.LastIndex(token, ".")
		input := []byte(token[:at])
		sig, err := base64.RawURLEncoding.DecodeString(token[at+1:])
		if err != nil {
			b.Fatal(err)
		}
		b.Run(bm.alg+"/signature", func(b *testing.B) {
			for b.Loop() {
				if !bare(bm.key, input, sig) {
					b.Fatal("wrong signature")
				}
			}
		})
		b.Run(bm.alg+"/Verify", func(b *testing.B) {
			v, _, _ := l.mesh(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func bare(key any, input, sig []byte) bool {
	sum := sha256.Sum256(input)
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return rsa.VerifyPKCS1v15(&k.PublicKey, crypto.SHA256, sum[:], sig) == nil
	case *ecdsa.PrivateKey:
		return ecdsa.Verify(&k.PublicKey, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:]))
	case ed25519.PrivateKey:
		return ed25519.Verify(k.Public().(ed25519.PublicKey), input, sig)
	}
	return false
}

var _ oidc.KeyResolver = resolver(nil)
