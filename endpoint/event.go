package endpoint

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// Event tells what happened to an endpoint outside of any call. The types that implement it are the Event* types of
// this package; more may come.
type Event interface {
	fmt.Stringer
	attrs() []any
	level() slog.Level
}

// EventConnected says that the connection is back after it was lost.
type EventConnected struct {
	Server string // the broker's address, without credentials
}

// EventDisconnected says that the connection was lost; the endpoint keeps trying to come back.
type EventDisconnected struct {
	Err error // what the connection said, may be nil
}

// EventRefused says that the broker refused the credential; the endpoint asks its [Source] and keeps trying.
type EventRefused struct {
	Err error
}

// EventRenewed says that the endpoint now works with a newer credential.
type EventRenewed struct {
	Expires time.Time
}

// EventRenewalFailed says that a renewal did not happen. The old credential stays in use until it expires.
type EventRenewalFailed struct {
	Err     error
	Attempt int           // counts from 1 since the last success
	Wait    time.Duration // until the next try
	Expires time.Time     // of the credential in use
}

// EventGap says that live messages of one sender on one channel were missed. [Endpoint.History] reads them.
type EventGap struct {
	Sender  wire.Principal
	Channel string
	// From and To bound, inclusively, the stream sequences among which at least one message of this sender on
	// this channel was missed; To is the last of them.
	From, To uint64
	// Possible says that it is not certain: the connection was lost, or messages were dropped, before this sender was
	// heard for the first time on this channel, so that what came before may have been missed or may be older
	// than the subscription. From is then 1.
	Possible bool
}

// EventOverflow says that a handler was slower than its messages for so long that some were dropped. EventGap names
// them when the next one arrives.
type EventOverflow struct {
	Subject string
}

// EventDropped says that something received was not a message of this endpoint and was thrown away. From a direct or
// role queue it was also terminated: the broker will not deliver it again.
type EventDropped struct {
	Reason  wire.Reason
	Subject string // as the broker delivered it
	Err     error
}

// EventDenied says that the broker denied something that no call was waiting for, such as a subscription that its
// credential no longer covers.
type EventDenied struct {
	Subject string
	Err     *wire.Error
}

// EventPanic says that a handler panicked, or ended its goroutine as runtime.Goexit and a test's FailNow do. A direct or role
// message was given back to be delivered again, or was given up.
type EventPanic struct {
	Kind   wire.Kind
	Sender wire.Principal
	Value  any
	Stack  []byte
}

// EventGaveUp says that a message was not handled at the last of Options.MaxAttempts and is not shown again. A direct or
// role message becomes a dead letter, which an operator can put back: a direct one does so at once and carries the
// reason, one of a role is left to the other holders of the role until the broker's bound of deliveries is reached. A
// channel message counts as handled.
type EventGaveUp struct {
	Kind     wire.Kind
	Sender   wire.Principal
	ID       string
	Attempts int
	Reason   string
}

// EventQueueFull says that so many direct or role messages are handed out and not settled that the broker hands out no
// more. Nothing is lost: it goes on when they are settled, or come again after their ack wait.
type EventQueueFull struct {
	Kind    wire.Kind
	Pending int
}

// EventQueueLost says that direct or role messages cannot be fetched at the moment; the endpoint keeps trying.
type EventQueueLost struct {
	Kind wire.Kind
	Err  *wire.Error
}

// EventBackstop says whether what a membership misses is kept for it. When it is not Established the endpoint keeps trying;
// once it is, what was missed is shown if it was kept.
type EventBackstop struct {
	Pattern     string
	Established bool
	// Ahead says that what arrives live is shown from now on, as [Endpoint.Listen] does, and what was missed before it later.
	// Until then it waits, so that everything is shown in order.
	Ahead bool
	Err   error // why not
}

// EventCaughtUp says that a membership, or with an empty Pattern the reading of mentions, has shown what it had missed.
type EventCaughtUp struct {
	Pattern string
	Count   int // of the messages shown since it fell behind
}

// EventLoss says that messages of a membership, or with an empty Pattern mentions, were removed before this endpoint had read
// them. It is told before the messages that follow are shown, unless OnEvent takes longer than a second.
type EventLoss struct {
	Pattern string
	// Channel is set when it is known, which it is of a channel that was cleared.
	Channel string
	// From and To bound, inclusively, the stream sequences of what was removed. With wire.LossRetention other messages may
	// share the range, and it is possible that nothing of the membership was in it. Both are 0 of mentions whose channel is not
	// known.
	From, To uint64
	Reason   string // wire.LossRetention or wire.LossCleared
	Count    uint64 // how many, 0 when it is not known
	AtMost   bool   // Count is the most it can have been
}

// EventMembershipEnded says that a membership ended without this endpoint having ended it: it was left by another
// program of the same name, or the right to read is gone. Nothing of it is shown any more.
type EventMembershipEnded struct {
	Pattern string
	Err     error // nil when it was left
}

// EventsLost says that OnEvent was so slow that events were thrown away.
type EventsLost struct {
	Count int
}

func (e EventConnected) String() string { return fmt.Sprintf("connected to %q", e.Server) }
func (e EventDisconnected) String() string {
	if e.Err == nil {
		return "disconnected"
	}
	return fmt.Sprintf("disconnected: %v", e.Err)
}
func (e EventRefused) String() string { return fmt.Sprintf("credential refused: %v", e.Err) }
func (e EventRenewed) String() string {
	return "credential renewed until " + e.Expires.UTC().Format(time.RFC3339)
}
func (e EventRenewalFailed) String() string {
	return fmt.Sprintf("credential not renewed, attempt %d, next in %s: %v", e.Attempt, e.Wait, e.Err)
}
func (e EventGap) String() string {
	missed := "missed"
	if e.Possible {
		missed = "may have missed"
	}
	return fmt.Sprintf("%s messages of %s on channel %q between sequence %d and %d", missed, e.Sender, e.Channel, e.From, e.To)
}
func (e EventOverflow) String() string {
	return fmt.Sprintf("handler of %q too slow, messages dropped", e.Subject)
}
func (e EventDropped) String() string {
	return fmt.Sprintf("dropped what arrived on %q: %s: %v", e.Subject, e.Reason, e.Err)
}
func (e EventDenied) String() string { return fmt.Sprintf("denied: %v", e.Err) }
func (e EventPanic) String() string {
	return fmt.Sprintf("handler of a %s message from %s panicked: %v", e.Kind, e.Sender, e.Value)
}
func (e EventQueueLost) String() string {
	return fmt.Sprintf("cannot fetch %s messages: %v", e.Kind, e.Err)
}
func (e EventGaveUp) String() string {
	return fmt.Sprintf("%s message %q from %s: %s", e.Kind, e.ID, e.Sender, e.Reason)
}
func (e EventQueueFull) String() string {
	return fmt.Sprintf("%d %s messages wait to be settled, no more are handed out", e.Pending, e.Kind)
}
func (e EventBackstop) String() string {
	if e.Established {
		return fmt.Sprintf("what is missed on channels %q is kept", e.Pattern)
	}
	if e.Ahead {
		return fmt.Sprintf("joined channels %q live, backstop unestablished, what comes is shown before what was missed: %v", e.Pattern, e.Err)
	}
	return fmt.Sprintf("joined channels %q live, backstop unestablished: %v", e.Pattern, e.Err)
}
func (e EventCaughtUp) String() string {
	if e.Pattern == "" {
		return fmt.Sprintf("caught up with %d %s", e.Count, plural(uint64(e.Count), "mention"))
	}
	return fmt.Sprintf("caught up with %d %s of channels %q", e.Count, plural(uint64(e.Count), "message"), e.Pattern)
}
func (e EventMembershipEnded) String() string {
	if e.Err == nil {
		return fmt.Sprintf("membership of channels %q was ended elsewhere", e.Pattern)
	}
	return fmt.Sprintf("membership of channels %q ended: %v", e.Pattern, e.Err)
}
func (e EventsLost) String() string { return fmt.Sprintf("%d events lost", e.Count) }

func (e EventConnected) attrs() []any    { return []any{logkey.Server, e.Server} }
func (e EventDisconnected) attrs() []any { return []any{logkey.Error, e.Err} }
func (e EventRefused) attrs() []any      { return []any{logkey.Error, e.Err} }
func (e EventRenewed) attrs() []any      { return []any{logkey.Expires, e.Expires} }
func (e EventRenewalFailed) attrs() []any {
	return []any{logkey.Error, e.Err, logkey.Attempt, e.Attempt, logkey.Wait, e.Wait, logkey.Expires, e.Expires}
}
func (e EventGap) attrs() []any {
	return []any{logkey.Principal, e.Sender.String(), logkey.Channel, e.Channel, logkey.From, e.From, logkey.To, e.To, logkey.Possible, e.Possible}
}
func (e EventOverflow) attrs() []any { return []any{logkey.Subject, e.Subject} }
func (e EventDropped) attrs() []any {
	return []any{logkey.Reason, string(e.Reason), logkey.Subject, e.Subject, logkey.Error, e.Err}
}
func (e EventDenied) attrs() []any { return []any{logkey.Subject, e.Subject, logkey.Error, e.Err} }
func (e EventPanic) attrs() []any {
	return []any{logkey.Principal, e.Sender.String(), logkey.Error, fmt.Sprint(e.Value), logkey.Stack, string(e.Stack)}
}
func (e EventQueueLost) attrs() []any {
	return []any{logkey.Name, e.Kind.String(), logkey.Error, e.Err}
}
func (e EventGaveUp) attrs() []any {
	return []any{logkey.Name, e.Kind.String(), logkey.Principal, e.Sender.String(), logkey.Message, e.ID, logkey.Attempt, e.Attempts, logkey.Reason, e.Reason}
}
func (e EventQueueFull) attrs() []any {
	return []any{logkey.Name, e.Kind.String(), logkey.Count, e.Pending}
}
func (e EventBackstop) attrs() []any {
	return []any{logkey.Channel, e.Pattern, logkey.State, e.Established, logkey.Error, e.Err}
}
func (e EventCaughtUp) attrs() []any { return []any{logkey.Channel, e.Pattern, logkey.Count, e.Count} }
func (e EventLoss) attrs() []any {
	return []any{logkey.Channel, e.Pattern, logkey.From, e.From, logkey.To, e.To, logkey.Reason, e.Reason, logkey.Count, e.Count}
}
func (e EventMembershipEnded) attrs() []any {
	return []any{logkey.Channel, e.Pattern, logkey.Error, e.Err}
}
func (e EventsLost) attrs() []any { return []any{logkey.Count, e.Count} }

func (EventConnected) level() slog.Level     { return slog.LevelInfo }
func (EventDisconnected) level() slog.Level  { return slog.LevelWarn }
func (EventRefused) level() slog.Level       { return slog.LevelWarn }
func (EventRenewed) level() slog.Level       { return slog.LevelInfo }
func (EventRenewalFailed) level() slog.Level { return slog.LevelWarn }
func (EventGap) level() slog.Level           { return slog.LevelWarn }
func (EventOverflow) level() slog.Level      { return slog.LevelWarn }
func (EventDropped) level() slog.Level       { return slog.LevelDebug } // per message, whoever sends it
func (EventDenied) level() slog.Level        { return slog.LevelWarn }
func (EventPanic) level() slog.Level         { return slog.LevelError }
func (EventQueueLost) level() slog.Level     { return slog.LevelWarn }
func (EventGaveUp) level() slog.Level        { return slog.LevelWarn }
func (EventQueueFull) level() slog.Level     { return slog.LevelWarn }
func (e EventBackstop) level() slog.Level {
	if e.Established {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
func (EventCaughtUp) level() slog.Level        { return slog.LevelDebug }
func (EventLoss) level() slog.Level            { return slog.LevelWarn }
func (EventMembershipEnded) level() slog.Level { return slog.LevelWarn }
func (EventsLost) level() slog.Level           { return slog.LevelWarn }

// eventBacklog is how many events wait for a slow OnEvent.
const eventBacklog = 256

// events logs events and hands them to the program from one goroutine of its own, so that a slow or blocking
// OnEvent holds up nothing else.
type events struct {
	log *slog.Logger
	fn  func(Event)
	ch  chan Event
	end chan struct{}
	wg  sync.WaitGroup

	telling atomic.Bool // fn runs

	mu   sync.Mutex // guards lost
	lost int
}

func newEvents(log *slog.Logger, fn func(Event)) *events {
	ev := &events{log: log, fn: fn}
	if fn != nil {
		ev.ch, ev.end = make(chan Event, eventBacklog), make(chan struct{})
		ev.wg.Go(ev.run)
	}
	return ev
}

// emit never blocks.
func (ev *events) emit(e Event) {
	if level := e.level(); ev.log.Enabled(noContext, level) {
		ev.log.Log(noContext, level, "endpoint event", append(e.attrs(), logkey.Name, fmt.Sprintf("%T", e))...)
	}
	if ev.fn == nil {
		return
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.lost > 0 {
		select {
		case ev.ch <- EventsLost{Count: ev.lost}:
			ev.lost = 0
		default:
		}
	}
	select {
	case ev.ch <- e:
	default:
		ev.lost++
	}
}

func (ev *events) run() {
	for {
		select {
		case e := <-ev.ch:
			ev.call(e)
		case <-ev.end:
			for { // what was emitted before the end is still told
				select {
				case e := <-ev.ch:
					ev.call(e)
				default:
					ev.confess()
					return
				}
			}
		}
	}
}

// confess tells what was lost and not told yet.
func (ev *events) confess() {
	ev.mu.Lock()
	lost := ev.lost
	ev.lost = 0
	ev.mu.Unlock()
	if lost > 0 {
		ev.call(EventsLost{Count: lost})
	}
}

func (ev *events) call(e Event) {
	if f, ok := e.(fence); ok {
		close(f)
		return
	}
	ev.telling.Store(true)
	defer func() {
		ev.telling.Store(false)
		if v := recover(); v != nil {
			ev.log.Error("event handler panicked", logkey.Error, fmt.Sprint(v), logkey.Name, fmt.Sprintf("%T", e))
		}
	}()
	ev.fn(e)
}

// close ends the goroutine after the events that wait and returns a channel that closes then.
func (ev *events) close() <-chan struct{} {
	done := make(chan struct{})
	if ev.fn == nil {
		close(done)
		return done
	}
	close(ev.end)
	go func() {
		ev.wg.Wait()
		close(done)
	}()
	return done
}
