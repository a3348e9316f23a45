package process_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli/process"
)

// child is set in the environment of the copy of this binary that plays the other process.
const child = "PROCESS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		_, _ = os.Stdout.WriteString("ready\n")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test closes our input
		return
	}
	os.Exit(m.Run())
}

// start runs a child that lives until the returned function or a signal ends it.
func start(t *testing.T) (process.Identity, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1")
	process.Detach(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("first line of child = %q, %v; want ready", line, err)
	}
	id, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatalf("Of(child) = %v", err)
	}
	return id, cmd
}

func TestSelfIsStable(t *testing.T) {
	a, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	b, err := process.Of(os.Getpid())
	if err != nil || a != b || a.Start == "" {
		t.Errorf("Self() = %+v, Of(self) = %+v, %v; want the same and a start", a, b, err)
	}
}

func TestStopEndsTheRecordedProcess(t *testing.T) {
	id, cmd := start(t)
	if ok, err := process.Running(id); err != nil || !ok {
		t.Fatalf("Running(child) = %v, %v; want true", ok, err)
	}
	if err := id.Stop(); err != nil {
		t.Fatalf("Stop() = %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := process.Wait(ctx, id); err != nil {
		t.Fatalf("Wait() = %v", err)
	}
	_ = cmd.Wait()
	if ok, err := process.Running(id); err != nil || ok {
		t.Errorf("Running(gone) = %v, %v; want false", ok, err)
	}
	if err := id.Stop(); !errors.Is(err, process.ErrGone) {
		t.Errorf("Stop(gone) = %v, want ErrGone", err)
	}
}

// A number that was reused must not be signalled, however the record got there.
func TestStrangerIsSpared(t *testing.T) {
	id, _ := start(t)
	stranger := process.Identity{PID: id.PID, Start: id.Start + "1"}
	for name, err := range map[string]error{
		"stop": stranger.Stop(), "kill": stranger.Kill(),
		"no_start": process.Identity{PID: id.PID}.Kill(), "zero": process.Identity{}.Kill(),
	} {
		if !errors.Is(err, process.ErrGone) {
			t.Errorf("%s of a stranger = %v, want ErrGone", name, err)
		}
	}
	if ok, err := process.Running(id); err != nil || !ok {
		t.Errorf("Running(child) after signals to a stranger = %v, %v; want true", ok, err)
	}
	if ok, err := process.Running(stranger); err != nil || ok {
		t.Errorf("Running(stranger) = %v, %v; want false", ok, err)
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	id, _ := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := process.Wait(ctx, id); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait(cancelled) = %v, want context.Canceled", err)
	}
}
