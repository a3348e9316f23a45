package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cotal-go/cotal/internal/cli/process"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
)

// patience bounds what a script waits for: it only matters when something is broken.
const patience = 60 * time.Second

type jobsKey struct{}

// jobs are the processes that a script talks with while they run.
type jobs struct {
	mu     sync.Mutex
	byName map[string]*job
}

// job is one such process. Its output, both streams, is read line by line.
type job struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	seen  bytes.Buffer
	done  chan error
}

func jobOf(ts *testscript.TestScript, name string) *job {
	all := ts.Value(jobsKey{}).(*jobs)
	all.mu.Lock()
	defer all.mu.Unlock()
	j := all.byName[name]
	if j == nil {
		ts.Fatalf("no process %q was started", name)
	}
	return j
}

// start <name> <command>...: runs a process beside the script.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start <name> <command>...")
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		ts.Fatalf("start: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args[2:]...)
	cmd.Args[0] = args[1]
	cmd.Dir = ts.Getenv("PWD")
	if cmd.Dir == "" {
		cmd.Dir = ts.MkAbs(".")
	}
	for _, name := range []string{"PATH", "HOME", "USERPROFILE", "LOCALAPPDATA", "COTAL_HOME", "COTAL_NAME", "COTAL_SESSIONS", "NO_COLOR", "GORACE", "TMPDIR", "SystemRoot", "GOCOVERDIR"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	j := &job{cmd: cmd, lines: make(chan string, 4096), done: make(chan error, 1)}
	pr, pw := io.Pipe()
	cmd.Stdout, cmd.Stderr = pw, pw
	if j.in, err = cmd.StdinPipe(); err != nil {
		ts.Fatalf("start: %v", err)
	}
	if err := cmd.Start(); err != nil {
		ts.Fatalf("start: %v", err)
	}
	go func() {
		err := cmd.Wait()
		_ = pw.Close()
		j.done <- err
	}()
	go func() {
		defer close(j.lines)
		for sc := bufio.NewScanner(pr); sc.Scan(); {
			j.lines <- sc.Text()
		}
		_, _ = io.Copy(io.Discard, pr)
	}()
	all := ts.Value(jobsKey{}).(*jobs)
	all.mu.Lock()
	all.byName[args[0]] = j
	all.mu.Unlock()
	ts.Defer(cancel)
}

// expect <name> <pattern>: waits for a line that matches.
func cmdExpect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: expect <name> <pattern>")
	}
	j, re := jobOf(ts, args[0]), regexp.MustCompile(args[1])
	limit := time.After(patience)
	for {
		select {
		case line, ok := <-j.lines:
			if !ok {
				ts.Fatalf("%s ended without a line that matches %q; it wrote:\n%s", args[0], args[1], j.seen.String())
			}
			fmt.Fprintln(&j.seen, line)
			if re.MatchString(line) {
				ts.Logf("%s: %s", args[0], line)
				return
			}
		case <-limit:
			ts.Fatalf("%s wrote no line that matches %q; it wrote:\n%s", args[0], args[1], j.seen.String())
		}
	}
}

// type <name> <line>: writes a line to the process; without a line its input ends.
func cmdType(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: type <name> [line]")
	}
	j := jobOf(ts, args[0])
	if len(args) == 1 {
		ts.Check(j.in.Close())
		return
	}
	_, err := fmt.Fprintln(j.in, strings.Join(args[1:], " "))
	ts.Check(err)
}

// end <name> <code> [wait]: interrupts the process and checks its exit code; with wait it is left to end by itself.
func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: end <name> <code> [wait]")
	}
	j := jobOf(ts, args[0])
	if len(args) == 2 {
		ts.Check(j.cmd.Process.Signal(os.Interrupt))
	}
	go func() { // what nobody asked for must not hold the process up
		for range j.lines {
		}
	}()
	select {
	case err := <-j.done:
		if got, want := exitCode(err), atoi(ts, args[1]); got != want {
			ts.Fatalf("%s ended with %d, want %d; it wrote:\n%s", args[0], got, want, j.seen.String())
		}
	case <-time.After(patience):
		ts.Fatalf("%s does not end; it wrote:\n%s", args[0], j.seen.String())
	}
}

// exit <code> <command>...: runs a command and checks its exact exit code.
func cmdExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit <code> <command>...")
	}
	err := ts.Exec(args[1], args[2:]...)
	if got, want := exitCode(err), atoi(ts, args[0]); got != want {
		ts.Fatalf("%s: exit code %d, want %d\n%s", strings.Join(args[1:], " "), got, want, ts.ReadFile("stderr"))
	}
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return -1
}

func atoi(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	return n
}

// listen <variable> [greeting]: holds a port like another program, and puts it into a variable.
func cmdListen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: listen <variable> [greeting]")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if len(args) > 1 {
				_, _ = io.WriteString(c, strings.Join(args[1:], " ")+"\r\n")
			}
			_ = c.Close()
		}
	}()
	ts.Setenv(args[0], strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// portof <variable> <folder>: puts the port of a project's mesh into a variable.
func cmdPortOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: portof <variable> <folder>")
	}
	ts.Setenv(args[0], strconv.Itoa(config.NewProject(ts.MkAbs(args[1])).LastPort()))
}

// certificate <cert> <key> <host>: makes a self-signed pair.
func cmdCertificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: certificate <cert> <key> <host>")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cotal test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, DNSNames: []string{args[2]},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if ip := net.ParseIP(args[2]); ip != nil {
		tmpl.DNSNames, tmpl.IPAddresses = nil, []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	ts.Check(err)
	raw, err := x509.MarshalECPrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), 0o600))
}

// runOf is the recorded run of a project folder.
func runOf(ts *testscript.TestScript, dir string) *config.Run {
	run, err := config.NewProject(ts.MkAbs(dir)).Run()
	ts.Check(err)
	if run == nil {
		ts.Fatalf("no run is recorded in %q", dir)
	}
	return run
}

// kill9 <folder>: ends the mesh of a project, and what would start it again, as a crash of the machine does, and waits until it is gone.
func cmdKill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: kill9 <folder>")
	}
	run := runOf(ts, args[0])
	id := process.Identity{PID: run.PID, Start: run.Start}
	if keeper, kept := target.Keeper(config.NewProject(ts.MkAbs(args[0]))); kept {
		ts.Check(keeper.Kill())
	}
	killed(ts, id)
}

// killkeeper <folder>: ends what would start the mesh of a project again, and leaves the mesh.
func cmdKillKeeper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killkeeper <folder>")
	}
	keeper, kept := target.Keeper(config.NewProject(ts.MkAbs(args[0])))
	if !kept {
		ts.Fatalf("nothing keeps the mesh of %q", args[0])
	}
	killed(ts, keeper)
}

// crash <folder>: ends the mesh of a project as the system does when memory runs out, and leaves what starts it again.
func cmdCrash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: crash <folder>")
	}
	run := runOf(ts, args[0])
	killed(ts, process.Identity{PID: run.PID, Start: run.Start})
}

// killed ends a process and waits until it is gone.
func killed(ts *testscript.TestScript, id process.Identity) {
	ts.Check(id.Kill())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ts.Check(process.Wait(ctx, id))
}

// setrun <folder> <process> [start]: rewrites the record of a run to name the process of the script; with a start time
// of its own, or the process's.
func cmdSetRun(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: setrun <folder> <process> [start]")
	}
	pid := jobOf(ts, args[1]).cmd.Process.Pid
	id, err := process.Of(pid)
	ts.Check(err)
	run := config.Run{PID: pid, Start: id.Start, URL: "nats://127.0.0.1:1", Spaces: []string{"main"}, Version: "devel", Started: time.Now()}
	if len(args) > 2 {
		run.Start = args[2]
	}
	ts.Check(config.NewProject(ts.MkAbs(args[0])).SaveRun(run))
}

// lastport <folder> <port>: makes a port the one on which the mesh of a project listened before.
func cmdLastPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lastport <folder> <port>")
	}
	ts.Check(config.NewProject(ts.MkAbs(args[0])).SavePort(atoi(ts, args[1])))
}

// mode <octal> <file>...: checks permission bits, where the system has them.
func cmdMode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: mode <octal> <file>...")
	}
	want, err := strconv.ParseUint(args[0], 8, 32)
	ts.Check(err)
	for _, name := range args[1:] {
		info, err := os.Stat(ts.MkAbs(name))
		ts.Check(err)
		if got := info.Mode().Perm(); os.PathSeparator == '/' && uint64(got) != want {
			ts.Fatalf("mode of %s = %o, want %o", name, got, want)
		}
	}
}

// absent <file>...: checks that nothing is there.
func cmdAbsent(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		if _, err := os.Lstat(ts.MkAbs(name)); !errors.Is(err, os.ErrNotExist) {
			ts.Fatalf("%s is there: %v", name, err)
		}
	}
}
