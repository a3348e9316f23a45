package mesh

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/plainfile"
	"github.com/cotal-go/cotal/wire"
)

// maxLog is the size from which on a start sets the log file aside as up.log.1.
const maxLog = 16 << 20

// childEnv are the variables that a detached run gets, besides those that its agents are given; nothing else of the shell's environment
// outlives it.
var childEnv = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LANG", "USER", "LOGNAME", config.EnvHome, config.EnvSpace, "GOMAXPROCS", "GOMEMLIMIT", "GOCOVERDIR",
	"SystemRoot", "SystemDrive", "USERPROFILE", "LOCALAPPDATA", "USERNAME", "TEMP", "TMP", "PATHEXT",
}

// answer is the one line that a detached run writes to its parent: a result or a failure.
type answer struct {
	Result  *UpResult            `json:"result,omitempty"`
	Failure *command.FailureBody `json:"failure,omitempty"`
}

// runDetached starts a child that outlives this process and returns when it is ready or has failed. Release gives the lock of the project
// to the child, which is on record before: whoever looks meanwhile finds a start that is under way.
func (u *up) runDetached(ctx context.Context, e *command.Env, p *plan, release func()) error {
	defer release()
	log, err := openLog(p.project.LogFile())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	flags := []string{"--keep"}
	if u.once {
		flags = nil
	}
	cmd, err := u.child(e, p, flags...)
	if err != nil {
		return err
	}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	e.Progress("starting the mesh of %s in the background", p.project.Root)
	if err := cmd.Start(); err != nil {
		return wire.Errorf(wire.CodeInternal, "start in the background: %v", err)
	}
	if id, err := process.Of(cmd.Process.Pid); err == nil {
		if err := p.project.SaveStarting(config.Process{PID: id.PID, Start: id.Start}); err != nil {
			e.Progress("%v; until the mesh is up it may seem not to run", err)
		}
	}
	release()
	res, err := u.await(ctx, out, cmd, p)
	if err != nil {
		return err
	}
	if err := res.show(e); err != nil {
		return err
	}
	if res.State != stateRunning {
		nextSteps(e, *res)
	}
	return nil
}

func (u *up) child(e *command.Env, p *plan, flags ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, append(u.args(e), flags...)...)
	cmd.Args[0] = "cotal" // what process listings show
	cmd.Dir = p.project.Root
	cmd.Env = []string{}
	for _, name := range slices.Concat(childEnv, agentEnv()) {
		if v := e.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	process.Detach(cmd)
	return cmd, nil
}

// args repeats the flags that a person gave; the child works from the project's folder, so paths are absolute.
func (u *up) args(e *command.Env) []string {
	args := []string{"up", "--report"}
	add := func(flag, v string) {
		if v != "" {
			args = append(args, "--"+flag+"="+v)
		}
	}
	path := func(v string) string {
		if v == "" {
			return ""
		}
		return absolute(e.Dir, v)
	}
	add("space", e.Flags.Space)
	add("host", u.host)
	if u.ported {
		add("port", strconv.Itoa(u.port))
	}
	add("tls-cert", path(u.cert))
	add("tls-key", path(u.key))
	add("store-dir", path(u.storeDir))
	if u.strict != nil {
		add("strict", strconv.FormatBool(*u.strict))
	}
	if u.open {
		args = append(args, "--open")
	}
	if u.placed {
		add("no-delivery", strconv.FormatBool(u.apart))
	}
	args = append(args, u.provider.Args()...)
	args = append(args, u.exchange.Args()...)
	if u.most != 0 {
		add("max-agents", strconv.Itoa(u.most))
	}
	if u.agented {
		add("no-supervisor", strconv.FormatBool(u.noAgents))
	}
	if u.parted {
		add("no-authority", strconv.FormatBool(u.away))
	}
	if e.Verbose {
		args = append(args, "--verbose")
	}
	return args
}

// await reads the answer of the child. Its end without one means that it died.
func (u *up) await(ctx context.Context, out io.Reader, cmd *exec.Cmd, p *plan) (*UpResult, error) {
	limit := time.NewTimer(u.wait)
	defer limit.Stop()
	hint := func(err error) error {
		return command.Hint(err, "look again with: cotal status", "once it is up, stop it with: cotal down", "its log: "+p.project.LogFile())
	}
	type read struct {
		line []byte
		err  error
	}
	got := make(chan read, 1)
	go func() { // ends with the line, or when the child or this process ends
		line, err := bufio.NewReader(out).ReadBytes('\n')
		got <- read{line, err}
	}()
	select {
	case r := <-got:
		return decode(r.line, r.err, cmd, p)
	case <-limit.C:
		return nil, hint(wire.Errorf(wire.CodeDeadlineExceeded, "the mesh of %q (pid %d) is still starting, and goes on", p.project.Root, cmd.Process.Pid))
	case <-ctx.Done():
		return nil, hint(command.Cancelledf("cancelled; the mesh of %q (pid %d) goes on starting", p.project.Root, cmd.Process.Pid))
	}
}

func decode(line []byte, err error, cmd *exec.Cmd, p *plan) (*UpResult, error) {
	var a answer
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	switch {
	case err != nil && len(line) == 0:
		_ = cmd.Wait()
		return nil, command.Hint(wire.Errorf(wire.CodeInternal, "the mesh of %q ended before it was ready: %v", p.project.Root, cmd.ProcessState),
			"its log: "+p.project.LogFile())
	case err != nil:
		return nil, wire.Errorf(wire.CodeInternal, "read answer of the background process: %v", err)
	case a.Failure != nil:
		_ = cmd.Wait()
		f := a.Failure
		err := &wire.Error{Code: f.Code, Message: f.Message, Outcome: f.Outcome, Details: f.Details}
		return nil, command.Hint(err, p.withLog(err, f.Hints)...)
	case a.Result == nil:
		return nil, wire.Errorf(wire.CodeInternal, "read answer of the background process: neither result nor failure")
	}
	_ = cmd.Process.Release()
	return a.Result, nil
}

// withLog adds where the log is, if the start wrote any that is not taken away after why.
func (p *plan) withLog(why error, hints []string) []string {
	if info, err := os.Stat(p.project.LogFile()); err != nil || info.Size() == 0 || p.undone(why) {
		return hints
	}
	return append(hints, "its log: "+p.project.LogFile())
}

// runReporting is the child's side: one line on standard output, and nothing after it, for nobody reads it then. The parent
// may be gone by the time of the line; the mesh runs all the same.
func (u *up) runReporting(ctx context.Context, e *command.Env) error {
	process.Orphan()
	reported := false
	tell := func(a answer) error {
		reported = true
		line, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		_, _ = e.Stdout.Write(append(line, '\n'))
		return nil
	}
	err := roomless(u.serve(ctx, e, tell), e.Dir)
	if err != nil && !reported {
		f := command.FailureOf(err).Error
		return errors.Join(err, tell(answer{Failure: &f}))
	}
	return err
}

func (u *up) serve(ctx context.Context, e *command.Env, tell func(answer) error) error {
	p, err := u.newPlan(ctx, e)
	if err != nil {
		return err
	}
	release, running, err := u.claim(ctx, e, p)
	if err != nil {
		return err
	}
	if running != nil { // another start came first: its mesh is the answer
		return tell(answer{Result: running})
	}
	defer release()
	return p.run(ctx, e, func(r UpResult) error {
		r.Log = p.project.LogFile()
		if err := p.noteLog(r.Log); err != nil {
			return err
		}
		if err := p.started(); err != nil {
			return err
		}
		return tell(answer{Result: &r})
	})
}

// noteLog adds the log file to the record of the run.
func (p *plan) noteLog(path string) error {
	run, err := p.project.Run()
	if err != nil || run == nil {
		return err
	}
	run.Log = path
	return p.project.SaveRun(*run)
}

// started ends the record of the start when it is that of this process: a keeper does it itself, once it is on record as that.
func (p *plan) started() error {
	self, err := process.Self()
	if err != nil {
		return nil // then there is no such record
	}
	return p.project.ForgetStarting(config.Process{PID: self.PID, Start: self.Start})
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "make log folder: %v", err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > maxLog {
		_ = os.Rename(path, strings.TrimSuffix(path, ".1")+".1")
	}
	f, err := plainfile.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "open log file %q: %v", path, fserr.Cause(err))
	}
	return f, nil
}
