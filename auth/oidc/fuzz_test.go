package oidc_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// FuzzVerify gives a verifier any header and claims, truly signed, or any token. It must not panic, must say why it refuses,
// and what it accepts must say, to a reader that knows nothing of it, what the pin asks for.
func FuzzVerify(f *testing.F) {
	l := newLogin()
	l.key, l.header["alg"], l.header["kid"] = keys().ed, "EdDSA", "e"
	head, body := `{"alg":"EdDSA","kid":"e","typ":"JWT"}`, `{"iss":"`+issuer+`","aud":["`+us+`"],"sub":"user-1","iat":1700000000,"exp":4102444800}`
	f.Add(head, body, true)
	f.Add(`{"alg":"EdDSA"}`, strings.Replace(body, "[", `["x",`, 1), true)
	f.Add(`{"alg":"EdDSA","typ":"at+jwt"}`, strings.Replace(body, "{", `{"azp":"`+us+`","name":"\u0061","events":1,`, 1), true)
	f.Add(`{"alg":"none"}`, body, true)
	f.Add(head, strings.Replace(body, `"sub"`, `"\u0073ub"`, 1), true)
	f.Add(head, strings.Replace(body, "1700000000", "1.7e9", 1), true)
	f.Add(head, "{}", true)
	f.Add(l.token(), "", false)
	f.Add("..", "", false)
	public := jose.JSONWebKey{Key: keys().ed.Public()}
	v, err := oidc.NewVerifier(newPin(), resolver(func(context.Context, string, string) ([]jose.JSONWebKey, error) {
		return []jose.JSONWebKey{public}, nil
	}), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first, second string, signed bool) {
		token := first
		if signed {
			input := b64([]byte(first)) + "." + b64([]byte(second))
			token = input + "." + b64(signature("EdDSA", keys().ed, []byte(input)))
		}
		c, err := v.Verify(t.Context(), token)
		if err != nil {
			if trust.ReasonOf(err) == "" || wire.CodeOf(err) != wire.CodeUnauthenticated || c.Subject != "" || len(err.Error()) > 600 {
				t.Fatalf("refused with %v, %+v", err, c)
			}
			return
		}
		parts := strings.Split(token, ".")
		raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[1])
		if err != nil || len(parts) != 3 {
			t.Fatalf("accepted %q", token)
		}
		var said map[string]any
		if err := json.Unmarshal(raw, &said); err != nil {
			t.Fatalf("accepted claims %q", raw)
		}
		if said["iss"] != issuer || said["sub"] != c.Subject || c.Subject == "" || !utf8.ValidString(c.Subject) || said["events"] != nil {
			t.Fatalf("accepted claims %q as %+v", raw, c)
		}
		if azp, ok := said["azp"]; ok && azp != us {
			t.Fatalf("accepted azp %v", azp)
		}
	})
}

// FuzzKeySet reads any key set. It must not panic, and every key it gives must be one for the algorithm.
func FuzzKeySet(f *testing.F) {
	for _, set := range [][]map[string]any{
		nil,
		{jwk("r", keys().rsa, nil), jwk("c", keys().p256, nil), jwk("d", keys().p384, nil), jwk("e", keys().ed, nil)},
		{jwk("r", keys().rsa, map[string]any{"e": "AQ"}), jwk("e", keys().ed, map[string]any{"x": ""}), jwk("c", keys().p256, map[string]any{"crv": "P-521"})},
	} {
		data, err := json.Marshal(map[string]any{"keys": set})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add(`{"keys":[{"kty":"oct","k":"AA"},{"kty":7},null,[],{"kty":"RSA","key_ops":[],"n":"AA","e":"AQAB"}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		set := oidc.NewKeySet(jwksURI, &oidc.KeySetOptions{HTTP: says(200, "application/json", body)})
		defer set.Close()
		for _, alg := range oidc.Algorithms() {
			found, err := set.Keys(t.Context(), "", alg)
			if err != nil && trust.ReasonOf(err) != trust.ReasonIDP {
				t.Fatalf("keys = %v", err)
			}
			for _, k := range found {
				if !k.Valid() || !k.IsPublic() || k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != alg && k.Algorithm != "Ed25519" {
					t.Fatalf("%s is checked with %+v", alg, k)
				}
			}
		}
	})
}
