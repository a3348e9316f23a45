package login_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestRealProviders signs in at each real identity provider, renews through it, sits out an outage, and signs out.
func TestRealProviders(t *testing.T) {
	for _, kind := range idptest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			i := idptest.Start(t, kind, nil)
			p := login.Provider{Issuer: i.Issuer, ClientID: i.ClientID, Audience: i.Audience, Shape: i.Shape}
			if i.Shape == login.ShapeBetterAuth {
				p.DeviceEndpoint, p.TokenEndpoint, p.JWTEndpoint, p.RevocationEndpoint = i.DeviceEndpoint, i.TokenEndpoint, i.JWTEndpoint, i.BaseURL+"/sign-out"
			}
			s, err := login.Device(t.Context(), p, &login.DeviceOptions{HTTP: i.HTTP(), Prompt: func(ctx context.Context, c login.Prompt) error {
				return i.Approve(ctx, c.UserCode, "ada")
			}})
			if err != nil {
				t.Fatal(err)
			}
			if sub, err := i.Subject(t.Context(), "ada"); err != nil || s.Subject != sub {
				t.Errorf("subject %q, %v, want %q", s.Subject, err, sub)
			}
			dir := t.TempDir()
			key := login.Key{Mesh: "demo", Issuer: i.Issuer}
			kept := files(t, dir)
			src := login.NewSource(kept, key, dir, &login.SourceOptions{HTTP: i.HTTP()})
			if err := src.SignIn(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			first, _, err := src.IDToken(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			renewed := renewAtOnce(t, src, kept, key)
			// Better Auth signs the same claims again within one second.
			if renewed == first && i.Shape == login.ShapeOIDC {
				t.Error("a refresh gave the same id token")
			}
			i.Down()
			age(t, kept, key)
			if _, _, err := src.IDToken(t.Context()); !errors.Is(err, wire.ErrUnavailable) {
				t.Errorf("outage = %v", err)
			}
			i.Up()
			renewAtOnce(t, src, kept, key)
			last, err := kept.Load(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if err := src.Logout(t.Context()); err != nil {
				t.Errorf("logout: %v", err)
			}
			// What was signed out of is over at the provider too.
			if err := kept.Save(t.Context(), key, last); err != nil {
				t.Fatal(err)
			}
			age(t, kept, key)
			if _, _, err := src.IDToken(t.Context()); trust.ReasonOf(err) != trust.ReasonExpired {
				t.Errorf("after logout: %v, want that the session ended", err)
			}
		})
	}
}

// renewAtOnce makes the kept id token old and asks for another one.
func renewAtOnce(t *testing.T, src *login.Source, kept login.Sessions, key login.Key) string {
	t.Helper()
	age(t, kept, key)
	token, ends, err := src.IDToken(t.Context())
	if err != nil || time.Until(ends) < time.Minute {
		t.Fatalf("renewed token until %s, %v", ends, err)
	}
	return token
}

// age takes the kept id token away, as if it had ended.
func age(t *testing.T, kept login.Sessions, key login.Key) {
	t.Helper()
	s, err := kept.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Save(t.Context(), key, login.WithoutIDToken(s)); err != nil {
		t.Fatal(err)
	}
}

func TestRealProvidersDeny(t *testing.T) {
	t.Parallel()
	i := idptest.Start(t, idptest.Zitadel, nil)
	p := login.Provider{Issuer: i.Issuer, ClientID: i.ClientID, Audience: i.Audience}
	_, err := login.Device(t.Context(), p, &login.DeviceOptions{HTTP: i.HTTP(), Prompt: func(ctx context.Context, c login.Prompt) error {
		return i.Deny(ctx, c.UserCode, "ada")
	}})
	if !errors.Is(err, wire.ErrPermissionDenied) {
		t.Errorf("denied login = %v", err)
	}
}
