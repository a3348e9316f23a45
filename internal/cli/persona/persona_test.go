package persona_test

import (
	"testing"

	"github.com/cotal-go/cotal/internal/script"
	"github.com/cotal-go/cotal/supervisor/persona"
)

// The agent without a model that a new project has follows a script that can be read.
func TestSeededScriptsAreScripts(t *testing.T) {
	dir := t.TempDir()
	if _, err := persona.Seed(dir); err != nil {
		t.Fatal(err)
	}
	all, err := persona.Open(dir).List()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range all {
		if e.Persona.Agent != "script" {
			continue
		}
		found++
		if _, err := script.Parse(e.Persona.Text); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
	if found == 0 {
		t.Error("no agent file for an agent without a model")
	}
}
