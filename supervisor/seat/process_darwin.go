package seat

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptsOrphans says that orphans go to launchd here, so an agent's processes are also known by session, group and earlier looks.
const adoptsOrphans = false

func adoptOrphans() error { return nil }

// boot names the running boot of this machine.
func boot() (string, error) {
	t, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%06d", t.Sec, t.Usec), nil
}

// lookup returns the process that has the pid now. ok is false when there is none, or only one that ended and was not reaped yet.
func lookup(pid int) (proc, bool) {
	p, err := readStat(pid)
	return p, err == nil && !p.zombie
}

// readStat fails with [os.ErrProcessDone] when there is no such process.
func readStat(pid int) (proc, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid {
		return proc{}, os.ErrProcessDone
	}
	return fromKinfo(info), nil
}

func fromKinfo(k *unix.KinfoProc) proc {
	const zombie = 5 // SZOMB of sys/proc.h
	pid := int(k.Proc.P_pid)
	sid, err := unix.Getsid(pid)
	if err != nil {
		sid = 0
	}
	name, _, _ := bytes.Cut(k.Proc.P_comm[:], []byte{0})
	start := k.Proc.P_starttime
	return proc{
		Process: Process{PID: pid, Started: start.Sec*1_000_000 + int64(start.Usec), Name: string(name)},
		ppid:    int(k.Eproc.Ppid), pgid: int(k.Eproc.Pgid), sid: sid, zombie: k.Proc.P_stat == zombie,
	}
}

// processes looks at all processes of this user.
func processes() (forest, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.uid", os.Getuid())
	if err != nil {
		return forest{}, err
	}
	all := make([]proc, 0, len(list))
	for i := range list {
		all = append(all, fromKinfo(&list[i]))
	}
	return newForest(all), nil
}

func ownChildren() (forest, error) { return processes() }

// signal sends sig to the process if it is the very one still. The system has no handle that would close the gap between the look
// and the signal; it does not give a number out again that soon.
func (p Process) signal(sig syscall.Signal) error {
	if now, ok := lookup(p.PID); !ok || !now.is(p) {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// owner returns the user of the process.
func (p Process) owner() (int, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", p.PID)
	if err != nil {
		return 0, err
	}
	return int(info.Eproc.Ucred.Uid), nil
}

// carries reports whether the process was started with the environment entry, as far as this user may know.
func (p Process) carries(entry string) bool {
	raw, err := unix.SysctlRaw("kern.procargs2", p.PID)
	return err == nil && bytes.Contains(append(raw, 0), []byte("\x00"+entry+"\x00"))
}

// detached is not known here.
func (p Process) detached() bool { return false }

// descriptors lists the open files of this process.
const descriptors = "/dev/fd"

// offspring is not known here: orphans do not come to the seat.
func offspring([]Process) []proc { return nil }
