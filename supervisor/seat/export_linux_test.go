package seat

// LookAt looks at processes, of which some cannot be, and returns the pids of those that were seen. Ours are below the seat.
func LookAt(pids []int, failing map[int]error, ours ...int) (seen []int, err error) {
	all, err := lookAt(pids, func(pid int) (proc, error) {
		return proc{Process: Process{PID: pid}}, failing[pid]
	}, func() map[int]bool {
		out := map[int]bool{}
		for _, pid := range ours {
			out[pid] = true
		}
		return out
	})
	for _, p := range all {
		seen = append(seen, p.PID)
	}
	return seen, err
}
