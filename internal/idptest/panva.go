package idptest

import (
	"context"
	"net/http"
	"testing"
)

// A panva is the oidc-provider of npm, in a child.
type panva struct {
	*child
	form string
}

var _ provider = (*panva)(nil)

func (i *IdP) startPanva(t testing.TB, o Options) http.Handler {
	t.Helper()
	c, handler := startNode(t, string(Panva), i.Issuer, o)
	i.Alg = "ES256"
	i.Audience = o.ClientID
	i.DeviceEndpoint = i.BaseURL + "/device/auth"
	i.TokenEndpoint = i.BaseURL + "/token"
	i.JWKSURI = i.BaseURL + "/jwks"
	i.RevocationEndpoint = i.BaseURL + "/token/revocation"
	i.provider = &panva{child: c, form: i.BaseURL + "/device"}
	return handler
}

// decide goes through the product's pages: the code, its confirmation, the login, the consent.
func (p *panva) decide(ctx context.Context, userCode, user string, approve bool) error {
	who, done, err := newPerson(user)
	if err != nil {
		return err
	}
	defer done()
	last, err := who.walk(ctx, p.form, userCode, approve)
	if err != nil {
		return err
	}
	if approve {
		return last.mustBe(http.StatusOK, "Sign-in Success")
	}
	return last.mustBe(http.StatusOK, "The Sign-in request was interrupted")
}

// subject is the name a person logs in with: the development pages of the product have no other users.
func (p *panva) subject(_ context.Context, user string) (string, error) { return user, nil }
