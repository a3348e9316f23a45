package signin_test

import (
	"net/http"
	"testing"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/internal/idptest"
)

// TestTheSentinelHasNoEnd: the broker keeps what belongs to a connection of a person until the end of the sentinel that it was
// opened with, see mint.Authority.Sentinel.
func TestTheSentinelHasNoEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, idptest.Zitadel, nil)
	c := w.capability(t)
	info, err := login.Mesh(t.Context(), c.URL, &http.Client{Transport: opens(c.Cap())})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := jwt.DecodeUserClaims(info.Sentinel)
	if err != nil || claims.Expires != 0 || !claims.HasEmptyPermissions() {
		t.Errorf("the mesh publishes the sentinel %+v, %v; want one that permits nothing and does not end", claims, err)
	}
}

// opens is a transport with a capability.
type opens string

// RoundTrip implements [http.RoundTripper].
func (o opens) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(o))
	return http.DefaultTransport.RoundTrip(r)
}
