//go:build linux || darwin

package seat_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// A seat outlives its starter, and the signals of a terminal that goes away.
func TestSeatOutlivesItsStarter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "seat")
	out, err := exec.Command(self(t), "agent", "starter", dir, string(wire.NewUID())).CombinedOutput()
	if err != nil {
		t.Fatalf("starter: %v %s", err, out)
	}
	c, err := seat.Open(within(t), dir)
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	t.Cleanup(func() { _, _ = seat.Sweep(within(t), dir, 0); _ = c.Close() })
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE} {
		if err := syscall.Kill(c.Record().Seat.PID, sig); err != nil {
			t.Fatal(err)
		}
	}
	send(t, c, "still here\r")
	shows(t, c, "still here")
	// TERM ends the agent, keeps the exit, and ends the seat.
	if err := syscall.Kill(c.Record().Seat.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := ended(t, c); e.Signal == "" {
		t.Errorf("exit = %+v, want a signal", e)
	}
	until(t, "the seat is gone", func() bool { return !runs(c.Record().Seat.PID) })
	if r, err := seat.Read(dir); err != nil || r.Exit == nil {
		t.Errorf("Read() = %+v, %v; want the exit", r, err)
	}
}

// TERM to a seat that is ending its agent already, with a grace of an hour, leaves the agent the grace of the spec and ends the seat.
func TestTermWhileTheAgentIsEnded(t *testing.T) {
	o := options(t, "sh", "-c", "trap 'echo heard' TERM; trap '' HUP; echo ready; while :; do sleep 0.1; done")
	o.Spec.Grace = 100 * time.Millisecond
	c := start(t, o)
	shows(t, c, "ready")
	stopped := make(chan error, 1)
	go func() {
		_, err := c.Stop(within(t), time.Hour)
		stopped <- err
	}()
	shows(t, c, "heard")
	if err := syscall.Kill(c.Record().Seat.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-stopped; err != nil {
		t.Fatalf("Stop() = %v", err)
	}
	if e := ended(t, c); e.Signal != "SIGKILL" {
		t.Errorf("exit = %+v, want SIGKILL", e)
	}
	until(t, "the seat is gone", func() bool { return !runs(c.Record().Seat.PID) })
}

// Neither seat nor agent holds a file that the starter had open, and the agent's environment is what the spec says.
func TestNothingIsInherited(t *testing.T) {
	if runtime.GOOS != "linux" {
		archtest.NotHere(t, "the open files of a process are listed on linux only")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	leak, err := syscall.Dup(int(w.Fd())) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(leak) }()
	t.Setenv("COTAL_SECRET", "of the supervisor")
	t.Setenv(seat.Marker, "of the supervisor's own seat")
	o := options(t, "sh", "-c", "env | sort; ls -l /proc/$$/fd | wc -l; echo ok; cat")
	c := start(t, o)
	shows(t, c, "ok")
	pipe, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", leak))
	for _, pid := range []int{c.Record().Seat.PID, c.Record().Agent.PID} {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())); to == pipe {
				t.Errorf("process %d holds %s, a pipe of the starter", pid, to)
			}
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || strings.Contains(string(env), "of the supervisor") {
			t.Errorf("environment of %d = %q, %v; want nothing of the starter", pid, env, err)
		}
	}
	env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", c.Record().Agent.PID))
	got := strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00")
	if want := append(environment(), seat.Marker+"="+string(o.Spec.ID)); !slices.Equal(got, want) {
		t.Errorf("environment = %q, want %q", got, want)
	}
}

func TestWakeTypesIntoAQuietTerminalOnly(t *testing.T) {
	c := start(t, options(t, "sh", "-c", "stty -echo; printf '\\033[?2004h'; echo ready; od -c"))
	shows(t, c, "ready")
	if woke, err := c.Wake(within(t), "news", time.Hour); err != nil || woke {
		t.Errorf("Wake() after output = %t, %v; want false", woke, err)
	}
	if _, err := c.Wake(within(t), "two\nlines", 0); wire.CodeOf(err) != wire.CodeBadRequest {
		t.Errorf("Wake(two lines) = %v, want bad-request", err)
	}
	until(t, "the terminal is quiet", func() bool {
		woke, err := c.Wake(within(t), "news", 100*time.Millisecond)
		return err == nil && woke
	})
	send(t, c, "\x04\x04")
	got := shows(t, c, "[   2")
	if !strings.Contains(got, "n   e   w   s 033") {
		t.Errorf("agent read %q, want the line as a paste", got)
	}
}

func TestStartSaysWhyNot(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*seat.StartOptions)
		code   wire.Code
	}{
		"no_program":     {func(o *seat.StartOptions) { o.Spec.Argv = []string{"no-such-program"} }, wire.CodeNotFound},
		"no_path":        {func(o *seat.StartOptions) { o.Spec.Env = nil }, wire.CodeNotFound},
		"no_folder":      {func(o *seat.StartOptions) { o.Spec.Dir = "/no/such/folder" }, wire.CodeNotFound},
		"not_executable": {func(o *seat.StartOptions) { o.Spec.Argv = []string{"/etc/passwd"} }, wire.CodeBadRequest},
		"empty":          {func(o *seat.StartOptions) { o.Spec.Argv = nil }, wire.CodeBadRequest},
		"bad_env":        {func(o *seat.StartOptions) { o.Spec.Env = []string{"nonsense"} }, wire.CodeBadRequest},
		"bad_uid":        {func(o *seat.StartOptions) { o.Spec.ID = "x" }, wire.CodeBadRequest},
		"relative":       {func(o *seat.StartOptions) { o.Dir = "seat" }, wire.CodeBadRequest},
		"huge":           {func(o *seat.StartOptions) { o.Spec.Cols = 100000 }, wire.CodeBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "cat")
			tc.change(&o)
			c, err := seat.Start(within(t), o)
			if wire.CodeOf(err) != tc.code {
				t.Errorf("Start() = %v, %v (%s); want %s", c, err, wire.CodeOf(err), tc.code)
			}
		})
	}
}

func TestOneSeatInAFolder(t *testing.T) {
	o := options(t, "cat")
	c := start(t, o)
	if _, err := seat.Start(within(t), o); wire.CodeOf(err) != wire.CodeAlreadyExists {
		t.Errorf("second Start() = %v, want already-exists", err)
	}
	if _, err := seat.Sweep(within(t), o.Dir, 0); wire.CodeOf(err) != wire.CodeFailedPrecondition {
		t.Errorf("Sweep() of a seat that runs = %v, want failed-precondition", err)
	}
	send(t, c, "alive\r")
	shows(t, c, "alive")
}

// A process that took over the socket or the number is not adopted.
func TestImpostorsAreNotAdopted(t *testing.T) {
	o := options(t, "cat")
	c := start(t, o)
	socket := c.Record().Socket
	if err := os.Rename(socket, socket+".real"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, err = seat.Open(within(t), o.Dir)
	if wire.CodeOf(err) != wire.CodePermissionDenied {
		t.Errorf("Open() with an impostor = %v, want permission-denied", err)
	}
	_ = l.Close()
	if err := os.Rename(socket+".real", socket); err != nil {
		t.Fatal(err)
	}
	d, err := seat.Open(within(t), o.Dir)
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	_ = d.Close()
}

// Whoever is killed, in whatever order, leaves no orphan, no zombie and no twin.
func TestKillsAtRandomLeaveNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		o := options(t, self(t), "agent", "parent")
		o.Spec.Grace = 50 * time.Millisecond
		c, err := seat.Start(within(t), o)
		if err != nil {
			t.Fatal(err)
		}
		grandchild := 0
		if r.IntN(3) > 0 {
			grandchild = deaf(t, c)
		}
		rec, victims := c.Record(), r.IntN(3)
		if victims != 0 {
			_ = syscall.Kill(rec.Seat.PID, syscall.SIGKILL)
		}
		if victims != 1 {
			_ = syscall.Kill(rec.Agent.PID, syscall.SIGKILL)
		}
		<-c.Done()
		if _, kept := c.Exit(); !kept {
			ended, err := seat.Sweep(within(t), o.Dir, 20*time.Millisecond)
			if err != nil {
				t.Fatalf("round %d: Sweep() = %v, %v", i, ended, err)
			}
		} else if err := c.Release(within(t)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		for _, pid := range []int{rec.Seat.PID, rec.Agent.PID, grandchild} {
			if pid != 0 {
				until(t, "it is gone", func() bool { return !runs(pid) })
			}
		}
		if d, err := seat.Open(within(t), o.Dir); !errors.Is(err, seat.ErrGone) {
			t.Fatalf("round %d: Open() = %v, %v; want ErrGone", i, d, err)
		}
	}
	out, _ := exec.Command("pgrep", "-x", "-f", self(t)+" agent .*").Output()
	if len(out) > 0 {
		t.Errorf("left: %s", out)
	}
	until(t, "there is no zombie", func() bool { // one that has just ended is collected beside
		children, _ := exec.Command("ps", "-o", "stat=,pid=,comm=", "--ppid", fmt.Sprint(os.Getpid())).Output()
		return !strings.HasPrefix(string(children), "Z") && !strings.Contains(string(children), "\nZ")
	})
}

// A seat that was let go of and stands still is collected when it ends, though its client is closed by then.
func TestAReleasedSeatIsCollectedAfterClose(t *testing.T) {
	t.Parallel()
	c := start(t, options(t, "cat"))
	pid := c.Record().Seat.PID
	if _, err := c.Stop(within(t), 0); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "the seat stands still", func() bool {
		out, _ := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
		return strings.HasPrefix(string(out), "T")
	})
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second) // far more than writing the request takes
	defer cancel()
	if err := c.Release(soon); !errors.Is(err, wire.ErrDeadline) {
		t.Fatalf("Release() of a seat that stands still = %v, want deadline-exceeded", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "it is collected", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

// A seat that takes longer to end than anybody waits for it leaves no zombie either.
func TestASlowEndIsCollected(t *testing.T) {
	t.Parallel()
	slow := exec.Command("sleep", "2.5") // more than a client waits
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	pid := slow.Process.Pid
	if err := seat.CollectLast(pid); err != nil {
		t.Fatal(err)
	}
	until(t, "it is collected", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

// Who is held up beyond the grace and the patience, before it has sent KILL, sends it, and is as patient as ever.
func TestKillIsSentHoweverLate(t *testing.T) {
	const grace, late = time.Second, time.Hour
	kill, vain := seat.InVain(grace, 0, grace-1, late, late+seat.KillPatience, late+seat.KillPatience+1)
	if want := []bool{false, false, true, true, true}; !slices.Equal(kill, want) {
		t.Errorf("KILL is due: %v, want %v", kill, want)
	}
	if want := []bool{false, false, false, false, true}; !slices.Equal(vain, want) {
		t.Errorf("it is in vain: %v, want %v", vain, want)
	}
}
