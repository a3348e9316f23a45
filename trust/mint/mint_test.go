package mint_test

import (
	"testing"

	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func TestSmoke(t *testing.T) {
	a, err := mint.Init(t.Context(), memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := a.AddSpace(t.Context(), "main", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.AddSpace(t.Context(), "main", nil)
	if err != nil || again.Version != rec.Version {
		t.Fatal(err, again.Version)
	}
	c, err := a.User(t.Context(), mint.UserRequest{Space: "main", Profile: trust.Agent, Principal: wire.Principal{Owner: "local", Actor: "Ada"}, Subscribe: []string{">"}, Publish: []string{"general"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(c, len(c.JWT()), len(rec.JWT), rec.Version)
	if _, err := a.Revoke(t.Context(), "main", mint.Revocation{UserKey: c.Identity().UserKey, Expires: c.Identity().Expires}); err != nil {
		t.Fatal(err)
	}
	if err := a.RotateOperatorKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.RotateSigningKey(t.Context(), "main", trust.Agent, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.RotateSystem(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.RetireSystem(t.Context()); err != nil {
		t.Fatal(err)
	}
	rec, err = a.Account(t.Context(), "main")
	t.Log(rec.Version, len(rec.Keys), rec.Revocations, err)
	if err := a.RemoveSpace(t.Context(), "main"); err != nil {
		t.Fatal(err)
	}
	sp, err := a.Spaces(t.Context())
	t.Log(sp, err)
}
