package callout

import (
	"bytes"
	"encoding/base64"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/wire"
)

const (
	// MaxRequest bounds a question in bytes, sealed or opened: a CONNECT of trust.MaxControlLine, which may grow by a third when
	// it becomes a JWT, and the certificates of a client.
	MaxRequest = 256 << 10
	// maxHeader bounds the header of a question's JWT in bytes.
	maxHeader = 1 << 10
	// skew is how far the clock of a broker may be from ours. A question is good for one connection attempt, so a late one is of
	// no use to anybody; the check only keeps old ones out of the way.
	skew = 5 * time.Second
)

// The kinds in a question's JWT.
const (
	requestType    = "authorization_request"
	requestVersion = 2
	kindClient     = "Client"
)

// request is a question of a broker: who is connecting, and what they presented. It is what the broker says; Token, Sig and
// Name in it are what the client says.
type request struct {
	Audience string `json:"aud"`
	Expires  int64  `json:"exp"`
	IssuedAt int64  `json:"iat"`
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	NATS     struct {
		Server struct {
			ID   string `json:"id"`
			XKey string `json:"xkey"`
		} `json:"server_id"`
		UserKey string `json:"user_nkey"`
		Client  struct {
			Host  string `json:"host"`
			Kind  string `json:"kind"`
			Nonce string `json:"nonce"`
		} `json:"client_info"`
		Connect struct {
			Sig   string `json:"sig"`
			Token string `json:"auth_token"`
			Name  string `json:"name"`
		} `json:"connect_opts"`
		Type    string `json:"type"`
		Version int    `json:"version"`
	} `json:"nats"`

	signed    []byte // what the signature is over
	signature []byte
}

type requestHeader struct {
	Type      string `json:"typ"`
	Algorithm string `json:"alg"`
}

// decodeRequest takes a question apart and verifies nothing, so that what follows can refuse it before a signature is looked at.
// The JSON is read once: what verify vouches for is what was read here. Its error says nothing of the content.
func decodeRequest(token []byte) (*request, error) {
	if len(token) > MaxRequest {
		return nil, errRequest("larger than the limit")
	}
	head, rest, ok := bytes.Cut(token, []byte("."))
	if !ok {
		return nil, errRequest("not a JWT")
	}
	body, sig, ok := bytes.Cut(rest, []byte("."))
	if !ok || len(head) > maxHeader || len(sig) > maxHeader {
		return nil, errRequest("not a JWT")
	}
	var h requestHeader
	if raw, err := decodePart(head); err != nil || wire.Decode(raw, &h, maxHeader) != nil {
		return nil, errRequest("header")
	}
	if !strings.EqualFold(h.Type, "JWT") || h.Algorithm != "ed25519-nkey" {
		return nil, errRequest("type or algorithm")
	}
	r := &request{signed: token[:len(head)+1+len(body)]}
	raw, err := decodePart(body)
	if err != nil || wire.Decode(raw, r, MaxRequest) != nil {
		return nil, errRequest("claims")
	}
	if r.signature, err = decodePart(sig); err != nil {
		return nil, errRequest("signature")
	}
	if r.NATS.Type != requestType || r.NATS.Version != requestVersion {
		return nil, errRequest("not a question of the auth callout, version 2")
	}
	return r, nil
}

func decodePart(part []byte) ([]byte, error) {
	return base64.RawURLEncoding.AppendDecode(nil, part)
}

func errRequest(what string) error {
	return wire.Errorf(wire.CodeBadRequest, "read question of a broker: %s", what)
}

// fromSealer reports whether the question claims to be from the server that sealed it, and to be for the callout account.
func (r *request) fromSealer(xkey, account string) bool {
	return r.NATS.Server.XKey == xkey && r.Issuer == r.NATS.Server.ID && r.Audience == wire.CalloutAudience && r.Subject == account
}

// window is how long the broker waits for the answer, by its own clock.
func (r *request) window() time.Duration { return time.Duration(r.Expires-r.IssuedAt) * time.Second }

// current reports whether the broker still waits. Times are whole seconds.
func (r *request) current(now time.Time) bool {
	if r.IssuedAt <= 0 || r.Expires <= r.IssuedAt || r.window() > time.Hour {
		return false
	}
	return now.Before(time.Unix(r.Expires+1, 0).Add(skew)) && !now.Before(time.Unix(r.IssuedAt, 0).Add(-skew))
}

// answerable reports whether the question names a key that an answer can be about.
func (r *request) answerable() bool { return nkeys.IsValidPublicUserKey(r.NATS.UserKey) }

// verify reports whether the server that the question names signed it.
func (r *request) verify() bool {
	if !nkeys.IsValidPublicServerKey(r.Issuer) {
		return false
	}
	key, err := nkeys.FromPublicKey(r.Issuer)
	return err == nil && key.Verify(r.signed, r.signature) == nil
}
