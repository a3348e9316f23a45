package login_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func FuzzSession(f *testing.F) {
	now := time.Unix(1_800_000_000, 0).UTC()
	id := jwtOf(map[string]any{"iss": issuer, "sub": person, "aud": client, "exp": now.Add(time.Hour).Unix()})
	s, err := login.NewSession(newIDP().provider(), "refresh", id, now, now.Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	whole, err := s.Reveal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"ver":1,"provider":{"issuer":"i","clientId":"c"},"subject":"s","obtained":"0001-01-01T00:00:00Z"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := login.ParseSession(data)
		if err != nil {
			return
		}
		text, err := s.Reveal()
		if err != nil {
			return // times that JSON does not write, or grown by escapes
		}
		again, err := login.ParseSession(text)
		if err != nil {
			t.Fatalf("%s does not parse again: %v", text, err)
		}
		if twice, err := again.Reveal(); err != nil || !bytes.Equal(twice, text) {
			t.Errorf("%s became %s, %v", text, twice, err)
		}
	})
}

func FuzzClaims(f *testing.F) {
	f.Add(jwtOf(map[string]any{"iss": issuer, "sub": person, "aud": []string{"a", "b"}, "exp": 1e300, "iat": "12"}))
	f.Add(jwtOf(map[string]any{"aud": map[string]any{}, "exp": -1, "iat": nil}))
	f.Add("a.b.c")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		_, _ = login.ReadClaims(token)
		p := newIDP().provider()
		s, err := login.NewSession(p, "r", token, time.Now(), time.Time{})
		if err == nil && (s.Subject == "" || s.Provider.Issuer != issuer) {
			t.Errorf("%q made the session %v", token, s)
		}
	})
}

func FuzzMesh(f *testing.F) {
	f.Add([]byte(meshDocument))
	f.Add([]byte(`{"space":"demo"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if info, err := login.ParseMesh(data); err == nil && (info.Space.Validate() != nil || info.Provider.Issuer == "" || info.Provider.ClientID == "") {
			t.Errorf("%q read as %+v", data, info)
		}
	})
}

func FuzzCapability(f *testing.F) {
	f.Add([]byte(capability))
	f.Add([]byte(`{"ver":1,"url":"http://[::1]:1","cap":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := login.ParseCapability(data)
		if err != nil {
			return
		}
		if _, err := login.NewExchange(&login.ExchangeOptions{URL: c.URL}); err != nil && !bytes.ContainsAny([]byte(c.URL), "?") {
			t.Errorf("%q cannot be used: %v", c.URL, err)
		}
	})
}

func FuzzExchangeAnswer(f *testing.F) {
	e := &exchange{life: time.Minute, sentinel: "ey.s.s"}
	text, err := json.Marshal(e.granted(map[string]any{"actor": "ada"}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(200, text)
	f.Add(403, []byte(`{"error":"no","code":"grant-revoked"}`))
	f.Add(429, []byte(`{"error":"later","code":"too-many-requests","retryAfter":1e308}`))
	f.Add(503, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, data []byte) {
		if b, err := login.ParseBearer(data); err == nil {
			if err := b.Identity().Validate(); err != nil || b.Reveal() == "" || !b.Expires.After(b.IssuedAt) {
				t.Errorf("%q read as %v: %v", data, b, err)
			}
		}
		err := login.JudgeExchange(status, data)
		if err == nil || !wire.CodeOf(err).Known() || len(err.Error()) > 8<<10 || len(trust.ReasonOf(err)) > 64 {
			t.Errorf("%d %q judged as %v", status, data, err)
		}
	})
}

func FuzzFields(f *testing.F) {
	f.Add([]byte(`{"a":"x","b":1,"c":null,"d":["e"],"f":{"g":2}}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, ok := login.ParseFields(data); ok && !json.Valid(data) {
			t.Errorf("%q read as %v", data, got)
		}
	})
}
