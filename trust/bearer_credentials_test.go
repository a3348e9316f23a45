package trust_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// someBearer is what a client has after it signed in.
func someBearer(t testing.TB) trust.Bearer {
	t.Helper()
	a := newMint(t)
	if _, err := a.EnsureCallout(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	sentinel, err := a.Sentinel(t.Context(), space, 0)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	issued := time.Now().Truncate(time.Second)
	return trust.Bearer{Sentinel: sentinel, Token: "eyJhbGciOiJFZERTQSJ9.e30.c2ln", Seed: key.Seed().Reveal(), Identity: trust.Identity{
		Space: space, Profile: trust.Agent, Lifecycle: wire.Lifecycle{Principal: ada, UID: adaUID}, Inbox: string(adaUID),
		Role: "reviewer", Subscribe: []string{"general"}, Publish: []string{"general"}, IssuedAt: issued, Expires: issued.Add(100 * time.Second),
	}}
}

func TestBearerCredentials(t *testing.T) {
	t.Parallel()
	b := someBearer(t)
	c, err := trust.NewBearerCredentials(b)
	if err != nil {
		t.Fatal(err)
	}
	id := c.Identity()
	if c.JWT() != b.Sentinel || c.Token() != b.Token || id.Lifecycle != b.Identity.Lifecycle || id.Role != "reviewer" {
		t.Errorf("JWT, token or identity %+v are not those of the bearer", id)
	}
	public, err := nkeys.FromPublicKey(id.UserKey)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := c.Sign([]byte("nonce"))
	if err != nil || public.Verify([]byte("nonce"), sig) != nil {
		t.Errorf("the nonce is not signed by the key that the identity names: %v", err)
	}
	// A proof for the exchange that a broker calls its nonce.
	for _, nonce := range []string{"eyJ0eXAiOiJkcG9wK2p3dCJ9.eyJodG0iOiJQT1NUIn0", "", strings.Repeat("n", 65)} {
		if sig, err := c.Sign([]byte(nonce)); !errors.Is(err, wire.ErrBadRequest) || sig != nil {
			t.Errorf("a nonce of %d bytes was signed: %v", len(nonce), err)
		}
	}
	if got := c.RenewAt().Sub(id.IssuedAt); got != 75*time.Second || c.Expired(id.Expires.Add(-time.Nanosecond)) || !c.Expired(id.Expires) {
		t.Errorf("renewal after %s, want 75 s, and an end at the bearer's", got)
	}
	for _, p := range []trust.Profile{trust.Admin, trust.Purger, trust.ChannelWriter, trust.Deployer} {
		view := b
		view.Identity.Profile, view.Identity.Role, view.Identity.Subscribe, view.Identity.Publish = p, "", nil, nil
		if _, err := trust.NewBearerCredentials(view); err != nil {
			t.Errorf("profile %s: %v", p, err)
		}
	}
	same, newer := b, b
	newer.Token += "x"
	for name, other := range map[string]struct {
		b    trust.Bearer
		want bool
	}{"the same": {same, true}, "a newer one": {newer, false}} {
		o, err := trust.NewBearerCredentials(other.b)
		if err != nil || c.Same(o) != other.want {
			t.Errorf("%s: Same = %v, %v, want %v", name, c.Same(o), err, other.want)
		}
	}
	if static := agent(t, newMint(t)); static.Token() != "" || static.Same(c) || !static.Same(static) {
		t.Error("a credential file has a token, or is the same as a bearer")
	}
}

func TestBearerCredentialsRefuse(t *testing.T) {
	t.Parallel()
	whole := someBearer(t)
	account, err := signer.Generate(signer.Account)
	if err != nil {
		t.Fatal(err)
	}
	other, err := signer.Generate(signer.User)
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(b *trust.Bearer){
		"no sentinel":            func(b *trust.Bearer) { b.Sentinel = "" },
		"no JWT as sentinel":     func(b *trust.Bearer) { b.Sentinel = b.Token },
		"a changed sentinel":     func(b *trust.Bearer) { b.Sentinel = flip(b.Sentinel) },
		"no token":               func(b *trust.Bearer) { b.Token = "" },
		"a token of two lines":   func(b *trust.Bearer) { b.Token = "a\nb" },
		"a token with spaces":    func(b *trust.Bearer) { b.Token = "Bearer x" },
		"a token that is huge":   func(b *trust.Bearer) { b.Token = strings.Repeat("x", trust.MaxBearer+1) },
		"no seed":                func(b *trust.Bearer) { b.Seed = nil },
		"half a seed":            func(b *trust.Bearer) { b.Seed = b.Seed[:20] },
		"the seed of an account": func(b *trust.Bearer) { b.Seed = account.Seed().Reveal() },
		"another user's key":     func(b *trust.Bearer) { b.Identity.UserKey = other.Public() },
		"no lifetime":            func(b *trust.Bearer) { b.Identity.Expires = b.Identity.IssuedAt },
		"no beginning":           func(b *trust.Bearer) { b.Identity.IssuedAt = time.Time{} },
		"no space":               func(b *trust.Bearer) { b.Identity.Space = "" },
		"no profile":             func(b *trust.Bearer) { b.Identity.Profile = "" },
		"a system profile":       func(b *trust.Bearer) { b.Identity.Profile = trust.SystemControl.Profile() },
		"the callout itself": func(b *trust.Bearer) {
			b.Identity.Profile, b.Identity.Role, b.Identity.Subscribe, b.Identity.Publish = trust.Callout, "", nil, nil
		},
		"another's inbox":  func(b *trust.Bearer) { b.Identity.Inbox = string(bobUID) },
		"a wildcard actor": func(b *trust.Bearer) { b.Identity.Actor = "*" },
	} {
		b := whole
		edit(&b)
		c, err := trust.NewBearerCredentials(b)
		if !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: %v, %v, want a bad request", name, c, err)
		} else if strings.Contains(err.Error(), whole.Token) || strings.Contains(err.Error(), string(whole.Seed)) {
			t.Errorf("%s: the error quotes a secret: %v", name, err)
		}
	}
}

// TestBearerHasNoFile: what signing in gives is in memory alone, and whoever writes it down gets a sentence.
func TestBearerHasNoFile(t *testing.T) {
	t.Parallel()
	b := someBearer(t)
	c, err := trust.NewBearerCredentials(b)
	if err != nil {
		t.Fatal(err)
	}
	file := c.Reveal()
	for _, s := range []string{b.Token, string(b.Seed), b.Sentinel} {
		if bytes.Contains(file, []byte(s)) {
			t.Errorf("the file of a bearer is %q", file)
		}
	}
	if _, err := trust.ParseCredentials(file); !errors.Is(err, wire.ErrBadRequest) || !strings.Contains(err.Error(), "sign in again") {
		t.Errorf("ParseCredentials = %v, want the sentence", err)
	}
}

func TestBearerPrintsNothingSecret(t *testing.T) {
	t.Parallel()
	b := someBearer(t)
	c, err := trust.NewBearerCredentials(b)
	if err != nil {
		t.Fatal(err)
	}
	secrets := [][]byte{b.Seed, []byte(b.Token)}
	type pointer struct{ creds *trust.Credentials }
	type value struct{ creds trust.Credentials }
	type exported struct {
		Creds  *trust.Credentials
		Bearer trust.Bearer
	}
	for _, v := range []any{
		c, *c, pointer{c}, &pointer{c}, value{*c}, []trust.Credentials{*c}, map[string]any{"k": c}, fmt.Errorf("wrapped: %v, %v", c, b),
	} {
		signertest.CheckHidden(t, v, secrets...)
	}
	// What joins them is passed on and dropped: it hides itself where it can be seen, and not deep inside what others hide.
	for _, v := range []any{b, &b, exported{c, b}, &exported{c, b}, []trust.Bearer{b}} {
		var log bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&log, verb+"\n", v)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
			slog.New(h).Info("value", "v", v, slog.Group("g", "v", v))
		}
		for i, s := range secrets {
			if bytes.Contains(log.Bytes(), s) || bytes.Contains(log.Bytes(), fmt.Appendf(nil, "%x", s)) {
				t.Errorf("a %T shows secret %d", v, i)
			}
		}
	}
	if text, err := json.Marshal(exported{c, b}); err != nil || strings.Contains(string(text), b.Token) || strings.Count(string(text), "local.ada") != 2 {
		t.Errorf("JSON = %s, %v, want whose it is", text, err)
	}
}

// TestLargestBearerFits: the CONNECT with the longest bearer fits where the one with the largest JWT does.
func TestLargestBearerFits(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		r.answers(t, space, func(q question) []byte {
			if len(q.asked.ConnectOptions.Token) != trust.MaxBearer {
				t.Errorf("the callout was shown %d bytes", len(q.asked.ConnectOptions.Token))
			}
			return q.answer(t, q.user(t, nil), nil)
		})
		line := connectLine(t, r, r.bearer(t, space, strings.Repeat("b", trust.MaxBearer)))
		t.Logf("largest bearer: %d bytes, CONNECT line %d bytes, limit %d", trust.MaxBearer, line, trust.MaxControlLine)
		if line > trust.MaxControlLine-1024 {
			t.Errorf("CONNECT of %d bytes leaves less than 1 KiB below %d", line, trust.MaxControlLine)
		}
	})
}

// TestLargestAnswerFits: a connection with full lists, inside an answer, passes the limits of the responder and the broker.
func TestLargestAnswerFits(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		req := mint.UserRequest{Profile: trust.Agent, Principal: ada, UID: adaUID, Role: strings.Repeat("x", wire.MaxToken)}
		for i := range trust.MaxPatterns {
			req.Subscribe = append(req.Subscribe, fmt.Sprintf("c%d.>", i))
			req.Publish = append(req.Publish, fmt.Sprintf("c%d%s", i, strings.Repeat("y", 12)))
		}
		for i := range trust.MaxCommands {
			req.Commands = append(req.Commands, fmt.Sprintf("manager.c%d", i))
		}
		r.answers(t, space, func(q question) []byte {
			token, err := r.mint.ConnectionJWT(t.Context(), space, mint.ConnectionRequest{UserRequest: req, UserKey: q.asked.UserNkey, Expires: time.Now().Add(time.Minute)})
			if err != nil {
				t.Error(err)
				return nil
			}
			out := q.answer(t, token, nil)
			t.Logf("user JWT %d bytes, answer %d bytes, limit %d", len(token), len(out), trust.MaxCalloutPayload)
			return out
		})
		if _, err := r.knock(t, r.bearer(t, space, "token")); err != nil {
			t.Errorf("knock = %v", err)
		}
	})
}
