package trust_test

import (
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// question is what a broker asked a callout.
type question struct {
	r      *realm
	space  wire.Space
	keys   *mint.Responder
	asked  *jwt.AuthorizationRequestClaims
	sealed string // the curve key of the server that asked
}

// answers serves a space as its only responder until the test ends: answer returns the bytes that go back, nil for none.
func (r *realm) answers(t testing.TB, s wire.Space, answer func(q question) []byte) *nats.Conn {
	t.Helper()
	keys, err := r.mint.CalloutResponder(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := r.mint.CalloutUser(t.Context(), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	nc, _, err := r.connect(creds)
	if err != nil {
		t.Fatalf("the responder of space %q: %v", s, err)
	}
	t.Cleanup(nc.Close)
	_, err = nc.QueueSubscribe(wire.CalloutSubject, wire.CalloutQueue, func(m *nats.Msg) {
		q := question{r: r, space: s, keys: keys, sealed: m.Header.Get(wire.CalloutKeyHeader)}
		plain, err := keys.Open(m.Data, q.sealed)
		if err == nil {
			q.asked, err = jwt.DecodeAuthorizationRequestClaims(string(plain))
		}
		if err != nil {
			t.Errorf("a question that cannot be read: %v", err)
			return
		}
		if out := answer(q); out != nil {
			if err := m.Respond(out); err != nil {
				t.Error(err)
			}
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// user is a connection of ada's as the callout of the space would let her in, changed by edit and signed by the agent key.
func (q question) user(t testing.TB, edit func(c *jwt.UserClaims)) string {
	t.Helper()
	token, err := q.r.mint.ConnectionJWT(t.Context(), q.space, mint.ConnectionRequest{
		UserRequest: mint.UserRequest{
			Profile: trust.Agent, Principal: ada, UID: adaUID, Role: "reviewer", Commands: []string{"manager.spawn"},
			Subscribe: []string{"general", "team.>"}, Publish: []string{"general", "log.*"},
		},
		UserKey: q.asked.UserNkey, Expires: time.Now().Add(5 * time.Minute),
	})
	if err != nil {
		t.Error(err)
		return ""
	}
	if edit == nil {
		return token
	}
	c, err := jwt.DecodeUserClaims(token)
	if err != nil {
		t.Error(err)
		return ""
	}
	edit(c)
	return q.r.signWith(t, trust.SigningKey(q.space, trust.Agent), c)
}

// answer is the answer that brings a user in, changed by edit, signed and sealed.
func (q question) answer(t testing.TB, user string, edit func(c *jwt.AuthorizationResponseClaims)) []byte {
	t.Helper()
	c := jwt.NewAuthorizationResponseClaims(q.asked.UserNkey)
	c.Audience, c.Jwt = q.asked.Server.ID, user
	if edit != nil {
		edit(c)
	}
	token, err := q.keys.SignResponse(t.Context(), c)
	if err != nil {
		t.Error(err)
		return nil
	}
	return q.seal(t, token)
}

func (q question) seal(t testing.TB, token string) []byte {
	t.Helper()
	out, err := q.keys.Seal([]byte(token), q.sealed)
	if err != nil {
		t.Error(err)
	}
	return out
}

// proved reports whether the holder of a user key signed the nonce of the broker.
func (q question) proved(t testing.TB, userKey string) bool {
	t.Helper()
	public, err := nkeys.FromPublicKey(userKey)
	if err != nil {
		t.Error(err)
		return false
	}
	sig, err := base64.RawURLEncoding.DecodeString(q.asked.ConnectOptions.SignedNonce)
	return err == nil && public.Verify([]byte(q.asked.ClientInformation.Nonce), sig) == nil
}

// signWith signs claims with a seed of the store, whatever they say.
func (r *realm) signWith(t testing.TB, key string, c jwt.Claims) string {
	t.Helper()
	seed, err := r.store.Get(t.Context(), key)
	if err != nil {
		t.Error(err)
		return ""
	}
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		t.Error(err)
		return ""
	}
	token, err := c.Encode(pair)
	if err != nil {
		t.Error(err)
	}
	return token
}

// bearer is what ada has after she signed in to a space.
func (r *realm) bearer(t testing.TB, s wire.Space, token string) *trust.Credentials {
	t.Helper()
	sentinel, err := r.mint.Sentinel(t.Context(), s, 0)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	creds, err := trust.NewBearerCredentials(trust.Bearer{Sentinel: sentinel, Token: token, Seed: key.Seed().Reveal(), Identity: trust.Identity{
		Space: s, Profile: trust.Agent, Lifecycle: wire.Lifecycle{Principal: ada, UID: adaUID}, Inbox: string(adaUID),
		IssuedAt: now, Expires: now.Add(5 * time.Minute),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// knock connects as our own roles do.
func (r *realm) knock(t testing.TB, c *trust.Credentials) (*nats.Conn, error) {
	t.Helper()
	nc, err := dial.Connect(t.Context(), dial.Options{InProcess: r.srv.InProcess(), Creds: c, Name: "local.ada"})
	if err == nil {
		t.Cleanup(nc.Close)
	}
	return nc, err
}

// turnedAway wants a knock to be refused.
func (r *realm) turnedAway(t testing.TB, what string, s wire.Space) {
	t.Helper()
	if nc, err := r.knock(t, r.bearer(t, s, "token")); !errors.Is(err, wire.ErrUnauthenticated) {
		if err == nil {
			nc.Close()
		}
		t.Errorf("%s: knock = %v, want a refusal", what, err)
	}
}
