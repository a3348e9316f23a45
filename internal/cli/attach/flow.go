package attach

import (
	"fmt"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	// pieceSize is how many bytes of input are read and sent at once, at most.
	pieceSize = 4096
	// doubtful is how long after something was sent a loss leaves it unknown whether that arrived, where nobody tells: a silent supervisor
	// is noticed after 8 s.
	doubtful = 10 * time.Second
)

// flow is what was piped into a session, and what is known of it. The zero value has seen nothing, of which there is no doubt.
type flow struct {
	stays bool // the end of what is piped in ends nothing

	paced          bool // the session tells what was written
	typed, written uint64
	last           time.Time // when something was sent
	blind          bool      // something was sent to a session that does not tell
	held           []byte    // was read and not sent yet, for want of a connection
	ended          bool      // all that is piped in was read
	total          uint64    // bytes that were sent, to any session
}

// begin is told of another session. What was sent to the one before was written or is no matter any more.
func (f *flow) begin(paced bool) { f.paced, f.typed, f.written = paced, 0, 0 }

// full reports whether no more should be sent before more was written.
func (f *flow) full() bool { return f.paced && f.typed-f.written+pieceSize > wire.MaxUnwritten }

// sent counts what was sent.
func (f *flow) sent(n int) {
	f.last = time.Now()
	f.total += uint64(n)
	f.typed += uint64(n)
	f.blind = f.blind || !f.paced
}

// wrote is told how much of the session's input was written. Its error is errLeft when nothing is left to do.
func (f *flow) wrote(n uint64) error {
	f.written = min(max(n, f.written), f.typed)
	return f.left()
}

// end is told that all was read. Its error is that of wrote.
func (f *flow) end() error {
	f.ended = true
	return f.left()
}

func (f *flow) left() error {
	if f.ended && !f.stays && !f.blind && f.held == nil && f.total > 0 && f.typed == f.written {
		return errLeft
	}
	return nil
}

// doubt is the error of a session that is lost when nobody knows whether all that was sent to it arrived.
func (f *flow) doubt() error {
	switch {
	case f.paced && f.typed > f.written:
		return wire.Errorf(wire.CodeDeadlineExceeded,
			"type what is piped in: the connection is lost, and nobody knows whether the last %d of the %d bytes that were sent reached the agent: %w",
			f.typed-f.written, f.total, errInput)
	case !f.paced && f.typed > 0 && time.Since(f.last) <= doubtful:
		return wire.Errorf(wire.CodeDeadlineExceeded, "type what is piped in: the connection is lost, and nobody knows whether the last of it reached the agent: %w", errInput)
	}
	return nil
}

// rest is a line about what may not have reached an agent that has ended, "" when all that was sent was written.
func (f *flow) rest() string {
	if !f.paced || f.typed == f.written {
		return ""
	}
	return fmt.Sprintf("the last %d of the %d bytes that were piped in were not said to be written before it ended", f.typed-f.written, f.total)
}
