package control

import (
	"sync"

	"github.com/cotal-go/cotal/wire"
)

// pool runs accepted jobs on a bounded number of goroutines, with a bounded queue before them. One principal may
// hold only a share of it, and run at most three quarters of what runs, and the queue is taken from the principals in
// turn: so a caller in a loop cannot lock the others out, nor have them wait for more than what runs.
type pool[J any] struct {
	limit, depth, share int
	each                int // jobs of one principal that may run
	owner               func(J) wire.Principal
	run                 func(J)
	answer              func(j J, busy bool) // follows run, when the job is no longer counted; busy: others are

	mu      sync.Mutex // guards what follows
	closed  bool
	running int
	queued  int
	stakes  map[wire.Principal]stake[J] // of those who have any job here
	turns   fifo[wire.Principal]        // who has queued jobs, each once, the next first
	parked  []chan J                    // goroutines that wait for their next job

	wg sync.WaitGroup
}

// stake is what one principal has in the pool.
type stake[J any] struct {
	held, runs int // all its jobs, and those that run
	queue      fifo[J]
}

// maxParked bounds the goroutines that a pool keeps between bursts. A parked one has its stack already grown.
const maxParked = 16

func newPool[J any](limit, depth, share int, owner func(J) wire.Principal, run func(J), answer func(J, bool)) *pool[J] {
	return &pool[J]{
		limit: limit, depth: depth, share: share, each: limit - limit/4, owner: owner, run: run, answer: answer,
		stakes: map[wire.Principal]stake[J]{},
	}
}

// verdict is the answer of submit.
type verdict int

const (
	accepted  verdict = iota
	crowded           // running and queue are at their limits
	overShare         // the principal holds its share
	stopped           // the pool takes no more
)

// submit accepts a job or says why not. It never blocks. An accepted job runs, also when the pool is closed
// afterwards.
func (p *pool[J]) submit(j J) verdict {
	who := p.owner(j)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.stakes[who]
	switch {
	case p.closed:
		return stopped
	case l.held >= p.share:
		return overShare
	case p.running < p.limit && l.runs < p.each: // then it has none that waits, see next
		p.running++
		l.runs++
		p.start(j)
	case p.queued < p.depth:
		if l.queue.len() == 0 {
			p.turns.push(who)
		}
		l.queue.push(j)
		p.queued++
	default:
		return crowded
	}
	l.held++
	p.stakes[who] = l
	return accepted
}

// start gives the job to a parked goroutine or to a new one. The lock is held.
func (p *pool[J]) start(j J) {
	if n := len(p.parked); n > 0 {
		p.parked[n-1] <- j // buffered, and empty while parked
		p.parked = p.parked[:n-1]
		return
	}
	p.wg.Go(func() { p.work(j) })
}

// work runs jobs until there is none and enough goroutines are parked. close ends a parked one. A job leaves the books
// before its answer leaves: a caller that has its answer must not find itself counted as still asking.
func (p *pool[J]) work(j J) {
	own := make(chan J, 1)
	for ok := true; ok; {
		p.run(j)
		st := p.next(j, own)
		p.answer(j, st.busy)
		if j, ok = st.job, st.more; st.wait {
			j, ok = <-own
		}
	}
}

// step is what a goroutine does after a job: run another (more), wait for one, or end.
type step[J any] struct {
	job        J
	more, wait bool
	busy       bool // other jobs run or wait
}

// next takes a job off the books and the following one from the queue. Who waits while not all run has its part of those
// that run, so ending one lets at most one begin.
func (p *pool[J]) next(done J, own chan J) (st step[J]) {
	who := p.owner(done)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.stakes[who]
	l.held, l.runs = l.held-1, l.runs-1
	p.put(who, l)
	st.busy = p.running > 1
	if st.job, st.more = p.turn(); st.more {
		return st
	}
	p.running--
	if !p.closed && len(p.parked) < maxParked {
		p.parked = append(p.parked, own)
		st.wait = true
	}
	return st
}

// turn takes the first queued job of the first in turn who may run one more, and puts it last.
func (p *pool[J]) turn() (j J, ok bool) {
	for range p.turns.len() {
		who, _ := p.turns.pop()
		l := p.stakes[who]
		if l.runs < p.each {
			j, ok = l.queue.pop()
			l.runs++
			p.queued--
			p.put(who, l)
		}
		if l.queue.len() > 0 {
			p.turns.push(who)
		}
		if ok {
			return j, true
		}
	}
	return j, false
}

func (p *pool[J]) put(who wire.Principal, l stake[J]) {
	if l.held == 0 {
		delete(p.stakes, who)
		return
	}
	p.stakes[who] = l
}

// load returns how many jobs run and wait.
func (p *pool[J]) load() (running, queued int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running, p.queued
}

// close refuses further jobs. Those accepted still run; wait returns after them.
func (p *pool[J]) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, ch := range p.parked {
		close(ch)
	}
	p.parked = nil
}

// wait returns when no goroutine of the pool is left. Call close before.
func (p *pool[J]) wait() { p.wg.Wait() }

// fifo is a queue that reuses its memory.
type fifo[J any] struct {
	items []J
	head  int
}

func (q *fifo[J]) len() int { return len(q.items) - q.head }

func (q *fifo[J]) push(j J) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, j)
}

func (q *fifo[J]) pop() (j J, ok bool) {
	if q.len() == 0 {
		return j, false
	}
	var zero J
	j, q.items[q.head] = q.items[q.head], zero
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return j, true
}
