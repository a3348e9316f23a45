package cli_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/config"
)

// TestP15LeavingWhenNobodyAnswers stops the process of broker and supervisor amid a session, without ending its connections: the key
// leaves all the same, soon, and the terminal is given back.
func TestP15LeavingWhenNobodyAnswers(t *testing.T) {
	w := newWorld(t)
	w.must("up", "--detach")
	defer w.takeDown()
	w.shell("sh5")
	g, wait := attachOn(t, w, 100, 24, "sh5")
	g.shows("$")
	g.send("printf '\\033[?1049h\\033[?1000h\\033[?25lfull'\r")
	g.shows("full")
	run, err := config.NewProject(w.dir).Run()
	if err != nil || run == nil {
		t.Fatalf("run: %v, %v", run, err)
	}
	if err := syscall.Kill(run.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(run.PID, syscall.SIGCONT) }() // before it is taken down
	g.send("lost\x1d")
	began := time.Now()
	if code := wait(); code != 0 {
		t.Errorf("attach ended with %d", code)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it left after %v", took)
	}
	g.shows("left sh5, which goes on")
	g.cooked()
	if grid := g.screen.Grid(); grid.Alt || grid.Hidden {
		t.Error("the alternate screen or no cursor is left")
	}
}
