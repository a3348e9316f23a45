package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine is the longest message of a host, in bytes, beyond which the protocol's reader ends the session.
const maxLine = sdk.DefaultMaxLineLength - 1

// lines is what a host writes, without the lines that are no message: those would end the session, and with it the tools of an agent
// at work. The host is told of each.
type lines struct {
	in   *bufio.Reader
	out  *open
	rest []byte // of a line that is being read
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, err := l.next()
		if err != nil {
			l.out.end()
			return 0, err
		}
		l.rest = line
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Close leaves the input open: it is somebody else's.
func (l *lines) Close() error { return nil }

// next is the next line with its end, nil for one that is left out.
func (l *lines) next() ([]byte, error) {
	line, whole, err := l.line()
	if err != nil {
		return nil, err
	}
	line = bytes.TrimSpace(line)
	switch {
	case !whole:
		return nil, l.refuse(jsonrpc.CodeInvalidRequest, "the message is too long")
	case len(line) == 0:
		return nil, nil
	case !json.Valid(line):
		return nil, l.refuse(jsonrpc.CodeParseError, "the line is no JSON; a message is one line")
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return nil, l.refuse(jsonrpc.CodeInvalidRequest, "the line is no message of JSON-RPC 2.0")
	}
	return append(line, '\n'), nil
}

// line reads to the end of a line, and reports false for one that is longer than maxLine, of which it keeps nothing.
func (l *lines) line() (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := l.in.ReadSlice('\n')
		if whole = whole && len(line)+len(part) <= maxLine; whole {
			line = append(line, part...)
		} else {
			line = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && (len(line) > 0 || !whole): // the end of the input ends the last line too
			return line, whole, nil
		default:
			return line, whole, err
		}
	}
}

// refuse tells the host of a line that is left out. It has no id: which one it had is not known.
func (l *lines) refuse(code int, why string) error {
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}})
	if err != nil {
		return err
	}
	_, err = l.out.Write(append(data, '\n'))
	return err
}

// lastWrite is how long a message that the host does not take is waited for once there is nothing more to do.
const lastWrite = 2 * time.Second

// open is a writer that belongs to somebody else. Each message is written by one call and goes out whole. A host that does not read holds a
// write up, and with it the call that is answered; it does so for ever until end was called, and for lastWrite after that.
type open struct {
	to    io.Writer
	ended chan struct{} // closed by end
	once  sync.Once     // closes ended

	mu   sync.Mutex // held over a write
	gone bool       // a write was given up, and may still go on
}

func newOpen(to io.Writer) *open { return &open{to: to, ended: make(chan struct{})} }

// end says that nothing more is asked: whatever is not taken soon is for nobody.
func (o *open) end() { o.once.Do(func() { close(o.ended) }) }

// Write implements io.Writer.
func (o *open) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return 0, errUnread
	}
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	data := bytes.Clone(p)
	go func() { // nothing ends a write to a pipe that is full; what is given up ends with the process
		n, err := o.to.Write(data)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-o.ended:
	}
	late := time.NewTimer(lastWrite)
	defer late.Stop()
	select {
	case r := <-done:
		return r.n, r.err
	case <-late.C:
		o.gone = true
		return 0, errUnread
	}
}

// errUnread is of messages that nobody takes any more. To the protocol's session that is the end of the host, and no fault.
var errUnread = fmt.Errorf("the host does not read: %w", io.EOF)

// Close leaves it open.
func (*open) Close() error { return nil }
