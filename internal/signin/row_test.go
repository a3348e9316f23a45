package signin_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestRow5OneSuiteForEveryProvider: what a mesh promises about people is the same whichever provider they sign in at, and whichever
// algorithm it signs with: who they are, what they get, that a name is nobody without a grant, that the session goes on, that the
// tokens of one provider are worth nothing where another is pinned, and that signing out ends it.
func TestRow5OneSuiteForEveryProvider(t *testing.T) {
	t.Parallel()
	algorithms := sync.Map{}
	everyProvider(t, func(t *testing.T, k idptest.Kind) {
		w := newWorld(t, k, nil)
		algorithms.Store(strings.Join(w.pin.Algorithms, " "), k)
		ada := w.grant(t, "ada", "ada", nil)
		x := w.exchange(t)
		src := w.signIn(t, "ada")
		b := bearerOf(t, x, src)
		if b.Owner != ada.Owner || b.UID != ada.UID || b.UserKey != x.UserKey() {
			t.Errorf("bearer of %s.%s, life %s, key %s", b.Owner, b.Actor, b.UID, b.UserKey)
		}
		if _, err := login.HumanSource(x, w.signIn(t, "bob"), login.HumanRequest{Actor: "ada"}).Bearer(t.Context()); trust.ReasonOf(err) != trust.ReasonNotGranted {
			t.Errorf("somebody else under the same name: %v, want not-granted", err)
		}
		token, _, err := src.IDToken(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, bad := range map[string]string{
			"changed": token[:len(token)-6] + "AAAAAA", "cut": token[:len(token)/2], "unsigned": token[:strings.LastIndexByte(token, '.')+1],
		} {
			if _, err := x.Human(t.Context(), login.HumanRequest{IDToken: func() string { return bad }, Actor: "ada"}); !errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, wire.ErrBadRequest) {
				t.Errorf("a token that was %s: %v, want unauthenticated", name, err)
			}
		}
		other := newWorldBeside(t, w, func(p *oidcPin) { p.Issuer += "/other" })
		other.grant(t, "ada", "ada", nil)
		if _, err := other.exchange(t).Human(t.Context(), login.HumanRequest{IDToken: func() string { return token }, Actor: "ada"}); trust.ReasonOf(err) != trust.ReasonIssuer {
			t.Errorf("where another provider is pinned: %v, want wrong-issuer", err)
		}
		if err := src.Logout(t.Context()); err != nil && !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("sign out: %v", err)
		}
		if _, _, err := src.IDToken(t.Context()); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("after signing out: %v, want unauthenticated", err)
		}
	})
}

// newWorldBeside is another mesh with the same identity provider, pinned in another way.
func newWorldBeside(t *testing.T, w *world, edit func(*oidcPin)) *world {
	t.Helper()
	pin := w.pin
	edit(&pin)
	other := &world{idp: w.idp, pin: pin, dir: t.TempDir()}
	other.Mesh = cotaltest.New(t, &cotaltest.Options{Listen: true, StateDir: other.dir, People: cotal.PeopleOptions{Provider: &pin, HTTP: w.idp.HTTP()}})
	return other
}

// TestRow13NothingOfOneMeshOpensAnother takes everything that a person, an agent and a client have at one mesh to another that trusts the
// same identity provider, where the same person and the same names are granted too.
func TestRow13NothingOfOneMeshOpensAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idptest.Zitadel, nil)
	other := newWorldBeside(t, w, func(p *oidcPin) { p.ClientID, p.Audience = "another-mesh", "another-mesh" })
	var secrets [2]func() string
	for i, m := range []*world{w, other} {
		life := m.grant(t, "ada", "ada", nil).Lifecycle()
		helper, err := authtest.Grant(t.Context(), m.Node().Authority(), auth.GrantRequest{Space: m.Space(), Actor: "helper", Parent: &life, Subscribe: []string{"general"}})
		if err != nil {
			t.Fatal(err)
		}
		secrets[i] = helper.Secret
	}
	here, there := w.exchange(t), other.exchange(t)
	b := bearerOf(t, here, w.signIn(t, "ada"))
	agent := func(x *login.Exchange, m *world, secret func() string) error {
		_, err := x.Agent(t.Context(), login.AgentRequest{Owner: m.owner(t, "ada"), Actor: "helper", ActorToken: secret})
		return err
	}
	for name, try := range map[string]func() error{
		"a bearer in place of an identity token": func() error {
			_, err := there.Human(t.Context(), login.HumanRequest{IDToken: b.Reveal, Actor: "ada"})
			return err
		},
		"the secret of an agent":                     func() error { return agent(there, other, secrets[0]) },
		"the secret of an agent under its own owner": func() error { return agent(there, w, secrets[0]) },
		"the capability": func() error {
			c := w.capability(t)
			x, err := login.NewExchange(&login.ExchangeOptions{URL: other.capability(t).URL, Capability: func(context.Context) (string, error) { return c.Cap(), nil }})
			if err != nil {
				t.Fatal(err)
			}
			return agent(x, other, secrets[1])
		},
		"a bearer of the same name at its broker": func() error {
			creds, err := b.Credentials()
			if err != nil {
				t.Fatal(err)
			}
			return knock(t, other, creds)
		},
		"that bearer with the sentinel of there": func() error {
			id := b.Identity()
			own := bearerOfAgent(t, there, other, secrets[1])
			creds, err := own.Credentials()
			if err != nil {
				t.Fatal(err)
			}
			id.UserKey = ""
			mixed, err := trust.NewBearerCredentials(trust.Bearer{Sentinel: creds.JWT(), Token: b.Reveal(), Seed: thiefSeed(t), Identity: id})
			if err != nil {
				t.Fatal(err)
			}
			return knock(t, other, mixed)
		},
	} {
		if err := try(); !errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, wire.ErrBadRequest) && !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("%s of one mesh at the other: %v, want a refusal", name, err)
		}
	}
	if err := agent(here, w, secrets[0]); err != nil {
		t.Errorf("the secret of an agent at its own mesh: %v", err)
	}
	if err := agent(there, other, secrets[1]); err != nil {
		t.Errorf("that of the other at its own: %v", err)
	}
}

// TestRow14WhatIsOverheardIsNotEnough: somebody hears every byte between a person's client and the mesh, at the exchange and at the broker, and
// says all of it again, word for word.
func TestRow14WhatIsOverheardIsNotEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idptest.Zitadel, nil)
	w.grant(t, "ada", "ada", nil)
	src := w.signIn(t, "ada")
	c := w.capability(t)
	ear := &ear{next: http.DefaultTransport}
	x, err := login.NewExchange(&login.ExchangeOptions{
		URL: c.URL, HTTP: &http.Client{Transport: ear}, Capability: func(context.Context) (string, error) { return c.Cap(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	b := bearerOf(t, x, src)
	creds, err := b.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	status := func() int {
		req := ear.again(t)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	if got := status(); got != http.StatusUnauthorized && got != http.StatusConflict {
		t.Errorf("the same request at the exchange once more: %d, want it refused", got)
	}

	tap := newTap(t, strings.TrimPrefix(w.URL(), "nats://"))
	nc, err := dial.Connect(t.Context(), dial.Options{URL: "nats://" + tap.addr, Creds: creds, Name: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	line := tap.connectLine(t)
	if !strings.Contains(line, b.Reveal()) {
		t.Fatal("the bearer was not heard, so nothing is proved")
	}
	if got := say(t, strings.TrimPrefix(w.URL(), "nats://"), line); !strings.Contains(got, "Authorization Violation") {
		t.Errorf("the same CONNECT once more: %q, want a refusal", got)
	}
	if err := knock(t, w, creds); err != nil {
		t.Errorf("its holder once more: %v", err)
	}
	bearerOf(t, x, src)
}

// TestRow14BearersDoNotCrossNetworksInTheClear: with a bearer a client of ours connects to loopback or by TLS, and to nothing else.
func TestRow14BearersDoNotCrossNetworksInTheClear(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idptest.Zitadel, nil)
	w.grant(t, "ada", "ada", nil)
	person := login.HumanSource(w.exchange(t), w.signIn(t, "ada"), login.HumanRequest{Actor: "ada"})
	for _, server := range []string{"nats://mesh.example:4222", "nats://192.0.2.1:4222", "192.0.2.1:4222", "ws://mesh.example", "nats://localhost.example:4222"} {
		ep, err := endpoint.Connect(t.Context(), server, person, nil)
		if err == nil {
			_ = ep.Close()
		}
		if wire.CodeOf(err) != wire.CodeFailedPrecondition && !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("connect to %s: %v, want a refusal before anything is sent", server, err)
		}
	}
	w.join(t, person)
	for _, address := range []string{"http://mesh.example", "http://192.0.2.1:8080", "ftp://mesh.example"} {
		if _, err := login.NewExchange(&login.ExchangeOptions{URL: address}); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("an exchange at %s: %v, want bad-request", address, err)
		}
	}
}

// ear hears what a client asks over HTTP.
type ear struct {
	next http.RoundTripper
	mu   sync.Mutex
	last *http.Request
	body []byte
}

func (e *ear) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.last, e.body = r.Clone(context.WithoutCancel(r.Context())), body
	e.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	return e.next.RoundTrip(r)
}

// again is the last request, word for word.
func (e *ear) again(t *testing.T) *http.Request {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.last.Clone(t.Context())
	r.Body = io.NopCloser(bytes.NewReader(e.body))
	return r
}

// tap passes one connection on and hears it.
type tap struct {
	addr  string
	lines chan string // CONNECT lines
}

func newTap(t *testing.T, target string) *tap {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{addr: l.Addr().String(), lines: make(chan string, 8)}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = l.Close() })
	wg.Go(func() {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", target)
		if err != nil {
			_ = in.Close()
			return
		}
		wg.Go(func() {
			defer func() { _ = in.Close() }()
			_, _ = io.Copy(in, out)
		})
		defer func() { _ = out.Close() }()
		for r := bufio.NewReaderSize(in, 64<<10); ; {
			line, err := r.ReadString('\n')
			if strings.HasPrefix(line, "CONNECT ") {
				p.lines <- line
			}
			if _, werr := io.WriteString(out, line); err != nil || werr != nil {
				return
			}
		}
	})
	return p
}

func (p *tap) connectLine(t *testing.T) string {
	t.Helper()
	line := <-p.lines
	var o map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "CONNECT ")), &o); err != nil {
		t.Fatal(err)
	}
	return line
}

// say sends a line to a broker and returns what it answers after its greeting.
func say(t *testing.T, addr, line string) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, line+"PING\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, _ := r.ReadString('\n')
	return answer
}
