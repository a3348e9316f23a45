package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/authtest"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/idptest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// authority is that of the running mesh of the world, as a supervisor would have it.
func (w *world) authority() *auth.Authority {
	w.t.Helper()
	p := config.NewProject(w.dir)
	run, err := p.Run()
	if err != nil || run == nil {
		w.t.Fatalf("no mesh runs: %v", err)
	}
	store, err := target.OpenStore(p)
	if err != nil {
		w.t.Fatal(err)
	}
	node, err := cotal.DialNode(w.t.Context(), run.URL, store, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = node.Close() })
	return node.Authority()
}

// held grants an agent under a life and returns its own.
func held(t *testing.T, a *auth.Authority, parent wire.Lifecycle, actor string, scope []string, channels ...string) wire.Lifecycle {
	t.Helper()
	agent, err := authtest.Grant(t.Context(), a, auth.GrantRequest{
		Space: "main", Actor: actor, Parent: &parent, Scope: scope, Subscribe: channels, Publish: channels,
	})
	if err != nil {
		t.Fatal(err)
	}
	return agent.Lifecycle
}

// words takes a command of a hint apart as a shell does.
func words(line string) []string {
	var out []string
	for _, f := range strings.Fields(line) {
		out = append(out, strings.Trim(f, "'"))
	}
	return out
}

// TestActorsHeldUnderOthers narrows somebody who has others below, and follows the commands that it is given.
func TestActorsHeldUnderOthers(t *testing.T) {
	w := newWorld(t)
	w.env["COTAL_SESSIONS"] = "file"
	idp := idptest.Start(t, idptest.Zitadel, nil)
	w.up("--idp", idp.Issuer, "--idp-client", idp.ClientID)
	got := map[string]string{"actor_grant": w.must("actor", "grant", "ada", "--sub", "one", "--full", "--scope", "spawn,role:reviewer", "--expires", "30d", "--json")}
	var made struct {
		Grant struct {
			Owner string
			UID   wire.UID
		}
	}
	if err := json.Unmarshal([]byte(got["actor_grant"]), &made); err != nil {
		t.Fatal(err)
	}
	owner := made.Grant.Owner
	a := w.authority()
	ada := wire.Lifecycle{Principal: wire.Principal{Owner: owner, Actor: "ada"}, UID: made.Grant.UID}
	child := held(t, a, ada, "child", []string{trust.ScopeSpawn}, "team.a", "team.b")
	held(t, a, child, "grandchild", nil, "team.a")
	held(t, a, child, "other", nil, "team.b")

	tree := w.must("actor", "list", "--tree")
	for _, want := range []string{"\nada ", "\n└ child ", "\n  └ grandchild ", "\n  └ other "} {
		if !strings.Contains(tree, want) {
			t.Errorf("the tree has no line %q:\n%s", want, tree)
		}
	}
	got["actor_narrow"] = w.must("actor", "grant", "ada", "--allow-subscribe", "team.a", "--allow-publish", "team.a,general", "--json")
	var narrowed struct {
		Done      string
		Exceeding []struct{ Principal, Repair string }
	}
	if err := json.Unmarshal([]byte(got["actor_narrow"]), &narrowed); err != nil {
		t.Fatal(err)
	}
	// A grandchild within the one above it is refused with that one.
	if narrowed.Done != "narrowed" || len(narrowed.Exceeding) != 3 {
		t.Fatalf("narrowed: %+v; want three below that exceed it", narrowed)
	}
	got["actor_show"] = w.must("actor", "show", "child", "--json")
	if code, out, _ := w.run("", "doctor", "auth"); code != 0 || !strings.Contains(out, "warn  delegation "+child.Principal.String()) {
		t.Errorf("doctor: %d, %s", code, out)
	}
	for _, x := range narrowed.Exceeding {
		if x.Repair != "" { // the grandchild itself is within ada; mending the child mends it
			w.must(words(x.Repair)[1:]...)
		}
	}
	for _, name := range []string{"child", "grandchild", "other"} {
		if out := w.must("actor", "show", name); strings.Contains(out, "refused now") {
			t.Errorf("after all that was said was done, %s is still refused:\n%s", name, out)
		}
	}
	code, _, stderr := w.run("", "actor", "revoke", "ada")
	if code != 5 || !strings.Contains(stderr, "with child, grandchild, other under it") {
		t.Errorf("without --yes: %d, %s", code, stderr)
	}
	got["actor_list"] = w.must("actor", "list", "--json")
	got["actor_revoke"] = w.must("actor", "revoke", "ada", "--yes", "--json")
	got["audit"] = w.must("audit", "--json")
	got["doctor_auth"] = w.must("doctor", "auth", "--json")
	if out := w.must("actor", "list"); !strings.HasPrefix(out, "nobody") {
		t.Errorf("after the revocation:\n%s", out)
	}
	for name, out := range got {
		t.Run(name, func(t *testing.T) { golden(t, filepath.Join("testdata", "json", name+".golden"), shapes(t, out)) })
	}
}
