package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/config"
)

// TestBorrowedName sends to a name that another agent gives itself: the message waits for the one that was granted it,
// and nothing is sent when nobody was.
func TestBorrowedName(t *testing.T) {
	w := newWorld(t)
	w.up()
	w.must("mint", "mallory", "--json")
	creds := config.NewProject(w.dir).CredsFile(config.DefaultSpace, "mallory")
	run, err := config.NewProject(filepath.Clean(w.dir)).Run()
	if err != nil {
		t.Fatal(err)
	}
	ep, err := endpoint.Connect(t.Context(), run.URL, endpoint.File(creds), &endpoint.Options{Name: "Nova"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ep.Close() }()
	code, _, errs := w.run("", "send", "dm", "nova", "secret")
	if code != 5 || !strings.Contains(errs, "local.mallory") {
		t.Errorf("send to a name that nobody was granted: exit %d: %s", code, errs)
	}
	code, out, _ := w.run("/dm Nova secret\n", "join", "--json")
	if code == 0 || strings.Contains(out, `"kind":"direct"`) {
		t.Errorf("join sent to a name that nobody was granted: exit %d: %s", code, out)
	}
	if code, out, errs := w.run("", "send", "dm", "Nova", "x", "--creds", creds); code != 5 || out != "" {
		t.Errorf("send without records to a name that nobody was granted: exit %d: %s%s", code, out, errs)
	}
	w.must("mint", "nova", "--json")
	if out := w.must("send", "dm", "Nova", "secret"); !strings.Contains(out, "→ local.nova ") {
		t.Errorf("send went elsewhere: %s", out)
	}
}
