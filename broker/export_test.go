package broker

import "net"

// For the tests of the in-process connection alone, without a broker at the other end.
const (
	PipeBuffer = pipeBuffer
	PipeLinger = pipeLinger
)

// NewPipe wraps one end of a net.Pipe as InProcess does.
func NewPipe(inner net.Conn) net.Conn { return newPipe(inner, nil) }
