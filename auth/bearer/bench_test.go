package bearer_test

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/auth/bearer"
)

// The benchmarks put the whole of signing and checking beside the bare signature, and beside go-jose doing the part of the
// work that it would do.

func BenchmarkSign(b *testing.B) {
	d, c := newDesk(b), claims(b)
	signed := []byte(d.sign(b, c)[:600])
	key := d.private(b, 0)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			ed25519.Sign(key, signed)
		}
	})
	b.Run("bearer", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := d.issuer.Sign(b.Context(), c, bearer.MaxHumanLife); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("go-jose", func(b *testing.B) {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: d.record(b).ActiveKid}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		_, payload := d.good(b)
		for b.Loop() {
			data, err := json.Marshal(payload)
			if err != nil {
				b.Fatal(err)
			}
			token, err := s.Sign(data)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := token.CompactSerialize(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	d := newDesk(b)
	token := d.sign(b, claims(b))
	public := d.private(b, 0).Public().(ed25519.PublicKey)
	signed, sig, _ := cutLast(token)
	b.Logf("a token of %d bytes", len(token))
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if !ed25519.Verify(public, signed, sig) {
				b.Fatal("not verified")
			}
		}
	})
	b.Run("bearer", func(b *testing.B) {
		for b.Loop() {
			if _, err := d.validator.Validate(b.Context(), token); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("peek", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := d.validator.Peek(token); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("go-jose", func(b *testing.B) {
		for b.Loop() {
			t, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := t.Verify(public); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkProof(b *testing.B) {
	key := newKey(b)
	const url = "https://mesh.example/exchange"
	proof, err := bearer.Prove(b.Context(), key, "POST", url, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("prove", func(b *testing.B) {
		for b.Loop() {
			if _, err := bearer.Prove(b.Context(), key, "POST", url, time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("check", func(b *testing.B) { // until "used before", which is the last thing that is looked at
		c := bearer.NewProofChecker(nil)
		for b.Loop() {
			if _, err := c.Check(proof, "POST", url); err != nil && !strings.Contains(err.Error(), "used before") {
				b.Fatal(err)
			}
		}
	})
}
