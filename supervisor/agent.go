package supervisor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// agent is one agent of a keeper. The goroutine of run alone changes it; others send it events and read what it is.
type agent struct {
	k       *Keeper
	dir     string
	uid     wire.UID
	parent  wire.UID
	created time.Time
	mail    mailbox
	tasks   sync.WaitGroup // what run has started
	idle    chan struct{}  // closed when run is over, or never begins: nothing is read any more

	saving    sync.Mutex // of one change and its file at a time; taken before mu
	launching sync.Mutex // of one change of the launch file at a time

	mu      sync.Mutex // guards what follows
	rec     record
	changed chan struct{} // closed and replaced whenever rec changes
	seat    Seat          // of the present run, nil while none is known
	fresh   *material     // of the grant, for the first start
	heldBy  int           // agents of other supervisors that its retirement waits for
	saveErr error
}

func newAgent(k *Keeper, dir string, rec *record) *agent {
	a := &agent{
		k: k, dir: dir, uid: rec.UID, parent: rec.ParentUID, created: rec.Created, rec: *rec,
		mail: mailbox{ready: make(chan struct{}, 1)}, idle: make(chan struct{}), changed: make(chan struct{}),
	}
	if rec.settled() {
		close(a.idle)
	}
	return a
}

// mailbox holds the events that wait for the goroutine of an agent. Who puts one never waits.
type mailbox struct {
	mu    sync.Mutex // guards queue
	queue []letter
	ready chan struct{} // holds one token while there may be something
}

// letter is an event on its way, and what is closed once it was applied.
type letter struct {
	Event
	read chan struct{}
}

func (m *mailbox) put(l letter) {
	m.mu.Lock()
	m.queue = append(m.queue, l)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.queue
	m.queue = nil
	return all
}

// send tells the agent what happened, at now unless the event says when. What it returns is closed once that was applied; it never is
// when the agent is idle before.
func (a *agent) send(e Event) (read <-chan struct{}) {
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	l := letter{e, make(chan struct{})}
	a.mail.put(l)
	return l.read
}

// awaitRead waits until what was sent is applied, or never will be, or ctx ends.
func (a *agent) awaitRead(ctx context.Context, read <-chan struct{}) {
	select {
	case <-read:
	case <-a.idle:
	case <-ctx.Done():
	}
}

// endLinger has an agent that lingers retired, unless it is started again before it reads that.
func (a *agent) endLinger() {
	if s := a.snapshot().State; s.lingers() {
		a.send(Event{Kind: EventStop, Run: s.Runs})
	}
}

// snapshot returns a copy of the record, whose lists must not be changed.
func (a *agent) snapshot() record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec
}

// watchChange returns a copy and what is closed at the next change.
func (a *agent) watchChange() (record, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec, a.changed
}

// update changes the record, keeps it, and wakes who waits for a change.
func (a *agent) update(change func(*record)) error {
	a.saving.Lock() // an older record must not be written over a newer one
	defer a.saving.Unlock()
	a.mu.Lock()
	change(&a.rec)
	rec := a.rec
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	err := saveRecord(a.dir, &rec)
	a.mu.Lock()
	a.saveErr = err
	a.mu.Unlock()
	if err != nil {
		a.k.log.Error("agent not kept", logkey.UID, string(a.uid), logkey.Error, err)
	}
	return err
}

// keep writes the record unless the last change is on disk.
func (a *agent) keep() error {
	a.mu.Lock()
	kept := a.saveErr == nil
	a.mu.Unlock()
	if kept {
		return nil
	}
	return a.update(func(*record) {})
}

// run owns the agent until it is retired or ctx ends, and returns when all that it started has stopped.
func (a *agent) run(ctx context.Context) {
	defer close(a.idle)
	defer a.close()
	defer a.tasks.Wait()
	if !a.find(ctx) {
		return
	}
	for {
		rec := a.snapshot()
		if rec.settled() {
			return
		}
		due, stopDue := timerAt(rec.State.Due)
		renew, stopRenew := timerAt(a.renewAt(&rec))
		select {
		case <-ctx.Done():
		case <-a.mail.ready:
			for _, l := range a.mail.take() {
				a.step(ctx, l.Event)
				close(l.read)
			}
		case <-due:
			a.step(ctx, Event{Kind: EventDue, At: time.Now().UTC()})
		case <-renew:
			a.renew(ctx)
		}
		stopDue()
		stopRenew()
		if ctx.Err() != nil {
			return
		}
	}
}

// timerAt returns a channel that fires at a time, never for the zero time.
func timerAt(at time.Time) (<-chan time.Time, func()) {
	if at.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(at))
	return t.C, func() { t.Stop() }
}

// close lets go of the seat. The agent goes on.
func (a *agent) close() {
	a.mu.Lock()
	seat := a.seat
	a.seat = nil
	a.mu.Unlock()
	if seat != nil {
		closeSeat(seat, false)
	}
}

// closeTimeout bounds the leave that is taken of a seat.
const closeTimeout = 2 * time.Second

func closeSeat(s Seat, release bool) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.Close(ctx, release) // a seat that does not hear ends by itself
}

// step applies one event: the new state is on disk before anything is done about it, or start sees to that before it makes a process.
func (a *agent) step(ctx context.Context, e Event) {
	before := a.snapshot()
	next, actions := Next(before.State, before.Rules, e)
	if len(actions) == 0 && sameState(before.State, next) {
		return
	}
	_ = a.update(func(r *record) { r.State = next }) // said by update; what is not on disk yet is written by the next change
	a.tell(before.State, next)
	for _, act := range actions {
		a.do(ctx, act)
	}
	if e.Kind == EventStarted {
		a.k.judge(a, time.Now()) // it may have been seen before its seat said so
	}
	if ended(next) && (!ended(before.State) || before.State.Grant != next.Grant) {
		a.k.parentEnded(a.uid)
	}
	if next.lingers() && !before.State.lingers() {
		a.k.lingers(a)
	}
	if next.Grant == GrantRetired {
		a.k.settled(a)
	}
}

func sameState(a, b State) bool {
	return a.Phase == b.Phase && a.Reason == b.Reason && a.Trouble == b.Trouble && a.Goal == b.Goal && a.Process == b.Process &&
		a.Begun == b.Begun && a.PID == b.PID && a.Runs == b.Runs && a.Due.Equal(b.Due) && a.Grant == b.Grant && a.Tries == b.Tries &&
		a.Grace == b.Grace && a.Started.Equal(b.Started)
}

// ended says that an agent will not run again by itself, or is made to end.
func ended(s State) bool {
	return s.over() || s.Phase == wire.AgentStopping && s.Goal == GoalEnd
}

// tell reports a change to the log and to whoever follows.
func (a *agent) tell(was, is State) {
	c := &a.k.counts
	switch {
	case was.Process != wire.ProcessRunning && is.Process == wire.ProcessRunning:
		c.started.Add(1)
	case is.Process == wire.ProcessLost && !is.Begun && (was.Process != wire.ProcessLost || was.Begun):
		c.lost.Add(1)
		c.ended.Add(1)
	case is.Process == wire.ProcessExited && was.Process != wire.ProcessExited:
		c.ended.Add(1)
	}
	if is.Restarts > was.Restarts {
		c.restarted.Add(1)
	}
	if is.Grant == GrantRetired && was.Grant != GrantRetired {
		c.retired.Add(1)
	}
	if is.Phase != was.Phase {
		rec := a.snapshot()
		a.k.log.Info("agent changed", logkey.Principal, rec.Principal, logkey.UID, string(a.uid), logkey.State, is.Phase, logkey.Reason, is.Reason)
	}
	a.k.publish(a)
}

// do carries out an action. What takes time runs beside, and tells its outcome as an event.
func (a *agent) do(ctx context.Context, act Action) {
	s := a.snapshot().State
	switch act {
	case ActStart:
		a.tasks.Go(func() { a.start(ctx, s.Runs) })
	case ActStop:
		a.tasks.Go(func() { a.stop(ctx, s.Runs, s.Grace) })
	case ActSuspend:
		a.tasks.Go(func() { a.suspend(ctx, s.Runs) })
	case ActRetire:
		a.tasks.Go(func() { a.retire(ctx) })
	}
}

// stop ends the process. That it has ended is told by watch.
func (a *agent) stop(ctx context.Context, run int, grace time.Duration) {
	a.mu.Lock()
	seat := a.seat
	a.mu.Unlock()
	if seat == nil {
		a.send(Event{Kind: EventNotStopped, Run: run, Reason: "its seat does not answer yet"})
		return
	}
	limited, cancel := context.WithTimeout(ctx, grace+stopTimeout)
	defer cancel()
	_, err := seat.Stop(limited, grace)
	switch {
	case err == nil:
	case limited.Err() == nil:
		a.send(Event{Kind: EventNotStopped, Run: run, Reason: "not known to have ended: " + err.Error()})
	case ctx.Err() == nil:
		a.endUnheard(ctx, run) // it may be stopped: who runs in it can do that
		a.send(Event{Kind: EventNotStopped, Run: run, Reason: "its seat did not say in time that it has ended"})
	}
}

// stopTimeout is what a stop may take beyond its grace.
const stopTimeout = 10 * time.Second

// watch waits for the end of a run and tells it. A seat that is gone without a word may have left something, which is ended first.
func (a *agent) watch(ctx context.Context, seat Seat, run int) {
	select {
	case <-ctx.Done():
		return
	case <-seat.Done():
	}
	exit, ok := seat.Exit()
	if !ok {
		exit, ok = a.k.opts.Seats.Ended(seatDir(a.dir, run))
	}
	if !ok && !a.sweep(ctx, run, Ending{Lost: true}) {
		return
	}
	if ok {
		a.over(run, exit)
	}
	a.mu.Lock()
	if a.seat == seat {
		a.seat = nil
	}
	a.mu.Unlock()
	closeSeat(seat, ok)
}

// over tells how a run ended.
func (a *agent) over(run int, exit SeatExit) {
	_ = a.update(func(r *record) { // what is told with it; the end itself is kept by step
		r.LastLines, r.Left = seat.ClipLines(exit.LastLines), exit.Left
	})
	at := exit.At
	if at.IsZero() {
		at = time.Now()
	}
	a.send(Event{Kind: EventEnded, Run: run, At: at.UTC(), Ending: exit.Ending})
}

// retake adopts the seat of a run that goes on after all: only the connection to it was lost.
func (a *agent) retake(ctx context.Context, run int) bool {
	seat, err := a.k.opts.Seats.Open(ctx, seatDir(a.dir, run))
	if err != nil {
		return false
	}
	if a.take(ctx, seat, run) {
		return true
	}
	closeSeat(seat, false)
	return false
}

// sweep ends what a seat that is gone has left, until that is known to be nothing, and then tells that the run is lost; a seat that
// runs after all is adopted again. It reports false when ctx ended before.
func (a *agent) sweep(ctx context.Context, run int, how Ending) bool {
	for try := 0; ; try++ {
		n, err := a.k.opts.Seats.Sweep(ctx, seatDir(a.dir, run), DefaultGrace)
		a.k.counts.swept.Add(int64(n))
		if err == nil {
			a.k.log.Warn("seat lost", logkey.UID, string(a.uid), logkey.Count, n)
			a.over(run, SeatExit{Ending: how, At: time.Now()})
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if errors.Is(err, wire.ErrPrecondition) && a.retake(ctx, run) {
			return true
		}
		a.k.log.Warn("what a lost seat left is not ended yet", logkey.UID, string(a.uid), logkey.Error, err)
		kind := EventLost
		if errors.Is(err, wire.ErrPrecondition) { // it runs, and cannot be reached at the moment
			kind = EventTrouble
			a.endUnheard(ctx, run)
		}
		a.send(Event{Kind: kind, Run: run, Reason: "what its seat left is not ended yet: " + err.Error()})
		if pause.For(ctx, backoff(try)) != nil {
			return false
		}
	}
}

// backoff is how long to wait after a try, from 0: half a second, doubling up to 30 s.
func backoff(try int) time.Duration { return min(500*time.Millisecond<<min(try, 10), 30*time.Second) }
