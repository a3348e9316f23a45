package bench

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
)

// persons is how many people sign in: enough to stay below what one of them may ask for in a minute.
const persons = 400

// mounted is the address under which the exchange believes to be served.
const mounted = "https://mesh.example"

// town is a node whose people sign in, with an identity provider that signs with Ed25519.
type town struct {
	l      *lab
	node   *cotal.Node
	store  *memstore.Store
	dir    string
	tokens []string     // identity tokens, one a person
	owners []string     // whose they are
	stop   func() error // of the identity provider
	next   atomic.Int64 // person of the next exchange
	idp    ed25519.PrivateKey
	url    string
}

func (l *lab) newTown(ctx context.Context) (*town, error) {
	t := &town{l: l, store: memstore.New(), dir: filepath.Join(l.dir, fmt.Sprintf("town-%d", l.names.Add(1)))}
	pin, err := t.provider(ctx)
	if err != nil {
		return nil, err
	}
	t.node, err = l.boot(ctx, cotal.New(t.store, &cotal.Options{
		StateDir: t.dir, Port: broker.RandomPort, Transport: broker.Plaintext(), Spaces: []string{string(benchSpace)},
		People: cotal.PeopleOptions{Provider: &pin, MountedURL: func(string) string { return mounted }},
	}))
	if err != nil {
		return nil, err
	}
	return t, t.settle(ctx, pin)
}

// provider serves the key of an identity provider on loopback.
func (t *town) provider(ctx context.Context) (oidc.Pin, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return oidc.Pin{}, fmt.Errorf("make key: %w", err)
	}
	t.idp = private
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "bench", Algorithm: "EdDSA", Use: "sig"}}})
	if err != nil {
		return oidc.Pin{}, fmt.Errorf("encode key: %w", err)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return oidc.Pin{}, fmt.Errorf("listen: %w", err)
	}
	t.url = "http://" + listener.Addr().String()
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(set)
	})}
	go func() { _ = server.Serve(listener) }()
	t.stop = server.Close
	return oidc.Pin{Issuer: t.url, Audience: "bench", ClientID: "bench", JWKSURI: t.url + "/jwks", Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC}, nil
}

// settle grants every person one actor and makes their identity tokens.
func (t *town) settle(ctx context.Context, pin oidc.Pin) error {
	secret, err := trust.LoadOwnerSecret(ctx, t.store, benchSpace)
	if err != nil {
		return err
	}
	idp, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: t.idp}, (&jose.SignerOptions{}).WithHeader("kid", "bench"))
	if err != nil {
		return fmt.Errorf("make signer: %w", err)
	}
	for i := range persons {
		sub := fmt.Sprintf("person-%d", i)
		now := time.Now()
		claims, err := json.Marshal(map[string]any{"iss": pin.Issuer, "aud": pin.Audience, "sub": sub, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()})
		if err != nil {
			return fmt.Errorf("encode claims: %w", err)
		}
		jws, err := idp.Sign(claims)
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		token, err := jws.CompactSerialize()
		if err != nil {
			return fmt.Errorf("encode token: %w", err)
		}
		owner, err := secret.Owner(pin.Issuer, sub)
		if err != nil {
			return err
		}
		_, err = t.node.Authority().Grant(ctx, auth.GrantRequest{
			Space: benchSpace, Owner: owner, Actor: "me", Subscribe: []string{"general", "team.>"}, Publish: []string{"general", "team.>"},
		})
		if err != nil {
			return err
		}
		t.tokens, t.owners = append(t.tokens, token), append(t.owners, owner)
	}
	return nil
}

func (t *town) close() { _ = t.stop() }

// exchange is a client of the loopback face.
func (t *town) exchange() (*login.Exchange, error) {
	c, err := login.ReadCapability(filepath.Join(t.dir, fmt.Sprintf("authority.%x.json", string(benchSpace))))
	if err != nil {
		return nil, err
	}
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	return login.NewExchange(&login.ExchangeOptions{URL: c.URL, HTTP: hc, Capability: func(context.Context) (string, error) { return c.Cap(), nil }})
}

// bearer exchanges the token of the next person.
func (t *town) bearer(ctx context.Context, x *login.Exchange) (login.Bearer, error) {
	i := int(t.next.Add(1)) % len(t.tokens)
	return x.Human(ctx, login.HumanRequest{IDToken: func() string { return t.tokens[i] }, Actor: "me"})
}

// credentials are those of the first n people.
func (t *town) credentials(ctx context.Context, n int) ([]*trust.Credentials, error) {
	x, err := t.exchange()
	if err != nil {
		return nil, err
	}
	out := make([]*trust.Credentials, n)
	for i := range out {
		b, err := x.Human(ctx, login.HumanRequest{IDToken: func() string { return t.tokens[i%len(t.tokens)] }, Actor: "me"})
		if err != nil {
			return nil, err
		}
		if out[i], err = b.Credentials(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// rate measures how often do is done in a second of one core: by the processor time of this process, which other load on the
// machine changes little, and on one core alone. On several the time counts as well in which one of them looks for work.
func rate(workers, n int, do func(context.Context) error) measure {
	return func(ctx context.Context) ([]float64, error) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		began := cpu()
		if err := blastFrom(ctx, workers, n, do); err != nil {
			return nil, err
		}
		return []float64{float64(n) / (cpu() - began).Seconds()}, nil
	}
}

// curve does the Ed25519 work of one operation and nothing else. Keys is how many pairs are made of a seed.
func curve(keys, signs, verifies int) func(context.Context) error {
	public, private, _ := ed25519.GenerateKey(rand.Reader) // never fails
	seed := private.Seed()
	payload := make([]byte, 700) // as long as a token
	sig := ed25519.Sign(private, payload)
	return func(context.Context) error {
		for range keys {
			ed25519.NewKeyFromSeed(seed)
		}
		for range signs {
			sig = ed25519.Sign(private, payload)
		}
		for range verifies {
			if !ed25519.Verify(public, payload, sig) {
				return errors.New("a signature does not verify")
			}
		}
		return nil
	}
}

// exchanges measures proofs exchanged for bearers over HTTP, client included, in a second of one core; the client also signs the proof
// of its key.
func exchanges() pair {
	s := []series{{name: "rate", unit: "exchanges/core-s"}}
	return pair{name: "exchange/http", series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		t, err := l.newTown(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		x, err := t.exchange()
		if err != nil {
			return nil, nil, t.close, err
		}
		n := l.count(1000)
		ours := rate(8, n, func(ctx context.Context) error {
			_, err := t.bearer(ctx, x)
			return err
		})
		return ours, rate(1, n, curve(0, 2, 2)), t.close, nil
	}}
}

// served measures what the exchange itself does with a request, from its handler to the answer, the read of the grant at the broker
// included, beside the signatures of it alone: it verifies the identity token and the proof of a key, and signs the bearer.
func served() pair {
	s := []series{{name: "rate", unit: "exchanges/core-s", ratioAtLeast: 0.5}}
	return pair{name: "exchange/served", series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		t, err := l.newTown(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		key, err := signer.Generate(signer.User)
		if err != nil {
			return nil, nil, t.close, fmt.Errorf("make key: %w", err)
		}
		n := l.count(1000)
		ours := func(ctx context.Context) ([]float64, error) {
			requests := make([]*http.Request, n)
			for i := range requests {
				if requests[i], err = t.request(ctx, key, i); err != nil {
					return nil, err
				}
			}
			h := t.node.ExchangeHandler(string(benchSpace))
			var next atomic.Int64
			return rate(1, n, func(context.Context) error {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, requests[next.Add(1)-1]); w.Code != http.StatusOK {
					return fmt.Errorf("exchange: %d %s", w.Code, w.Body)
				}
				return nil
			})(ctx)
		}
		return ours, rate(1, n, curve(0, 1, 2)), t.close, nil
	}}
}

// request is one exchange of a person as our client asks it, with the proof of a key.
func (t *town) request(ctx context.Context, key signer.Signer, i int) (*http.Request, error) {
	body, err := json.Marshal(struct {
		IDPToken string `json:"idpToken"`
		Actor    string `json:"actor"`
	}{t.tokens[i%len(t.tokens)], "me"})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, mounted+"/exchange", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	proof, err := bearer.Prove(ctx, key, http.MethodPost, mounted+"/exchange", time.Now())
	if err != nil {
		return nil, err
	}
	r.RemoteAddr = "127.0.0.1:1"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("DPoP", proof)
	return r, nil
}

// callouts measures connections of people, client and broker included, in a second of one core, beside the Ed25519 work of one alone: the
// client signs the nonce; the broker verifies the sentinel, twice, makes a key for the connection, signs its question, and verifies the
// answer and the user JWT in it; the callout verifies the question, the bearer and the nonce, and signs the user JWT and the answer.
// That the broker keeps keys as seeds makes three key pairs more: for the name of the new key, and for the name and the signature on
// the question. Counted in crypto/ed25519 on the way of 1,200 connections it was 4 pairs, 4 signatures and 7 verifications each. The
// four X25519 multiplications of the broker's seals are not beside it.
func callouts() pair {
	s := []series{{name: "rate", unit: "connects/core-s", ratioAtLeast: 0.5}}
	return pair{name: "callout", series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		t, err := l.newTown(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		creds, err := t.credentials(ctx, 100)
		if err != nil {
			return nil, nil, t.close, err
		}
		var next atomic.Int64
		n := l.count(600)
		ours := rate(8, n, func(ctx context.Context) error { return t.knock(ctx, creds[int(next.Add(1))%len(creds)]) })
		return ours, rate(1, n, curve(4, 4, 7)), t.close, nil
	}}
}

// knock connects and goes.
func (t *town) knock(ctx context.Context, creds *trust.Credentials) error {
	nc, err := dial.Connect(ctx, dial.Options{URL: t.node.URL(), Creds: creds, Name: "bench"})
	if err != nil {
		return err
	}
	nc.Close()
	return nil
}

// storm measures connections of people while 5,000 others come with tokens that are worth nothing, beside the same without them.
func storm() pair {
	s := []series{{name: "p50", unit: "µs", smaller: true}, {name: "p99", unit: "µs", smaller: true}}
	return pair{name: "storm", rounds: 3, series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		t, err := l.newTown(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		creds, err := t.credentials(ctx, 100)
		if err != nil {
			return nil, nil, t.close, err
		}
		calm := func(ctx context.Context) ([]float64, error) { return t.latency(ctx, creds, nil) }
		wild := func(ctx context.Context) ([]float64, error) {
			over := make(chan struct{})
			errs := make(chan error, 1)
			go func() {
				defer close(over)
				errs <- t.intruders(ctx, creds[0].JWT(), l.count(5000))
			}()
			out, err := t.latency(ctx, creds, over)
			<-over
			return out, errors.Join(err, <-errs)
		}
		return wild, calm, t.close, nil
	}}
}

// latency times connections one after the other: a number of them and, with over, on until that is closed.
func (t *town) latency(ctx context.Context, creds []*trust.Credentials, over <-chan struct{}) ([]float64, error) {
	var took []time.Duration
	for i := 0; i < t.l.singles() || over != nil && !closed(over); i++ {
		began := time.Now()
		if err := t.knock(ctx, creds[i%len(creds)]); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return []float64{quantile(took, 0.5), quantile(took, 0.99)}, nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// intruders connect with tokens that are worth nothing, sixteen at a time.
func (t *town) intruders(ctx context.Context, sentinel string, n int) error {
	_, private, _ := ed25519.GenerateKey(rand.Reader) // never fails
	return blastFrom(ctx, 16, n, func(context.Context) error {
		nc, err := nats.Connect(t.node.URL(), nats.UserJWT(func() (string, error) { return sentinel, nil },
			func(nonce []byte) ([]byte, error) { return ed25519.Sign(private, nonce), nil }), nats.Token("eyJhbGciOiJFZERTQSJ9.e30.AAAA"), nats.NoReconnect())
		if err == nil {
			nc.Close()
			return errors.New("an intruder was let in")
		}
		return nil
	})
}
