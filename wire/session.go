package wire

import (
	"encoding/binary"
	"encoding/json"
	"slices"
)

// Bounds of a session.
const (
	MaxSessionFrame = 32 << 10 // bytes of one frame, its head included
	// MinSessionWindow is the least window in bytes: a viewer may keep back its word about a quarter of it, and a whole frame must fit
	// into the rest.
	MinSessionWindow = 2 * MaxSessionFrame
	MaxSessionData   = 31 << 10 // bytes of terminal that a frame carries at most
	MaxTerminalSide  = 1000     // columns or rows of a terminal
	// MaxUnwritten is how many bytes of input a viewer that keeps pace has under way at most: typed and not yet said to be written.
	MaxUnwritten = 32 << 10
)

// SessionFrameKind is the first byte of a frame.
type SessionFrameKind byte

// What a viewer says to a manager.
const (
	// FrameOpen takes the offer or, with a higher turn, begins anew what the same viewer has opened.
	FrameOpen   SessionFrameKind = 'o'
	FrameInput  SessionFrameKind = 'i' // Data was typed
	FrameResize SessionFrameKind = 'r' // the viewer has Cols by Rows
	FrameAck    SessionFrameKind = 'a' // Bytes of this turn were consumed in all
	FrameDetach SessionFrameKind = 'd' // the viewer leaves
	FramePing   SessionFrameKind = 'p' // is answered with FramePong
)

// What a manager says to a viewer.
const (
	FrameSnapshot SessionFrameKind = 'S' // Data is a piece of what repaints an empty terminal of Cols by Rows
	FrameOutput   SessionFrameKind = 'O' // Data was written to the terminal
	FrameResized  SessionFrameKind = 'R' // the terminal has Cols by Rows now
	FrameEnded    SessionFrameKind = 'E' // the agent ended, see Exit
	FrameError    SessionFrameKind = 'X' // the session is refused or over, see Error
	FramePong     SessionFrameKind = 'P'
	FrameDropped  SessionFrameKind = 'D' // Bytes that were typed did not reach the terminal
	// FrameWritten goes only to a viewer whose open asked for Pace: of what was typed in this session, over all turns, Taken came in its
	// order and Bytes were written to the terminal. It is the first of each turn.
	FrameWritten SessionFrameKind = 'A'
)

// SessionFrame is one message of a session. Which fields it has follows from its kind.
type SessionFrame struct {
	Kind SessionFrameKind
	// Viewer is a random number that tells the frames of one viewer from those of another of the same life. A manager echoes it.
	Viewer uint64
	// Turn counts the opens of a viewer, from 1. A manager echoes the one that it answers; what is of another turn than the last is void.
	Turn uint32
	// Seq counts the frames of a turn in one direction, from 1; the open of a turn has 1.
	Seq uint64

	Data       []byte
	Cols, Rows int // each 0 to MaxTerminalSide; a side of 0 is not known
	Bytes      uint64
	Taken      uint64 // at least Bytes
	// First and Last mark the pieces of a snapshot. Overflow says that it stands for output that the viewer was too slow for.
	First, Last, Overflow bool
	Open                  *SessionOpen
	Exit                  *SessionExit
	Error                 *Error
}

// SessionOpen says what a viewer believes to open, so that an offer is taken for nothing else.
type SessionOpen struct {
	V        int    `json:"v"` // 1
	Instance string `json:"instance"`
	UID      UID    `json:"uid"`  // of the agent
	Cols     int    `json:"cols"` // of the viewer, as in a resize
	Rows     int    `json:"rows"`
	// Pace asks for FrameWritten. A manager that does not know it, or whose terminal cannot tell, sends none.
	Pace bool `json:"pace,omitempty"`
}

// SessionExit is how an agent ended.
type SessionExit struct {
	Code      int      `json:"code"`
	Signal    string   `json:"signal,omitempty"` // such as SIGKILL; then Code is 0
	At        int64    `json:"at,omitempty"`     // ms since 1970
	LastLines []string `json:"lastLines,omitempty"`
	// Lost says that its seat is gone, and with it what it ended with.
	Lost bool `json:"lost,omitempty"`
}

// sessionHead is the length of kind, viewer, turn and seq, big endian.
const sessionHead = 1 + 8 + 4 + 8

const (
	flagFirst = 1 << iota
	flagLast
	flagOverflow
)

// Append appends the frame as it crosses the wire. Errors have code bad-request for what no frame may say, and resource-exhausted
// for one that is larger than MaxSessionFrame.
func (f *SessionFrame) Append(dst []byte) ([]byte, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	start := len(dst)
	b := append(dst, byte(f.Kind))
	b = binary.BigEndian.AppendUint64(b, f.Viewer)
	b = binary.BigEndian.AppendUint32(b, f.Turn)
	b = binary.BigEndian.AppendUint64(b, f.Seq)
	var doc any
	switch f.Kind {
	case FrameInput, FrameOutput:
		b = append(b, f.Data...)
	case FrameSnapshot:
		b = append(b, f.flags())
		b = append(appendSize(b, f.Cols, f.Rows), f.Data...)
	case FrameResize, FrameResized:
		b = appendSize(b, f.Cols, f.Rows)
	case FrameAck, FrameDropped:
		b = binary.BigEndian.AppendUint64(b, f.Bytes)
	case FrameWritten:
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, f.Taken), f.Bytes)
	case FrameOpen:
		doc = f.Open
	case FrameEnded:
		doc = f.Exit
	case FrameError:
		doc = f.Error
	}
	if doc != nil {
		text, err := json.Marshal(doc)
		if err != nil {
			return nil, Errorf(CodeBadRequest, "encode session frame: %v", err)
		}
		b = append(b, text...)
	}
	if len(b)-start > MaxSessionFrame {
		return nil, Errorf(CodeResourceExhausted, "encode session frame: %d bytes, at most %d", len(b)-start, MaxSessionFrame)
	}
	return b, nil
}

func (f *SessionFrame) flags() (b byte) {
	if f.First {
		b |= flagFirst
	}
	if f.Last {
		b |= flagLast
	}
	if f.Overflow {
		b |= flagOverflow
	}
	return b
}

func appendSize(b []byte, cols, rows int) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(cols))
	return binary.BigEndian.AppendUint16(b, uint16(rows))
}

// check says what is wrong with a frame, whichever way it came about.
func (f *SessionFrame) check() error {
	if f.Turn == 0 || f.Seq == 0 {
		return Errorf(CodeBadRequest, "check session frame: turn %d, sequence %d; both count from 1", f.Turn, f.Seq)
	}
	if side := max(f.Cols, f.Rows); side > MaxTerminalSide || min(f.Cols, f.Rows) < 0 {
		return Errorf(CodeBadRequest, "check session frame: a terminal of %d by %d, at most %d either way", f.Cols, f.Rows, MaxTerminalSide)
	}
	missing := false
	switch f.Kind {
	case FrameInput, FrameOutput:
		missing = len(f.Data) == 0
	case FrameOpen:
		missing = f.Open == nil
		switch {
		case f.Seq != 1:
			return Errorf(CodeBadRequest, "check session frame: an open with sequence %d, it begins its turn", f.Seq)
		case !missing:
			return f.Open.check()
		}
	case FrameEnded:
		missing = f.Exit == nil
	case FrameError:
		missing = f.Error == nil
		if !missing && f.Error.Code == "" {
			return Errorf(CodeBadRequest, "check session frame: an error without a code")
		}
	case FrameSnapshot:
		missing = f.Cols == 0 || f.Rows == 0
	case FrameWritten:
		if f.Bytes > f.Taken {
			return Errorf(CodeBadRequest, "check session frame: %d bytes were written of %d that came", f.Bytes, f.Taken)
		}
	case FrameResize, FrameResized, FrameAck, FrameDropped, FrameDetach, FramePing, FramePong:
	default:
		return Errorf(CodeBadRequest, "check session frame: kind %q is not known", clip(string(rune(f.Kind))))
	}
	if missing {
		return Errorf(CodeBadRequest, "check session frame: one of kind %q is empty", string(rune(f.Kind)))
	}
	if len(f.Data) > MaxSessionData {
		return Errorf(CodeResourceExhausted, "check session frame: %d bytes of terminal, at most %d", len(f.Data), MaxSessionData)
	}
	return nil
}

func (o *SessionOpen) check() error {
	if o.V != 1 {
		return Errorf(CodeUnsupportedVersion, "check session open: version %d, this is 1", o.V)
	}
	if side := max(o.Cols, o.Rows); side > MaxTerminalSide || min(o.Cols, o.Rows) < 0 {
		return Errorf(CodeBadRequest, "check session open: a terminal of %d by %d, at most %d either way", o.Cols, o.Rows, MaxTerminalSide)
	}
	return firstError(checkToken("instance", o.Instance), o.UID.Validate())
}

// DecodeSessionFrame reads one frame. Its Data is part of data. Errors have code bad-request, unsupported-version for an open of another
// version, and resource-exhausted for a frame that is too large.
func DecodeSessionFrame(data []byte) (SessionFrame, error) {
	if len(data) > MaxSessionFrame {
		return SessionFrame{}, Errorf(CodeResourceExhausted, "decode session frame: %d bytes, at most %d", len(data), MaxSessionFrame)
	}
	if len(data) < sessionHead {
		return SessionFrame{}, Errorf(CodeBadRequest, "decode session frame: %d bytes, at least %d", len(data), sessionHead)
	}
	f := SessionFrame{
		Kind: SessionFrameKind(data[0]), Viewer: binary.BigEndian.Uint64(data[1:]),
		Turn: binary.BigEndian.Uint32(data[9:]), Seq: binary.BigEndian.Uint64(data[13:]),
	}
	if err := f.decodeBody(data[sessionHead:]); err != nil {
		return SessionFrame{}, err
	}
	if err := f.check(); err != nil {
		return SessionFrame{}, err
	}
	return f, nil
}

func (f *SessionFrame) decodeBody(body []byte) error {
	switch f.Kind {
	case FrameInput, FrameOutput:
		f.Data = body
		return nil
	case FrameSnapshot:
		if len(body) < 5 {
			return f.length(body)
		}
		flags := body[0]
		if flags >= flagOverflow<<1 {
			return Errorf(CodeBadRequest, "decode session frame: flags %#x are not known", flags)
		}
		f.First, f.Last, f.Overflow = flags&flagFirst != 0, flags&flagLast != 0, flags&flagOverflow != 0
		f.readSize(body[1:])
		f.Data = body[5:]
		return nil
	case FrameResize, FrameResized:
		if len(body) != 4 {
			return f.length(body)
		}
		f.readSize(body)
		return nil
	case FrameAck, FrameDropped:
		if len(body) != 8 {
			return f.length(body)
		}
		f.Bytes = binary.BigEndian.Uint64(body)
		return nil
	case FrameWritten:
		if len(body) != 16 {
			return f.length(body)
		}
		f.Taken, f.Bytes = binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:])
		return nil
	case FrameOpen:
		f.Open = new(SessionOpen)
		return Decode(body, f.Open, MaxSessionFrame)
	case FrameEnded:
		f.Exit = new(SessionExit)
		return Decode(body, f.Exit, MaxSessionFrame)
	case FrameError:
		f.Error = new(Error)
		return Decode(body, f.Error, MaxSessionFrame)
	}
	if len(body) != 0 {
		return f.length(body)
	}
	return nil
}

func (f *SessionFrame) readSize(b []byte) {
	f.Cols, f.Rows = int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
}

func (f *SessionFrame) length(body []byte) error {
	return Errorf(CodeBadRequest, "decode session frame: %d bytes in one of kind %q", len(body), clip(string(rune(f.Kind))))
}

// Fit drops the earliest of the last lines until the exit fits a frame. The lines that it was given stay as they are.
func (x *SessionExit) Fit() {
	for size := 0; len(x.LastLines) > 0; x.LastLines = x.LastLines[1:] {
		size = 0
		for _, l := range x.LastLines {
			text, _ := json.Marshal(l)
			size += len(text) + 1
		}
		if size <= MaxSessionData {
			return
		}
	}
	x.LastLines = slices.Clip(x.LastLines)
}
