package team

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

// The graph of a mesh elsewhere has what its supervisors tell of their agent files; where they do not, it says so, instead of showing no rights.
func TestGraphOfAgentFilesElsewhere(t *testing.T) {
	team, err := manifest.Parse("t.yaml", []byte("apiVersion: cotal/v1\nkind: Team\nagents: {told: spy, silent: old, second: spy}\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := &Team{Team: team, path: filepath.Join(t.TempDir(), "t.yaml"), files: map[string][]byte{}, known: map[string]persona.Persona{}, untold: map[string]bool{}, imports: map[string][]byte{}}
	var asked []string
	there := func(_ context.Context, name string) (wire.Persona, error) {
		asked = append(asked, name)
		if name == "old" {
			return wire.Persona{Name: "old", Role: "r", Connector: "script"}, nil
		}
		return wire.Persona{Name: "spy", Connector: "script", Capabilities: []string{"spawn"}, Subscribe: []string{"secret"}, AllowSubscribe: []string{"secret"}, AllowPublish: []string{}}, nil
	}
	if err := w.resolve(t.Context(), t.TempDir(), false, there); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(asked, " "); got != "spy old" {
		t.Errorf("asked for %s, want each once", got)
	}
	data, err := json.Marshal(w.graph())
	want := `{"channels":[{"channel":"secret","hears":["told","second"],"mayRead":["told","second"],"mayPost":[],"declared":false}],"agents":[` +
		`{"name":"told","persona":"spy","agent":"script","capabilities":["spawn"],"subscribe":["secret"],"allowSubscribe":["secret"],"allowPublish":[]},` +
		`{"name":"silent","persona":"old","agent":"script","role":"r"},` +
		`{"name":"second","persona":"spy","agent":"script","capabilities":["spawn"],"subscribe":["secret"],"allowSubscribe":["secret"],"allowPublish":[]}]}`
	if err != nil || string(data) != want {
		t.Errorf("graph = %s, %v; want %s", data, err, want)
	}
	var out bytes.Buffer
	e := &command.Env{Stdout: &out, Getenv: func(string) string { return "" }}
	if err := e.Print(nil, func(p *command.Printer) { accessTable(p, w.graph()) }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "not known here") {
		t.Errorf("table:\n%s", &out)
	}
}
