package seat

// proc is one process as a look at the system saw it.
type proc struct {
	Process
	ppid, pgid, sid int
	zombie          bool
}

func (p proc) is(o Process) bool { return p.identity() == o.identity() }

// identity is what stays the same of a process as long as it runs. Its name does not.
type identity struct {
	pid     int
	started int64
}

func (p Process) identity() identity { return identity{p.PID, p.Started} }

// forest is one look at all processes.
type forest struct {
	byPID    map[int]proc
	children map[int][]int
}

func newForest(all []proc) forest {
	f := forest{make(map[int]proc, len(all)), make(map[int][]int, len(all))}
	for _, p := range all {
		f.byPID[p.PID] = p
		f.children[p.ppid] = append(f.children[p.ppid], p.PID)
	}
	return f
}

// below adds to into every descendant of pid that is not in without, nor below one that is.
func (f forest) below(pid int, without, into map[int]bool) {
	for _, c := range f.children[pid] {
		if !without[c] && !into[c] {
			into[c] = true
			f.below(c, without, into)
		}
	}
}

// roots are the pids of those of known that still run.
func (f forest) roots(known []Process) map[int]bool {
	out := map[int]bool{}
	for _, k := range known {
		if p, ok := f.byPID[k.PID]; ok && p.is(k) && !p.zombie {
			out[k.PID] = true
		}
	}
	return out
}

// tree are the processes of the agent, those spared and all below them left out. On linux all of them descend from the seat, which
// takes in every orphan. Where no process takes in orphans they are also known by the agent's session and group, and by an earlier
// look, in known. A process that has ended and was not reaped yet does not count.
func (f forest) tree(seat int, agent Process, spared, known []Process) []proc {
	without := f.roots(spared)
	in := map[int]bool{}
	if adoptsOrphans {
		f.below(seat, without, in)
	} else {
		for pid := range f.roots(append(known[:len(known):len(known)], agent)) {
			if !without[pid] {
				in[pid] = true
				f.below(pid, without, in)
			}
		}
		off := map[int]bool{}
		for pid := range without {
			off[pid] = true
			f.below(pid, nil, off)
		}
		for pid, p := range f.byPID {
			if (p.sid == agent.PID || p.pgid == agent.PID) && !off[pid] && pid != seat {
				in[pid] = true
				f.below(pid, without, in)
			}
		}
	}
	var out []proc
	for pid := range in {
		if p := f.byPID[pid]; !p.zombie && pid != seat {
			out = append(out, p)
		}
	}
	return out
}

// daemons are the children of root that have a session of their own, which no living process of the agent leads: what the agent
// started and what then made itself a daemon. Root is the seat.
func (f forest) daemons(root int, agent Process) []proc {
	agents := map[int]bool{agent.PID: true}
	f.below(agent.PID, nil, agents)
	var out []proc
	for _, pid := range f.children[root] {
		p := f.byPID[pid]
		if p.zombie || p.PID == agent.PID || p.sid == agent.PID || p.pgid == agent.PID {
			continue
		}
		if lead, ok := f.byPID[p.sid]; ok && agents[p.sid] && !lead.zombie && p.sid != p.PID {
			continue // of a session that the agent opened, such as that of a shell in another terminal
		}
		out = append(out, p)
	}
	return out
}

func names(ps []proc) []Process {
	var out []Process
	for _, p := range ps {
		out = append(out, p.Process)
	}
	return out
}
