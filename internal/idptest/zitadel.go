package idptest

import (
	"context"
	"crypto/rand"
	"fmt"
	"html"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

// The page on which a person decides, which the library leaves to its user.
const zitadelForm = "/device"

// A zitadel is the provider of the zitadel library, over a storage of ours.
type zitadel struct {
	issuer string
	store  *zitadelStore
}

var _ provider = (*zitadel)(nil)

func (i *IdP) startZitadel(t testing.TB, o Options) http.Handler {
	t.Helper()
	z := &zitadel{issuer: i.Issuer, store: newZitadelStore(o)}
	if err := z.store.rotate(); err != nil {
		t.Fatal(err)
	}
	config := &op.Config{
		GrantTypeRefreshToken: true,
		CodeMethodS256:        true,
		DeviceAuthorization: op.DeviceAuthorizationConfig{
			Lifetime:     10 * time.Minute,
			PollInterval: time.Second,
			UserFormPath: zitadelForm,
			UserCode:     op.UserCodeBase20,
		},
	}
	if _, err := rand.Read(config.CryptoKey[:]); err != nil {
		t.Fatal(err)
	}
	p, err := op.NewProvider(config, z.store, op.StaticIssuer(i.Issuer), op.WithAllowInsecure())
	if err != nil {
		t.Fatalf("idptest: start %s: %v", Zitadel, err)
	}
	i.Alg = "RS256"
	i.DeviceEndpoint = p.DeviceAuthorizationEndpoint().Absolute(i.BaseURL)
	i.TokenEndpoint = p.TokenEndpoint().Absolute(i.BaseURL)
	i.JWKSURI = p.KeysEndpoint().Absolute(i.BaseURL)
	i.RevocationEndpoint = p.RevocationEndpoint().Absolute(i.BaseURL)
	i.provider = z
	mux := http.NewServeMux()
	mux.Handle("/", p)
	mux.HandleFunc("GET "+zitadelForm, z.form)
	mux.HandleFunc("POST "+zitadelForm, z.decided)
	return mux
}

func (z *zitadel) form(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, `<!DOCTYPE html><html><body><form method="post" action="`+zitadelForm+`">
<input name="user_code" value="`+html.EscapeString(r.FormValue("user_code"))+`">
<input name="login"><button name="approve" value="yes">Allow</button><button name="abort" value="yes">Deny</button>
</form></body></html>
`)
}

func (z *zitadel) decided(w http.ResponseWriter, r *http.Request) {
	code, user, approve := r.PostFormValue("user_code"), r.PostFormValue("login"), r.PostFormValue("abort") == ""
	if err := z.store.decide(code, user, approve); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprintln(w, "You may close this page.")
}

func (z *zitadel) decide(ctx context.Context, userCode, user string, approve bool) error {
	p, done, err := newPerson(user)
	if err != nil {
		return err
	}
	defer done()
	last, err := p.walk(ctx, z.issuer+zitadelForm, userCode, approve)
	if err != nil {
		return err
	}
	return last.mustBe(http.StatusOK, "You may close this page")
}

func (z *zitadel) subject(_ context.Context, user string) (string, error) {
	return z.store.subject(user), nil
}

func (z *zitadel) rotate(context.Context) error { return z.store.rotate() }

func (z *zitadel) dropOldKeys(context.Context) error {
	z.store.dropOldKeys()
	return nil
}
