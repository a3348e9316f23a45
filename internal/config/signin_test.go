package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/wire"
)

var away = config.SignIn{URL: "https://mesh.example", Space: "team", Issuer: "https://idp.example", Actor: "ada", Server: "tls://mesh.example:4222"}

func TestAMeshElsewhereIsFoundAgain(t *testing.T) {
	w := newWorld(t)
	w.must(w.home.SaveSignIn(away))
	for name, flags := range map[string]config.Flags{
		"it is the current mesh": {}, "by its space": {Space: "team"}, "by its broker": {Server: "tls://mesh.example"},
	} {
		c, err := w.resolve("elsewhere", flags, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Remote == nil || c.Remote.URL != away.URL || c.Space.Value != "team" || c.Server.Value != away.Server || c.Project != nil || c.Guessed {
			t.Errorf("%s: remote %v, space %v, server %v, project %v", name, c.Remote, c.Space, c.Server, c.Project)
		}
	}
	c, err := w.resolve("elsewhere", config.Flags{Server: "tls://mesh.example", Space: "other"}, nil)
	if err != nil || c.Remote != nil {
		t.Errorf("another space at that broker: remote %v, error %v; want none", c.Remote, err)
	}

	// A project is what its folder is about, wherever somebody signed in last.
	w.project("p")
	if c, err = w.resolve("p", config.Flags{}, nil); err != nil || c.Remote != nil || c.Project == nil {
		t.Errorf("in a project: remote %v, project %v, error %v", c.Remote, c.Project, err)
	}
	if c, err = w.resolve("p", config.Flags{Space: "team"}, nil); err != nil || c.Remote == nil || c.Project != nil {
		t.Errorf("in a project, by space: remote %v, project %v, error %v", c.Remote, c.Project, err)
	}

	// What runs on this machine does not take the place of the current mesh.
	w.must(w.home.Save(config.Mesh{Root: w.path("p"), URL: "nats://127.0.0.1:4222", Space: "main", Spaces: []string{"main", "team"}}))
	if c, err = w.resolve("elsewhere", config.Flags{}, nil); err != nil || c.Remote == nil {
		t.Errorf("after a local start: remote %v, error %v", c.Remote, err)
	}
	if _, err = w.resolve("elsewhere", config.Flags{Space: "team"}, nil); wire.CodeOf(err) != wire.CodeConflict || !strings.Contains(err.Error(), away.URL) {
		t.Errorf("space in two meshes: %v, want a conflict that names %s", err, away.URL)
	}

	w.must(w.home.ForgetSignIn(away))
	if c, err = w.resolve("elsewhere", config.Flags{}, nil); err != nil || c.Remote != nil {
		t.Errorf("forgotten: remote %v, error %v", c.Remote, err)
	}
}

func TestSignInsAreKeptPrivately(t *testing.T) {
	w := newWorld(t)
	local := config.SignIn{Root: w.path("p"), Space: "main", Issuer: "https://idp.example", Actor: "ops"}
	for _, s := range []config.SignIn{local, away} {
		w.must(w.home.SaveSignIn(s))
	}
	got, err := w.home.SignIns()
	if err != nil || len(got) != 2 || got[0].URL != away.URL || got[1].Root != local.Root {
		t.Errorf("SignIns = %v, %v", got, err)
	}
	back, err := w.home.SignInOf(config.SignIn{Root: w.path("p"), Space: "main"})
	local.V = config.RecordVersion
	if diff := cmp.Diff(local, back); diff != "" || err != nil {
		t.Errorf("SignInOf (-want +got), %v:\n%s", err, diff)
	}
	if other, err := w.home.SignInOf(config.SignIn{Root: w.path("p"), Space: "lab"}); err != nil || other.Actor != "" {
		t.Errorf("another space: %v, %v", other, err)
	}
	if want := filepath.Join(w.home.Dir, "sessions"); w.home.SessionDir() != want {
		t.Errorf("SessionDir = %q, want %q", w.home.SessionDir(), want)
	}
	var nowhere config.Machine
	if err := nowhere.SaveSignIn(local); wire.CodeOf(err) != wire.CodeFailedPrecondition {
		t.Errorf("without a folder: %v", err)
	}
	meshes, err := w.home.Meshes()
	if err != nil || len(meshes) != 0 {
		t.Errorf("sign-ins count as meshes: %v, %v", meshes, err)
	}
}

func TestPeopleSettingsThatContradict(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]config.People{
		"url without port":      {PublicURL: "https://mesh.example"},
		"proxy without port":    {TrustedProxy: true},
		"one port for both":     {Port: 4300, PublicPort: 4300},
		"port out of range":     {Port: 70000},
		"in clear":              {PublicPort: 4301, PublicURL: "http://mesh.example"},
		"with a query":          {PublicPort: 4301, PublicURL: "https://mesh.example?a=b"},
		"advertised as nothing": {Advertise: "https://mesh.example"},
	} {
		if err := p.Check(); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("%s: %v, want bad-request", name, err)
		}
	}
	for name, p := range map[string]config.People{
		"nothing": {}, "all": {Port: 4300, PublicPort: 4301, PublicURL: "https://mesh.example/cotal", TrustedProxy: true, Advertise: "tls://mesh.example:4222"},
		"on this machine": {PublicPort: 4301, PublicURL: "http://127.0.0.1:8080"},
	} {
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
