package bearer_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/wire"
)

// connects keeps what a real broker was shown by a real client.
type connects struct {
	mu         sync.Mutex // guards the fields below
	nonce, sig string
}

func (c *connects) Check(client server.ClientAuthentication) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nonce, c.sig = string(client.GetNonce()), client.GetOpts().Sig
	return true
}

// TestSignsNonceOfRealClient takes nonce and signature as the broker that is linked here gives them, from the client that is.
func TestSignsNonceOfRealClient(t *testing.T) {
	t.Parallel()
	var seen connects
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true, AlwaysEnableNonce: true, CustomClientAuthentication: &seen})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("the broker does not start")
	}
	key := newKey(t)
	sign := func(nonce []byte) ([]byte, error) { return bearer.SignNonce(t.Context(), key, nonce) }
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.NoReconnect(), nats.Timeout(time.Minute), nats.Nkey(key.Public(), sign))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if !bearer.SignsNonce(publicOf(t, key), seen.nonce, seen.sig) {
		t.Errorf("the signature %q of nonce %q is not accepted", seen.sig, seen.nonce)
	}
	if bearer.SignsNonce(publicOf(t, newKey(t)), seen.nonce, seen.sig) || bearer.SignsNonce(publicOf(t, key), seen.nonce+"x", seen.sig) {
		t.Error("the signature is accepted for another key or nonce")
	}
}

func TestSignsNonce(t *testing.T) {
	t.Parallel()
	const nonce = "PXoWU7zWAMt75FY"
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	sig := ed25519.Sign(private, []byte(nonce))
	raw, std := base64.RawURLEncoding.EncodeToString(sig), base64.StdEncoding.EncodeToString(sig)
	for _, c := range []struct {
		name, nonce, sig string
		key              ed25519.PublicKey
		want             bool
	}{
		{"as clients write it", nonce, raw, public, true},
		{"standard base64", nonce, std, public, true},
		{"other nonce", nonce + "x", raw, public, false},
		{"no nonce", "", raw, public, false},
		{"signed no nonce", "", base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, nil)), public, false},
		{"no signature", nonce, "", public, false},
		{"no base64", nonce, raw[:80] + "!!!!!!", public, false},
		{"short", nonce, raw[:40], public, false},
		{"long", nonce, raw + raw, public, false},
		{"of the encoded nonce", nonce, base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte("UFhvV1U3eldBTXQ3NUZZ"))), public, false},
		{"no key", nonce, raw, nil, false},
		{"short key", nonce, raw, public[:31], false},
		{"long key", nonce, raw, append(bytes.Clone(public), 0), false},
	} {
		if got := bearer.SignsNonce(c.key, c.nonce, c.sig); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestSignNonceSignsNoProof: a hostile broker calls the first two parts of a proof a nonce, to exchange what it stole.
func TestSignNonceSignsNoProof(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	x := base64.RawURLEncoding.EncodeToString(publicOf(t, key))
	header := fields{"typ": "dpop+jwt", "alg": "EdDSA", "jwk": fields{"kty": "OKP", "crv": "Ed25519", "x": x}}
	proof := part(t, header) + "." + part(t, fields{"jti": "one", "htm": "POST", "htu": exchange, "iat": time.Now().Unix()})
	for name, nonce := range map[string]string{"a proof": proof, "a short token": "e30.e30", "too long": strings.Repeat("n", 65), "empty": ""} {
		if sig, err := bearer.SignNonce(t.Context(), key, []byte(nonce)); sig != nil || wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("%s was signed: %v", name, err)
		}
	}
	if _, err := bearer.SignNonce(t.Context(), signer.Refuse{}, []byte("PXoWU7zWAMt75FY")); err == nil {
		t.Error("a signer that refuses signed")
	}
}

// TestKeysOfSmallOrder: with such a key a signature can be made by anybody, which this does, and we take none of them.
func TestKeysOfSmallOrder(t *testing.T) {
	t.Parallel()
	points := [][]byte{}
	for _, text := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000", "0100000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		y, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		signed := bytes.Clone(y)
		signed[31] |= 0x80
		points = append(points, y, signed)
	}
	forged := 0
	for _, key := range points {
		nonce, sig := forgeNonce(key, points)
		if sig == "" {
			continue // an encoding that this version of the library reads as no point
		}
		forged++
		if bearer.SignsNonce(key, nonce, sig) {
			t.Errorf("key %x: a signature that nobody's key made is accepted", key)
		}
	}
	if forged < 8 {
		t.Errorf("only %d of the keys could be forged for", forged)
	}
}

// forgeNonce looks for a nonce whose signature (R, 0) with R of small order holds under a key of small order.
func forgeNonce(key ed25519.PublicKey, points [][]byte) (nonce, sig string) {
	for i := range byte(64) {
		nonce := "nonce" + string('A'+i)
		for _, r := range points {
			raw := append(bytes.Clone(r), make([]byte, 32)...)
			if ed25519.Verify(key, []byte(nonce), raw) {
				return nonce, base64.RawURLEncoding.EncodeToString(raw)
			}
		}
	}
	return "", ""
}
