package seat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// callTimeout bounds a call whose context has no deadline, but for Stop, which has its grace on top.
const callTimeout = 10 * time.Second

// Client is a connection to a seat. It stays usable until [Client.Close] or until the seat is gone. Its calls return an error that
// wraps [ErrGone] when the seat's process is no more, and ctx bounds each; without a deadline they wait 10 s.
type Client struct {
	dir    string
	record Record
	conn   net.Conn
	reader sync.WaitGroup
	done   chan struct{} // the agent ended or the seat is gone
	lost   chan struct{} // the connection is no more

	mu      sync.Mutex // also of writing
	next    uint64
	waiting map[uint64]chan reply
	exit    *Exit
	closed  bool
	ending  bool // the seat was told that it may end
	written uint64
	more    chan struct{} // closed when written has grown
}

func newClient(dir string, r Record, c net.Conn) *Client {
	cl := &Client{
		dir: dir, record: r, conn: c, done: make(chan struct{}), lost: make(chan struct{}), waiting: map[uint64]chan reply{},
		more: make(chan struct{}),
	}
	cl.reader.Go(cl.read)
	return cl
}

// read takes replies and the exit until the connection ends.
func (c *Client) read() {
	defer close(c.lost)
	for {
		kind, body, err := readFrame(c.conn)
		if err != nil {
			break
		}
		switch kind {
		case frameExit:
			var e Exit
			if json.Unmarshal(body, &e) == nil {
				c.ended(&e)
			}
		case frameWritten:
			var n uint64
			if json.Unmarshal(body, &n) == nil {
				c.wrote(n)
			}
		case frameReply:
			var r reply
			if json.Unmarshal(body, &r) != nil {
				continue
			}
			c.mu.Lock()
			ch := c.waiting[r.ID]
			delete(c.waiting, r.ID)
			c.mu.Unlock()
			if ch != nil {
				ch <- r
			}
		}
	}
	c.mu.Lock()
	closed, ending := c.closed, c.ending
	c.mu.Unlock()
	if closed {
		if ending {
			go collectLast(c.record.Seat) // nobody else does
		}
		return
	}
	_ = c.conn.Close()
	collectLast(c.record.Seat)
	// The exit may have been kept without a word about it.
	if e, ok := ReadExit(c.dir); ok {
		c.ended(&e)
		return
	}
	c.ended(nil)
}

func (c *Client) wrote(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > c.written {
		c.written = n
		close(c.more)
		c.more = make(chan struct{})
	}
}

func (c *Client) ended(e *Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	c.exit = e
	close(c.done)
}

// Done is closed when the agent has ended or the seat is gone, but not by Close.
func (c *Client) Done() <-chan struct{} { return c.done }

// Exit returns what the agent ended with. It reports false before Done, and after it when the seat was lost without a word.
func (c *Client) Exit() (Exit, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exit == nil {
		return Exit{}, false
	}
	return *c.exit, true
}

// Record returns what the folder said when the client was made.
func (c *Client) Record() Record { return c.record }

// call sends one request and waits for its reply.
func (c *Client) call(ctx context.Context, r request) (reply, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout+r.Grace)
		defer cancel()
	}
	ch := make(chan reply, 1)
	c.mu.Lock()
	c.next++
	r.ID = c.next
	c.waiting[r.ID] = ch
	deadline, _ := ctx.Deadline()
	_ = c.conn.SetWriteDeadline(deadline)
	err := writeJSONFrame(c.conn, frameRequest, r)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, r.ID)
		c.mu.Unlock()
	}()
	if err != nil {
		if errors.Is(err, wire.ErrExhausted) {
			return reply{}, err
		}
		return reply{}, c.gone(r.Op)
	}
	select {
	case a := <-ch:
		if a.Error != nil {
			return a, a.Error
		}
		return a, nil
	case <-c.lost:
		return reply{}, c.gone(r.Op)
	case <-ctx.Done():
		return reply{}, wire.Errorf(wire.CodeDeadlineExceeded, "ask seat %q to %s: %w", c.dir, r.Op, ctx.Err())
	}
}

func (c *Client) gone(op string) error {
	return wire.Errorf(wire.CodeFailedPrecondition, "ask seat %q to %s: %w", c.dir, op, ErrGone)
}

// Info asks how the seat is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	a, err := c.call(ctx, request{Op: opInfo})
	if err != nil || a.Info == nil {
		return Info{}, err
	}
	return *a.Info, nil
}

// Input types data into the terminal. It returns when the seat has it; the agent may read it later. Codes: bad-request above MaxInput,
// resource-exhausted when the agent has left MaxPending unread, failed-precondition after the end.
func (c *Client) Input(ctx context.Context, data []byte) error {
	_, err := c.Type(ctx, data)
	return err
}

// Type is Input that returns, of a seat whose [Record.Counts] is set, where data ends in the count of all that was ever typed here.
func (c *Client) Type(ctx context.Context, data []byte) (end uint64, err error) {
	a, err := c.call(ctx, request{Op: opInput, Data: data})
	return a.Typed, err
}

// Written waits until so much of what was ever typed here was written to the terminal, and returns how much it is. It has no deadline
// but that of ctx, because an agent may not read for as long as it likes.
func (c *Client) Written(ctx context.Context, end uint64) (uint64, error) {
	for {
		c.mu.Lock()
		n, more := c.written, c.more
		c.mu.Unlock()
		if n >= end {
			return n, nil
		}
		select {
		case <-more:
		case <-c.lost:
			return n, c.gone("count what was written")
		case <-ctx.Done():
			return n, wire.Errorf(wire.CodeDeadlineExceeded, "wait until seat %q has written what was typed: %w", c.dir, ctx.Err())
		}
	}
}

// Wake types the line and then Enter, if the terminal had no output and nobody typed for quiet, and no line waits there that somebody
// began within the last minutes and has neither sent nor cleared: Enter would send that, too. It reports false when the terminal is
// busy or such a line waits; then nothing was typed, and the caller tries again. Where the agent asked for it the line is marked as pasted. A line with anything but printable
// characters is refused with code bad-request.
func (c *Client) Wake(ctx context.Context, line string, quiet time.Duration) (bool, error) {
	a, err := c.call(ctx, request{Op: opWake, Line: line, Quiet: quiet})
	return a.Woke, err
}

// Resize sets the size of the terminal, in cells. A zero leaves that dimension as it is. It may be called with the size that the
// terminal has.
func (c *Client) Resize(ctx context.Context, cols, rows int) error {
	_, err := c.call(ctx, request{Op: opResize, Cols: cols, Rows: rows})
	return err
}

// Lines returns the last n lines of the terminal as text, with those that left its top, without blank ones at the end.
func (c *Client) Lines(ctx context.Context, n int) ([]string, error) {
	a, err := c.call(ctx, request{Op: opLines, N: n})
	return a.Lines, err
}

// Stop ends the agent and its whole tree: TERM, the grace, KILL. It returns the exit when nothing of the tree is left, which was looked
// for, and at once when the agent has ended already. Without a deadline in ctx it waits 10 s longer than the grace. Code internal says
// that something could not be ended.
func (c *Client) Stop(ctx context.Context, grace time.Duration) (Exit, error) {
	a, err := c.call(ctx, request{Op: opStop, Grace: max(grace, 0)})
	if err != nil {
		// The seat may have ended with the agent, before its reply was out.
		if e, ok := c.Exit(); ok && errors.Is(err, ErrGone) {
			return e, nil
		}
		return Exit{}, err
	}
	if a.Exit == nil {
		return Exit{}, wire.Errorf(wire.CodeInternal, "stop seat %q: no exit", c.dir)
	}
	return *a.Exit, nil
}

// Release lets the seat end, after the agent has, and returns when it has ended. Else it ends by itself ten minutes after the agent. Code failed-precondition while the
// agent lives; no error when the seat is gone already.
func (c *Client) Release(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: opRelease})
	c.mu.Lock()
	c.ending = err == nil || errors.Is(err, wire.ErrDeadline) // who hears late ends, too
	c.mu.Unlock()
	if err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case <-c.lost:
		return nil
	case <-ctx.Done():
		return wire.Errorf(wire.CodeDeadlineExceeded, "release seat %q: it has not ended: %w", c.dir, ctx.Err())
	}
}

// Close ends the connection. The seat goes on.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := c.conn.Close()
	c.reader.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// FrameKind says what a Frame is.
type FrameKind string

// The kinds of frames.
const (
	Snapshot FrameKind = "snapshot" // Data repaints a terminal of Cols by Rows, whatever it showed
	Output   FrameKind = "output"   // Data continues what the terminal shows
	Resized  FrameKind = "resized"  // the terminal is Cols by Rows now; a snapshot follows
	Ended    FrameKind = "ended"    // the agent has ended; nothing follows
)

// Frame is one step of a view.
type Frame struct {
	Kind       FrameKind
	Data       []byte
	Cols, Rows int
}

// ViewOptions are for what a view may need later.
type ViewOptions struct{}

// View is one viewer of a terminal. It begins with a snapshot. A viewer that reads slower than the agent writes misses output and gets
// another snapshot; it never holds the agent up.
type View struct {
	conn   net.Conn
	frames chan Frame
	stop   chan struct{}
	once   sync.Once
	reader sync.WaitGroup
	err    error // before frames is closed
}

// View opens a view on a connection of its own.
func (c *Client) View(ctx context.Context, _ ViewOptions) (*View, error) {
	conn, err := dial(ctx, c.dir, c.record, true)
	if err != nil {
		return nil, err
	}
	v := &View{conn: conn, frames: make(chan Frame), stop: make(chan struct{})}
	v.reader.Go(v.read)
	return v, nil
}

func (v *View) read() {
	defer close(v.frames)
	var snapshot []byte
	for {
		kind, body, err := readFrame(v.conn)
		if err != nil {
			v.err = wire.Errorf(wire.CodeFailedPrecondition, "view terminal: %w", ErrGone)
			return
		}
		f := Frame{Data: body}
		switch kind {
		case frameOutput:
			f.Kind = Output
		case frameEnded:
			f.Kind = Ended
		case frameResized:
			f.Kind = Resized
			f.Cols, f.Rows, f.Data, err = readSize(body)
		case frameSnapshot:
			f.Kind = Snapshot
			if f.Cols, f.Rows, body, err = readSize(body); err != nil || len(body) == 0 {
				break
			}
			snapshot = append(snapshot, body[1:]...)
			if body[0] != 0 {
				continue
			}
			f.Data, snapshot = bytes.Clone(snapshot), nil
		default:
			continue
		}
		if err != nil {
			v.err = err
			return
		}
		select {
		case v.frames <- f:
		case <-v.stop:
			v.err = wire.Errorf(wire.CodeCancelled, "view terminal: closed")
			return
		}
	}
}

// Next returns the next frame. After Ended, or when the seat is gone, it returns an error that wraps ErrGone. It is for one goroutine.
func (v *View) Next(ctx context.Context) (Frame, error) {
	select {
	case f, ok := <-v.frames:
		if !ok {
			return Frame{}, v.err
		}
		return f, nil
	case <-ctx.Done():
		return Frame{}, wire.Errorf(wire.CodeDeadlineExceeded, "view terminal: %w", ctx.Err())
	}
}

// Close ends the view.
func (v *View) Close() error {
	v.once.Do(func() { close(v.stop) })
	err := v.conn.Close()
	v.reader.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
