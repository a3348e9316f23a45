package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/wire"
)

// waits are the pauses between tries, in seconds; the last one again and again.
var waits = [...]time.Duration{1, 2, 5, 10, 30}

// tryWithin bounds one try.
const tryWithin = 10 * time.Second

// errLeft says that the person left.
var errLeft = errors.New("left")

// errInput marks that what was piped in did not reach the agent, or nobody knows. It is not sent again, so nothing is tried again.
var errInput = errors.New("it is not sent again")

// session is what a visit does with an endpoint.Session.
type session interface {
	Next(context.Context) (endpoint.SessionEvent, error)
	Input([]byte) error
	Resize(cols, rows int) error
	Repaint() error
	Paced() bool
}

// sit takes the terminal over and stays at the agent's until the person leaves or the agent ends, over any number of sessions. The
// terminal is given back whatever happens.
func (v *visit) sit(ctx context.Context, e *command.Env, s *endpoint.Session) error {
	ctx, cancel := untilQuit(ctx)
	defer cancel()
	con, err := openConsole(ctx, e, v.view)
	if err != nil {
		_ = s.Close()
		return err
	}
	defer con.restore()
	con.pipe.stays = v.follow
	for tries := 0; ; tries++ {
		if s != nil {
			tries = 0
			err = v.watch(ctx, con, s)
			_ = s.Close()
			v.rest = con.pipe.rest()
			if passing(err) {
				err = cmp.Or(con.pipe.doubt(), err)
			}
		}
		switch {
		case err == io.EOF, errors.Is(err, errLeft), ctx.Err() != nil:
			v.detached = err != io.EOF
			v.poured = errors.Is(err, errLeft) && con.pipe.ended && ctx.Err() == nil
			return nil
		case v.exit != nil:
			return nil
		case errors.Is(err, wire.ErrNotFound): // it was there
			v.exit = &wire.SessionExit{Lost: true}
			return nil
		case v.once || !passing(err):
			return err
		}
		con.show.status(v.key.name + " leaves; not connected, trying again, what is typed is dropped: " + command.Safe(err.Error()))
		s, err = v.again(ctx, e, con, waits[min(tries, len(waits)-1)]*time.Second)
	}
}

// again waits, then tries once, and listens for the key that leaves meanwhile.
func (v *visit) again(ctx context.Context, e *command.Env, con *console, wait time.Duration) (*endpoint.Session, error) {
	type result struct {
		s   *endpoint.Session
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan result, 1)
	go func() { // is waited for below
		defer func() {
			if p := recover(); p != nil {
				done <- result{err: panicked("try again", p)}
			}
		}()
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			done <- result{err: ctx.Err()}
			return
		}
		ctx, cancel := context.WithTimeout(ctx, tryWithin)
		defer cancel()
		s, err := v.open(ctx, e)
		done <- result{s, err}
	}()
	typed := con.typed
	if con.piped {
		typed = nil // it waits
	}
	leave := func(err error) (*endpoint.Session, error) {
		cancel()
		if r := <-done; r.s != nil {
			_ = r.s.Close()
		}
		return nil, err
	}
	for {
		select {
		case r := <-done:
			cancel()
			return r.s, r.err
		case p := <-typed:
			if _, found := v.key.split(p); found && con.glass != nil {
				return leave(errLeft)
			}
		case err := <-con.failed:
			if err = con.over(err); err != nil {
				return leave(err)
			}
		case <-con.resized:
			con.glass.resize(con.size())
		case <-ctx.Done():
			return leave(errLeft)
		}
	}
}

// over is what the end of what is typed means: nothing where it was piped and not all of it is written, else that the terminal is gone.
func (c *console) over(err error) error {
	switch {
	case c.piped && err == io.EOF:
		c.typed = nil
		return c.pipe.end()
	case err == io.EOF:
		return errLeft
	}
	return err
}

// endSoon is how long what was piped in and refused waits for the end of the agent, which may be why.
const endSoon = 2 * time.Second

// watch shows one session. Its error is io.EOF at the agent's end, errLeft, or why the session is over.
func (v *visit) watch(ctx context.Context, con *console, s session) error {
	events, stop := pump(ctx, s.Next)
	defer stop()
	frame := time.NewTimer(time.Hour)
	defer frame.Stop()
	lost := false
	var refused error         // why not all that was piped in arrives
	var late <-chan time.Time // when that is all there is to say
	defer con.noteOver()
	con.pipe.begin(s.Paced())
	for {
		typed := con.typed
		if con.piped && (refused != nil || lost || con.pipe.held != nil || con.pipe.full()) {
			typed = nil
		}
		select {
		case ev := <-events:
			if ev.err != nil && refused != nil {
				return refused
			}
			if ev.err != nil {
				return ev.err
			}
			err := v.see(con, s, ev.SessionEvent, &lost)
			if err != nil && ev.Kind == endpoint.SessionDropped {
				if refused == nil {
					refused, late = err, time.After(endSoon)
				}
				err = nil
			}
			if err != nil {
				return err
			}
			if held := con.pipe.held; held != nil && ev.Kind == endpoint.SessionSnapshot {
				con.pipe.held = nil
				_ = v.enter(con, s, held) // it is no key
			}
			con.drawSoon(frame)
		case <-frame.C:
			if con.glass != nil && con.glass.dirty {
				con.glass.draw(time.Now())
			}
		case <-late:
			return refused
		case <-con.noted:
			con.noteOver()
		case p := <-typed:
			if err := v.enter(con, s, p); err != nil {
				return err
			}
		case err := <-con.failed:
			if err = con.over(err); err != nil {
				return err
			}
		case <-con.resized:
			cols, rows := con.size()
			con.glass.resize(cols, rows)
			if !v.view {
				_ = s.Resize(cols, rows) // without a connection, the size is told when it is back
			}
		case <-ctx.Done():
			return errLeft
		}
		if err := con.err(); err != nil {
			return fmt.Errorf("show the terminal: %w", err)
		}
	}
}

// drawSoon draws at once what was not drawn for a while, and else sets the timer.
func (c *console) drawSoon(frame *time.Timer) {
	if c.glass == nil || !c.glass.dirty {
		return
	}
	now := time.Now()
	if wait, _ := c.glass.wait(now); wait > 0 {
		frame.Reset(wait)
		return
	}
	c.glass.draw(now)
}

// see shows one event.
func (v *visit) see(con *console, s session, ev endpoint.SessionEvent, lost *bool) error {
	switch ev.Kind {
	case endpoint.SessionLost:
		*lost = true
		if v.once {
			v.cut = true
			return wire.Errorf(wire.CodeUnavailable, "attach to %q: the connection is lost", v.name)
		}
		if err := con.pipe.doubt(); err != nil {
			return err
		}
		con.noteOver()
		con.show.status(v.key.name + " leaves; the connection is lost; trying again, what is typed is dropped")
	case endpoint.SessionSnapshot:
		con.show.take(ev)
		if !v.greeted {
			v.greeted = true
			if con.glass != nil {
				con.note(v.key.name + " leaves, and " + command.Safe(target.AgentName(v.agent)) + " goes on")
			}
		}
		if cols, rows := con.size(); *lost && cols > 0 && !v.view {
			if c, r := con.glass.screen.Size(); c != cols || r != rows {
				_ = s.Resize(cols, rows) // the connection was lost again, which is told
			}
		}
		*lost = false
	case endpoint.SessionDropped:
		const dropped = "what was typed did not reach the agent, which takes no input at the moment"
		switch {
		case con.piped:
			return wire.Errorf(wire.CodeResourceExhausted, "type what is piped in: not all of it reached the agent, which takes no input at the moment: %w", errInput)
		case v.view, *lost: // nothing was typed, or the person reads already that it is dropped
		case con.glass != nil:
			con.note(dropped)
		default:
			con.show.status(dropped)
		}
	case endpoint.SessionWritten:
		return con.pipe.wrote(ev.Bytes)
	case endpoint.SessionEnded:
		v.exit = ev.Exit
		return io.EOF
	default:
		con.show.take(ev)
	}
	return nil
}

// enter passes on what was typed, up to the key that leaves. Without a connection that is dropped, but what was piped waits for the
// next snapshot.
func (v *visit) enter(con *console, s session, p []byte) error {
	found := false
	if con.glass != nil {
		p, found = v.key.split(p)
	}
	if !v.view && len(p) > 0 {
		switch err := s.Input(p); { // that the session is over, its events tell
		case err == nil && con.piped:
			con.pipe.sent(len(p))
		case err != nil && con.piped:
			con.pipe.held = p
			_ = s.Repaint() // so that a snapshot comes in any case
		}
	}
	if found {
		return errLeft
	}
	return nil
}

// event is one of a session, or why there are no more.
type event struct {
	endpoint.SessionEvent
	err error
}

// panicked is a panic of a goroutine as an error, for the one that owns the terminal: it gives that back before anything is said.
func panicked(doing string, value any) error {
	return wire.Errorf(wire.CodeInternal, "%s: %v\n%s", doing, value, debug.Stack())
}

// pump takes events one at a time, so that what is not shown yet is not acknowledged; stop ends it. A panic of next is the last event.
func pump(ctx context.Context, next func(context.Context) (endpoint.SessionEvent, error)) (events <-chan event, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ch, done := make(chan event), make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				select {
				case ch <- event{err: panicked("follow the session", p)}:
				case <-ctx.Done():
				}
			}
		}()
		for {
			ev, err := next(ctx)
			select {
			case ch <- event{ev, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return ch, func() {
		cancel()
		<-done
	}
}
