package login_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestO17DeviceTokenAddress: an identity provider with a separate device token address is configurable, a standard one is discovered.
func TestO17DeviceTokenAddress(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		mux := http.NewServeMux()
		mux.Handle("/", p)
		mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
			reply(w, 200, map[string]any{
				"issuer": issuer, "token_endpoint": issuer + "/token", "device_authorization_endpoint": issuer + "/device", "revocation_endpoint": nil,
			})
		})
		s, err := login.Device(t.Context(), login.Provider{Issuer: issuer, ClientID: client}, prompted(overWire(mux), nil))
		if err != nil || s.Provider.TokenEndpoint != issuer+"/token" {
			t.Fatalf("login by discovery = %v, %v", s.Provider, err)
		}
		at := p.provider()
		at.TokenEndpoint = issuer + "/nothing-there"
		if _, err := login.Device(t.Context(), at, prompted(overWire(p), nil)); !isAnd(err, wire.ErrPrecondition, "device token endpoint") {
			t.Errorf("login at a wrong address = %v, want a sentence that says what to configure", err)
		}
		at.DeviceTokenEndpoint = issuer + "/elsewhere/device_token"
		if _, err := login.Device(t.Context(), at, prompted(overWire(p), nil)); err != nil {
			t.Errorf("login with a device token address of its own: %v", err)
		}
	})
}

func document(issuer, token, device string) map[string]any {
	return map[string]any{"issuer": issuer, "token_endpoint": token, "device_authorization_endpoint": device}
}

func TestDiscoverRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		doc  map[string]any
		want error
	}{
		"another issuer":      {document(issuer+"/", issuer+"/t", issuer+"/d"), wire.ErrPrecondition},
		"no device flow":      {document(issuer, issuer+"/t", ""), wire.ErrPrecondition},
		"address in the open": {document(issuer, "http://idp.example/t", issuer+"/d"), wire.ErrBadRequest},
	} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, c.doc) })
		if _, err := (login.Provider{Issuer: issuer, ClientID: client}).Discover(t.Context(), overWire(h)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
	})
	_, err := (login.Provider{Issuer: issuer, ClientID: client}).Discover(t.Context(), overWire(h))
	if !errors.Is(err, wire.ErrUnavailable) || !strings.Contains(err.Error(), "redirects") {
		t.Errorf("a redirect = %v, want a sentence about it", err)
	}
	old := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/oauth-authorization-server/realm" {
			http.NotFound(w, r)
			return
		}
		reply(w, 200, map[string]any{"issuer": issuer + "/realm", "token_endpoint": issuer + "/t", "device_authorization_endpoint": issuer + "/d"})
	})
	if _, err := (login.Provider{Issuer: issuer + "/realm", ClientID: client}).Discover(t.Context(), overWire(old)); err != nil {
		t.Errorf("document of RFC 8414: %v", err)
	}
	got, err := (login.Provider{Issuer: issuer, ClientID: client, Shape: login.ShapeBetterAuth}).Discover(t.Context(), nil)
	want := newIDP().betterAuth()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("addresses of Better Auth: %v (-want +got):\n%s", err, diff)
	}
}

// TestO18JitterNeverLocksTheCode: 45 polls over a network that takes 0 to 200 ms each way, at a provider that locks a code for
// good after one poll that comes too soon.
func TestO18JitterNeverLocksTheCode(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		p.lock = true
		for range 44 {
			p.script = append(p.script, oauthError("authorization_pending"))
		}
		p.script = append(p.script, nil)
		if _, err := login.Device(t.Context(), p.provider(), prompted(slowly(p, 200*time.Millisecond), nil)); err != nil || len(p.polls) != 45 {
			t.Fatalf("after %d polls: %v", len(p.polls), err)
		}
		if gaps := gapsOf(p.polls); gaps.shortest < 5*time.Second || gaps.longest > 6500*time.Millisecond {
			t.Errorf("gaps between %s and %s, want 5 s to 6.5 s", gaps.shortest, gaps.longest)
		}
	})
}

type spread struct {
	shortest, longest time.Duration
	all               []time.Duration
}

func gapsOf(polls []time.Time) spread {
	s := spread{shortest: time.Hour}
	for i := 1; i < len(polls); i++ {
		d := polls[i].Sub(polls[i-1])
		s.shortest, s.longest, s.all = min(s.shortest, d), max(s.longest, d), append(s.all, d)
	}
	return s
}

// TestO19SlowDownAndGarbage: pending, slow_down, slow_down, 502 HTML, success: the gap grows by 5 s with each slow_down.
func TestO19SlowDownAndGarbage(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		p.script = []func(http.ResponseWriter){
			oauthError("authorization_pending"), oauthError("slow_down"), oauthError("slow_down"), badGateway, nil,
		}
		var told []login.Progress
		opts := prompted(overWire(p), nil)
		opts.Progress = func(g login.Progress) { told = append(told, g) }
		began := time.Now()
		s, err := login.Device(t.Context(), p.provider(), opts)
		if err != nil || s.Subject != person {
			t.Fatalf("login = %v, %v", s, err)
		}
		gaps := gapsOf(append([]time.Time{began}, p.polls...)).all
		for i, want := range []time.Duration{5, 5, 10, 15, 15} {
			if want *= time.Second; gaps[i] < want || gaps[i] > want+500*time.Millisecond {
				t.Errorf("gap %d = %s, want %s and a little", i, gaps[i], want)
			}
		}
		if len(told) != 4 || told[2].Err != nil || !errors.Is(told[3].Err, wire.ErrUnavailable) || told[3].Wait != 15*time.Second || told[3].Attempt != 4 {
			t.Errorf("progress = %+v", told)
		}
	})
}

func TestTimeoutsSlowThePollsDown(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		n := 0
		hc := &http.Client{Transport: wired{p, func() time.Duration {
			if n++; n == 3 { // the first poll
				return time.Hour
			}
			return 0
		}}}
		var told []login.Progress
		opts := prompted(hc, nil)
		opts.Progress = func(g login.Progress) { told = append(told, g) }
		if _, err := login.Device(t.Context(), p.provider(), opts); err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || told[0].Wait != 10*time.Second || told[0].Err == nil {
			t.Errorf("progress after a timeout = %+v, want a gap of 10 s (RFC 8628 section 3.5)", told)
		}
	})
}

// TestO20PendingForEver: the provider says pending for ever; the client stops when the code ends.
func TestO20PendingForEver(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(http.ResponseWriter){
		"pending": oauthError("authorization_pending"), "slow_down": oauthError("slow_down"), "garbage": badGateway,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faketime.Test(t, func(t *testing.T) {
				p := newIDP()
				p.script = []func(http.ResponseWriter){step}
				began := time.Now()
				var seen login.Prompt
				_, err := login.Device(t.Context(), p.provider(), prompted(slowly(p, time.Second), &seen))
				took := time.Since(began)
				if !errors.Is(err, wire.ErrExpired) || trust.ReasonOf(err) != trust.ReasonExpired {
					t.Fatalf("login = %v, want expired", err)
				}
				if took > 602*time.Second || took < 500*time.Second || time.Now().After(seen.Expires) {
					t.Errorf("gave up after %s, code of 600 s", took)
				}
			})
		})
	}
}

func TestPollInFlightEndsWithTheCode(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		n := 0
		hc := &http.Client{Transport: wired{p, func() time.Duration {
			if n++; n > 2 {
				return time.Hour
			}
			return 0
		}}}
		began := time.Now()
		_, err := login.Device(t.Context(), p.provider(), prompted(hc, nil))
		if took := time.Since(began); !errors.Is(err, wire.ErrExpired) || took > 600*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestO21PKCEAndClientOnThePoll: a provider that requires both works.
func TestO21PKCEAndClientOnThePoll(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		p.script = []func(http.ResponseWriter){oauthError("authorization_pending"), p.requiresPKCE}
		if _, err := login.Device(t.Context(), p.provider(), prompted(overWire(p), nil)); err != nil {
			t.Fatal(err)
		}
		first := p.forms[0]
		if first["code_challenge_method"] != "S256" || len(first["code_challenge"]) != 43 || len(p.forms[1]["code_verifier"]) < 43 {
			t.Errorf("device authorization %v, poll %v", first, p.forms[1])
		}
		if first["scope"] != "openid offline_access" {
			t.Errorf("scope = %q", first["scope"])
		}
	})
}

func TestDevicePromptAndSession(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		at := p.provider()
		at.Scopes, at.Resource = []string{"openid", "email"}, "https://mesh.example"
		var seen login.Prompt
		s, err := login.Device(t.Context(), at, prompted(overWire(p), &seen))
		if err != nil {
			t.Fatal(err)
		}
		want := login.Prompt{
			UserCode: "WDJB-MJHT", VerificationURI: issuer + "/activate", VerificationURIComplete: issuer + "/activate?user_code=WDJB-MJHT",
			Expires: seen.Expires,
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("prompt (-want +got):\n%s", diff)
		}
		refresh, id, ends := login.Tokens(s)
		if s.Subject != person || s.Provider.Issuer != issuer || !s.Expires.IsZero() || refresh != p.refresh || id == "" || time.Until(ends) > 10*time.Minute {
			t.Errorf("session = %v, refresh %q, id token until %s", s, refresh, ends)
		}
		const scope, resource = "openid email offline_access", "https://mesh.example"
		if f, g := p.forms[0], p.forms[1]; f["scope"] != scope || f["resource"] != resource || g["resource"] != resource {
			t.Errorf("parameters = %v, %v", f, g)
		}
		p.noOffline, p.polls = true, nil
		if _, err := login.Device(t.Context(), at, prompted(overWire(p), nil)); err != nil {
			t.Errorf("login at a provider without offline_access: %v", err)
		}
	})
}

func TestDeviceBetterAuth(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		p.script = []func(http.ResponseWriter){oauthError("authorization_pending"), oauthError("slow_down"), nil}
		s, err := login.Device(t.Context(), p.betterAuth(), prompted(overWire(p), nil))
		if err != nil || s.Subject != person || s.Expires.Sub(s.Obtained) != 7*24*time.Hour {
			t.Fatalf("login = %v until %s, %v", s, s.Expires, err)
		}
		want := []map[string]string{
			{"client_id": client},
			{"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "device-code-secret", "client_id": client},
		}
		if diff := cmp.Diff(want, p.forms[:2]); diff != "" {
			t.Errorf("bodies (-want +got):\n%s", diff)
		}
	})
}

func TestDeviceRefusals(t *testing.T) {
	t.Parallel()
	token := func(claims map[string]any) func(http.ResponseWriter) {
		all := map[string]any{"iss": issuer, "aud": client, "sub": person, "exp": time.Now().Add(100 * 365 * 24 * time.Hour).Unix()}
		for k, v := range claims {
			all[k] = v
		}
		return func(w http.ResponseWriter) {
			reply(w, 200, map[string]any{"access_token": "a", "id_token": jwtOf(all), "refresh_token": "r"})
		}
	}
	for name, c := range map[string]struct {
		step   func(http.ResponseWriter)
		want   error
		reason trust.Reason
		says   string
	}{
		"denied":             {oauthError("access_denied"), wire.ErrPermissionDenied, "", "denied"},
		"expired":            {oauthError("expired_token"), wire.ErrExpired, trust.ReasonExpired, "start again"},
		"code unknown":       {oauthError("invalid_grant"), wire.ErrExpired, "", "start again"},
		"client unknown":     {oauthError("invalid_client"), wire.ErrPrecondition, "", client},
		"client not allowed": {oauthError("unauthorized_client"), wire.ErrPrecondition, "", client},
		"something else":     {oauthError("teapot"), wire.ErrPrecondition, "", "teapot"},
		"no id token":        {func(w http.ResponseWriter) { reply(w, 200, map[string]any{"access_token": "a"}) }, wire.ErrPrecondition, "", "openid"},
		"nothing":            {func(w http.ResponseWriter) { reply(w, 200, map[string]any{}) }, wire.ErrUnavailable, "", "neither"},
		"other issuer":       {token(map[string]any{"iss": issuer + "/"}), wire.ErrUnauthenticated, trust.ReasonIssuer, issuer + "/"},
		"other audience":     {token(map[string]any{"aud": []string{"x", "y"}}), wire.ErrUnauthenticated, trust.ReasonAudience, "x, y"},
		"no subject":         {token(map[string]any{"sub": nil}), wire.ErrUnauthenticated, trust.ReasonSubject, "subject"},
		"no end":             {token(map[string]any{"exp": nil}), wire.ErrUnauthenticated, trust.ReasonMalformed, "end"},
		"no token": {func(w http.ResponseWriter) { reply(w, 200, map[string]any{"access_token": "a", "id_token": "a.b"}) }, wire.ErrUnauthenticated,
			trust.ReasonMalformed, "parts"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			faketime.Test(t, func(t *testing.T) {
				p := newIDP()
				p.script = []func(http.ResponseWriter){c.step}
				_, err := login.Device(t.Context(), p.provider(), prompted(overWire(p), nil))
				if !errors.Is(err, c.want) || trust.ReasonOf(err) != c.reason || !strings.Contains(err.Error(), c.says) {
					t.Errorf("login = %v (reason %q), want %v, reason %q, with %q", err, trust.ReasonOf(err), c.want, c.reason, c.says)
				}
				if len(p.polls) != 1 || strings.Contains(err.Error(), "device-code-secret") {
					t.Errorf("%d polls, error %v", len(p.polls), err)
				}
			})
		})
	}
}

func TestDeviceAuthorizationRefusals(t *testing.T) {
	t.Parallel()
	whole := map[string]any{"device_code": "d", "user_code": "AB-CD", "verification_uri": issuer + "/a", "expires_in": 600}
	for name, c := range map[string]struct {
		change map[string]any
		want   error
	}{
		"no device code":  {map[string]any{"device_code": nil}, wire.ErrUnavailable},
		"no user code":    {map[string]any{"user_code": ""}, wire.ErrUnavailable},
		"cursor moves":    {map[string]any{"user_code": "A\x1b[2JB"}, wire.ErrUnavailable},
		"a file to open":  {map[string]any{"verification_uri": "file:///etc/passwd"}, wire.ErrUnavailable},
		"a script":        {map[string]any{"verification_uri": "javascript:alert(1)"}, wire.ErrUnavailable},
		"error":           {map[string]any{"error": "invalid_client"}, wire.ErrPrecondition},
		"unknown problem": {map[string]any{"error": "x", "error_description": strings.Repeat("y", 4096)}, wire.ErrPrecondition},
	} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			doc := map[string]any{}
			for _, m := range []map[string]any{whole, c.change} {
				for k, v := range m {
					doc[k] = v
				}
			}
			reply(w, 200, doc)
		})
		_, err := login.Device(t.Context(), newIDP().provider(), prompted(overWire(h), nil))
		if !errors.Is(err, c.want) || len(err.Error()) > 1024 {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { badGateway(w) })
	if _, err := login.Device(t.Context(), newIDP().provider(), prompted(overWire(h), nil)); !isAnd(err, wire.ErrUnavailable, "/device") {
		t.Errorf("HTML instead of a code = %v", err)
	}
}

func TestDeviceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	faketime.Test(t, func(t *testing.T) {
		p := newIDP()
		p.script = []func(http.ResponseWriter){oauthError("authorization_pending")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := login.Device(ctx, p.provider(), prompted(overWire(p), nil)); !errors.Is(err, wire.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("login = %v, want the deadline", err)
		}
		stop := errors.New("no terminal")
		_, err := login.Device(t.Context(), p.provider(), &login.DeviceOptions{HTTP: overWire(p), Prompt: func(context.Context, login.Prompt) error { return stop }})
		if !errors.Is(err, stop) {
			t.Errorf("login with a prompt that fails = %v", err)
		}
		if _, err := login.Device(t.Context(), p.provider(), nil); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("login without a prompt = %v", err)
		}
	})
}

func TestProvidersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*login.Provider){
		"no issuer":    func(p *login.Provider) { p.Issuer = "" },
		"no client":    func(p *login.Provider) { p.ClientID = "" },
		"shape":        func(p *login.Provider) { p.Shape = "saml" },
		"in the open":  func(p *login.Provider) { p.TokenEndpoint = "http://idp.example/token" },
		"no address":   func(p *login.Provider) { p.DeviceEndpoint = "/device" },
		"password":     func(p *login.Provider) { p.RevocationEndpoint = "https://u:hush@idp.example/" },
		"lookalike":    func(p *login.Provider) { p.TokenEndpoint = "http://localhost.example/token" },
		"other scheme": func(p *login.Provider) { p.JWTEndpoint = "ftp://idp.example/" },
	} {
		p := newIDP().provider()
		change(&p)
		_, err := login.Device(t.Context(), p, prompted(nil, nil))
		if !errors.Is(err, wire.ErrBadRequest) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want a bad request", name, err)
		}
	}
}
