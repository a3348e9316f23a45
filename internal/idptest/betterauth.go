package idptest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
)

// A betterAuth is Better Auth, in a child.
type betterAuth struct {
	*child
	base, origin string

	mu    sync.Mutex // guards what follows
	users map[string]*betterAuthUser
}

// A betterAuthUser has an account and a browser that is logged in.
type betterAuthUser struct {
	*person
	done func() // closes the browser
	id   string
}

var _ provider = (*betterAuth)(nil)

func (i *IdP) startBetterAuth(t testing.TB, o Options) http.Handler {
	t.Helper()
	c, handler := startNode(t, string(BetterAuth), i.Issuer, o)
	i.Alg = "EdDSA"
	i.Shape = ShapeBetterAuth
	i.BaseURL = i.Issuer + "/api/auth"
	i.DeviceEndpoint = i.BaseURL + "/device/code"
	i.TokenEndpoint = i.BaseURL + "/device/token"
	i.JWTEndpoint = i.BaseURL + "/token"
	i.JWKSURI = i.BaseURL + "/jwks"
	b := &betterAuth{child: c, base: i.BaseURL, origin: i.Issuer, users: map[string]*betterAuthUser{}}
	t.Cleanup(b.closeBrowsers)
	i.provider = b
	return handler
}

// decide opens the code with the user's session, which makes it the user's, and then allows or refuses it.
func (b *betterAuth) decide(ctx context.Context, userCode, user string, approve bool) error {
	u, err := b.user(ctx, user)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/device?user_code="+url.QueryEscape(userCode), http.NoBody)
	if err != nil {
		return err
	}
	shown, err := u.do(r)
	if err != nil {
		return err
	}
	if err := shown.mustBe(http.StatusOK, "pending"); err != nil {
		return err
	}
	route := "/device/approve"
	if !approve {
		route = "/device/deny"
	}
	_, err = b.post(ctx, u.person, route, map[string]string{"userCode": userCode})
	return err
}

func (b *betterAuth) subject(ctx context.Context, user string) (string, error) {
	u, err := b.user(ctx, user)
	if err != nil {
		return "", err
	}
	return u.id, nil
}

// user returns the user of a name, signed up now if need be.
func (b *betterAuth) user(ctx context.Context, name string) (*betterAuthUser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u := b.users[name]; u != nil {
		return u, nil
	}
	p, done, err := newPerson(name)
	if err != nil {
		return nil, err
	}
	shown, err := b.post(ctx, p, "/sign-up/email", map[string]string{"name": name, "email": name + "@example.com", "password": rand.Text()})
	var made struct{ User struct{ ID string } }
	if err == nil {
		err = json.Unmarshal([]byte(shown.body), &made)
	}
	if err != nil {
		done()
		return nil, fmt.Errorf("sign up: %w", err)
	}
	u := &betterAuthUser{person: p, done: done, id: made.User.ID}
	b.users[name] = u
	return u, nil
}

func (b *betterAuth) closeBrowsers() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.users {
		u.done()
	}
}

// post does what the product's own pages would do from a script.
func (b *betterAuth) post(ctx context.Context, p *person, route string, body any) (page, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return page{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.base+route, bytes.NewReader(data))
	if err != nil {
		return page{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", b.origin) // which it insists on when there are cookies
	shown, err := p.do(r)
	if err != nil {
		return page{}, err
	}
	return shown, shown.mustBe(http.StatusOK, "")
}
