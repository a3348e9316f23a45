package cli_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli"
)

// cancelAt is an output that cancels when it is written a text.
type cancelAt struct {
	strings.Builder
	text   string
	cancel context.CancelFunc
}

func (w *cancelAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.cancel()
	}
	return w.Builder.Write(p)
}

// TestDetachCancelled: Ctrl-C ends the wait for a mesh in the background, not the mesh.
func TestDetachCancelled(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := &cancelAt{text: "in the background", cancel: cancel}
	code := cli.Main(ctx, []string{"up", "--detach", "--verbose"}, w.cliEnv(strings.NewReader(""), new(strings.Builder), errs))
	if got := errs.String(); code != 8 || !strings.Contains(got, "cotal: cancelled; the mesh of ") || !strings.Contains(got, " goes on starting\n") {
		t.Errorf("exit %d, %s; want 8 and that the mesh goes on starting", code, got)
	}
	up := false
	for limit := time.Now().Add(patience); !up && time.Now().Before(limit); {
		code, out, _ := w.run("", "status")
		up = code == 0 && strings.Contains(out, "space main: serving")
	}
	if !up {
		t.Error("the mesh does not come up")
	}
	w.must("down")
}

// TestAKeeperThatIsAskedToEndAtOnce: as soon as anybody is told that the mesh is up, the end of its keeper is not its own.
func TestAKeeperThatIsAskedToEndAtOnce(t *testing.T) {
	w := newWorld(t)
	t.Chdir(w.dir) // the mesh has the folder and the environment of its keeper, which is this process
	for k, v := range w.env {
		t.Setenv(k, v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &cancelAt{text: `"pid"`, cancel: cancel}
	if code := cli.Main(ctx, []string{"up", "--report", "--keep"}, w.cliEnv(strings.NewReader(""), out, new(strings.Builder))); code != 0 {
		t.Fatalf("the keeper ended with %d", code)
	}
	if got := w.must("down", "--json"); !strings.Contains(got, `"how":"asked"`) {
		t.Errorf("down after the keeper has ended: %s", got)
	}
}
