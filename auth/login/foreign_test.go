package login_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/wire"
)

// TestAMeshDoesNotChooseWhereCodesGo: the document of a mesh names a provider that others trust, and an address of its own for one of
// its endpoints. Nothing is sent there: the issuer says where its endpoints are.
func TestAMeshDoesNotChooseWhereCodesGo(t *testing.T) {
	t.Parallel()
	discovered := `{"issuer":"https://idp.example","device_authorization_endpoint":"https://idp.example/device","token_endpoint":"https://login.idp.example/token"}`
	at := func(mesh, discovery string) *http.Client {
		return overWire(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.String() {
			case "https://mesh.example/.well-known/cotal-mesh":
				_, _ = w.Write([]byte(mesh))
			case "https://idp.example/.well-known/openid-configuration":
				_, _ = w.Write([]byte(discovery))
			default:
				http.NotFound(w, r)
			}
		}))
	}
	for name, c := range map[string]struct{ old, new string }{
		"token endpoint":      {"https://idp.example/token", "https://evil.example/token"},
		"device endpoint":     {"https://idp.example/device", "https://evil.example/device"},
		"a port of it":        {"https://idp.example/token", "https://idp.example:8443/token"},
		"revocation endpoint": {`"deviceEndpoint"`, `"revocationEndpoint":"https://evil.example/revoke","deviceEndpoint"`},
		"code endpoint":       {`"deviceEndpoint"`, `"deviceTokenEndpoint":"https://evil.example/token","deviceEndpoint"`},
		"this machine":        {"https://idp.example/token", "http://127.0.0.1:2375/token"},
	} {
		hc := at(strings.Replace(meshDocument, c.old, c.new, 1), discovered)
		info, err := login.Mesh(t.Context(), "https://mesh.example", hc)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, err := info.Provider.Discover(t.Context(), hc)
		if err != nil || p.DeviceEndpoint != "https://idp.example/device" || p.TokenEndpoint != "https://login.idp.example/token" ||
			p.RevocationEndpoint != "" || p.DeviceTokenEndpoint != "" {
			t.Errorf("%s: provider = %+v, %v", name, p, err)
		}
	}
	hc := at(strings.Replace(meshDocument, "https://mesh.example/x", "http://127.0.0.1:2375/x", 1), discovered)
	if _, err := login.Mesh(t.Context(), "https://mesh.example", hc); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("an exchange on this machine, by a mesh that is not: %v", err)
	}
	p := login.Provider{Issuer: "https://idp.example", ClientID: "cotal-demo"}
	hc = at("", strings.Replace(discovered, "https://login.idp.example/token", "http://localhost:2375/token", 1))
	if _, err := p.Discover(t.Context(), hc); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("an endpoint on this machine, by a provider that is not: %v", err)
	}
}
