package login_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

var demo = login.Key{Mesh: "demo", Issuer: issuer}

// source is a source over files in a folder of its own, signed in with an id token that lasts for life.
func source(t testing.TB, p *idp, at login.Provider, life time.Duration) (*login.Source, login.Sessions) {
	t.Helper()
	dir := t.TempDir()
	s := files(t, dir)
	src := login.NewSource(s, demo, dir, &login.SourceOptions{HTTP: overWire(p)})
	if err := src.SignIn(t.Context(), signedIn(t, p, at, life)); err != nil {
		t.Fatal(err)
	}
	return src, s
}

func TestIDTokenIsRefreshedWhenItIsTime(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{login.ShapeOIDC, login.ShapeBetterAuth} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			faketime.Test(t, func(t *testing.T) {
				p := newIDP()
				at := p.provider()
				if shape == login.ShapeBetterAuth {
					at = p.betterAuth()
				}
				src, _ := source(t, p, at, 10*time.Minute)
				first, ends, err := src.IDToken(t.Context())
				if err != nil || time.Until(ends) != 10*time.Minute {
					t.Fatalf("first token until %s, %v", ends, err)
				}
				time.Sleep(9 * time.Minute)
				if again, _, err := src.IDToken(t.Context()); err != nil || again != first || p.refreshes != 0 {
					t.Errorf("with 60 s left: another token after %d refreshes, %v", p.refreshes, err)
				}
				time.Sleep(time.Second)
				next, ends, err := src.IDToken(t.Context())
				if err != nil || next == first || p.refreshes != 1 || time.Until(ends) != 10*time.Minute {
					t.Errorf("with 59 s left: %d refreshes, token until %s, %v", p.refreshes, ends, err)
				}
				for range 20 { // through many refreshes, each with the refresh token of the one before
					time.Sleep(10 * time.Minute)
					if _, _, err := src.IDToken(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if p.refreshes != 21 {
					t.Errorf("%d refreshes, want 21", p.refreshes)
				}
			})
		})
	}
}

func TestNobodySignedIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := login.NewSource(files(t, dir), demo, dir, nil)
	if _, _, err := src.IDToken(t.Context()); !isAnd(err, wire.ErrUnauthenticated, "run cotal login") || trust.ReasonOf(err) != trust.ReasonExpired {
		t.Errorf("id token of nobody = %v", err)
	}
	if err := src.Logout(t.Context()); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("logout of nobody = %v", err)
	}
}

// TestOnlyADefiniteAnswerEndsTheSession: an outage keeps the session and the same token works after it; invalid_grant and 401 end it.
func TestOnlyADefiniteAnswerEndsTheSession(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{login.ShapeOIDC, login.ShapeBetterAuth} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			faketime.Test(t, func(t *testing.T) {
				p := newIDP()
				at := p.provider()
				if shape == login.ShapeBetterAuth {
					at = p.betterAuth()
				}
				src, kept := source(t, p, at, 30*time.Second)
				p.down = true
				if token, _, err := src.IDToken(t.Context()); err != nil || token == "" {
					t.Errorf("outage while the token lasts for 30 s = %v, want that token", err)
				}
				time.Sleep(25 * time.Second)
				began := time.Now()
				if _, _, err := src.IDToken(t.Context()); !errors.Is(err, wire.ErrUnavailable) || time.Since(began) > time.Second {
					t.Errorf("outage = %v after %s, want unavailable at once", err, time.Since(began))
				}
				if _, err := kept.Load(t.Context(), demo); err != nil {
					t.Fatalf("the session after an outage: %v", err)
				}
				p.down = false
				if _, _, err := src.IDToken(t.Context()); err != nil {
					t.Errorf("after the outage: %v", err)
				}
				p.ended = true
				time.Sleep(10 * time.Minute)
				for range 2 {
					_, _, err := src.IDToken(t.Context())
					if !errors.Is(err, wire.ErrUnauthenticated) || trust.ReasonOf(err) != trust.ReasonExpired || !strings.Contains(err.Error(), "run cotal login") {
						t.Errorf("after the end = %v", err)
					}
				}
				if _, err := kept.Load(t.Context(), demo); !errors.Is(err, wire.ErrNotFound) {
					t.Errorf("the session after its end = %v, want none", err)
				}
			})
		})
	}
}

func TestRefusalsThatKeepTheSession(t *testing.T) {
	t.Parallel()
	fresh := func(claims map[string]any) map[string]any {
		all := map[string]any{"iss": issuer, "aud": client, "sub": person, "exp": time.Now().Add(365 * 24 * time.Hour).Unix()}
		for k, v := range claims {
			all[k] = v
		}
		return map[string]any{"access_token": "a", "id_token": jwtOf(all)}
	}
	for name, c := range map[string]struct {
		status int
		body   any
		want   error
	}{
		"unknown client":  {401, map[string]any{"error": "invalid_client"}, wire.ErrPrecondition},
		"401 of a proxy":  {401, "please sign in to the network", wire.ErrUnavailable},
		"portal":          {200, "<html>", wire.ErrUnavailable},
		"busy":            {429, map[string]any{"error": "x"}, wire.ErrUnavailable},
		"out of order":    {500, map[string]any{"error": "server_error"}, wire.ErrUnavailable},
		"another person":  {200, fresh(map[string]any{"sub": "mallory"}), wire.ErrUnauthenticated},
		"another issuer":  {200, fresh(map[string]any{"iss": "https://x.example"}), wire.ErrUnauthenticated},
		"without idtoken": {200, map[string]any{"access_token": "a", "refresh_token": "next"}, wire.ErrPrecondition},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			p := newIDP()
			dir := t.TempDir()
			kept := files(t, dir)
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reply(w, c.status, c.body) })
			src := login.NewSource(kept, demo, dir, &login.SourceOptions{HTTP: overWire(h)})
			if err := src.SignIn(t.Context(), signedIn(t, p, p.provider(), time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := src.IDToken(t.Context()); !errors.Is(err, c.want) || trust.ReasonOf(err) == trust.ReasonExpired {
				t.Errorf("refresh = %v, want %v", err, c.want)
			}
			if s, err := kept.Load(t.Context(), demo); err != nil || s.Subject != person {
				t.Errorf("session afterwards = %v, %v", s, err)
			} else if refresh, _, _ := login.Tokens(s); name == "without idtoken" && refresh != "next" {
				t.Errorf("refresh token afterwards = %q, want the new one", refresh)
			}
		})
	}
}

// TestARotatedTokenIsKeptThoughTheIDTokenIsNot: the provider rotates the refresh token and gives an id token that is not accepted. The old
// refresh token is spent: a provider that detects reuse would end the session at the next refresh.
func TestARotatedTokenIsKeptThoughTheIDTokenIsNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(p *idp)
		want  trust.Reason
	}{
		"another audience": {func(p *idp) { p.audience = "another-client" }, trust.ReasonAudience},
		"another issuer":   {func(p *idp) { p.issuer = "https://moved.example" }, trust.ReasonIssuer},
		"none that reads":  {func(p *idp) { p.noJWT = true }, trust.ReasonMalformed},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for _, full := range []bool{false, true} {
				faketime.Test(t, func(t *testing.T) {
					p := newIDP()
					dir := t.TempDir()
					kept := &broken{Sessions: files(t, dir)}
					src := login.NewSource(kept, demo, dir, &login.SourceOptions{HTTP: overWire(p)})
					if err := src.SignIn(t.Context(), signedIn(t, p, p.provider(), 30*time.Second)); err != nil {
						t.Fatal(err)
					}
					audience, issued := p.audience, p.issuer
					c.spoil(p)
					if full {
						kept.err = wire.Errorf(wire.CodeUnavailable, "no space left on device")
					}
					if token, _, err := src.IDToken(t.Context()); trust.ReasonOf(err) != c.want || token != "" {
						t.Errorf("refresh = %q, %v, want reason %q", token, err, c.want)
					}
					kept.err = nil
					p.audience, p.issuer, p.noJWT = audience, issued, false
					time.Sleep(time.Minute)
					if _, _, err := src.IDToken(t.Context()); err != nil || p.refreshes != 2 {
						t.Errorf("full disk %t: the next refresh = %v after %d, want that the session goes on", full, err, p.refreshes)
					}
					if s, err := kept.Load(t.Context(), demo); err != nil || s.Subject != person {
						t.Errorf("session afterwards = %v, %v", s, err)
					} else if refresh, _, _ := login.Tokens(s); refresh != "refresh-2-very-secret" {
						t.Errorf("full disk %t: refresh token afterwards = %q, want the newest", full, refresh)
					}
				})
			}
		})
	}
}

// TestOneRefreshInOneProcess: many callers at once, one refresh; when it fails, all are told by one question.
func TestOneRefreshInOneProcess(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		src, _ := source(t, p, p.provider(), time.Second)
		p.hold = func() { time.Sleep(time.Second) }
		ask := func() (failed int) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range 16 {
				wg.Go(func() {
					if _, _, err := src.IDToken(t.Context()); err != nil {
						mu.Lock()
						failed++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			return failed
		}
		if failed := ask(); failed != 0 || p.refreshes != 1 {
			t.Errorf("%d failed, %d refreshes, want none and one", failed, p.refreshes)
		}
		time.Sleep(time.Hour)
		asked := 0
		broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			time.Sleep(time.Second)
			badGateway(w)
		})
		dir := t.TempDir()
		src = login.NewSource(files(t, dir), demo, dir, &login.SourceOptions{HTTP: overWire(broken)})
		if err := src.SignIn(t.Context(), signedIn(t, p, p.provider(), time.Second)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if failed := ask(); failed != 16 || asked != 1 || time.Since(began) > 2*time.Second {
			t.Errorf("%d failed after %s, %d questions, want all by one", failed, time.Since(began), asked)
		}
	})
}

// TestARefreshThatWasBegunIsKept: the caller gives up while the provider rotates the token; the new one is kept all the same.
func TestARefreshThatWasBegunIsKept(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		src, kept := source(t, p, p.provider(), time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.hold = func() {
			cancel()
			time.Sleep(time.Second)
		}
		if _, _, err := src.IDToken(ctx); err != nil {
			t.Errorf("a refresh that was begun: %v", err)
		}
		p.hold = nil
		s, err := kept.Load(t.Context(), demo)
		if refresh, _, _ := login.Tokens(s); err != nil || refresh != "refresh-1-very-secret" {
			t.Errorf("kept refresh token = %q, %v", refresh, err)
		}
		time.Sleep(time.Hour)
		if _, _, err := src.IDToken(ctx); !errors.Is(err, context.Canceled) || p.refreshes != 1 {
			t.Errorf("with a context that has ended = %v, %d refreshes", err, p.refreshes)
		}
	})
}

// broken are sessions whose Save fails while err is set.
type broken struct {
	login.Sessions
	err error
}

func (b *broken) Save(ctx context.Context, key login.Key, s login.Session) error {
	if b.err != nil {
		return b.err
	}
	return b.Sessions.Save(ctx, key, s)
}

// diskFull is a source of somebody who has signed in and whose token ends in a second, on a disk that has had no room since.
func diskFull(t *testing.T, p *idp) (*login.Source, *broken) {
	t.Helper()
	dir := t.TempDir()
	kept := &broken{Sessions: files(t, dir)}
	src := login.NewSource(kept, demo, dir, &login.SourceOptions{HTTP: overWire(p)})
	if err := src.SignIn(t.Context(), signedIn(t, p, p.provider(), time.Second)); err != nil {
		t.Fatal(err)
	}
	kept.err = wire.Errorf(wire.CodeUnavailable, "no space left on device")
	return src, kept
}

// TestATokenThatCouldNotBeKeptIsNotLost: the disk is full when the provider rotates the refresh token.
func TestATokenThatCouldNotBeKeptIsNotLost(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		src, kept := diskFull(t, p)
		for range 3 {
			if token, _, err := src.IDToken(t.Context()); err != nil || token == "" || p.refreshes != 1 {
				t.Errorf("token with a full disk = %q, %v after %d refreshes", token, err, p.refreshes)
			}
		}
		time.Sleep(time.Hour)
		if _, _, err := src.IDToken(t.Context()); err != nil || p.refreshes != 2 {
			t.Errorf("another refresh with a full disk: %v, %d refreshes", err, p.refreshes)
		}
		kept.err = nil
		time.Sleep(time.Hour)
		if _, _, err := src.IDToken(t.Context()); err != nil || p.refreshes != 3 {
			t.Errorf("after the disk has room: %v, %d refreshes", err, p.refreshes)
		}
	})
}

// TestWhatAnotherProcessKeptIsNewer: this one could not keep what a refresh gave it, and meanwhile another one kept the tokens of a later refresh.
func TestWhatAnotherProcessKeptIsNewer(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		src, kept := diskFull(t, p)
		if _, _, err := src.IDToken(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept.err = nil
		session, err := src.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.refresh = "refresh-of-another-process"
		_, id, _ := login.Tokens(session)
		later, err := login.NewSession(p.provider(), p.refresh, id, session.Obtained, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if err := kept.Save(t.Context(), demo, later); err != nil {
			t.Fatal(err)
		}
		if _, _, err := src.IDToken(t.Context()); err != nil || p.refreshes != 2 {
			t.Errorf("id token = %v after %d refreshes, want one with the token that another process kept", err, p.refreshes)
		}
	})
}

// TestSigningInMeanwhileIsNotUndone: while a refresh is told that the session is over, somebody signs in anew.
func TestSigningInMeanwhileIsNotUndone(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		src, kept := source(t, p, p.provider(), time.Second)
		p.ended = true
		again := bigSession(t, "of-a-new-login")
		p.hold = func() { // not through SignIn, which would wait for its turn
			if err := kept.Save(t.Context(), demo, again); err != nil {
				t.Error(err)
			}
		}
		if _, _, err := src.IDToken(t.Context()); trust.ReasonOf(err) != trust.ReasonExpired {
			t.Errorf("refresh of the old session = %v", err)
		}
		if token, _, err := src.IDToken(t.Context()); err != nil || token == "" {
			t.Errorf("the new session: %v", err)
		}
	})
}

func TestLogout(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{login.ShapeOIDC, login.ShapeBetterAuth} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			p := newIDP()
			at := p.provider()
			if shape == login.ShapeBetterAuth {
				at = p.betterAuth()
			}
			src, kept := source(t, p, at, time.Hour)
			if err := src.Logout(t.Context()); err != nil || len(p.revoked) != 1 || p.revoked[0] != p.refresh {
				t.Errorf("logout = %v, revoked %q", err, p.revoked)
			}
			if _, err := kept.Load(t.Context(), demo); !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("session after logout = %v", err)
			}
			src, kept = source(t, p, at, time.Hour)
			p.down = true
			if err := src.Logout(t.Context()); !errors.Is(err, wire.ErrUnavailable) || strings.Contains(err.Error(), p.refresh) {
				t.Errorf("logout in an outage = %v", err)
			}
			if _, err := kept.Load(t.Context(), demo); !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("session after logout in an outage = %v", err)
			}
			at.RevocationEndpoint = ""
			src, _ = source(t, p, at, time.Hour)
			if err := src.Logout(t.Context()); err != nil {
				t.Errorf("logout where nothing can be revoked = %v", err)
			}
		})
	}
	dir := t.TempDir()
	kept := files(t, dir)
	src := login.NewSource(kept, demo, dir, nil)
	if err := src.SignIn(t.Context(), bigSession(t, "r")); err != nil {
		t.Fatal(err)
	}
	path, _ := only(t, filepath.Join(dir, "session"))
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := src.Logout(t.Context()); !errors.Is(err, wire.ErrUnavailable) || !strings.Contains(err.Error(), "not told") {
		t.Errorf("logout of a session that cannot be read = %v, want that the provider was not told", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestAClockThatIsBehindDoesNotStretchTheToken(t *testing.T) {
	t.Parallel()
	now := time.Now()
	id := jwtOf(map[string]any{"iss": issuer, "sub": person, "aud": []string{client}, "iat": now.Add(time.Hour).Unix(), "exp": now.Add(70 * time.Minute).Unix()})
	s, err := login.NewSession(newIDP().provider(), "r", id, now, time.Time{})
	if _, _, ends := login.Tokens(s); err != nil || ends.Sub(now) > 10*time.Minute {
		t.Errorf("the token ends in %s, %v, want 10 min", ends.Sub(now), err)
	}
}
