//go:build linux || darwin

package seat_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/supervisor/seat"
)

// P1: a grandchild in a session of its own that ignores HUP and TERM does not outlive the agent. That the grace of its spec is an hour
// does not keep it.
func TestP1NoOrphanOutlivesTheAgent(t *testing.T) {
	parent := func(t *testing.T) seat.StartOptions {
		o := options(t, self(t), "agent", "parent")
		o.Spec.Grace = time.Hour
		return o
	}
	t.Run("stopped", func(t *testing.T) {
		c := start(t, parent(t))
		pid := deaf(t, c)
		e, err := c.Stop(within(t), time.Second)
		if err != nil || len(e.Left) > 0 {
			t.Fatalf("Stop() = %+v, %v; want nothing left", e, err)
		}
		if runs(pid) {
			t.Errorf("grandchild %d runs, want gone", pid)
		}
	})
	t.Run("by_itself", func(t *testing.T) {
		c := start(t, parent(t))
		pid := deaf(t, c)
		send(t, c, "go\r")
		e := ended(t, c)
		if e.Code != 7 || len(e.Left) > 0 || runs(pid) {
			t.Errorf("exit = %+v, grandchild runs: %t; want code 7 and nothing left", e, runs(pid))
		}
	})
	t.Run("killed", func(t *testing.T) {
		c := start(t, parent(t))
		pid := deaf(t, c)
		info, err := c.Info(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := ended(t, c); e.Signal != "SIGKILL" || runs(pid) {
			t.Errorf("exit = %+v, grandchild runs: %t; want SIGKILL and gone", e, runs(pid))
		}
	})
}

// P2: strangers of the same name, and a tmux server that an agent started, are left alone and told of.
func TestP2StrangersAndDaemonsAreLeftAlone(t *testing.T) {
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		archtest.Skip(t, "tmux is not installed")
	}
	stranger := exec.Command(self(t), "agent", "deaf")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	for _, how := range []string{"stopped", "by_itself", "at_once", "swept"} {
		t.Run(how, func(t *testing.T) {
			socket := filepath.Join("/tmp", fmt.Sprintf("cotal-tmux-%d-%s", os.Getpid(), how))
			t.Cleanup(func() { _ = exec.Command(tmux, "-S", socket, "kill-server").Run(); _ = os.Remove(socket) })
			wait := "read line"
			if how == "at_once" {
				wait = "true"
			}
			script := fmt.Sprintf("'%s' agent deaf & %s -S %s -f /dev/null new-session -d 'sleep 1000'; echo started; %s", self(t), tmux, socket, wait)
			o := options(t, "sh", "-c", script)
			c := start(t, o)
			switch how {
			case "stopped", "swept":
				shows(t, c, "started")
				shows(t, c, "deaf")
				until(t, "the server is a daemon", func() bool {
					i, err := c.Info(within(t))
					return err == nil && len(i.Daemons) == 1
				})
			case "by_itself":
				shows(t, c, "started")
				send(t, c, "\r")
			}
			if how == "swept" {
				r, _ := seat.Read(o.Dir)
				_ = syscall.Kill(r.Seat.PID, syscall.SIGKILL)
				<-c.Done()
				got, err := seat.Sweep(within(t), o.Dir, 200*time.Millisecond)
				if err != nil || len(got) == 0 {
					t.Fatalf("Sweep() = %v, %v; want what it ended", got, err)
				}
			} else {
				e := seat.Exit{}
				if how == "stopped" {
					e, err = c.Stop(within(t), 200*time.Millisecond)
				} else {
					e = ended(t, c)
				}
				if err != nil || len(e.Left) != 1 || !strings.Contains(e.Left[0].Name, "tmux") {
					t.Errorf("exit = %+v, %v; want the tmux server left", e, err)
				}
			}
			if out, err := exec.Command(tmux, "-S", socket, "list-sessions").CombinedOutput(); err != nil {
				t.Errorf("tmux server is gone: %v %s", err, out)
			}
			if !runs(stranger.Process.Pid) {
				t.Error("a stranger of the same name was ended")
			}
			out, _ := exec.Command("pgrep", "-x", "-f", self(t)+" agent deaf").Output()
			if got := strings.Fields(string(out)); len(got) != 1 {
				t.Errorf("processes of the name = %v, want the stranger %d alone", got, stranger.Process.Pid)
			}
		})
	}
}

// P3: an agent that an interactive shell started, in a job of its own, dies with the shell.
func TestP3JobsOfAnInteractiveShellEnd(t *testing.T) {
	for _, how := range []string{"stopped", "by_itself"} {
		t.Run(how, func(t *testing.T) {
			c := start(t, options(t, "bash", "--norc", "-i"))
			send(t, c, fmt.Sprintf("set -m; '%s' agent deaf &\r", self(t)))
			pid := deaf(t, c)
			pgid, err := unix.Getpgid(pid)
			info, _ := c.Info(within(t))
			if err != nil || pgid == info.PID {
				t.Fatalf("group of the job = %d, %v; want one of its own", pgid, err)
			}
			if how == "stopped" {
				if e, err := c.Stop(within(t), 300*time.Millisecond); err != nil || len(e.Left) > 0 {
					t.Errorf("Stop() = %+v, %v", e, err)
				}
			} else {
				send(t, c, "exit\r")
				_ = c.Input(within(t), []byte("exit\r")) // refused when the first was enough
				ended(t, c)
			}
			if runs(pid) {
				t.Errorf("job %d outlived its shell", pid)
			}
		})
	}
}

// P4: the agent has a session and a terminal of its own, is not stopped, and its seat has a session of its own too.
func TestP4SessionsAreTheirOwn(t *testing.T) {
	o := options(t, "sh", "-c", "tty; read x <&1; echo read $x; read y")
	c := start(t, o)
	shows(t, c, "/dev/")
	r, err := seat.Read(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{r.Agent.PID, r.Seat.PID} {
		if sid, err := unix.Getsid(pid); err != nil || sid != pid {
			t.Errorf("getsid(%d) = %d, %v; want itself", pid, sid, err)
		}
	}
	send(t, c, "word\r")
	shows(t, c, "read word") // a background process that reads its terminal would have been stopped
}

// P7: fifty agents that come and go leave nothing.
func TestP7FinishedAgentsLeaveNothing(t *testing.T) {
	count := func() int {
		out, err := exec.Command("ps", "-o", "pid=", "--ppid", fmt.Sprint(os.Getpid())).Output()
		if err != nil && len(out) > 0 {
			t.Fatal(err)
		}
		return len(strings.Fields(string(out)))
	}
	before := count()
	for i := range 50 {
		o := options(t, "sh", "-c", "sleep 0 & (sleep 0 &) ; echo done")
		c, err := seat.Start(within(t), o)
		if err != nil {
			t.Fatalf("cycle %d: Start() = %v", i, err)
		}
		if e := ended(t, c); e.Code != 0 {
			t.Fatalf("cycle %d: exit = %+v", i, e)
		}
		if err := c.Release(within(t)); err != nil {
			t.Fatal(err)
		}
		until(t, "the seat is gone and reaped", func() bool {
			r, _ := seat.Read(o.Dir)
			return syscall.Kill(r.Seat.PID, 0) != nil
		})
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after > before {
		t.Errorf("children after 50 cycles = %d, before %d; want no more", after, before)
	}
}

// P11: a resize reaches the agent, also one to the size that the terminal has, and zeros change nothing.
func TestP11ResizeReachesTheAgent(t *testing.T) {
	c := start(t, options(t, "sh", "-c", "stty -echo; while read x; do echo $x $(stty size); done"))
	sizeIs := func(mark, want string) {
		t.Helper()
		send(t, c, mark+"\r")
		if got := shows(t, c, mark+" "); got != mark+" "+want {
			t.Errorf("stty size = %q, want %q", got, want)
		}
	}
	sizeIs("a", "24 80")
	for _, step := range []struct {
		mark, want string
		cols, rows int
	}{{"b", "40 100", 100, 40}, {"c", "40 100", 100, 40}, {"d", "40 100", 0, 0}, {"e", "41 100", 0, 41}, {"f", "24 80", 80, 24}} {
		if err := c.Resize(within(t), step.cols, step.rows); err != nil {
			t.Fatalf("Resize(%d, %d) = %v", step.cols, step.rows, err)
		}
		sizeIs(step.mark, step.want)
	}
	if err := c.Resize(within(t), 5000, 5); err == nil {
		t.Error("Resize(5000, 5) = nil, want bad-request")
	}
}

// P16: a viewer that dies after it made the terminal tiny leaves nothing pinned.
func TestP16ACrashPinsNothing(t *testing.T) {
	o := options(t, "sh", "-c", "stty -echo; while read x; do echo $x $(stty size); done")
	c := start(t, o)
	pinner := exec.Command(self(t), "agent", "pinner", o.Dir)
	out, err := pinner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pinner.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := out.Read(buf)
	if got := string(buf[:n]); err != nil || got != "pinned <nil>\n" {
		t.Fatalf("pinner says %q, %v", got, err)
	}
	_ = pinner.Process.Kill()
	_ = pinner.Wait()
	if err := c.Resize(within(t), 100, 30); err != nil {
		t.Fatal(err)
	}
	send(t, c, "now\r")
	if got := shows(t, c, "now "); got != "now 30 100" {
		t.Errorf("stty size = %q, want now 30 100", got)
	}
}
