// Package header tells whether the header block of a received message can be believed.
//
// The broker appends its headers (Nats-Subject, Nats-Sequence and their like) to those of the publisher, and does not
// look at what the publisher wrote. The client stops reading at the first empty line, and reads nothing at all when a
// line has no colon. So a publisher who ends the block early hides what the broker appended, and what he wrote stands
// in its place. Whoever reads a header of a stored or republished message asks [Whole] first.
//
// The package has no state and is safe for concurrent use.
package header

import "github.com/nats-io/nats.go"

// MaxValues is how many header values a message may have, the broker's included.
const MaxValues = 32

// What the parts of a header block take when they are written plainly, beside names and values.
const (
	frame = len("NATS/1.0\r\n" + "\r\n")
	line  = len(": " + "\r\n")
)

// Whole reports whether the header block of a received message was read to its end, so that the last value of a header
// the broker sets is the broker's. It is true of a message without a header block.
//
// What was read is written out again, plainly, and must be as long as what was received. A line can be written a little
// shorter than that, without the space or with a bare line feed; the status of the first line becomes a header. All
// that saves less than the broker's lines take, as long as there are no more than MaxValues:
//
//	32 values of 2 bytes, 2 for the other lines, 23 for a status with its text = 89
//	Nats-Stream, Nats-Subject, Nats-Sequence, Nats-Time-Stamp, Nats-Last-Sequence > 130
//
// So a hidden end always shows. Values with surplus spaces before them do too, and are refused with it.
func Whole(m *nats.Msg) bool {
	return whole(m.Size()-len(m.Subject)-len(m.Reply)-len(m.Data), m.Header)
}

func whole(received int, h nats.Header) bool {
	if received == 0 {
		return true
	}
	if h == nil {
		return false
	}
	read, values := frame, 0
	for name, vs := range h {
		for _, v := range vs {
			read += len(name) + len(v) + line
		}
		values += len(vs)
	}
	return values <= MaxValues && read >= received
}
