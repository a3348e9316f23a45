package bearer

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"

	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/wire"
)

// maxNonce bounds the nonce of a broker in bytes; theirs have 15.
const maxNonce = 64

// SignNonce signs the nonce of a broker's INFO, as the signature callback of a NATS connection does. It refuses what is not a
// nonce: the same key signs proofs, and a hostile broker could have it sign one by calling it a nonce.
//
// Errors: bad-request for what is no nonce; what the signer returns.
func SignNonce(ctx context.Context, key signer.Signer, nonce []byte) ([]byte, error) {
	if !isNonce(nonce) {
		return nil, wire.Errorf(wire.CodeBadRequest, "sign nonce: the broker sent %d bytes that are not a nonce", len(nonce))
	}
	return key.Sign(ctx, nonce)
}

// SignsNonce reports whether sig, as it stands in a CONNECT, is the signature of key over the nonce that the broker sent. Like
// the broker it takes base64url without padding, which clients of NATS write, and standard base64 with it (both RFC 4648).
// An empty nonce proves nothing and is refused, as is a key whose signatures anybody can make.
func SignsNonce(key ed25519.PublicKey, nonce, sig string) bool {
	if len(key) != ed25519.PublicKeySize || smallOrder(key) || !isNonce([]byte(nonce)) || len(sig) > 2*ed25519.SignatureSize {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(sig)
	if err != nil {
		if raw, err = base64.StdEncoding.DecodeString(sig); err != nil {
			return false
		}
	}
	return len(raw) == ed25519.SignatureSize && ed25519.Verify(key, []byte(nonce), raw)
}

// isNonce tells a nonce from the first two parts of a signed token, which are joined by a dot.
func isNonce(nonce []byte) bool {
	return len(nonce) > 0 && len(nonce) <= maxNonce && !bytes.Contains(nonce, []byte("."))
}
