//go:build linux || darwin

package seat

import "time"

// Seen is a process as a look saw it.
type Seen struct {
	PID, Parent, Session int
	Zombie               bool
}

// DaemonsOf are the pids of the daemons below root.
func DaemonsOf(root, agent int, seen ...Seen) (pids []int) {
	var all []proc
	for _, s := range seen {
		all = append(all, proc{Process: Process{PID: s.PID, Started: 1}, ppid: s.Parent, pgid: s.PID, sid: s.Session, zombie: s.Zombie})
	}
	for _, d := range newForest(all).daemons(root, Process{PID: agent, Started: 1}) {
		pids = append(pids, d.PID)
	}
	return pids
}

// InVain returns whether KILL is due, and given up as in vain, at each time after the beginning of an end.
func InVain(grace time.Duration, at ...time.Duration) (kill, vain []bool) {
	var e ending
	for _, since := range at {
		k, v := e.step(since, grace)
		kill, vain = append(kill, k), append(vain, v)
	}
	return kill, vain
}

// KillPatience is how long the tree may take to be gone after the first KILL.
const KillPatience = killPatience

// CollectLast is what a client does about a seat whose connection ended.
func CollectLast(pid int) error {
	p, err := readStat(pid)
	if err == nil {
		collectLast(p.Process)
	}
	return err
}

// Unsent types chunks of keys, each so long after the one before, and returns whether an unsent line stands so long after the last of
// them, and for how long one does at most.
func Unsent(each time.Duration, keys ...string) (stands func(later time.Duration) bool, limit time.Duration) {
	u, now := unsent{}, time.Unix(1<<30, 0)
	for _, k := range keys {
		now = now.Add(each)
		u.typed([]byte(k), now)
	}
	return func(later time.Duration) bool { return u.stands(now.Add(later)) }, unsentStands
}
