package callout

// lanes are the questions that wait for a worker: those that nothing speaks against, and those from suspect addresses, which
// wait behind.
type lanes struct{ good, suspect chan *job }

// yieldEvery is how often a worker looks at the suspect lane first, so that it never stands still.
const yieldEvery = 8

func newLanes(size int) lanes {
	return lanes{good: make(chan *job, size), suspect: make(chan *job, size)}
}

// put reports whether there was room.
func (l lanes) put(j *job) bool {
	lane := l.good
	if j.suspect {
		lane = l.suspect
	}
	select {
	case lane <- j:
		return true
	default:
		return false
	}
}

// close lets the readers finish what waits. Nothing is put after it.
func (l lanes) close() {
	close(l.good)
	close(l.suspect)
}

// reader returns the function with which one worker takes the next question; false when there will be none.
func (l lanes) reader() func() (*job, bool) {
	n := 0
	return func() (*job, bool) {
		n++
		first, second := l.good, l.suspect
		if n%yieldEvery == 0 {
			first, second = second, first
		}
		select {
		case j, ok := <-first:
			if ok {
				return j, true
			}
		default:
			select {
			case j, ok := <-first:
				if ok {
					return j, true
				}
			case j, ok := <-second:
				if ok {
					return j, true
				}
			}
		}
		// One of them is closed, so both are: only what is left in either is to be had.
		for _, lane := range []chan *job{l.good, l.suspect} {
			if j, ok := <-lane; ok {
				return j, true
			}
		}
		return nil, false
	}
}
