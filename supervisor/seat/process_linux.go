package seat

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptsOrphans says that every orphan below a seat becomes the seat's own child.
const adoptsOrphans = true

// adoptOrphans makes this process the parent of every orphan below it.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// boot names the running boot of this machine.
func boot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// lookup returns the process that has the pid now. ok is false when there is none, or only one that ended and was not reaped yet.
func lookup(pid int) (proc, bool) {
	p, err := readStat(pid)
	return p, err == nil && !p.zombie
}

var errStat = errors.New("a stat file of /proc is not as expected")

// readStat fails with [os.ErrProcessDone] when there is no such process.
func readStat(pid int) (proc, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return proc{}, os.ErrProcessDone
	}
	if err != nil {
		return proc{}, err
	}
	// The second field is the command in parentheses and may hold anything, so the others are counted from its end.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return proc{}, errStat
	}
	f := bytes.Fields(stat[end+1:])
	if len(f) < 20 {
		return proc{}, errStat
	}
	number := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	started, _ := strconv.ParseInt(string(f[19]), 10, 64)
	return proc{
		Process: Process{PID: pid, Started: started, Name: string(stat[open+1 : end])},
		ppid:    number(1), pgid: number(2), sid: number(3),
		// One whose first thread has ended and that has others goes on, and reads Z too.
		zombie: f[0][0] == 'Z' && number(17) <= 1 || f[0][0] == 'X',
	}, nil
}

// processes looks at all processes.
func processes() (forest, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return forest{}, err
	}
	defer func() { _ = d.Close() }()
	entries, err := d.Readdirnames(-1)
	if err != nil {
		return forest{}, err
	}
	pids := make([]int, 0, len(entries))
	for _, name := range entries {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	all, err := lookAt(pids, readStat, below)
	return newForest(all), err
}

// lookAt looks at processes. What may not be looked at, where /proc is mounted with hidepid, is left out: it is of another user, whom no
// signal of this one reaches, or of a program that lets nobody see it, such as ssh-agent. Of those one may be ours, and is then below
// this process, the seat, as all of its tree are; ours tells. That one could not be looked at and is not gone, which is an error. Below a
// seat that was killed it is not known, as it is not without hidepid: its environment, with the marker, is hidden in any case.
func lookAt(pids []int, look func(int) (proc, error), ours func() map[int]bool) ([]proc, error) {
	all := make([]proc, 0, len(pids))
	var mine map[int]bool
	for _, pid := range pids {
		switch p, err := look(pid); {
		case err == nil:
			all = append(all, p)
		case errors.Is(err, os.ErrPermission):
			if mine == nil {
				mine = ours()
			}
			if mine[pid] {
				return nil, err
			}
		case !errors.Is(err, os.ErrProcessDone): // what could not be looked at is not gone
			return nil, err
		}
	}
	return all, nil
}

// below are the processes below this one that the kernel lists.
func below() map[int]bool {
	seen := map[int]bool{}
	childrenOf(os.Getpid(), &[]proc{}, seen)
	return seen
}

// ownChildren looks at this process's children and the agent's descendants only: much cheaper than all processes. It falls back to
// those where the kernel does not list children.
func ownChildren() (forest, error) {
	var all []proc
	if !childrenOf(os.Getpid(), &all, map[int]bool{}) {
		return processes()
	}
	return newForest(all), nil
}

// childrenOf adds all that descends from pid. It reports false if the kernel does not list children.
func childrenOf(pid int, all *[]proc, seen map[int]bool) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return len(seen) > 0
	}
	for _, t := range tasks {
		list, err := os.ReadFile(dir + t.Name() + "/children")
		if errors.Is(err, os.ErrNotExist) {
			if _, gone := os.Stat(dir + t.Name()); gone == nil {
				return false
			}
		}
		for f := range bytes.FieldsSeq(list) {
			child, err := strconv.Atoi(string(f))
			if err != nil || seen[child] {
				continue
			}
			seen[child] = true
			if p, err := readStat(child); err == nil {
				*all = append(*all, p)
				if !childrenOf(child, all, seen) {
					return false
				}
			}
		}
	}
	return true
}

// offspring are the children of this process but those spared, as the kernel lists them. Only the goroutine that calls this reaps them, so
// that the list loses none while it is read: when there are none, there were none when the reading began, and so nothing below them. One
// that has ended counts, since what it had started came here when it did, perhaps after that. Where the kernel does not list
// children there are none.
func offspring(spared []Process) []proc {
	dir := "/proc/self/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []proc
	for _, t := range tasks {
		list, err := os.ReadFile(dir + t.Name() + "/children")
		if err != nil {
			continue // the thread has ended, or there is no such file
		}
		for f := range bytes.FieldsSeq(list) {
			pid, err := strconv.Atoi(string(f))
			if err != nil {
				continue
			}
			p, err := readStat(pid)
			if err != nil { // not to be looked at; it is a child all the same
				p = proc{Process: Process{PID: pid}}
			}
			if !slices.ContainsFunc(spared, func(k Process) bool { return p.is(k) }) {
				out = append(out, p)
			}
		}
	}
	return out
}

// signal sends sig to the very process, or to nobody. The descriptor is taken before the check, so that the number cannot pass to
// another process in between.
func (p Process) signal(sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return p.signalByNumber(sig, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := lookup(p.PID); !ok || !now.is(p) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// signalByNumber is for kernels before 5.3, which have no process descriptors.
func (p Process) signalByNumber(sig syscall.Signal, why error) error {
	if !errors.Is(why, unix.ENOSYS) {
		return why
	}
	if now, ok := lookup(p.PID); !ok || !now.is(p) {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// owner returns the user of the process. The folder in /proc does not tell: it is root's when the program may not be read.
func (p Process) owner() (int, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" {
			return strconv.Atoi(f[1])
		}
	}
	return 0, errStat
}

// carries reports whether the process was started with the environment entry, as far as this user may know.
func (p Process) carries(entry string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/environ")
	if err != nil {
		return false
	}
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

// detached reports whether the process reads and writes nothing but the null device, as what makes itself a daemon does.
func (p Process) detached() bool {
	for _, fd := range []string{"0", "1", "2"} {
		to, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/fd/" + fd)
		if err == nil && to != "/dev/null" || err != nil && !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

// descriptors lists the open files of this process.
const descriptors = "/proc/self/fd"
