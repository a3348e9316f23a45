package auth_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// patient is a mesh whose authority is looked at.
type patient struct {
	t     *testing.T
	m     *cotaltest.Mesh
	a     *auth.Authority
	store *memstore.Store
	opts  auth.DiagnoseOptions
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{t: t, store: memstore.New()}
	p.m = cotaltest.New(t, &cotaltest.Options{Store: p.store})
	p.a = p.m.Node().Authority()
	p.opts.Store = p.store
	return p
}

// look diagnoses and returns what is not well, by check. Nothing said may hold a seed.
func (p *patient) look(fix bool) map[string]auth.Finding {
	p.t.Helper()
	opts := p.opts
	opts.Fix = fix
	ill := map[string]auth.Finding{}
	for _, f := range p.a.Diagnose(p.t.Context(), p.m.Space(), &opts) {
		if f.Status != auth.FindingOK || f.Fixed {
			ill[f.Check] = f
		}
		if strings.Contains(f.Text+f.Repair, "\nSU") || strings.Contains(f.Text, "SA") && strings.Contains(f.Text, "SEED") {
			p.t.Errorf("finding %+v shows a seed", f)
		}
		if f.Status != auth.FindingOK && f.Repair == "" && f.Check != auth.CheckDaemons {
			p.t.Errorf("finding %+v says no repair", f)
		}
	}
	return ill
}

// only checks that one thing alone is not well.
func (p *patient) only(ill map[string]auth.Finding, check string, status auth.FindingStatus, says string) {
	p.t.Helper()
	f, ok := ill[check]
	if !ok || len(ill) != 1 || f.Status != status || !strings.Contains(f.Text, says) {
		p.t.Errorf("not well: %+v; want %s alone, %s, with %q", ill, check, status, says)
	}
}

func (p *patient) well() {
	p.t.Helper()
	if ill := p.look(false); len(ill) > 0 {
		p.t.Errorf("not well: %+v", ill)
	}
}

// grants is the store of grants of the space, as the authority has it.
func (p *patient) grants() *space.Grants {
	p.t.Helper()
	creds, err := p.a.ServiceCredential(p.t.Context(), p.m.Space(), trust.Authority, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	nc, err := p.m.Node().Dial(p.t.Context(), creds)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		p.t.Fatal(err)
	}
	return space.NewGrants(js, p.m.Space())
}

// edit changes a stored grant behind the authority's back, as an interruption leaves it.
func (p *patient) edit(who wire.Principal, change func(*trust.Grant)) {
	p.t.Helper()
	grants := p.grants()
	g, rev, err := grants.Get(p.t.Context(), who)
	if err != nil {
		p.t.Fatal(err)
	}
	change(&g)
	if _, err := grants.Update(p.t.Context(), g, rev); err != nil {
		p.t.Fatal(err)
	}
}

func TestDiagnoseOfAHealthySpace(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.m.Credentials(t, "ada", nil)
	p.well()
	if ill := p.look(true); len(ill) > 0 {
		t.Errorf("nothing was wrong, and yet: %+v", ill)
	}
	if got := p.a.Diagnose(t.Context(), "nowhere", nil); len(got) != 1 || got[0].Check != auth.CheckRecords || got[0].Status != auth.FindingFail {
		t.Errorf("Diagnose of no space = %+v", got)
	}
}

func TestDiagnoseComparesTheBrokerWithTheRecords(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	creds := p.m.Credentials(t, "ada", nil)
	before, err := p.store.Get(t.Context(), trust.AccountKey(p.m.Space()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.a.Mint().Revoke(t.Context(), p.m.Space(), mint.Revocation{UserKey: creds.Identity().UserKey}); err != nil {
		t.Fatal(err)
	}
	p.only(p.look(false), auth.CheckAccounts, auth.FindingFail, "other accounts")
	if err := connects(t, p.m, creds); err != nil {
		t.Fatalf("a revocation that was not pushed: %v", err)
	}
	if ill := p.look(true); !ill[auth.CheckAccounts].Fixed {
		t.Errorf("fixed: %+v", ill)
	}
	p.well()
	if connects(t, p.m, creds) == nil {
		t.Error("after the repair the revoked credential connects")
	}
	// Records from a backup must not undo what was revoked since.
	if err := p.store.Put(t.Context(), trust.AccountKey(p.m.Space()), before); err != nil {
		t.Fatal(err)
	}
	p.only(p.look(true), auth.CheckAccounts, auth.FindingFail, "older than the broker")
	if connects(t, p.m, creds) == nil {
		t.Error("a repair brought a revoked credential back")
	}
}

// deaf is a store in which accounts cannot be replaced.
type deaf struct{ *memstore.Store }

func (s deaf) CompareAndSwap(ctx context.Context, key string, old, new []byte) error {
	if strings.HasPrefix(key, trust.AccountPrefix) {
		return errors.New("disk on fire")
	}
	return s.Store.CompareAndSwap(ctx, key, old, new)
}

// TestDiagnoseFinishesARotation leaves a rotation of the operator's key in the middle.
func TestDiagnoseFinishesARotation(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	creds := p.m.Credentials(t, "ada", nil)
	m, err := mint.Open(t.Context(), deaf{p.store}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.RotateOperatorKey(t.Context()); err == nil {
		t.Fatal("the rotation was not interrupted")
	}
	ill := p.look(false)
	for _, check := range []string{auth.CheckOperatorKeys, auth.CheckTemplates} {
		if f := ill[check]; f.Status != auth.FindingWarn || f.Repair == "" {
			t.Errorf("%s: %+v; want a warning", check, f)
		}
	}
	if ill := p.look(true); !ill[auth.CheckOperatorKeys].Fixed {
		t.Errorf("repaired: %+v", ill)
	}
	p.well()
	if err := connects(t, p.m, creds); err != nil {
		t.Errorf("a credential of before: %v", err)
	}
}

func TestDiagnoseWithoutABroker(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.m.Stop()
	p.only(p.look(true), auth.CheckBroker, auth.FindingWarn, "cannot be asked")
}

func TestDiagnoseOfDamagedRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key           func(s wire.Space) string
		remove        bool
		check, within string
	}{
		"broker record":   {func(wire.Space) string { return trust.BrokerKey }, false, auth.CheckRecords, "auth/broker.json"},
		"account record":  {trust.AccountKey, false, auth.CheckRecords, "auth/account."},
		"seed":            {func(s wire.Space) string { return trust.SigningKey(s, trust.Agent) }, false, auth.CheckSeeds, "sign.agent.nk"},
		"absent seed":     {func(s wire.Space) string { return trust.SigningKey(s, trust.Agent) }, true, auth.CheckSigning, "sign.agent.nk"},
		"absent system":   {func(wire.Space) string { return trust.SystemSigningKey(trust.SystemNode) }, true, auth.CheckSigning, "system.sign.system-node.nk"},
		"absent operator": {func(wire.Space) string { return "" }, true, auth.CheckOperatorKeys, "next signing key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			key := c.key(p.m.Space())
			if key == "" {
				rec, err := p.a.Mint().Broker(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				key = trust.OperatorSigningKey(rec.Signs(trust.KeyNext))
			}
			err := p.store.Delete(t.Context(), key)
			if !c.remove {
				err = p.store.Put(t.Context(), key, []byte("SAAGARBAGE"))
			}
			if err != nil {
				t.Fatal(err)
			}
			ill := p.look(true)
			f, ok := ill[c.check]
			if !ok || !strings.Contains(f.Text, c.within) || strings.Contains(f.Text, "SAAGARBAGE") {
				t.Errorf("not well: %+v; want %s with %q", ill, c.check, c.within)
			}
			if (c.check == auth.CheckRecords) != (len(p.a.Diagnose(t.Context(), p.m.Space(), &p.opts)) == 1) {
				t.Error("without records there is nothing else to look at, with them there is")
			}
		})
	}
}

func TestDiagnoseFinishesWhatWasLeftHalfDone(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	if _, err := p.a.EnsurePeople(t.Context(), p.m.Space()); err != nil {
		t.Fatal(err)
	}
	p.opts.Store = nil // nothing of the provider
	s := p.m.Space()
	ada := grant(t, p.a, personGrant(s, "ada"))
	bob := grant(t, p.a, personGrant(s, "bob"))
	p.edit(ada.Principal(), func(g *trust.Grant) { g.State, g.Epoch = trust.GrantRetiring, g.Epoch+1 })
	p.edit(bob.Principal(), func(g *trust.Grant) { g.Epoch, g.Refusing = g.Epoch+1, g.Epoch+1 })
	ill := p.look(false)
	if f := ill[auth.CheckGrants]; f.Status != auth.FindingWarn || f.Repair != "cotal doctor auth --fix" || ill[auth.CheckLease].Status != auth.FindingWarn {
		t.Errorf("not well: %+v; want grants and the lease", ill)
	}
	if f := p.look(true)[auth.CheckGrants]; !f.Fixed {
		t.Errorf("not repaired: %+v", f)
	}
	if ill := p.look(false); len(ill) != 1 { // the lease
		t.Errorf("after the repair: %+v", ill)
	}
	all, err := p.a.List(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		if g.Principal() == ada.Principal() && g.State != trust.GrantRetired || g.Refusing != 0 {
			t.Errorf("grant %+v is still half done", g)
		}
	}
}

func TestDiagnoseAndInspectTellWhoExceeds(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	ctx, s := t.Context(), p.m.Space()
	if _, err := p.a.EnsurePeople(ctx, s); err != nil {
		t.Fatal(err)
	}
	p.opts.Store = nil
	ada := grant(t, p.a, personGrant(s, "ada"))
	life, role := ada.Lifecycle(), "reviewer"
	child, err := authtest.Grant(ctx, p.a, auth.GrantRequest{
		Space: s, Actor: "child", Parent: &life, Subscribe: []string{"team.a", "team.b"}, Publish: []string{"team.a"}, Role: &role,
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.a.Inspect(ctx, s, child.Principal)
	if err != nil || in.Refused != nil || len(in.Above) != 1 || in.Above[0].Grant.UID != ada.UID || in.Fitting() != "" {
		t.Errorf("Inspect = %+v, %v; want it under ada, within", in, err)
	}
	if in, err = p.a.Inspect(ctx, s, ada.Principal()); err != nil || len(in.Below) != 1 || len(in.Above) != 0 {
		t.Errorf("Inspect of the parent = %+v, %v", in, err)
	}
	narrow := personGrant(s, "ada")
	narrow.Subscribe, narrow.Scope = []string{"team.a"}, []string{}
	grant(t, p.a, narrow)
	f := p.look(false)[auth.CheckDelegation]
	if f.Subject != child.Principal.String() || f.Status != auth.FindingWarn || !strings.Contains(f.Text, "cotal actor grant ada --owner "+adasOwner) {
		t.Errorf("delegation: %+v; want the child, and how to widen its parent", f)
	}
	in, err = p.a.Inspect(ctx, s, child.Principal)
	want := "cotal actor grant child --owner " + adasOwner + " --allow-subscribe 'team.a' --role ''"
	if err != nil || trust.ReasonOf(in.Refused) != trust.ReasonExceedsParent || in.Fitting() != want {
		t.Errorf("Inspect = %v, %v, mended with %q; want exceeds-parent and %q", in.Refused, err, in.Fitting(), want)
	}
	if _, err := p.a.Inspect(ctx, s, wire.Principal{Owner: adasOwner, Actor: "nobody"}); wire.CodeOf(err) != wire.CodeNotFound {
		t.Errorf("Inspect of nobody = %v", err)
	}
}

// signedIn makes the space of p one of people who sign in at an identity provider.
func (p *patient) signedIn(idp *idptest.IdP, edit func(*oidc.Pin)) oidc.Pin {
	p.t.Helper()
	ctx, s := p.t.Context(), p.m.Space()
	address, how := idp.Issuer, &oidc.DiscoverOptions{}
	if idp.Shape == idptest.ShapeBetterAuth {
		address, how = idp.BaseURL, &oidc.DiscoverOptions{Shape: oidc.ShapeBetterAuth, Issuer: idp.Issuer}
	}
	found, err := oidc.Discover(ctx, address, how)
	if err != nil {
		p.t.Fatal(err)
	}
	pin, err := found.Pin(idp.ClientID, idp.Audience, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if edit != nil {
		edit(&pin)
	}
	if _, err := oidc.EnsurePin(ctx, p.store, s, pin); err != nil {
		p.t.Fatal(err)
	}
	if _, err := trust.EnsureOwnerSecret(ctx, p.store, s); err != nil {
		p.t.Fatal(err)
	}
	if _, err := bearer.EnsureKeys(ctx, p.store, s); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.a.EnsurePeople(ctx, s); err != nil {
		p.t.Fatal(err)
	}
	jobs, err := p.a.BeginJobs(ctx, s, "test", false)
	if err != nil {
		p.t.Fatal(err)
	}
	run, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		jobs.Run(run, nil)
	}()
	p.t.Cleanup(func() {
		cancel()
		<-done
	})
	return pin
}

func TestDiagnoseOfASpaceOfPeople(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	idp := idptest.Start(t, idptest.Zitadel, nil)
	p.signedIn(idp, nil)
	p.well()
	idp.Down()
	ill := p.look(true)
	if ill[auth.CheckProvider].Status != auth.FindingWarn || ill[auth.CheckProviderKeys].Status != auth.FindingWarn || len(ill) != 2 {
		t.Errorf("with the provider down: %+v; want warnings", ill)
	}
	idp.Up()
	p.well()
	for key, check := range map[string]string{
		trust.OwnerSecretKey(p.m.Space()): auth.CheckOwnerSecret, bearer.KeysKey(p.m.Space()): auth.CheckIssuerKeys, oidc.PinKey(p.m.Space()): auth.CheckProvider,
	} {
		have, err := p.store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.store.Put(t.Context(), key, []byte(`{"ver":1,"secret":"hidden"}`)); err != nil {
			t.Fatal(err)
		}
		ill := p.look(true)
		p.only(ill, check, auth.FindingFail, key)
		if strings.Contains(ill[check].Text, "hidden") {
			t.Errorf("finding %+v shows what the record holds", ill[check])
		}
		if err := p.store.Put(t.Context(), key, have); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiagnoseOfWhatSigningInLacks takes away each secret that signing in needs: that alone is told, by its name, and what is lost without it.
func TestDiagnoseOfWhatSigningInLacks(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.signedIn(idptest.Start(t, idptest.Zitadel, nil), nil)
	s := p.m.Space()
	type lack struct{ check, repair string }
	lost := lack{auth.CheckCalloutSeeds, "cotal space rm " + string(s)}
	for key, want := range map[string]lack{
		trust.CalloutUserKey(s): lost, trust.CalloutXKey(s): lost,
		trust.CalloutSigningKey(s, trust.CalloutResponder): lost, trust.CalloutSigningKey(s, trust.CalloutSentinel): lost,
		trust.OwnerSecretKey(s): {auth.CheckOwnerSecret, "before the mesh starts again"}, bearer.KeysKey(s): {auth.CheckIssuerKeys, "or start the mesh again"},
		oidc.PinKey(s): {auth.CheckProvider, "cotal up --idp"},
	} {
		have, err := p.store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		ill := p.look(true)
		p.only(ill, want.check, auth.FindingFail, key)
		if !strings.Contains(ill[want.check].Repair, want.repair) {
			t.Errorf("without %s: %+v; want the repair to say %q", key, ill[want.check], want.repair)
		}
		if err := p.store.Put(t.Context(), key, have); err != nil {
			t.Fatal(err)
		}
	}
	p.well()
}

// TestDiagnoseOfEveryProvider: what was pinned of a provider is what it says.
func TestDiagnoseOfEveryProvider(t *testing.T) {
	t.Parallel()
	for _, kind := range idptest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			p.signedIn(idptest.Start(t, kind, nil), nil)
			p.well()
		})
	}
}

// TestDiagnosePinsWhatTheProviderMoved: endpoints and algorithms alone, and never more algorithms than were chosen.
func TestDiagnosePinsWhatTheProviderMoved(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	idp := idptest.Start(t, idptest.Zitadel, nil)
	was := p.signedIn(idp, func(pin *oidc.Pin) {
		pin.DeviceEndpoint, pin.Algorithms = pin.Issuer+"/before", []string{"ES256", "RS256"}
	})
	p.only(p.look(false), auth.CheckProvider, auth.FindingFail, "its device endpoint from "+was.DeviceEndpoint)
	if f := p.look(true)[auth.CheckProvider]; !f.Fixed || f.Repair == "" {
		t.Errorf("repaired: %+v; want it fixed, and the restart that makes it count", f)
	}
	p.well()
	pin, err := oidc.LoadPin(t.Context(), p.store, p.m.Space())
	if err != nil || pin.DeviceEndpoint == was.DeviceEndpoint || len(pin.Algorithms) != 1 || pin.Algorithms[0] != "RS256" || pin.Issuer != was.Issuer || pin.Audience != was.Audience {
		t.Errorf("pinned %+v, %v", pin, err)
	}
}

// offset is a way to the provider whose answers are stamped wrong.
type offset struct {
	http.RoundTripper
	by time.Duration
}

func (o offset) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Header.Set("Date", time.Now().Add(o.by).UTC().Format(http.TimeFormat))
	}
	return resp, err
}

func TestDiagnoseComparesClocks(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	idp := idptest.Start(t, idptest.Zitadel, nil)
	p.signedIn(idp, nil)
	for by, says := range map[time.Duration]string{
		45 * time.Second: "behind", -45 * time.Second: "ahead of", -20 * time.Second: "",
	} {
		p.opts.HTTP = &http.Client{Transport: offset{idp.HTTP().Transport, by}}
		ill := p.look(false)
		if says == "" {
			if len(ill) > 0 {
				t.Errorf("by %s: %+v", by, ill)
			}
			continue
		}
		p.only(ill, auth.CheckClock, auth.FindingWarn, says)
	}
}
