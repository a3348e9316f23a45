package seat

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// A frame on a seat's socket is four bytes of length, big endian, one byte of kind, and the rest. The length counts kind and rest.
// Both sides begin with a hello. Then a control connection carries requests and their replies, in any order, the exit once, and
// how much was written as that grows; a view carries output.
type frameKind byte

const (
	frameHello    frameKind = 1 // hello
	frameRequest  frameKind = 2 // request
	frameReply    frameKind = 3 // reply
	frameExit     frameKind = 4 // Exit
	frameOutput   frameKind = 5 // bytes for the viewer's terminal
	frameSnapshot frameKind = 6 // 16 bits columns, 16 bits rows, 1 if more of it follows, bytes
	frameResized  frameKind = 7 // 16 bits columns, 16 bits rows
	frameEnded    frameKind = 8
	frameWritten  frameKind = 9 // the bytes that were ever written to the terminal, a number
)

// maxFrame bounds the length of a frame.
const maxFrame = 1 << 20

type hello struct {
	V     int         `json:"v"`
	View  bool        `json:"view,omitempty"` // from the client
	ID    wire.UID    `json:"id,omitempty"`   // from the seat
	Error *wire.Error `json:"error,omitempty"`
}

// The operations of a request.
const (
	opInfo    = "info"
	opInput   = "input"
	opWake    = "wake"
	opResize  = "resize"
	opLines   = "lines"
	opStop    = "stop"
	opRelease = "release"
)

type request struct {
	ID    uint64        `json:"id"`
	Op    string        `json:"op"`
	Data  []byte        `json:"data,omitempty"`
	Line  string        `json:"line,omitempty"`
	Quiet time.Duration `json:"quiet,omitempty"`
	Grace time.Duration `json:"grace,omitempty"`
	Cols  int           `json:"cols,omitempty"`
	Rows  int           `json:"rows,omitempty"`
	N     int           `json:"n,omitempty"`
}

type reply struct {
	ID    uint64      `json:"id"`
	Error *wire.Error `json:"error,omitempty"`
	Info  *Info       `json:"info,omitempty"`
	Exit  *Exit       `json:"exit,omitempty"`
	Lines []string    `json:"lines,omitempty"`
	Woke  bool        `json:"woke,omitempty"`
	Typed uint64      `json:"typed,omitempty"` // bytes that were ever typed, with this input
}

// readFrame reads one frame. The rest is a fresh slice.
func readFrame(r io.Reader) (frameKind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:4])
	if n < 1 || n > maxFrame {
		return 0, nil, wire.Errorf(wire.CodeBadRequest, "read frame: %d bytes, limit %d", n, maxFrame)
	}
	body := make([]byte, n-1)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return frameKind(head[4]), body, nil
}

// appendFrame adds a frame to b.
func appendFrame(b []byte, kind frameKind, body ...[]byte) []byte {
	n := 1
	for _, p := range body {
		n += len(p)
	}
	b = append(binary.BigEndian.AppendUint32(b, uint32(n)), byte(kind))
	for _, p := range body {
		b = append(b, p...)
	}
	return b
}

// writeJSONFrame writes v as one frame.
func writeJSONFrame(w io.Writer, kind frameKind, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(data)+1 > maxFrame {
		return wire.Errorf(wire.CodeResourceExhausted, "write frame: %d bytes, limit %d", len(data)+1, maxFrame)
	}
	_, err = w.Write(appendFrame(nil, kind, data))
	return err
}

// readJSONFrame reads one frame that must be of the kind.
func readJSONFrame(r io.Reader, kind frameKind, into any) error {
	got, body, err := readFrame(r)
	if err != nil {
		return err
	}
	if got != kind {
		return wire.Errorf(wire.CodeBadRequest, "read frame: kind %d, not %d", got, kind)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return wire.Errorf(wire.CodeBadRequest, "read frame: %v", err)
	}
	return nil
}

func sizeBytes(cols, rows int) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(cols)), uint16(rows))
}

// readSize takes a size from the front of a frame's body.
func readSize(b []byte) (cols, rows int, rest []byte, err error) {
	if len(b) < 4 {
		return 0, 0, nil, wire.Errorf(wire.CodeBadRequest, "read frame: %d bytes where a size belongs", len(b))
	}
	return int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:])), b[4:], nil
}
