package account_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is one process as a look at /proc saw it.
type process struct {
	pid, ppid int
	started   string
	zombie    bool
	args, env []string
}

func (p process) String() string {
	return fmt.Sprintf("%d (parent %d, seat %q): %q", p.pid, p.ppid, p.variable("COTAL_SEAT"), p.args)
}

func (p process) variable(name string) string {
	for _, e := range p.env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// seat is the folder of the seat that the process is, empty for another one.
func (p process) seat() string {
	if len(p.args) == 3 && p.args[1] == "seat" && p.variable("COTAL_SEAT_PROCESS") != "" {
		return p.args[2]
	}
	return ""
}

// household are the processes whose home is the given one, and the zombies among their children.
func household(home string) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var ours, dead []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, ok := look(pid)
		switch {
		case !ok:
		case p.zombie:
			dead = append(dead, p)
		case slices.Contains(p.env, "HOME="+home):
			ours = append(ours, p)
		}
	}
	out := slices.Clone(ours)
	for _, z := range dead {
		if slices.ContainsFunc(ours, func(p process) bool { return p.pid == z.ppid }) {
			out = append(out, z)
		}
	}
	return out
}

func look(pid int) (process, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	end := bytes.LastIndexByte(stat, ')')
	if err != nil || end < 0 {
		return process{}, false
	}
	f := strings.Fields(string(stat[end+1:]))
	if len(f) < 20 {
		return process{}, false
	}
	ppid, _ := strconv.Atoi(f[1])
	p := process{pid: pid, ppid: ppid, started: f[19], zombie: f[0] == "Z"}
	if !p.zombie {
		p.args, p.env = split(filepath.Join(dir, "cmdline")), split(filepath.Join(dir, "environ"))
	}
	return p, f[0] != "X"
}

func split(path string) []string {
	b, err := os.ReadFile(path) // unreadable when it is another user's, or has just ended
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// running reports whether the very process runs.
func (p process) running() bool {
	now, ok := look(p.pid)
	return ok && !now.zombie && now.started == p.started
}

// status is a number of /proc/<pid>/status, such as VmRSS in KiB.
func status(pid int, field string) int {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == field+":" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

func files(pid int) int {
	entries, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	return len(entries)
}
