//go:build linux || darwin

package seat

import (
	"encoding/json"
	"net"
	"os"
	"sync"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

const (
	// maxConns bounds the connections to a seat.
	maxConns = 128
	// greet bounds the hello of a client.
	greet = 5 * time.Second
	// stuck is how long a client may leave a reply unread. A viewer may be slow for ever.
	stuck = 30 * time.Second
	// parting is how long a viewer may leave the rest unread once the seat is to end.
	parting = 2 * time.Second
)

// serve takes connections until the listener is closed, and waits for them.
func (s *seat) serve(l net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, maxConns)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case room <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-room }()
			s.connection(c.(*net.UnixConn))
		})
	}
}

func (s *seat) connection(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	_, uid, err := peer(c)
	if err != nil || uid != os.Getuid() {
		s.log.Warn("connection refused", logkey.Reason, "another user", logkey.Error, err)
		return
	}
	_ = c.SetDeadline(time.Now().Add(greet))
	var h hello
	if err := readJSONFrame(c, frameHello, &h); err != nil {
		return
	}
	answer := hello{V: Version, ID: s.spec.ID}
	if h.V != Version {
		answer.Error = wire.Errorf(wire.CodeUnsupportedVersion, "speak to seat: version %d, not %d", h.V, Version)
	}
	if err := writeJSONFrame(c, frameHello, answer); err != nil || answer.Error != nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	if h.View {
		s.view(c)
		return
	}
	s.control(c)
}

// conn is the writing side of a control connection.
type conn struct {
	*net.UnixConn
	mu sync.Mutex
}

func (c *conn) send(kind frameKind, v any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(stuck))
	if writeJSONFrame(c.UnixConn, kind, v) != nil {
		_ = c.Close()
	}
}

// control answers requests, and tells what was written and the exit when there is one.
func (s *seat) control(uc *net.UnixConn) {
	c := &conn{UnixConn: uc}
	var wg sync.WaitGroup
	defer wg.Wait()
	gone := false
	wg.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for told := uint64(0); !s.closing && !gone; {
			if s.written == told {
				s.changed.Wait()
				continue
			}
			told = s.written
			s.mu.Unlock()
			c.send(frameWritten, told)
			s.mu.Lock()
		}
	})
	wg.Go(func() {
		s.mu.Lock()
		for s.exit == nil && !s.closing && !gone {
			s.changed.Wait()
		}
		e := s.exit
		s.mu.Unlock()
		if e != nil {
			c.send(frameExit, e)
		}
		s.mu.Lock()
		for !s.closing && !gone {
			s.changed.Wait()
		}
		s.mu.Unlock()
		_ = c.Close()
	})
	for {
		kind, body, err := readFrame(uc)
		var r request
		if err != nil || kind != frameRequest || json.Unmarshal(body, &r) != nil {
			break
		}
		if r.Op == opStop {
			wg.Go(func() { c.send(frameReply, s.answer(r)) })
			continue
		}
		c.send(frameReply, s.answer(r))
	}
	s.mu.Lock()
	gone = true
	s.changed.Broadcast()
	s.mu.Unlock()
}

func (s *seat) answer(r request) reply {
	a := reply{ID: r.ID}
	var err error
	switch r.Op {
	case opInfo:
		a.Info = s.info()
	case opInput:
		a.Typed, err = s.typeIn(r.Data)
	case opWake:
		a.Woke, err = s.wake(r.Line, r.Quiet)
	case opResize:
		err = s.resize(r.Cols, r.Rows)
	case opLines:
		a.Lines = s.screen.Lines(r.N)
	case opStop:
		a.Exit, err = s.stop(r.Grace)
	case opRelease:
		err = s.release()
	default:
		err = wire.Errorf(wire.CodeUnimplemented, "ask seat: no operation %q", r.Op)
	}
	if err != nil {
		a.Error = wire.Errorf(wire.CodeOf(err), "%v", err)
	}
	return a
}

// stop has the owner of the processes end them.
func (s *seat) stop(grace time.Duration) (*Exit, error) {
	call := stopCall{max(grace, 0), make(chan error, 1)}
	ended := func() (*Exit, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.exit, s.exit != nil || s.closing
	}
	if e, ok := ended(); ok {
		return e, nil
	}
	select {
	case s.stops <- call:
	case <-s.released:
	}
	select {
	case err := <-call.done:
		e, _ := ended()
		return e, err
	case <-s.released:
		e, _ := ended()
		return e, nil
	}
}

func (s *seat) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exit == nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "release seat: the agent has not ended")
	}
	s.once.Do(func() { close(s.released) })
	return nil
}

// view sends what a viewer's terminal needs, until the agent ends or the viewer leaves. A viewer that is behind by more than the ring
// gets a snapshot, and one that does not read is left behind when the seat ends.
func (s *seat) view(c *net.UnixConn) {
	gone := false
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		var b [1]byte
		_, _ = c.Read(b[:]) // a viewer says nothing; this ends when it leaves
		s.mu.Lock()
		gone = true
		s.changed.Broadcast()
		s.mu.Unlock()
	})
	wg.Go(func() { // a write that nobody reads must not keep the seat
		s.mu.Lock()
		for !s.closing && !gone {
			s.changed.Wait()
		}
		s.mu.Unlock()
		_ = c.SetWriteDeadline(time.Now().Add(parting))
	})
	defer func() { _ = c.Close() }()
	s.mu.Lock()
	s.viewers++
	defer func() {
		s.viewers--
		if s.viewers == 0 {
			s.ring.forget()
		}
		s.mu.Unlock()
	}()
	v := viewer{at: -1, resizes: -1}
	for {
		for !v.behind(s) && s.exit == nil && !s.closing && !gone {
			s.changed.Wait()
		}
		if gone {
			return
		}
		frames := v.next(s)
		if frames == nil {
			if s.exit != nil {
				frames = appendFrame(nil, frameEnded)
				s.mu.Unlock()
				_, _ = c.Write(frames)
				s.mu.Lock()
			}
			return
		}
		s.mu.Unlock()
		_, err := c.Write(frames)
		s.mu.Lock()
		if err != nil {
			return
		}
	}
}

// viewer is how far a viewer is. The seat's mutex is held in its methods.
type viewer struct {
	at      int64 // place in the ring; -1 before the first snapshot
	resizes int
	buf     []byte
}

func (v *viewer) behind(s *seat) bool { return v.at != s.ring.end || v.resizes != s.resizes }

// next returns the frames that bring the viewer on, nil if it has everything.
func (v *viewer) next(s *seat) []byte {
	if !v.behind(s) {
		return nil
	}
	if v.buf == nil {
		v.buf = make([]byte, 32<<10)
	}
	if v.at >= 0 && v.resizes == s.resizes {
		if n, ok := s.ring.read(v.buf, v.at); ok {
			v.at += int64(n)
			return appendFrame(nil, frameOutput, v.buf[:n])
		}
	}
	cols, rows := s.screen.Size()
	size := sizeBytes(cols, rows)
	var frames []byte
	if v.at >= 0 && v.resizes != s.resizes {
		frames = appendFrame(nil, frameResized, size)
	}
	rest := s.screen.Snapshot()
	v.at, v.resizes = s.ring.end, s.resizes
	const most = maxFrame / 2
	for len(rest) > most {
		frames = appendFrame(frames, frameSnapshot, size, []byte{1}, rest[:most])
		rest = rest[most:]
	}
	return appendFrame(frames, frameSnapshot, size, []byte{0}, rest)
}
