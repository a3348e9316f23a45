package login_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const capability = `{"ver":1,"url":"http://127.0.0.1:4711","pid":4321,"cap":"open-sesame","publicUrl":"https://mesh.example"}`

const meshDocument = `{"space":"demo","server":"tls://mesh.example:4222","tlsRequired":true,"userAuth":{"provider":"cotal",` +
	`"idp":{"issuer":"https://idp.example","audience":"aud-1","clientId":"cotal-demo","shape":"oidc","deviceEndpoint":"https://idp.example/device",` +
	`"tokenEndpoint":"https://idp.example/token","scopes":["email"],"later":1},"endpoints":{"url":"https://mesh.example/x"}},"sentinel":"ey.sentinel"}`

func TestMesh(t *testing.T) {
	t.Parallel()
	serve := func(doc string) *http.Client {
		return overWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.String() != "https://mesh.example/.well-known/cotal-mesh" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(doc))
		}))
	}
	want := login.MeshInfo{
		Space: "demo", Server: "tls://mesh.example:4222", TLSRequired: true, ExchangeURL: "https://mesh.example/x", Sentinel: "ey.sentinel",
		Provider: login.Provider{
			Issuer: issuer, ClientID: "cotal-demo", Audience: "aud-1", Shape: login.ShapeOIDC, DeviceEndpoint: issuer + "/device", TokenEndpoint: issuer + "/token",
			Scopes: []string{"email"},
		},
	}
	got, err := login.Mesh(t.Context(), "https://mesh.example/", serve(meshDocument))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("mesh: %v (-want +got):\n%s", err, diff)
	}
	got, err = login.Mesh(t.Context(), "https://mesh.example", serve(strings.Replace(meshDocument, `"url":"https://mesh.example/x"`, "", 1)))
	if err != nil || got.ExchangeURL != "https://mesh.example" {
		t.Errorf("exchange of a mesh that does not name it = %q, %v", got.ExchangeURL, err)
	}
	got, err = login.Mesh(t.Context(), "https://mesh.example", serve(strings.Replace(meshDocument, `"sentinel"`, `"sentinelCreds"`, 1)))
	if err != nil || got.Sentinel != "ey.sentinel" {
		t.Errorf("sentinel under its earlier name = %q, %v", got.Sentinel, err)
	}
	for name, c := range map[string]struct {
		old, new string
		want     error
		reason   trust.Reason
	}{
		"no people":       {`"userAuth"`, `"other"`, wire.ErrPrecondition, trust.ReasonStaticMode},
		"other provider":  {`"provider":"cotal"`, `"provider":"acme"`, wire.ErrPrecondition, ""},
		"no space":        {`"demo"`, `"de.mo"`, wire.ErrPrecondition, ""},
		"in the clear":    {"https://mesh.example/x", "http://mesh.example/x", wire.ErrPrecondition, ""},
		"idp in clear":    {"https://idp.example/token", "http://idp.example/token", wire.ErrPrecondition, ""},
		"no document":     {`{"space"`, `<html>{`, wire.ErrUnavailable, ""},
		"space twice":     {`{"space"`, `{"space":"x","space"`, wire.ErrUnavailable, ""},
		"wrong case":      {`"server"`, `"Server"`, wire.ErrUnavailable, ""},
		"no client":       {"cotal-demo", "", wire.ErrPrecondition, ""},
		"something null":  {`"cotal-demo"`, `null`, wire.ErrUnavailable, ""},
		"unknown shape":   {`"oidc"`, `"saml"`, wire.ErrPrecondition, ""},
		"exchange is odd": {"https://mesh.example/x", "mesh.example", wire.ErrPrecondition, ""},
	} {
		_, err := login.Mesh(t.Context(), "https://mesh.example", serve(strings.Replace(meshDocument, c.old, c.new, 1)))
		if !errors.Is(err, c.want) || trust.ReasonOf(err) != c.reason && c.reason != "" {
			t.Errorf("%s: %v (reason %q), want %v, %q", name, err, trust.ReasonOf(err), c.want, c.reason)
		}
	}
	if _, err := login.Mesh(t.Context(), "https://mesh.example/wrong", serve(meshDocument)); !isAnd(err, wire.ErrUnavailable, "404") {
		t.Errorf("wrong address = %v", err)
	}
	if _, err := login.Mesh(t.Context(), "http://mesh.example", serve(meshDocument)); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("address in the clear = %v", err)
	}
}

func TestCapability(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "exchange.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := login.ReadCapability(path); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("no file = %v, want not-found", err)
	}
	if _, err := login.ReadCapability(t.TempDir()); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("a folder = %v, want a bad request", err)
	}
	write(capability)
	c, err := login.ReadCapability(path)
	if err != nil || c.URL != "http://127.0.0.1:4711" || c.Cap() != "open-sesame" || c.PID != 4321 || c.PublicURL != "https://mesh.example" {
		t.Errorf("capability = %+v, %v", c, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "open-sesame") {
		t.Errorf("a capability prints as %s", text)
	}
	for name, change := range map[string][2]string{
		"later version": {`"ver":1`, `"ver":2`}, "elsewhere": {"127.0.0.1", "10.0.0.1"}, "a name": {"127.0.0.1:4711", "localhost.example"},
		"no word": {"open-sesame", ""}, "two words": {"open-sesame", "open sesame"}, "a header": {"open-sesame", `a\r\nb`}, "cut": {"}", ""},
		"public in clear": {"https://mesh.example", "http://mesh.example"}, "unix": {"http://127.0.0.1:4711", "unix:///run/x"},
	} {
		write(strings.Replace(capability, change[0], change[1], 1))
		_, err := login.ReadCapability(path)
		if !errors.Is(err, wire.ErrBadRequest) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v, want a bad request that names the file", name, err)
		}
	}
}
