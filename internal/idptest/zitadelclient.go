package idptest

import (
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// A zitadelClient is the registered client as the zitadel library sees it: public, for devices, with refresh.
type zitadelClient struct {
	id   string
	life time.Duration
}

var _ op.Client = zitadelClient{}

func (c zitadelClient) GetID() string                        { return c.id }
func (c zitadelClient) RedirectURIs() []string               { return nil }
func (c zitadelClient) PostLogoutRedirectURIs() []string     { return nil }
func (c zitadelClient) ApplicationType() op.ApplicationType  { return op.ApplicationTypeNative }
func (c zitadelClient) AuthMethod() oidc.AuthMethod          { return oidc.AuthMethodNone }
func (c zitadelClient) ResponseTypes() []oidc.ResponseType   { return nil }
func (c zitadelClient) LoginURL(string) string               { return "" }
func (c zitadelClient) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeBearer }
func (c zitadelClient) IDTokenLifetime() time.Duration       { return c.life }
func (c zitadelClient) DevMode() bool                        { return false }
func (c zitadelClient) IsScopeAllowed(string) bool           { return false }
func (c zitadelClient) ClockSkew() time.Duration             { return 0 }
func (c zitadelClient) IDTokenUserinfoClaimsAssertion() bool { return false }

func (c zitadelClient) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeDeviceCode, oidc.GrantTypeRefreshToken}
}

func (c zitadelClient) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}

func (c zitadelClient) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
