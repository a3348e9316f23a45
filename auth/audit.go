package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// denialWindow is what denials are folded over.
	denialWindow = time.Minute
	// ownDenials is how many records of its own a principal has in a window, before the rest is counted.
	ownDenials = 30
	// mostFolds bounds what is told apart in a window, and mostWaiting the records that wait to be written.
	mostFolds   = 4096
	mostWaiting = 1024
	// denialWrite bounds one write, denialClose all that are left when a Denials is closed.
	denialWrite = 5 * time.Second
	denialClose = 2 * time.Second
)

// severalCallers is who acted in a record that stands for more than one of them.
const severalCallers = "several callers"

// Denials writes down what is decided at the doors of a space so that a storm does not fill the audit stream. Of what is about
// nobody, such as strangers, the first in a minute of each action, outcome and reason is written at once, and the others are
// counted in one record at the end of the minute. Of what is about one principal the first 30 in a minute are written at once.
// A record with a Count stands for so many, besides those with records of their own.
//
// Its memory is bounded: where there is more to tell apart in a minute than it keeps, and while records cannot be written,
// it counts. A count is never lost but for the end of the process; after a write of which it is not known whether it was
// stored it may be too high.
type Denials struct {
	write func(context.Context, space.AuditEvent) error
	log   *slog.Logger

	wake chan struct{}      // something waits
	stop context.CancelFunc // ends run
	done chan struct{}      // run has ended

	mu      sync.Mutex // guards those below; not held while writing
	window  time.Time  // its beginning
	folds   map[fold]*folded
	own     map[string]int // records of their own, by principal
	waiting []waiting
	closed  bool
	err     error // of the last write
}

// fold is what records are alike in.
type fold struct{ target, action, outcome, reason string }

// folded is what stands for them.
type folded struct {
	event       space.AuditEvent // the first
	count       uint64           // beyond those with records of their own
	first, last time.Time
}

// waiting is a record that is not written yet. One with a count says since when, and its detail is that of the first.
type waiting struct {
	event space.AuditEvent
	since time.Time
}

// NewDenials returns a Denials over write, such as the Append of a [space.Audit]. It must be closed. A nil logger discards. It
// panics when write is nil: what is not written down would be forgotten.
func NewDenials(write func(context.Context, space.AuditEvent) error, logger *slog.Logger) *Denials {
	if write == nil {
		panic("auth: NewDenials needs something that writes")
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	d := &Denials{
		write: write, log: logger, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
		folds: map[fold]*folded{}, own: map[string]int{},
	}
	go d.run(ctx) // Close waits for it
	return d
}

// Note writes or counts one decision. It does not wait for the broker. What is noted after Close is dropped.
func (d *Denials) Note(e space.AuditEvent) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.turn(time.Now())
	if d.single(e) {
		d.waiting = append(d.waiting, waiting{event: e})
		select {
		case d.wake <- struct{}{}:
		default:
		}
		return
	}
	d.count(e, e.At)
}

// single decides whether an event has a record of its own, and notes that it has.
func (d *Denials) single(e space.AuditEvent) bool {
	if e.Count > 0 || len(d.waiting) >= mostWaiting {
		return false
	}
	if e.Target == "" {
		k := foldOf(e)
		if d.folds[k] != nil || len(d.folds) >= mostFolds {
			return false
		}
		d.folds[k] = &folded{event: e}
		return true
	}
	n, known := d.own[e.Target]
	if n >= ownDenials || !known && len(d.own) >= mostFolds {
		return false
	}
	d.own[e.Target] = n + 1
	return true
}

func foldOf(e space.AuditEvent) fold {
	return fold{e.Target, e.Action, e.Outcome, string(e.Reason)}
}

// count puts an event into the fold that it belongs to. When there is no room for another it goes where only the action and
// the outcome are told apart.
func (d *Denials) count(e space.AuditEvent, since time.Time) {
	k := foldOf(e)
	if d.folds[k] == nil && len(d.folds) >= mostFolds {
		k = fold{action: e.Action, outcome: e.Outcome}
		e.Target, e.UID, e.Reason, e.By = "", "", "", severalCallers
	}
	f := d.folds[k]
	if f == nil {
		f = &folded{event: e}
		d.folds[k] = f
	}
	if f.count == 0 {
		f.first = since
	}
	if f.event.By != e.By {
		f.event.By = severalCallers
	}
	if f.event.UID != e.UID {
		f.event.UID = ""
	}
	f.count, f.last = f.count+max(e.Count, 1), e.At
}

// turn begins another window when it is time, and makes records of what was counted in the one before.
func (d *Denials) turn(now time.Time) {
	if w := now.Truncate(denialWindow); !w.Equal(d.window) {
		d.window = w
		d.flush()
	}
}

func (d *Denials) flush() {
	for _, f := range d.folds {
		if f.count == 0 {
			continue
		}
		e := f.event
		e.ID, e.At, e.Count = "", f.last, f.count
		d.waiting = append(d.waiting, waiting{e, f.first})
	}
	clear(d.folds)
	clear(d.own)
}

// run writes what waits, and looks after the end of each window, until it is stopped.
func (d *Denials) run(ctx context.Context) {
	defer close(d.done)
	for {
		next := time.NewTimer(time.Until(time.Now().Truncate(denialWindow).Add(denialWindow)))
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
			d.mu.Lock()
			d.turn(time.Now())
			d.mu.Unlock()
		case <-d.wake:
			next.Stop()
		}
		d.drain(ctx, denialWrite)
	}
}

// drain writes what waits, one after the other. What cannot be written is counted again, with all that waits behind it, and
// tried at the end of the window.
func (d *Denials) drain(ctx context.Context, each time.Duration) {
	for {
		d.mu.Lock()
		batch := d.waiting
		d.waiting = nil
		d.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for i, w := range batch {
			err := ctx.Err()
			if err == nil { // what is begun is finished, also when it is stopped meanwhile
				err = d.append(context.WithoutCancel(ctx), each, w)
			}
			if d.again(batch[i:], err) {
				return
			}
		}
	}
}

func (d *Denials) append(ctx context.Context, timeout time.Duration, w waiting) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	e := w.event
	if e.Count > 0 {
		const clock = "15:04:05"
		e.Detail = fmt.Sprintf("%d more from %s to %s UTC, of which the first: %s", e.Count, w.since.UTC().Format(clock), e.At.UTC().Format(clock), e.Detail)
	}
	err := d.write(ctx, e)
	if code := wire.CodeOf(err); code == wire.CodeBadRequest || code == wire.CodeUnsupportedVersion {
		d.log.Error("audit record is not of the schema", logkey.Principal, e.Target, logkey.Reason, e.Detail, logkey.Error, err)
		return nil // it never will be
	}
	return err
}

// again counts what could not be written, and reports whether it did.
func (d *Denials) again(batch []waiting, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil && !errors.Is(err, context.Canceled) && d.err == nil { // once, until it works again
		d.log.Error("audit records not written, they are counted", logkey.Count, len(batch), logkey.Error, err)
	}
	if d.err = err; err == nil {
		return false
	}
	for _, w := range append(batch, d.waiting...) {
		if w.event.Count == 0 {
			w.since = w.event.At
		}
		d.count(w.event, w.since)
	}
	d.waiting = nil
	return true
}

// Close writes what was counted and ends it. The error says that something could not be written, and so is lost.
func (d *Denials) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		<-d.done
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.stop()
	<-d.done
	ctx, cancel := context.WithTimeout(context.Background(), denialClose)
	defer cancel()
	d.mu.Lock()
	d.err = nil // what counts is how it ends
	d.flush()
	d.mu.Unlock()
	d.drain(ctx, denialClose)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return fmt.Errorf("close audit of denials: records lost: %w", d.err)
	}
	return nil
}
