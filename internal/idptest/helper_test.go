package idptest_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/cotal-go/cotal/internal/idptest"
)

const (
	deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"
	pkce        = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" // the challenge of RFC 7636 appendix B
)

// An answer is what an IdP says to a client.
type answer struct {
	Status           int    `json:"-"`
	Type             string `json:"-"`
	DeviceCode       string `json:"device_code"`
	UserCode         string `json:"user_code"`
	VerificationURI  string `json:"verification_uri"`
	VerificationFull string `json:"verification_uri_complete"`
	ExpiresIn        int    `json:"expires_in"`
	Interval         *int   `json:"interval"`
	AccessToken      string `json:"access_token"`
	IDToken          string `json:"id_token"`
	RefreshToken     string `json:"refresh_token"`
	TokenType        string `json:"token_type"`
	Token            string `json:"token"`
	Error            string `json:"error"`
	Description      string `json:"error_description"`
}

func ask(t *testing.T, i *idptest.IdP, r *http.Request) answer {
	t.Helper()
	resp, err := i.HTTP().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{Status: resp.StatusCode, Type: resp.Header.Get("Content-Type")}
	if strings.HasPrefix(a.Type, "application/json") && len(body) > 0 {
		if err := json.Unmarshal(body, &a); err != nil {
			t.Fatalf("%s answered %q: %v", r.URL.Path, body, err)
		}
	}
	return a
}

// post sends parameters as a form, or as JSON to an endpoint that does not take forms.
func post(t *testing.T, i *idptest.IdP, endpoint string, params ...string) answer {
	t.Helper()
	form, object := url.Values{}, map[string]string{}
	for n := 0; n < len(params); n += 2 {
		form.Set(params[n], params[n+1])
		object[params[n]] = params[n+1]
	}
	body, kind := []byte(form.Encode()), "application/x-www-form-urlencoded"
	if i.Shape == idptest.ShapeBetterAuth && endpoint == i.TokenEndpoint {
		var err error
		if body, err = json.Marshal(object); err != nil {
			t.Fatal(err)
		}
		kind = "application/json"
	}
	return send(t, i, endpoint, kind, body)
}

func send(t *testing.T, i *idptest.IdP, endpoint, kind string, body []byte) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	return ask(t, i, r)
}

func begin(t *testing.T, i *idptest.IdP) answer {
	t.Helper()
	a := post(t, i, i.DeviceEndpoint, "client_id", i.ClientID, "scope", "openid offline_access")
	if a.Status != http.StatusOK || a.DeviceCode == "" || a.UserCode == "" || !strings.HasPrefix(a.VerificationURI, i.Issuer) {
		t.Fatalf("device authorization: %+v", a)
	}
	return a
}

func poll(t *testing.T, i *idptest.IdP, deviceCode string) answer {
	t.Helper()
	return post(t, i, i.TokenEndpoint, "grant_type", deviceGrant, "device_code", deviceCode, "client_id", i.ClientID)
}

// login goes through the device flow and returns the signed token and what renews it.
func login(t *testing.T, i *idptest.IdP, user string) (token, renew string) {
	t.Helper()
	code := begin(t, i)
	if err := i.Approve(t.Context(), code.UserCode, user); err != nil {
		t.Fatal(err)
	}
	a := poll(t, i, code.DeviceCode)
	if a.Status != http.StatusOK || !strings.EqualFold(a.TokenType, "Bearer") {
		t.Fatalf("token: %+v", a)
	}
	if i.Shape == idptest.ShapeBetterAuth {
		return renewed(t, i, a.AccessToken)
	}
	return a.IDToken, a.RefreshToken
}

// renewed asks for a new token and returns it with what renews it next.
func renewed(t *testing.T, i *idptest.IdP, renew string) (token, next string) {
	t.Helper()
	a := tryRenew(t, i, renew)
	if i.Shape == idptest.ShapeBetterAuth {
		a.IDToken, a.RefreshToken = a.Token, renew
	}
	if a.Status != http.StatusOK || a.IDToken == "" || a.RefreshToken == "" {
		t.Fatalf("renew: %+v", a)
	}
	return a.IDToken, a.RefreshToken
}

func tryRenew(t *testing.T, i *idptest.IdP, renew string) answer {
	t.Helper()
	if i.Shape != idptest.ShapeBetterAuth {
		return post(t, i, i.TokenEndpoint, "grant_type", "refresh_token", "refresh_token", renew, "client_id", i.ClientID)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.JWTEndpoint, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+renew)
	return ask(t, i, r)
}

// published fetches the keys as a client does.
func published(t *testing.T, i *idptest.IdP) jose.JSONWebKeySet {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.JWKSURI, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := i.HTTP().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var set jose.JSONWebKeySet
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil {
		t.Fatal(err)
	}
	return set
}

type claims struct {
	jwt.Claims
	AuthorizedParty string `json:"azp"`
}

// check verifies a token by the published keys and returns its claims and kid.
func check(t *testing.T, i *idptest.IdP, token string) (claims, string) {
	t.Helper()
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(i.Alg)})
	if err != nil {
		t.Fatal(err)
	}
	kid := parsed.Headers[0].KeyID
	set := published(t, i)
	keys := set.Key(kid)
	if len(keys) != 1 {
		t.Fatalf("key %q is published %d times", kid, len(keys))
	}
	var c claims
	if err := parsed.Claims(keys[0].Key, &c); err != nil {
		t.Fatalf("signature: %v", err)
	}
	return c, kid
}

func eachKind(t *testing.T, run func(t *testing.T, i *idptest.IdP)) {
	for _, k := range idptest.Kinds() {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			run(t, idptest.Start(t, k, &idptest.Options{ClientID: "cotal-main-1a2b3c4d", Audience: "urn:mesh", TokenLife: 2 * time.Minute}))
		})
	}
}

func pathOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}
