//go:build linux || darwin

package seat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/wire"
)

const (
	// orphanGrace is how long what an agent left behind has between TERM and KILL when the agent ended by itself, if its own grace
	// is not shorter.
	orphanGrace = 2 * time.Second
	// killPatience is how long after KILL the tree may take to be gone.
	killPatience = 8 * time.Second // less than callers wait beyond the grace
	// drain is how long the terminal is read after the tree is gone.
	drain = 500 * time.Millisecond
)

// When the tree is looked at for daemons: a moment after something happened, once more a while after that, and rarely without.
const (
	lookSoon  = 300 * time.Millisecond
	lookAgain = 5 * time.Second
	lookIdle  = 10 * time.Minute
)

// seat is the state of the seat process.
type seat struct {
	dir      string
	spec     Spec
	log      *slog.Logger
	signals  chan os.Signal
	terms    chan os.Signal // SIGTERM alone, so that no burst of others takes its place
	ptmx     *os.File
	tty      *os.File // the agent's side, held so that output does not end while the agent closes and opens it
	stops    chan stopCall
	activity chan struct{} // something happened: the tree may have changed
	released chan struct{}

	// Of the goroutine that owns the processes.
	status  *unix.WaitStatus // of the agent, once reaped
	leaving bool             // the seat itself was told to end

	mu      sync.Mutex
	changed *sync.Cond // output, a new size, the end, or a viewer that left
	record  Record
	screen  *term.Screen
	ring    ring
	resizes int // how often the size changed
	viewers int
	lastOut time.Time
	lastIn  time.Time
	unsent  unsent
	input   []typed
	pending int    // bytes in input
	typed   uint64 // bytes that were ever typed
	written uint64 // those that were written
	torn    bool   // a write failed, so nothing is counted any more
	readEOF bool
	exit    *Exit
	closing bool
	once    sync.Once
}

type stopCall struct {
	grace time.Duration
	done  chan error // buffered
}

// own is the only goroutine that reaps and signals. It returns when the seat may end.
func (s *seat) own(ctx context.Context) {
	look := time.NewTimer(lookSoon)
	defer look.Stop()
	soon, calm, asked := true, false, ctx.Done()
	for {
		select {
		case sig := <-s.signals:
			if sig == syscall.SIGCHLD {
				s.reap()
			}
		case <-s.terms:
			s.leaving = true
			s.finish(stopCall{s.spec.Grace, make(chan error, 1)})
		case c := <-s.stops:
			s.finish(c)
		case <-asked:
			s.leaving = true
			s.finish(stopCall{s.spec.Grace, make(chan error, 1)})
			asked = nil // it is tried again below when the agent has ended, or when somebody stops it
		case <-s.activity:
			calm = false
			if !soon {
				soon = true
				look.Reset(lookSoon)
			}
		case <-look.C:
			s.look()
			next := lookIdle
			if soon {
				next = lookAgain
			} else if !calm {
				calm = true
				settle()
			} else {
				pageOut()
			}
			soon = false
			look.Reset(next)
		}
		if s.status != nil && s.exit == nil {
			s.finish(stopCall{min(orphanGrace, s.spec.Grace), make(chan error, 1)})
		}
		if s.exit != nil {
			if !s.leaving {
				s.rest(ctx)
			}
			return
		}
	}
}

// rest waits after the end, for who still wants to know.
func (s *seat) rest(ctx context.Context) {
	end := time.NewTimer(linger)
	defer end.Stop()
	for {
		select {
		case <-end.C:
			return
		case <-s.released:
			return
		case <-ctx.Done():
			return
		case c := <-s.stops:
			c.done <- nil
		case <-s.activity:
		case <-s.terms:
			return
		case <-s.signals:
			s.reap()
		}
	}
}

// reap collects every child that has ended.
func (s *seat) reap() {
	for {
		var st unix.WaitStatus
		pid, err := unix.Wait4(-1, &st, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if pid == s.record.Agent.PID && s.status == nil {
			s.status = &st
		}
		s.stir()
	}
}

// stir asks for a look at the tree.
func (s *seat) stir() {
	select {
	case s.activity <- struct{}{}:
	default:
	}
}

// look keeps a record of what the agent's tree has made daemons of. While the agent lives that is certain: they have left the tree
// by themselves.
func (s *seat) look() {
	s.reap()
	if s.status != nil {
		return
	}
	f, err := ownChildren()
	if err != nil {
		return
	}
	if _, lives := f.byPID[s.record.Agent.PID]; !lives {
		return
	}
	r := s.record
	r.Daemons = s.daemonsIn(f)
	if slices.Equal(r.Daemons, s.record.Daemons) {
		return
	}
	// Written before it is told: who heard of a daemon finds it in the record, whatever becomes of this process.
	if err := writeJSON(here, recordFile, r); err != nil {
		s.log.Warn("record not kept", logkey.Error, err)
	}
	s.mu.Lock()
	s.record.Daemons = r.Daemons
	s.mu.Unlock()
}

func (s *seat) daemonsIn(f forest) []Process {
	found := names(f.daemons(orphanRoot(), s.record.Agent))
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found
}

// orphanRoot is the process that orphans of the agent get as parent.
func orphanRoot() int {
	if adoptsOrphans {
		return os.Getpid()
	}
	return -1 // on other systems daemons cannot be told from what everybody else started
}

// spared are what the end of the agent leaves alone.
func (s *seat) spared() []Process {
	s.mu.Lock()
	known := slices.Clone(s.record.Daemons)
	s.mu.Unlock()
	f, err := processes()
	if err != nil {
		return known
	}
	if p, lives := f.byPID[s.record.Agent.PID]; lives && !p.zombie {
		return s.daemonsIn(f)
	}
	// The agent has ended, so its orphans have come to the seat too. Those that an earlier look saw here were daemons before;
	// so is what cut itself off from every terminal and file that it was started with.
	var out []Process
	for _, p := range s.daemonsIn(f) {
		if slices.ContainsFunc(known, func(k Process) bool { return k.identity() == p.identity() }) || p.detached() {
			out = append(out, p)
		}
	}
	return out
}

// finish ends the tree, keeps the exit and answers.
func (s *seat) finish(c stopCall) {
	if s.exit != nil {
		c.done <- nil
		return
	}
	spared := s.spared()
	waiting := []stopCall{c}
	err := s.end(spared, c.grace, &waiting)
	if err != nil {
		// Only what no signal of this user ends gets here. The seat stays with it, and nothing is told to have ended.
		for _, w := range waiting {
			w.done <- err
		}
		s.log.Error("agent not ended", logkey.Error, err)
		return
	}
	s.conclude(spared)
	for _, w := range waiting {
		w.done <- err
	}
}

// end sends TERM to the tree, and KILL after the grace, until nothing of it is left. Calls that come meanwhile are added to waiting;
// one with less grace shortens it, and so does SIGTERM to the seat, which then ends too.
func (s *seat) end(spared []Process, grace time.Duration, waiting *[]stopCall) error {
	e := ending{begun: time.Now()}
	told := map[identity]Process{}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s.reap()
		f, err := processes()
		if err != nil {
			return wire.Errorf(wire.CodeInternal, "end agent: look at processes: %v", err)
		}
		left := f.tree(os.Getpid(), s.record.Agent, spared, slices.Collect(maps.Values(told)))
		if len(left) == 0 && s.status != nil {
			// A look takes its time, and what forks and exits meanwhile is missed on both sides.
			if left = offspring(spared); len(left) == 0 {
				return nil
			}
		}
		since := time.Since(e.begun)
		kill, vain := e.step(since, grace)
		if vain {
			if len(left) == 0 {
				return wire.Errorf(wire.CodeInternal, "end agent: process %d has ended and cannot be collected; it may be traced", s.record.Agent.PID)
			}
			return wire.Errorf(wire.CodeInternal, "end agent: %d processes do not end, such as %d (%s)", len(left), left[0].PID, left[0].Name)
		}
		for _, p := range left {
			s.tell(p.Process, kill, told)
		}
		select {
		case <-s.signals:
		case <-tick.C:
		case <-s.terms:
			s.leaving = true
			grace = min(grace, since+s.spec.Grace)
		case c := <-s.stops:
			grace = min(grace, since+c.grace)
			*waiting = append(*waiting, c)
		}
	}
}

// ending is how far the end of a tree has come.
type ending struct {
	begun  time.Time
	killed time.Duration // after begun, of the first KILL
}

// step says whether KILL is due, and whether it has been sent in vain. The patience begins with the first KILL and not where the grace
// ends: a process that was held up meanwhile has sent none yet.
func (e *ending) step(since, grace time.Duration) (kill, vain bool) {
	if since < grace {
		return false, false
	}
	if e.killed == 0 {
		e.killed = max(since, 1)
	}
	return true, since-e.killed > killPatience
}

// tell sends one signal: TERM the first time, with CONT for what is stopped, and KILL as often as it takes.
func (s *seat) tell(p Process, kill bool, told map[identity]Process) {
	var err error
	switch {
	case kill:
		err = p.signal(syscall.SIGKILL)
	case told[p.identity()].PID == 0:
		told[p.identity()] = p
		// A session's end is told with HUP, which an interactive shell heeds and TERM it does not.
		err = errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGHUP), p.signal(syscall.SIGCONT))
	}
	if err != nil {
		s.log.Warn("process not signalled", logkey.PID, p.PID, logkey.Error, err)
	}
}

// conclude reads what the terminal still holds and keeps the exit.
func (s *seat) conclude(spared []Process) {
	_ = s.tty.Close()
	_ = s.ptmx.SetReadDeadline(time.Now().Add(drain))
	s.mu.Lock()
	for !s.readEOF {
		s.changed.Wait()
	}
	s.mu.Unlock()
	e := &Exit{At: time.Now(), LastLines: ClipLines(s.screen.Lines(maxLastLines))}
	switch {
	case s.status.Signaled():
		e.Signal = unix.SignalName(s.status.Signal())
	default:
		e.Code = s.status.ExitStatus()
	}
	if f, err := processes(); err == nil {
		alive := f.roots(spared)
		for _, p := range spared {
			if alive[p.PID] {
				e.Left = append(e.Left, p)
			}
		}
	}
	if err := writeJSON(here, exitFile, e); err != nil {
		s.log.Error("exit not kept", logkey.Error, err)
	}
	s.log.Info("agent ended", logkey.Code, e.Code, logkey.Signal, e.Signal, logkey.Count, len(e.Left))
	s.mu.Lock()
	s.exit = e
	s.changed.Broadcast()
	s.mu.Unlock()
}

// read takes the agent's output until its terminal is closed. Nothing in it waits for a viewer.
func (s *seat) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.ptmx.Read(buf)
		if n > 0 {
			s.mu.Lock()
			show := s.screen.Feed(buf[:n])
			if s.viewers > 0 {
				s.ring.write(show)
			}
			s.lastOut = time.Now()
			s.enqueue(typed{data: s.screen.Replies()})
			s.changed.Broadcast()
			s.mu.Unlock()
			s.stir()
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			// The seat holds the terminal open until the agent's tree is gone. EIO after that is the end of output, and so is the
			// deadline, when something that was left alone holds it still.
			s.mu.Lock()
			s.readEOF = true
			s.changed.Broadcast()
			s.mu.Unlock()
			return
		}
	}
}

// shut ends the goroutines that serve.
func (s *seat) shut() {
	_ = s.ptmx.Close()
	s.once.Do(func() { close(s.released) })
	s.mu.Lock()
	s.closing = true
	s.changed.Broadcast()
	s.mu.Unlock()
}

func (s *seat) info() *Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	cols, rows := s.screen.Size()
	return &Info{PID: s.record.Agent.PID, Started: s.record.Started, Cols: cols, Rows: rows, Exit: s.exit, Daemons: s.record.Daemons}
}

func (e Exit) String() string {
	if e.Signal != "" {
		return "signal " + e.Signal
	}
	return fmt.Sprintf("code %d", e.Code)
}
