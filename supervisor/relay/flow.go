package relay

import (
	"context"
	"slices"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/wire"
)

// play shows the terminal to the viewer until ctx ends, which it does with the turn, or the agent.
func (s *session) play(ctx context.Context, turn uint32) {
	v, err := s.term.View(ctx)
	if err != nil {
		s.stopped(ctx, err)
		return
	}
	defer v.Close()
	for first := true; ; first = false {
		f, err := v.Next(ctx)
		if err != nil {
			s.stopped(ctx, err)
			return
		}
		switch f.Kind {
		case Snapshot:
			err = s.paint(ctx, turn, f, !first)
		case Output:
			err = s.pass(ctx, turn, f.Data)
		case Resized:
			err = s.tell(turn, wire.SessionFrame{Kind: wire.FrameResized, Cols: f.Cols, Rows: f.Rows}, 0)
		case Ended:
			s.agentEnded(turn, f.Exit)
			return
		}
		if err != nil {
			return
		}
	}
}

// stopped ends the session for a terminal that cannot be seen any more, unless ctx ended the view.
func (s *session) stopped(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.r.log.Warn("terminal not seen", logkey.UID, s.target, logkey.Error, err)
	code := wire.CodeOf(err)
	if code == wire.CodeInternal {
		code = wire.CodeUnavailable
	}
	s.finish(refusal(code, "the terminal of the agent cannot be seen"))
}

func (s *session) agentEnded(turn uint32, exit *wire.SessionExit) {
	x := wire.SessionExit{Lost: true}
	if exit != nil {
		x = *exit
		x.Fit()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == turn {
		s.finishLocked(wire.SessionFrame{Kind: wire.FrameEnded, Exit: &x}, time.Now())
	}
}

// paint sends a snapshot in pieces.
func (s *session) paint(ctx context.Context, turn uint32, f Frame, overflow bool) error {
	out := wire.SessionFrame{Kind: wire.FrameSnapshot, Cols: f.Cols, Rows: f.Rows, First: true, Overflow: overflow}
	for rest := f.Data; ; {
		n := min(len(rest), wire.MaxSessionData)
		out.Data, rest = rest[:n], rest[n:]
		out.Last = len(rest) == 0
		if err := s.await(ctx, turn, n); err != nil {
			return err
		}
		if err := s.tell(turn, out, n); err != nil || out.Last {
			return err
		}
		out.First = false
	}
}

// pass sends output.
func (s *session) pass(ctx context.Context, turn uint32, data []byte) error {
	for chunk := range slices.Chunk(data, wire.MaxSessionData) {
		if err := s.await(ctx, turn, len(chunk)); err != nil {
			return err
		}
		if err := s.tell(turn, wire.SessionFrame{Kind: wire.FrameOutput, Data: chunk}, len(chunk)); err != nil {
			return err
		}
	}
	return nil
}

// errVoid ends what belongs to a turn that is over.
var errVoid error = wire.Errorf(wire.CodeCancelled, "the viewer has begun anew, or left")

// tell sends a frame of a turn that counts n bytes.
func (s *session) tell(turn uint32, f wire.SessionFrame, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != turn || s.state.Load() != stateOpen {
		return errVoid
	}
	s.flow += uint64(n)
	s.say(f)
	return nil
}

// await waits until n more bytes may be under way.
func (s *session) await(ctx context.Context, turn uint32, n int) error {
	for {
		s.mu.Lock()
		void := s.turn != turn || s.state.Load() != stateOpen
		free := s.flow-s.acked+uint64(n) <= uint64(s.r.opts.Window)
		s.mu.Unlock()
		switch {
		case void:
			wake(s.room) // it may have been meant for the turn after this one
			return errVoid
		case free:
			return nil
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			return errVoid
		}
	}
}

// typist brings what was typed to the terminal, one piece after the other, until the session is over and nothing is left.
func (s *session) typist() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-s.work:
		case <-timer.C:
		case <-s.r.run.Done():
			return
		}
		batch, wait, over := s.typable(time.Now())
		for _, f := range batch {
			s.enter(f)
		}
		if over {
			return
		}
		timer.Reset(wait)
	}
}

// typable takes what waits for the terminal, and says when to look again for what is missing.
func (s *session) typable(now time.Time) (batch []wire.SessionFrame, wait time.Duration, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = time.Hour
	if since, missing := s.order.Missing(); missing && s.state.Load() == stateOpen {
		if wait = since.Add(gapWait).Sub(now); wait <= 0 {
			s.say(wire.SessionFrame{Kind: wire.FrameDropped}) // how much, nobody knows
			s.order.Skip(now, s.apply)
			wait = gapWait
		}
	}
	batch = join(s.typed)
	s.typed, s.typing = nil, 0
	return batch, max(wait, time.Millisecond), s.state.Load() == stateOver
}

// join puts neighbouring input together, as far as one piece may hold.
func join(frames []wire.SessionFrame) []wire.SessionFrame {
	var out []wire.SessionFrame
	for _, f := range frames {
		if n := len(out); n > 0 && f.Kind == wire.FrameInput && out[n-1].Kind == f.Kind && len(out[n-1].Data)+len(f.Data) <= wire.MaxSessionData {
			out[n-1].Data = append(slices.Clip(out[n-1].Data), f.Data...)
			continue
		}
		out = append(out, f)
	}
	return out
}

// enter brings one piece to the terminal.
func (s *session) enter(f wire.SessionFrame) {
	ctx, cancel := context.WithTimeout(s.r.run, typeWithin)
	defer cancel()
	if f.Kind == wire.FrameResize {
		s.resize(ctx, f.Cols, f.Rows)
		return
	}
	if s.pacer == nil {
		if err := s.term.Input(ctx, f.Data); err != nil {
			s.lose(uint64(len(f.Data)), err)
		}
		return
	}
	end, err := s.pacer.Type(ctx, f.Data)
	if err != nil {
		s.lose(uint64(len(f.Data)), err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = append(s.due, entered{end, uint64(len(f.Data))})
	wake(s.paces)
}

// lose tells that n bytes that were typed did not reach the terminal.
func (s *session) lose(n uint64, err error) {
	s.r.log.Warn("input not typed", logkey.UID, s.target, logkey.Error, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Load() == stateOpen {
		s.say(wire.SessionFrame{Kind: wire.FrameDropped, Bytes: n})
	}
}

// entered is n bytes of input that end, in the count of the terminal, at end.
type entered struct{ end, n uint64 }

// pace tells the viewer what of its input was written, until the session is over.
func (s *session) pace(ctx context.Context) {
	for {
		select {
		case <-s.paces:
		case <-ctx.Done():
			return
		}
		for end := s.nextDue(); end > 0; end = s.nextDue() {
			total, err := s.pacer.Written(ctx, end)
			if ctx.Err() != nil {
				return
			}
			if n := s.settle(total, err); err != nil {
				s.lose(n, err)
			}
		}
	}
}

// nextDue is where what was entered first and is not known to be written ends, 0 without any.
func (s *session) nextDue() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.due) == 0 {
		return 0
	}
	return s.due[0].end
}

// settle tells the viewer what was written when the terminal has written total. With an error it takes all that was entered for lost
// instead, and returns how much that is.
func (s *session) settle(total uint64, err error) (lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; len(s.due) > 0 && (err != nil || s.due[0].end <= total); s.due = s.due[1:] {
		if err != nil {
			lost += s.due[0].n
			continue
		}
		s.wrote += s.due[0].n
	}
	if err == nil && s.state.Load() == stateOpen {
		s.sayWritten()
	}
	return lost
}

// sayWritten tells how much of the viewer's input came and was written. mu is held.
func (s *session) sayWritten() {
	s.say(wire.SessionFrame{Kind: wire.FrameWritten, Taken: s.taken, Bytes: s.wrote})
}

// resize gives the terminal the size of the viewer, as far as an agent's goes: the rest of a larger one stays empty.
func (s *session) resize(ctx context.Context, cols, rows int) {
	if err := s.term.Resize(ctx, min(cols, term.MaxCols), min(rows, term.MaxRows)); err != nil && ctx.Err() == nil {
		s.r.log.Warn("terminal not resized", logkey.UID, s.target, logkey.Error, err)
	}
}
