package control

import (
	"sync"

	"github.com/cotal-go/cotal/wire"
)

// pool runs accepted jobs on a bounded number of goroutines, with a bounded queue before them. One principal may
// hold only a share of it, so that a caller in a loop cannot lock the others out.
type pool[J any] struct {
	limit, depth, share int
	owner               func(J) wire.Principal
	run                 func(J)

	mu      sync.Mutex // guards what follows
	closed  bool
	running int
	queue   fifo[J]
	held    map[wire.Principal]int // running and queued jobs of each principal
	parked  []chan J               // goroutines that wait for their next job

	wg sync.WaitGroup
}

// maxParked bounds the goroutines that a pool keeps between bursts. A parked one has its stack already grown.
const maxParked = 4

func newPool[J any](limit, depth, share int, owner func(J) wire.Principal, run func(J)) *pool[J] {
	return &pool[J]{limit: limit, depth: depth, share: share, owner: owner, run: run, held: map[wire.Principal]int{}}
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
	switch {
	case p.closed:
		return stopped
	case p.held[who] >= p.share:
		return overShare
	case p.running < p.limit:
		p.running++
		p.start(j)
	case p.queue.len() < p.depth:
		p.queue.push(j)
	default:
		return crowded
	}
	p.held[who]++
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

// work runs jobs until there is none and enough goroutines are parked. close ends a parked one.
func (p *pool[J]) work(j J) {
	next := make(chan J, 1)
	for ok := true; ok; {
		p.run(j)
		var wait bool
		if j, wait, ok = p.next(j, next); wait {
			j, ok = <-next
		}
	}
}

// next ends a job and takes another from the queue. Without one the goroutine parks (wait) or ends (not ok).
func (p *pool[J]) next(done J, own chan J) (j J, wait, ok bool) {
	who := p.owner(done)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[who]--; p.held[who] == 0 {
		delete(p.held, who)
	}
	if j, ok = p.queue.pop(); ok {
		return j, false, true
	}
	p.running--
	if p.closed || len(p.parked) >= maxParked {
		return j, false, false
	}
	p.parked = append(p.parked, own)
	return j, true, true
}

// load returns how many jobs run and wait.
func (p *pool[J]) load() (running, queued int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running, p.queue.len()
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
