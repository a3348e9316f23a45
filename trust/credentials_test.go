package trust_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// newMint is an authority with one space and no broker.
func newMint(t testing.TB) *mint.Authority {
	t.Helper()
	a, err := mint.Init(t.Context(), memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.AddSpace(t.Context(), space, nil); err != nil {
		t.Fatal(err)
	}
	return a
}

func agent(t testing.TB, a *mint.Authority) *trust.Credentials {
	t.Helper()
	creds, err := a.User(t.Context(), mint.UserRequest{
		Space: space, Profile: trust.Agent, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "Ada_1"}, Role: "code-Review",
		Subscribe: []string{"general", "Team.*"}, Publish: []string{">"}, Commands: []string{"manager.spawn", "com_acme_deploy.run"}, Spawns: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

func TestCredentialsPrintNothingSecret(t *testing.T) {
	c := agent(t, newMint(t))
	file := c.Reveal()
	pair, err := nkeys.ParseDecoratedNKey(file)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	secrets := [][]byte{seed, seed[2:40], []byte(c.JWT())}
	type pointer struct{ creds *trust.Credentials }
	type value struct{ creds trust.Credentials }
	type exported struct {
		Creds *trust.Credentials
		Value trust.Credentials
	}
	for _, v := range []any{
		c, *c, &c, pointer{c}, &pointer{c}, value{*c}, &value{*c}, exported{c, *c}, []trust.Credentials{*c}, map[string]*trust.Credentials{"k": c},
		[]any{pointer{c}, value{*c}}, fmt.Errorf("wrapped: %v", c), struct{ any }{value{*c}}, (*trust.Credentials)(nil), trust.Credentials{},
	} {
		signertest.CheckHidden(t, v, secrets...)
		var log bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
			slog.New(h).Info("value", "v", v, slog.Group("g", "v", v))
		}
		for i, s := range secrets {
			if bytes.Contains(log.Bytes(), s) {
				t.Errorf("the log of a %T shows secret %d", v, i)
			}
		}
	}
	if text, err := json.Marshal(exported{c, *c}); err != nil || !strings.Contains(string(text), "local.Ada_1") {
		t.Errorf("JSON of credentials = %s, %v, want who it is for", text, err)
	}
}

func TestCredentialsRoundTrip(t *testing.T) {
	c := agent(t, newMint(t))
	again, err := trust.ParseCredentials(c.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Identity(), again.Identity()); diff != "" || c.JWT() != again.JWT() {
		t.Errorf("the credential changed on its way through a file:\n%s", diff)
	}
	id := again.Identity()
	want := trust.Identity{
		Space: space, Profile: trust.Agent, Lifecycle: id.Lifecycle, Inbox: string(id.UID), Role: "code-Review",
		Subscribe: []string{"general", "Team.*"}, Publish: []string{">"}, Commands: []string{"manager.spawn", "com_acme_deploy.run"}, Spawns: true,
		UserKey: id.UserKey, IssuedAt: id.IssuedAt, Expires: id.IssuedAt.Add(24 * time.Hour),
	}
	if diff := cmp.Diff(want, id); diff != "" || id.Actor != "Ada_1" || !nkeys.IsValidPublicUserKey(id.UserKey) {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	sig, err := again.Sign([]byte("nonce"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := nkeys.FromPublicKey(id.UserKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := public.Verify([]byte("nonce"), sig); err != nil {
		t.Errorf("signature of the nonce: %v", err)
	}
}

func TestCredentialsReadByOtherTools(t *testing.T) {
	c := agent(t, newMint(t))
	token, err := nkeys.ParseDecoratedJWT(c.Reveal())
	if err != nil || token != c.JWT() {
		t.Errorf("NATS tools read the JWT as %d bytes, %v", len(token), err)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(c.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if public, err := pair.PublicKey(); err != nil || public != c.Identity().UserKey {
		t.Errorf("NATS tools read the key as %q, %v", public, err)
	}
}

func TestCredentialsLifetime(t *testing.T) {
	a := newMint(t)
	c, err := a.User(t.Context(), mint.UserRequest{Space: space, Profile: trust.Agent, Principal: ada, TTL: 100 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	id := c.Identity()
	if got := id.Expires.Sub(id.IssuedAt); got < 100*time.Second || got > 101*time.Second {
		t.Errorf("lifetime = %s, want 100 s", got)
	}
	if got := c.RenewAt().Sub(id.IssuedAt); got < 75*time.Second || got > 76*time.Second {
		t.Errorf("renewal after %s, want 75 s", got)
	}
	if c.Expired(id.Expires.Add(-time.Nanosecond)) || !c.Expired(id.Expires) {
		t.Error("a credential expires exactly at its end")
	}
}

func TestParseCredentialsRefuses(t *testing.T) {
	a := newMint(t)
	one, two := string(agent(t, a).Reveal()), string(agent(t, a).Reveal())
	seedOf := func(file string) string { return between(file, "-----BEGIN USER NKEY SEED-----\n", "\n---") }
	jwtOf := func(file string) string { return between(file, "-----BEGIN NATS USER JWT-----\n", "\n---") }
	for name, file := range map[string]string{
		"nothing":          "",
		"words":            "not credentials",
		"two files":        one + two,
		"foreign seed":     strings.Replace(one, seedOf(one), seedOf(two), 1),
		"no seed":          strings.Replace(one, seedOf(one), "", 1),
		"account seed":     strings.Replace(one, seedOf(one), "SAAHPQF3GOP4IP5SHKHCNBOHD5TMGSW4QQL6RTZAPEEYOQ2NRBIAKCCLQA", 1),
		"cut JWT":          strings.Replace(one, jwtOf(one), jwtOf(one)[:80], 1),
		"changed JWT":      strings.Replace(one, jwtOf(one), flip(jwtOf(one)), 1),
		"swapped parts":    strings.NewReplacer(jwtOf(one), seedOf(one), seedOf(one), jwtOf(one)).Replace(one),
		"space inside":     strings.Replace(one, jwtOf(one), jwtOf(one)[:80]+" "+jwtOf(one)[80:], 1),
		"too large":        one + strings.Repeat("x", 64<<10),
		"end before begin": "------END NATS USER JWT------\n-----BEGIN NATS USER JWT-----\nx\n" + one[strings.Index(one, "-----BEGIN USER"):],
	} {
		c, err := trust.ParseCredentials([]byte(file))
		if !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, %v, want a bad request", name, c, err)
		} else if len(file) > 0 && (strings.Contains(err.Error(), seedOf(one)) || strings.Contains(err.Error(), "eyJ")) {
			t.Errorf("%s: the error quotes the file: %v", name, err)
		}
	}
}

func between(s, begin, end string) string {
	_, rest, _ := strings.Cut(s, begin)
	body, _, _ := strings.Cut(rest, end)
	return body
}

// flip changes one character of the claims.
func flip(token string) string {
	b := []byte(token)
	b[len(b)/2] ^= 1
	return string(b)
}

func FuzzParseCredentials(f *testing.F) {
	file := agent(f, newMint(f)).Reveal()
	f.Add(file)
	f.Add(bytes.ReplaceAll(file, []byte("\n"), []byte("\r\n")))
	f.Add([]byte("-----BEGIN NATS USER JWT-----\n------END NATS USER JWT------"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := trust.ParseCredentials(data)
		if err != nil {
			return
		}
		again, err := trust.ParseCredentials(c.Reveal())
		if err != nil || again.JWT() != c.JWT() {
			t.Errorf("what was read does not survive a round trip: %v", err)
		}
	})
}

// TestLargestConnectFits measures the CONNECT line of the largest credential that can be minted, with the longest names
// everywhere, and connects with it. Brokers are told to accept trust.MaxControlLine.
func TestLargestConnectFits(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		long := strings.Repeat("x", wire.MaxToken)
		req := mint.UserRequest{
			Space: space, Profile: trust.Agent, Principal: wire.Principal{Owner: "u_" + strings.Repeat("a", 26), Actor: long}, Role: long,
		}
		fits := func() (*trust.Credentials, bool) {
			c, err := r.mint.User(t.Context(), req)
			if err != nil && !errors.Is(err, wire.ErrExhausted) {
				t.Fatal(err)
			}
			return c, err == nil
		}
		// Fill both lists, then lengthen one pattern until the next byte would be refused.
		for i := range trust.MaxPatterns {
			req.Subscribe = append(req.Subscribe, fmt.Sprintf("c%d.>", i))
			req.Publish = append(req.Publish, fmt.Sprintf("c%d", i))
		}
		for i := range trust.MaxCommands {
			req.Commands = append(req.Commands, fmt.Sprintf("manager.c%d", i))
		}
		largest, ok := fits()
		if !ok {
			t.Fatal("full lists of short names must fit")
		}
		for lo, hi := 0, wire.MaxChannel-8; lo < hi; {
			mid := (lo + hi + 1) / 2
			req.Publish[0] = "c" + strings.Repeat("y", mid)
			if c, ok := fits(); ok {
				largest, lo = c, mid
			} else {
				hi = mid - 1
			}
		}
		line := connectLine(t, r, largest)
		t.Logf("largest credential: JWT %d bytes, CONNECT line %d bytes, limit %d", len(largest.JWT()), line, trust.MaxControlLine)
		if line > trust.MaxControlLine-1024 {
			t.Errorf("CONNECT of %d bytes leaves less than 1 KiB below %d", line, trust.MaxControlLine)
		}
	})
}

// connectLine connects and returns the length of the CONNECT line that the client sent.
func connectLine(t *testing.T, r *realm, h holder) int {
	t.Helper()
	tap := &tapped{inner: r.srv.InProcess()}
	opts := []nats.Option{
		nats.InProcessServer(tap), nats.Name(strings.Repeat("n", wire.MaxName)), nats.NoReconnect(),
		nats.UserJWT(func() (string, error) { return h.JWT(), nil }, h.Sign),
	}
	if c, ok := h.(*trust.Credentials); ok && c.Token() != "" {
		opts = append(opts, nats.TokenHandler(c.Token))
	}
	nc, err := nats.Connect("", opts...)
	if err != nil {
		t.Fatalf("connect with the largest credential: %v", err)
	}
	defer nc.Close()
	tap.mu.Lock()
	defer tap.mu.Unlock()
	text := tap.sent.String()
	i := strings.Index(text, "CONNECT ")
	if i < 0 {
		t.Fatal("no CONNECT was sent")
	}
	return strings.Index(text[i:], "\r\n")
}

// tapped records what the client writes.
type tapped struct {
	inner nats.InProcessConnProvider
	mu    sync.Mutex
	sent  bytes.Buffer
}

func (p *tapped) InProcessConn() (net.Conn, error) {
	c, err := p.inner.InProcessConn()
	if err != nil {
		return nil, err
	}
	return &tappedConn{Conn: c, tap: p}, nil
}

type tappedConn struct {
	net.Conn
	tap *tapped
}

func (c *tappedConn) Write(b []byte) (int, error) {
	c.tap.mu.Lock()
	c.tap.sent.Write(b)
	c.tap.mu.Unlock()
	return c.Conn.Write(b)
}

var _ io.Writer = (*tappedConn)(nil)
