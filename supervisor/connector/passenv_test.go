package connector_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/cotal-go/cotal/supervisor/connector"
)

// TestPassEnvHasEveryName: a name that a connector passes on is on the list of all, or a supervisor in the background would not have it.
func TestPassEnvHasEveryName(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`PassEnv = \[\]string\{([^}]*)\}`)
	name := regexp.MustCompile(`"([A-Z0-9_]+)"`)
	all, n := connector.PassEnv(), 0
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list.FindAllSubmatch(src, -1) {
			for _, m := range name.FindAllSubmatch(l[1], -1) {
				if n++; !slices.Contains(all, string(m[1])) {
					t.Errorf("%s passes %s on, which is not on the list", f, m[1])
				}
			}
		}
	}
	if n == 0 {
		t.Error("no connector passes anything on: the test looks in the wrong place")
	}
}
