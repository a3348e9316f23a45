package mint_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/secret/filestore"
	"github.com/cotal-go/cotal/trust/mint"
)

// BenchmarkCallout is what one connect costs its callout here, over a store of files, beside one bare signature.
func BenchmarkCallout(b *testing.B) {
	store, err := filestore.New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	a := newMint(b, store)
	if _, err := a.AddSpace(b.Context(), lab, nil); err != nil {
		b.Fatal(err)
	}
	if _, err := a.EnsureCallout(b.Context(), lab); err != nil {
		b.Fatal(err)
	}
	r, err := a.CalloutResponder(b.Context(), lab)
	if err != nil {
		b.Fatal(err)
	}
	request := connection(b)
	token, err := a.ConnectionJWT(b.Context(), lab, request)
	if err != nil {
		b.Fatal(err)
	}
	server, err := nkeys.CreateServer()
	if err != nil {
		b.Fatal(err)
	}
	id, err := server.PublicKey()
	if err != nil {
		b.Fatal(err)
	}
	curve, err := nkeys.CreateCurveKeys()
	if err != nil {
		b.Fatal(err)
	}
	xkey, err := curve.PublicKey()
	if err != nil {
		b.Fatal(err)
	}
	sealed, err := curve.Seal(make([]byte, 2500), r.XKey())
	if err != nil {
		b.Fatal(err)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	do := func(name string, fn func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	payload := []byte(token)
	do("bare_signature", func() error { ed25519.Sign(private, payload); return nil })
	do("ConnectionJWT", func() error { _, err := a.ConnectionJWT(b.Context(), lab, request); return err })
	do("SignResponse", func() error {
		c := jwt.NewAuthorizationResponseClaims(request.UserKey)
		c.Audience, c.Jwt = id, token
		_, err := r.SignResponse(b.Context(), c)
		return err
	})
	do("Open", func() error { _, err := r.Open(sealed, xkey); return err })
	do("Seal", func() error { _, err := r.Seal(payload, xkey); return err })
	back, err := r.Seal(make([]byte, 2500), xkey)
	if err != nil {
		b.Fatal(err)
	}
	do("nkeys_Open", func() error { _, err := curve.Open(back, r.XKey()); return err })
	do("User", func() error {
		_, err := a.User(b.Context(), mint.UserRequest{Space: lab, Profile: request.Profile, Principal: ada, Subscribe: request.Subscribe, Publish: request.Publish})
		return err
	})
}
