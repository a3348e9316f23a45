package oidc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestKeySetSharesOneRead: a hundred first logins are one read, and a caller that gives up takes nobody with it.
func TestKeySetSharesOneRead(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		v, _, p := newLogin().mesh(t)
		p.answers(func(req *http.Request) (*http.Response, error) {
			select {
			case <-time.After(2 * time.Second):
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
			p.answers(nil)
			return p.client().Transport.RoundTrip(req)
		})
		first, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			c, err := v.Verify(first, token2())
			refused(t, c, err, trust.ReasonIDP)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the cause of giving up is not in %v", err)
			}
		})
		synctest.Wait()
		for range 100 {
			all.Go(func() {
				c, err := v.Verify(t.Context(), token2())
				accepted(t, c, err)
			})
		}
		synctest.Wait()
		giveUp()
		all.Wait()
		if n := p.count(); n != 2 { // the second is the provider asking itself
			t.Errorf("%d requests, want one", n-1)
		}
	})
}

// TestKeySetAge: Cache-Control decides, within five minutes and a day, when a login has the set read again, and that login
// does not wait.
func TestKeySetAge(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		header string
		want   time.Duration
	}{
		{"", oidc.MinFresh},
		{"max-age=0", oidc.MinFresh},
		{"max-age=60", oidc.MinFresh},
		{"public, max-age=3600", time.Hour},
		{"Max-Age=\"3600\"", time.Hour},
		{"max-age=3600, no-store", oidc.MinFresh},
		{"max-age=2147483647", oidc.MaxFresh},
		{"max-age=99999999999999999999", oidc.MinFresh},
		{"max-age=-1", oidc.MinFresh},
		{"max-age", oidc.MinFresh},
	} {
		faketime.Test(t, func(t *testing.T) {
			v, set, p := newLogin().mesh(t)
			p.header = http.Header{"Cache-Control": {tc.header}}
			try := func() {
				t.Helper()
				c, err := v.Verify(t.Context(), token2())
				accepted(t, c, err)
				synctest.Wait()
			}
			try()
			time.Sleep(tc.want - time.Nanosecond)
			if try(); p.count() != 1 || set.Status().Stale {
				t.Errorf("%q: read again before %s", tc.header, tc.want)
			}
			time.Sleep(time.Nanosecond)
			if !set.Status().Stale {
				t.Errorf("%q: not stale after %s", tc.header, tc.want)
			}
			p.answers(func(req *http.Request) (*http.Response, error) {
				p.answers(nil)
				time.Sleep(time.Second)
				return p.RoundTrip(req)
			})
			began := time.Now()
			if try(); time.Since(began) != 0 {
				t.Errorf("%q: a login waited %s for the set to be fresh", tc.header, time.Since(began))
			}
			time.Sleep(2 * time.Second)
			if p.count() != 3 || set.Status().Stale { // the answer above asks once more itself
				t.Errorf("%q: not read again after %s", tc.header, tc.want)
			}
		})
	}
}

// TestKeySetBodies: a body that trickles is cut off like an answer that does not come.
func TestKeySetBodies(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		v, _, p := newLogin().mesh(t)
		p.answers(func(req *http.Request) (*http.Response, error) {
			r := reply(200, "application/json", "", nil)
			r.Body = io.NopCloser(trickle{req.Context()})
			return r, nil
		})
		began := time.Now()
		c, err := v.Verify(t.Context(), token2())
		refused(t, c, err, trust.ReasonIDP)
		if took := time.Since(began); took != 5*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("refused after %s with %v", took, err)
		}
	})
}

type trickle struct{ ctx context.Context }

func (t trickle) Read(b []byte) (int, error) {
	select {
	case <-t.ctx.Done():
		return 0, t.ctx.Err()
	case <-time.After(100 * time.Millisecond):
		b[0] = ' '
		return 1, nil
	}
}

// TestKeySetClose: closing ends a read that hangs, waits for it, and leaves what is known in use.
func TestKeySetClose(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		v, set, p := newLogin().mesh(t)
		c, err := v.Verify(t.Context(), token2())
		accepted(t, c, err)
		p.answers(hangs)
		time.Sleep(oidc.MinFresh)
		c, err = v.Verify(t.Context(), token2())
		accepted(t, c, err)
		synctest.Wait()
		if p.count() != 2 {
			t.Fatalf("%d reads, want one on its way", p.count())
		}
		began := time.Now()
		if err := set.Close(); err != nil || time.Since(began) != 0 {
			t.Errorf("close = %v after %s", err, time.Since(began))
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
		c, err = v.Verify(t.Context(), token2())
		accepted(t, c, err)
		time.Sleep(oidc.MaxPause)
		c, err = v.Verify(t.Context(), withKey("r2", "RS256", keys().rsa2))
		refused(t, c, err, trust.ReasonIDP)
		if p.count() != 2 {
			t.Errorf("%d reads, the last after closing", p.count())
		}
	})
	set := oidc.NewKeySet(jwksURI, nil)
	_ = set.Close()
	if _, err := set.Keys(t.Context(), "", "RS256"); trust.ReasonOf(err) != trust.ReasonIDP {
		t.Errorf("keys of a set closed before its first read = %v", err)
	}
}

// TestKeySetRefusesAddresses: an address that must not be asked is not asked.
func TestKeySetRefusesAddresses(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"", "http://idp.example/keys", "file:///etc/passwd", "https://a:b@idp.example/keys", "/keys"} {
		p := &provider{}
		set := oidc.NewKeySet(uri, &oidc.KeySetOptions{HTTP: p.client()})
		if _, err := set.Keys(t.Context(), "r1", "RS256"); trust.ReasonOf(err) != trust.ReasonIDP || p.count() != 0 {
			t.Errorf("%q: %v, %d requests", uri, err, p.count())
		}
	}
}

// TestKeySetLogsTheTurns: one line when reading begins to fail, one when it works again.
func TestKeySetLogsTheTurns(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &provider{set: newLogin().set}
		set := oidc.NewKeySet(jwksURI, &oidc.KeySetOptions{HTTP: p.client(), Log: slog.New(slog.NewTextHandler(&out, nil))})
		defer set.Close()
		p.answers(down)
		for range 5 {
			_, _ = set.Keys(t.Context(), "r1", "RS256")
			time.Sleep(oidc.MaxPause)
		}
		p.answers(nil)
		for range 5 {
			if _, err := set.Keys(t.Context(), "r1", "RS256"); err != nil {
				t.Fatal(err)
			}
		}
		_ = set.Close()
		if got := strings.Count(out.String(), "\n"); got != 2 || !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), "attempt=6") {
			t.Errorf("log of an outage:\n%s", out.String())
		}
	})
}

// TestVerifierTakesOtherResolvers: a host's own keys are held to the same rules, and its errors are told apart.
func TestVerifierTakesOtherResolvers(t *testing.T) {
	t.Parallel()
	verify := func(r resolver) (oidc.Claims, error) {
		v, err := oidc.NewVerifier(newPin(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.Verify(t.Context(), token2())
	}
	give := func(k ...jose.JSONWebKey) resolver {
		return func(_ context.Context, kid, alg string) ([]jose.JSONWebKey, error) {
			if kid != "r1" || alg != "RS256" {
				t.Errorf("asked for %q, %q", kid, alg)
			}
			return k, nil
		}
	}
	public := &keys().rsa.PublicKey
	c, err := verify(give(jose.JSONWebKey{Key: public}))
	accepted(t, c, err)
	for _, k := range []jose.JSONWebKey{
		{}, {Key: []byte("secret")}, {Key: keys().rsa}, {Key: public, Use: "enc"}, {Key: public, Algorithm: "PS256"}, {Key: &keys().weak.PublicKey},
		{Key: keys().ed.Public()}, {Key: (*jose.JSONWebKey)(nil)}, {Key: &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public}}}},
	} {
		c, err := verify(give(k))
		refused(t, c, err, trust.ReasonSignature)
	}
	c, err = verify(give())
	refused(t, c, err, trust.ReasonSignature)
	c, err = verify(func(context.Context, string, string) ([]jose.JSONWebKey, error) { return nil, errors.New("no") })
	refused(t, c, err, trust.ReasonIDP)
	c, err = verify(func(context.Context, string, string) ([]jose.JSONWebKey, error) {
		return nil, trust.Deny(wire.CodeUnauthenticated, trust.ReasonSignature, "that key was stolen")
	})
	refused(t, c, err, trust.ReasonSignature)
	if _, err := oidc.NewVerifier(newPin(), nil, nil); err == nil {
		t.Error("a verifier without keys was made")
	}
	if _, err := oidc.NewVerifier(oidc.Pin{}, give(), nil); err == nil {
		t.Error("a verifier of an empty pin was made")
	}
}

// TestVerifierKeepsItsPin: changing the pin afterwards, as a list shared with somebody, widens nothing.
func TestVerifierKeepsItsPin(t *testing.T) {
	t.Parallel()
	l := newLogin()
	v, _, _ := l.mesh(t)
	l.pin.Algorithms[0] = "PS256"
	c, err := v.Verify(t.Context(), token2())
	accepted(t, c, err)
}

// TestClaims reads everything that is read.
func TestClaims(t *testing.T) {
	t.Parallel()
	l := newLogin()
	l.rawHeader = ` {"kid" : "r1" , "alg":"RS256","x5t":"dGVzdA","typ":"JWT"} `
	l.rawClaims = `{ "iss":"` + issuer + `", "aud" : [ "` + us + `" , "x" ], "azp":"` + us + `", "iat": 1.7e9 ,"exp":4102444800.75,
		"nbf":0, "sub":"\u0061\"\\{}[],:", "jti":"id-1", "name":"Ada ☂", "email":"ada@example.com", "email_verified" : true ,
		"realm_access":{"roles":["a}","b]"],"x":{"sub":"no"}}, "empty":{}, "none":[], "n":-1.5e-3, "t":true, "z":null}`
	c, err := l.verify(t)
	accepted(t, c, err)
	if len(c.Audience) != 2 || c.Audience[1] != "x" || c.AuthorizedParty != us || c.ID != "id-1" || c.Name != "Ada ☂" || !c.EmailVerified ||
		c.Subject != `a"\{}[],:` || c.Email != "ada@example.com" || c.IssuedAt.Unix() != 1700000000 || c.Expires.Unix() != 4102444800 {
		t.Errorf("claims = %+v", c)
	}
}
