package broker

import (
	"net"
	"time"
)

// For the tests of the in-process connection alone, without a broker at the other end.
const (
	PipeBuffer = pipeBuffer
	PipeLinger = pipeLinger
)

// Patient lets a control wait as long for a server that is missing as a test needs.
func Patient(o *DialOptions, d time.Duration) { o.incomplete = d }

// NewPipe wraps one end of a net.Pipe as InProcess does.
func NewPipe(inner net.Conn) net.Conn { return newPipe(inner, nil) }
