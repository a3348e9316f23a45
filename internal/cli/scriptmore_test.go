package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
)

// pause <process|folder>: stops a process of the script, or the mesh of a project, where it is, and waits until it has stopped.
func cmdPause(ts *testscript.TestScript, neg bool, args []string) {
	pid := sendSignal(ts, neg, args, signalPause)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); ; <-tick.C {
		done, err := paused(pid)
		ts.Check(err)
		if done {
			return
		}
		if time.Now().After(limit) {
			ts.Fatalf("pause: process %d goes on", pid)
		}
	}
}

// resume <process|folder>: lets it go on.
func cmdResume(ts *testscript.TestScript, neg bool, args []string) {
	sendSignal(ts, neg, args, signalResume)
}

// sendSignal returns the process that it told.
func sendSignal(ts *testscript.TestScript, neg bool, args []string, sig os.Signal) (pid int) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pause|resume <process|folder>")
	}
	all := ts.Value(jobsKey{}).(*jobs)
	all.mu.Lock()
	j := all.byName[args[0]]
	all.mu.Unlock()
	if j != nil {
		ts.Check(j.cmd.Process.Signal(sig))
		return j.cmd.Process.Pid
	}
	p, err := os.FindProcess(runOf(ts, args[0]).PID)
	ts.Check(err)
	ts.Check(p.Signal(sig))
	return p.Pid
}

// killjob <process>: ends a process as a crash does.
func cmdKillJob(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killjob <process>")
	}
	ts.Check(jobOf(ts, args[0]).cmd.Process.Kill())
}

// refuse <folder> <credential> [reason]: refuses for good every direct message that waits for the holder of a credential.
func cmdRefuse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refuse <folder> <credential> [reason]")
	}
	ts.Check(refuseAll(runOf(ts, args[0]).URL, ts.MkAbs(args[1]), strings.Join(args[2:], " ")))
}

// refuse is the script command of that name, in the project of the world.
func (w *world) refuse(creds, reason string) {
	w.t.Helper()
	run, err := config.NewProject(w.dir).Run()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := refuseAll(run.URL, filepath.Join(w.dir, creds), reason); err != nil {
		w.t.Fatal(err)
	}
}

// refuseAll refuses for good every direct message that waits for the holder of a credential.
func refuseAll(server, creds, reason string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ep, err := endpoint.Connect(ctx, server, endpoint.File(creds), &endpoint.Options{Quiet: true})
	if err != nil {
		return err
	}
	defer func() { _ = ep.Close() }()
	for more := true; more; {
		var page []*endpoint.Delivery
		if page, more, err = ep.ReadDirect(ctx, 0); err != nil {
			return err
		}
		for _, d := range page {
			if err := d.Term(ctx, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// keeperof <variable> <folder>: puts the number of the process that keeps the mesh of a project into a variable.
func cmdKeeperOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: keeperof <variable> <folder>")
	}
	keeper, kept := target.Keeper(config.NewProject(ts.MkAbs(args[1])))
	if !kept {
		ts.Fatalf("nothing keeps the mesh of %q", args[1])
	}
	ts.Setenv(args[0], strconv.Itoa(keeper.PID))
}

// zeros <file> <n>: writes a file of n digits 0.
func cmdZeros(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: zeros <file> <n>")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte("0"), atoi(ts, args[1])), 0o600))
}

// await <pattern> <command>...: runs a command that shows what others do until its output has a line that matches. What is
// for display may be a moment old.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await <pattern> <command>...")
	}
	re := regexp.MustCompile("(?m)" + args[0])
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		_ = ts.Exec(args[1], args[2:]...) // it may fail until then
		if re.MatchString(ts.ReadFile("stdout")) {
			return
		}
	}
	ts.Fatalf("%s does not show a line that matches %q", strings.Join(args[1:], " "), args[0])
}
