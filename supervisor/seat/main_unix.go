//go:build linux || darwin

package seat

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/wire"
)

// linger is how long a seat stays after the exit was kept, unless it is released.
const linger = 10 * time.Minute

// Main is the body of the seat process: it starts the agent that spec.json in dir describes, serves its terminal, and returns after
// the agent ended, the exit was kept in exit.json, and the seat was released or ten minutes have passed. When ctx ends, or on SIGTERM, it
// ends the agent with the grace of the spec, keeps the exit and returns. SIGHUP, SIGINT and SIGQUIT it survives. A nil log discards.
//
// It takes over the process: it closes inherited descriptors, handles signals and reaps every child. Its error is also kept as
// error.json, for [Start]. Codes: not-found and bad-request for the spec or the program, already-exists for a folder that holds
// another seat.
func Main(ctx context.Context, dir string, log *slog.Logger) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	err := runSeat(ctx, dir, log)
	if err != nil {
		e := wire.Errorf(wire.CodeOf(err), "%v", err)
		_ = writeJSON(dir, errorFile, e)
	}
	return err
}

func runSeat(ctx context.Context, dir string, log *slog.Logger) error {
	signals := make(chan os.Signal, 16)
	// Caught, not ignored: what is ignored here would be ignored by the agent too.
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGCHLD)
	defer signal.Stop(signals)
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	defer signal.Stop(terms)
	closeInherited()
	r, err := Read(dir)
	if err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer unlockDir(lock)
	// From here on the folder is this one wherever it is moved to.
	if err := os.Chdir(dir); err != nil {
		return wire.Errorf(wire.CodeInternal, "start seat %q: %v", dir, err)
	}
	if err := adoptOrphans(); err != nil {
		return wire.Errorf(wire.CodeInternal, "start seat %q: take in orphans: %v", dir, err)
	}
	s := &seat{
		dir: dir, spec: r.Spec, log: log, signals: signals, terms: terms, screen: term.New(r.Spec.Cols, r.Spec.Rows), ring: ring{limit: r.Spec.Ring},
		stops: make(chan stopCall), activity: make(chan struct{}, 1), released: make(chan struct{}),
	}
	s.changed = sync.NewCond(&s.mu)
	l, err := s.listen()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(socketFile) }()
	if err := s.begin(); err != nil {
		_ = l.Close()
		return err
	}
	log.Info("seat started", logkey.UID, s.spec.ID, logkey.PID, s.record.Agent.PID)
	var wg sync.WaitGroup
	wg.Go(s.read)
	wg.Go(s.typing)
	wg.Go(func() { s.serve(l) })
	settle()
	s.own(ctx)
	_ = l.Close()
	s.shut()
	wg.Wait()
	return nil
}

// settle gives back what starting needed, and makes the collector keep the heap small: a seat is idle nearly always.
func settle() {
	debug.SetGCPercent(20)
	debug.FreeOSMemory()
	pageOut()
}

// closeInherited closes the files that whoever started this process left open in it. Everything that this process opened itself is
// marked to be closed on exec, so what is not marked was inherited.
func closeInherited() {
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// lockDir takes the folder for this process until unlockDir. Code already-exists when another seat has it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "lock seat %q: %v", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, wire.Errorf(wire.CodeAlreadyExists, "lock seat %q: another seat runs there", dir)
		}
		return nil, wire.Errorf(wire.CodeInternal, "lock seat %q: %v", dir, err)
	}
	return f, nil
}

// unlockDir gives the folder back. It unlocks before it closes: a process that is being started at this moment holds a copy of the file
// until it runs its program, and the lock would stand for as long.
func unlockDir(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}

// begin starts the agent on a terminal of its own and records it.
func (s *seat) begin() error {
	program, err := s.program()
	if err != nil {
		return err
	}
	ptmx, tty, err := pty.Open()
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "start agent: open terminal: %v", err)
	}
	s.ptmx, s.tty = ptmx, tty
	if err := unblock(ptmx); err != nil {
		return wire.Errorf(wire.CodeInternal, "start agent: open terminal: %v", err)
	}
	if err := setSize(ptmx, s.spec.Cols, s.spec.Rows); err != nil {
		return wire.Errorf(wire.CodeInternal, "start agent: size terminal: %v", err)
	}
	if s.record.Boot, err = boot(); err != nil {
		return wire.Errorf(wire.CodeInternal, "start agent: name the boot: %v", err)
	}
	pid, err := syscall.ForkExec(program, s.spec.Argv, &syscall.ProcAttr{
		Dir: s.spec.Dir, Env: append(s.spec.Env[:len(s.spec.Env):len(s.spec.Env)], s.marker()),
		Files: []uintptr{tty.Fd(), tty.Fd(), tty.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	})
	if err != nil {
		return wire.Errorf(startCode(err), "start agent %q in %q: %v", program, s.spec.Dir, err)
	}
	s.record.V, s.record.Started, s.record.Counts = Version, time.Now(), true
	s.record.Seat, s.record.Agent = Process{PID: os.Getpid()}, Process{PID: pid}
	// A child that has ended is kept as a zombie until it is reaped, so both have a start time.
	if p, ok := lookup(os.Getpid()); ok {
		s.record.Seat = p.Process
	}
	if f, err := ownChildren(); err == nil {
		s.record.Agent = f.byPID[pid].Process
	}
	s.record.Agent.Name = filepath.Base(program)
	return s.keepRecord()
}

func (s *seat) marker() string { return Marker + "=" + string(s.spec.ID) }

func startCode(err error) wire.Code {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return wire.CodeNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.E2BIG):
		return wire.CodeBadRequest
	}
	return wire.CodeInternal
}

// program finds the agent's program, in PATH of its own environment.
func (s *seat) program() (string, error) {
	name := s.spec.Argv[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(s.spec.Dir, name)
		}
		return name, nil
	}
	path := ""
	for _, e := range s.spec.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(d, name)); err == nil {
			return found, nil
		}
	}
	return "", wire.Errorf(wire.CodeNotFound, "start agent: no program %q in PATH %q", name, path)
}

func (s *seat) keepRecord() error { return writeJSON(here, recordFile, s.record) }

// here is the folder of the seat in its own process, by a name that stays right when the folder is moved.
const here = "."

// listen makes the socket, private to this user. It is in the seat's folder, however long the path of that is, so that it is found
// as long as the folder is.
func (s *seat) listen() (net.Listener, error) {
	path := filepath.Join(s.dir, socketFile)
	// The lock of the folder is held, so a socket that is there has nobody behind it.
	_ = os.Remove(socketFile)
	l, err := net.Listen("unix", socketFile)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "listen at %q: %v", path, err)
	}
	if err := os.Chmod(socketFile, 0o600); err != nil {
		_ = l.Close()
		return nil, wire.Errorf(wire.CodeInternal, "listen at %q: %v", path, err)
	}
	if s.record.Socket = path; len(path) > maxSocketPath {
		s.record.Socket = ownSocket(path)
	}
	return l, nil
}

// privateDir makes sure that path is a folder of this user which nobody else may enter, and not a link to one.
func privateDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return wire.Errorf(wire.CodeInternal, "make folder %q: %v", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "look at folder %q: %v", path, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return wire.Errorf(wire.CodePermissionDenied, "use folder %q: not a private folder of this user (mode %v)", path, info.Mode())
	}
	return nil
}
