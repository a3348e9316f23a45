package auth_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// adasOwner is the owner of a person at an identity provider.
const adasOwner = "u_g5mclrofwa6pirb3p4yeigemze"

// people returns the authority of a space of people.
func people(t *testing.T) (*auth.Authority, wire.Space) {
	t.Helper()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	if _, err := a.EnsurePeople(t.Context(), m.Space()); err != nil {
		t.Fatal(err)
	}
	return a, m.Space()
}

func personGrant(s wire.Space, actor string) auth.GrantRequest {
	return auth.GrantRequest{
		Space: s, Owner: adasOwner, Actor: actor, Scope: []string{trust.ScopeSpawn, "role:reviewer"},
		Subscribe: []string{"team.>"}, Publish: []string{"team.>"}, By: "operator",
	}
}

func grant(t *testing.T, a *auth.Authority, req auth.GrantRequest) trust.Grant {
	t.Helper()
	c, err := a.Grant(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return c.Grant
}

func wantReason(t *testing.T, err error, want trust.Reason) {
	t.Helper()
	if got := trust.ReasonOf(err); got != want {
		t.Errorf("error = %v (reason %q), want reason %q", err, got, want)
	}
}

func userKey(t *testing.T) string {
	t.Helper()
	k, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := k.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return pub
}

func connection(t *testing.T, g trust.Grant) auth.ConnectRequest {
	t.Helper()
	return auth.ConnectRequest{
		Lifecycle: g.Lifecycle(), Epoch: g.Epoch, Scope: g.Scope, Expires: time.Now().Add(time.Minute), UserKey: userKey(t),
	}
}

func TestAPersonIsAdmittedByTheGrantAsItIsNow(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	ctx := t.Context()
	ask := auth.PersonRequest{Owner: adasOwner, Actor: "ada"}
	_, err := a.AdmitPerson(ctx, s, ask)
	wantReason(t, err, trust.ReasonNotGranted)
	if !strings.Contains(err.Error(), "cotal actor grant ada --owner "+adasOwner) {
		t.Errorf("refusal %q does not name the command that allows it", err)
	}
	g := grant(t, a, personGrant(s, "ada"))
	for _, ask := range []auth.PersonRequest{ask, {Owner: adasOwner}} {
		adm, err := a.AdmitPerson(ctx, s, ask)
		if err != nil || adm.Grant.UID != g.UID || adm.Profile != trust.Agent || !slices.Equal(adm.Scope, g.Scope) {
			t.Errorf("AdmitPerson(%+v) = %+v, %v", ask, adm, err)
		}
	}
	for name, c := range map[string]struct {
		ask  auth.PersonRequest
		want trust.Reason
	}{
		"scope beyond":      {auth.PersonRequest{Owner: adasOwner, Actor: "ada", Scope: []string{"admin"}}, trust.ReasonScope},
		"view":              {auth.PersonRequest{Owner: adasOwner, Actor: "ada", View: trust.ViewAdmin}, trust.ReasonScope},
		"view out of scope": {auth.PersonRequest{Owner: adasOwner, Actor: "ada", View: trust.ViewDeployer, Scope: []string{}}, trust.ReasonScope},
		"another's":         {auth.PersonRequest{Owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", Actor: "ada"}, trust.ReasonNotGranted},
	} {
		_, err := a.AdmitPerson(ctx, s, c.ask)
		if got := trust.ReasonOf(err); got != c.want {
			t.Errorf("%s: %v (reason %q), want %q", name, err, got, c.want)
		}
	}
	if adm, err := a.AdmitPerson(ctx, s, auth.PersonRequest{Owner: adasOwner, Actor: "ada", View: trust.ViewDeployer}); err != nil || adm.Profile != trust.Deployer {
		t.Errorf("view deployer with scope spawn = %+v, %v", adm, err)
	}
	if adm, err := a.AdmitPerson(ctx, s, auth.PersonRequest{Owner: adasOwner, Actor: "ada", Scope: []string{}}); err != nil || len(adm.Scope) != 0 {
		t.Errorf("no scope asked = %v, %v; want none given", adm.Scope, err)
	}
	grant(t, a, personGrant(s, "ada_2"))
	_, err = a.AdmitPerson(ctx, s, auth.PersonRequest{Owner: adasOwner})
	if err == nil || !strings.Contains(err.Error(), "ada, ada_2") {
		t.Errorf("two actors and none named = %v, want both names", err)
	}
	if _, err := a.Revoke(ctx, s, g.Principal()); err != nil {
		t.Fatal(err)
	}
	_, err = a.AdmitPerson(ctx, s, ask)
	wantReason(t, err, trust.ReasonRevoked)
	again := grant(t, a, personGrant(s, "ada"))
	if again.UID == g.UID || again.Epoch <= g.Epoch {
		t.Errorf("the successor has life %s and epoch %d, before %s and %d", again.UID, again.Epoch, g.UID, g.Epoch)
	}
}

func TestGrantIsRefused(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	base := personGrant(s, "ada")
	past := time.Now().Add(-time.Minute)
	for name, edit := range map[string]func(*auth.GrantRequest){
		"space":   func(r *auth.GrantRequest) { r.Space = "a.b" },
		"actor":   func(r *auth.GrantRequest) { r.Actor = "a-b" },
		"owner":   func(r *auth.GrantRequest) { r.Owner = "someone" },
		"pattern": func(r *auth.GrantRequest) { r.Subscribe = []string{"a.>.b"} },
		"doubled": func(r *auth.GrantRequest) { r.Publish = []string{"a", "a"} },
		"scope":   func(r *auth.GrantRequest) { r.Scope = []string{"root"} },
		"role":    func(r *auth.GrantRequest) { bad := "a b"; r.Role = &bad },
		"past":    func(r *auth.GrantRequest) { r.Expires = &past },
		"kind":    func(r *auth.GrantRequest) { r.Kind = "king" },
	} {
		req := base
		edit(&req)
		if _, err := a.Grant(t.Context(), req); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: Grant = %v, want bad-request", name, err)
		}
	}
	grants, err := a.List(t.Context(), s)
	if err != nil || slices.ContainsFunc(grants, func(g trust.Grant) bool { return g.Owner == adasOwner }) {
		t.Errorf("a refused request left %v, %v", grants, err)
	}
}

// TestSpacesOfPeopleHandOutNoFiles: neither mode falls back to the other.
func TestSpacesOfPeopleHandOutNoFiles(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	_, err := a.Issue(t.Context(), auth.Request{Space: s, Actor: "ada"})
	wantReason(t, err, trust.ReasonUserMode)
	_, err = a.Personal(t.Context(), s, trust.Operator, "ada", time.Minute)
	wantReason(t, err, trust.ReasonUserMode)
	m := cotaltest.New(t, nil)
	req := personGrant(m.Space(), "ada")
	_, err = m.Node().Authority().Grant(t.Context(), req)
	wantReason(t, err, trust.ReasonStaticMode)
}

func TestDelegationOnlyNarrows(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	ctx := t.Context()
	ada := grant(t, a, personGrant(s, "ada"))
	life := ada.Lifecycle()
	child := func(actor string, edit func(*auth.GrantRequest)) error {
		req := auth.GrantRequest{Space: s, Actor: actor, Parent: &life, Subscribe: []string{"team.a"}, Publish: []string{"team.a"}}
		if edit != nil {
			edit(&req)
		}
		_, err := authtest.Grant(ctx, a, req)
		return err
	}
	if err := child("h1", nil); err != nil {
		t.Fatal(err)
	}
	reviewer := "reviewer"
	if err := child("h2", func(r *auth.GrantRequest) { r.Role, r.Scope = &reviewer, []string{"spawn"} }); err != nil {
		t.Errorf("a role that the parent may hand on: %v", err)
	}
	admin := "admin"
	for name, edit := range map[string]func(*auth.GrantRequest){
		"subscribe": func(r *auth.GrantRequest) { r.Subscribe = []string{">"} },
		"union":     func(r *auth.GrantRequest) { r.Subscribe = []string{"*.a"} },
		"publish":   func(r *auth.GrantRequest) { r.Publish = []string{"general"} },
		"scope":     func(r *auth.GrantRequest) { r.Scope = []string{"com_acme.run"} },
		"role":      func(r *auth.GrantRequest) { r.Role = &admin },
	} {
		err := child("greedy", edit)
		if trust.ReasonOf(err) != trust.ReasonExceedsParent || !strings.Contains(err.Error(), "cotal actor grant ada --owner "+adasOwner+" --") {
			t.Errorf("%s beyond the parent = %v; want the command that widens it", name, err)
		}
	}
	other := life
	other.Owner = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	wantReason(t, child("x", func(r *auth.GrantRequest) { r.Parent = &other }), trust.ReasonParent)
	other = life
	other.UID = wire.NewUID()
	wantReason(t, child("x", func(r *auth.GrantRequest) { r.Parent = &other }), trust.ReasonParent)
}

// TestTakingAwayReachesEverybodyBelow narrows and then revokes somebody who has children and grandchildren.
func TestTakingAwayReachesEverybodyBelow(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	ctx := t.Context()
	ada := grant(t, a, personGrant(s, "ada"))
	life := ada.Lifecycle()
	child, err := authtest.Grant(ctx, a, auth.GrantRequest{Space: s, Actor: "child", Parent: &life, Scope: []string{"spawn"}, Subscribe: []string{"team.a"}})
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := authtest.Grant(ctx, a, auth.GrantRequest{Space: s, Actor: "grandchild", Parent: &child.Lifecycle, Subscribe: []string{"team.a"}})
	if err != nil {
		t.Fatal(err)
	}
	admit := func(g *authtest.Agent) (trust.Grant, error) {
		adm, err := a.AdmitAgent(ctx, s, auth.AgentRequest{Owner: adasOwner, Actor: g.Actor, Token: []byte(g.Secret())})
		return adm.Grant, err
	}
	var grants []trust.Grant
	for _, agent := range []*authtest.Agent{child, grandchild} {
		g, err := admit(agent)
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	narrow := auth.GrantRequest{Space: s, Owner: adasOwner, Actor: "ada", Subscribe: []string{"team.b"}}
	change, err := a.Grant(ctx, narrow)
	want := []wire.Principal{child.Principal, grandchild.Principal}
	if err != nil || !change.Narrowed || !slices.Equal(change.Exceeding, want) || change.Grant.Refusing != 0 {
		t.Errorf("narrowing = %+v, %v; want both of those below to exceed it", change, err)
	}
	for _, agent := range []*authtest.Agent{child, grandchild} {
		_, err := admit(agent)
		wantReason(t, err, trust.ReasonExceedsParent)
	}
	_, _, err = a.Connect(ctx, s, connection(t, grants[1]))
	wantReason(t, err, trust.ReasonExceedsParent)
	narrow.Subscribe = []string{"team.>"}
	grant(t, a, narrow)
	if _, err := admit(grandchild); err != nil {
		t.Errorf("after widening again: %v", err)
	}
	rev, err := a.Revoke(ctx, s, ada.Principal())
	if err != nil || len(rev.Below) != 2 {
		t.Fatalf("Revoke = %+v, %v; want two below", rev, err)
	}
	for _, g := range grants {
		_, _, err := a.Connect(ctx, s, connection(t, g))
		if r := trust.ReasonOf(err); r != trust.ReasonRevoked {
			t.Errorf("connect as %s after the revocation = %v, want grant-revoked", g.Principal(), err)
		}
	}
	// A successor of the name is nobody's parent.
	grant(t, a, personGrant(s, "ada"))
	if err := child2(a, t, s, life); trust.ReasonOf(err) != trust.ReasonParent {
		t.Errorf("a child under the life before = %v, want parent-gone", err)
	}
}

func child2(a *auth.Authority, t *testing.T, s wire.Space, parent wire.Lifecycle) error {
	_, err := authtest.Grant(t.Context(), a, auth.GrantRequest{Space: s, Actor: "late", Parent: &parent})
	return err
}

func TestTheSecretOfAnAgentIsOfOneStart(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	ctx := t.Context()
	ada := grant(t, a, personGrant(s, "ada")).Lifecycle()
	helper, err := authtest.Grant(ctx, a, auth.GrantRequest{Space: s, Actor: "helper", Parent: &ada})
	if err != nil {
		t.Fatal(err)
	}
	admit := func(actor string, token string) error {
		_, err := a.AdmitAgent(ctx, s, auth.AgentRequest{Owner: adasOwner, Actor: actor, Token: []byte(token)})
		return err
	}
	if err := admit("helper", helper.Secret()); err != nil {
		t.Fatal(err)
	}
	second, err := helper.Start(ctx, a, s)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for name, err := range map[string]error{
		"first":    admit("helper", helper.Secret()),
		"empty":    admit("helper", ""),
		"nobody":   admit("nobody", second()),
		"a person": admit("ada", second()),
		"grammar":  admit("a.b", second()),
	} {
		wantReason(t, err, trust.ReasonActorToken)
		said[err.Error()] = name
	}
	if len(said) != 1 {
		t.Errorf("the refusals tell apart what is wrong: %v", said)
	}
	if err := admit("helper", second()); err != nil {
		t.Errorf("secret of the second start: %v", err)
	}
	if err := helper.Stop(ctx, a, s); err != nil {
		t.Fatal(err)
	}
	wantReason(t, admit("helper", second()), trust.ReasonActorToken)
	wantReason(t, admit("helper", ""), trust.ReasonActorToken)
	if _, err := a.AdmitPerson(ctx, s, auth.PersonRequest{Owner: adasOwner, Actor: "helper"}); trust.ReasonOf(err) != trust.ReasonNotGranted {
		t.Errorf("a person signs in as an agent: %v", err)
	}
}

func TestConnectLooksAtTheGrantOfNow(t *testing.T) {
	t.Parallel()
	a, s := people(t)
	ctx := t.Context()
	g := grant(t, a, personGrant(s, "ada"))
	good := connection(t, g)
	token, adm, err := a.Connect(ctx, s, good)
	if err != nil || token == "" || adm.Grant.UID != g.UID {
		t.Fatalf("Connect = %+v, %v", adm, err)
	}
	_, _, err = a.Connect(ctx, s, good)
	wantReason(t, err, trust.ReasonReplayed)
	for name, c := range map[string]struct {
		edit func(*auth.ConnectRequest)
		want trust.Reason
	}{
		"another life":  {func(r *auth.ConnectRequest) { r.UID = wire.NewUID() }, trust.ReasonSuperseded},
		"another epoch": {func(r *auth.ConnectRequest) { r.Epoch++ }, trust.ReasonSuperseded},
		"scope":         {func(r *auth.ConnectRequest) { r.Scope = []string{"com_acme.run"} }, trust.ReasonScope},
		"view":          {func(r *auth.ConnectRequest) { r.View = trust.ViewPurger }, trust.ReasonScope},
		"expired":       {func(r *auth.ConnectRequest) { r.Expires = time.Now().Add(-time.Second) }, trust.ReasonExpired},
		"nobody":        {func(r *auth.ConnectRequest) { r.Actor = "bob" }, trust.ReasonNotGranted},
	} {
		req := connection(t, g)
		c.edit(&req)
		if token, _, err := a.Connect(ctx, s, req); trust.ReasonOf(err) != c.want || token != "" {
			t.Errorf("%s: %v, want reason %q", name, err, c.want)
		}
	}
	grant(t, a, auth.GrantRequest{Space: s, Owner: adasOwner, Actor: "ada", Publish: []string{"team.>", "general"}})
	_, _, err = a.Connect(ctx, s, connection(t, g))
	wantReason(t, err, trust.ReasonSuperseded)
}

// TestGrantsEnd: nothing that is handed out outlives the end of the grant, or of one above it.
func TestGrantsEnd(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		a, s, ctx := m.Node().Authority(), m.Space(), t.Context()
		if _, err := a.EnsurePeople(ctx, s); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(time.Hour)
		req := personGrant(s, "ada")
		req.Expires = &end
		ada := grant(t, a, req).Lifecycle()
		helper, err := authtest.Grant(ctx, a, auth.GrantRequest{Space: s, Actor: "helper", Parent: &ada})
		if err != nil {
			t.Fatal(err)
		}
		ask := auth.AgentRequest{Owner: adasOwner, Actor: "helper", Token: []byte(helper.Secret())}
		if adm, err := a.AdmitAgent(ctx, s, ask); err != nil || !adm.Until.Equal(end) {
			t.Errorf("an agent under a grant that ends at %s may be admitted until %s, %v", end, adm.Until, err)
		}
		time.Sleep(time.Hour + time.Second)
		_, err = a.AdmitAgent(ctx, s, ask)
		wantReason(t, err, trust.ReasonParent)
		_, err = a.AdmitPerson(ctx, s, auth.PersonRequest{Owner: adasOwner, Actor: "ada"})
		wantReason(t, err, trust.ReasonGrantExpired)
	})
}
