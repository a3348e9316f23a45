package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// Events of hooks, as Hook sends them.
const (
	EventSessionStart = "session-start"
	EventPrompt       = "prompt"
	EventTool         = "tool"
	EventNotification = "notification"
	EventStop         = "stop"
	EventEnd          = "end"
	eventWritten      = "written" // the host was given the page of the reply before, or says that its conversation has it
)

// Kinds of a notification.
const (
	KindApproval = "approval" // the host waits for somebody to allow something
	KindInput    = "input"    // the host waits at its prompt: no turn goes on
	KindNews     = "news"     // the host waits for nobody
)

// Detail is what is told beside an event. No prompt and no argument of a tool is.
type Detail struct {
	Source  string `json:"source,omitempty"`  // session-start: startup, resume, clear, compact
	Tool    string `json:"tool,omitempty"`    // tool: its name
	Kind    string `json:"kind,omitempty"`    // notification: KindApproval, KindInput or KindNews
	Message string `json:"message,omitempty"` // notification: what the host says
	Error   string `json:"error,omitempty"`   // stop: the host's word for why the turn failed
	Reason  string `json:"reason,omitempty"`  // end: the host's word for why
	// Lives, of a tool or a stop, says that the host keeps what the turn began with, with Page that it keeps this page.
	Lives bool   `json:"lives,omitempty"`
	Page  string `json:"page,omitempty"`
	// Dropped, of a stop, says that the turn came to nothing, without the host's word for why.
	Dropped bool `json:"dropped,omitempty"`
}

const (
	hookVersion = 1
	// maxHookFrame bounds one line of the socket in bytes.
	maxHookFrame = 256 << 10
	// hookIdle is how long a connection may say nothing.
	hookIdle = 5 * time.Second
	// maxHooks is how many hooks may be served at once.
	maxHooks = 16
)

type hookRequest struct {
	V      int    `json:"v"`
	Event  string `json:"event"`
	Detail Detail `json:"detail,omitzero"`
	// Session is of the host's process that has the hook; empty where no process but the agent's host can have it.
	Session string `json:"session,omitempty"`
	Page    string `json:"page,omitempty"`  // with eventWritten
	Shown   bool   `json:"shown,omitempty"` // with eventWritten: the host may still drop the page, with its turn
}

type hookReply struct {
	V       int    `json:"v"`
	Context string `json:"context,omitempty"` // what the turn begins with
	Block   bool   `json:"block,omitempty"`   // begin a turn with it
	Page    string `json:"page,omitempty"`    // to be named once it was written
	Other   bool   `json:"other,omitempty"`   // the session is not the agent's: nothing was noted
	Error   string `json:"error,omitempty"`

	over bool // the session has ended
}

// lookAgain is the pause before it is looked again whether another process of the agent has ended.
const lookAgain = 100 * time.Millisecond

// listenHost makes the socket, readable by the owner alone, once no other process of the agent has it. Nil: there is to be none, or
// ctx ended.
func (s *Server) listenHost(ctx context.Context) (net.Listener, error) {
	path := s.opts.HostSocket
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "listen for hooks at %q: %v", path, err)
	}
	if info.Mode().Perm()&0o077 != 0 && unixModes {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "listen for hooks at %q: its folder is open to others (%v), want 0700", path, info.Mode().Perm())
	}
	for begun := time.Now(); answers(path); {
		if time.Since(begun) >= s.opts.TakeOver {
			return nil, wire.Errorf(wire.CodeAlreadyExists, "listen for hooks at %q: another process of the agent does, and has not ended within %v; end that one first", path, s.opts.TakeOver)
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return nil, nil
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "listen for hooks at %q: %v", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close() // the error of before is the reason
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "listen for hooks at %q: %v", path, err)
	}
	return l, nil
}

// answers reports whether a process listens on a socket, and removes one on which none does.
func answers(path string) bool {
	old, err := os.Lstat(path)
	if err != nil || old.Mode()&os.ModeSocket == 0 {
		return false // if something else is there, listening says so
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close() // only whether somebody answers is of interest
		return true
	}
	var busy net.Error
	if errors.As(err, &busy) && busy.Timeout() { // or its queue is full: it lives, and accepts slowly
		return true
	}
	_ = os.Remove(path) // if it stays, listening says why
	return false
}

// serveHost serves hooks until ctx ends, and returns after all of them.
func (s *Server) serveHost(ctx context.Context, l net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	slots := make(chan struct{}, maxHooks)
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				s.log.WarnContext(ctx, "hook not accepted", logkey.Error, err)
				select {
				case <-time.After(100 * time.Millisecond): // such as no descriptors left
					continue
				case <-ctx.Done():
				}
			}
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = c.Close() // it gives up, and its host goes on
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			s.serveHook(ctx, c)
		})
	}
}

// serveHook answers the frames of one hook: its event and then, when it was given a page, that it was written.
func (s *Server) serveHook(ctx context.Context, c net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() {
		stop()
		_ = c.Close() // both sides know by now
	}()
	in := bufio.NewReaderSize(io.LimitReader(c, 2*maxHookFrame), 4096)
	for range 2 {
		_ = c.SetDeadline(time.Now().Add(hookIdle)) // a closed one fails at the next read
		var r hookRequest
		if err := readFrame(in, &r); err != nil {
			return
		}
		reply := s.answerHook(ctx, r)
		data, err := json.Marshal(reply)
		if err != nil {
			return
		}
		_, err = c.Write(append(data, '\n'))
		if reply.over { // after the answer, since this end closes with it
			s.overing.Do(func() { close(s.over) })
		}
		if err != nil || reply.Error != "" {
			return
		}
	}
}

// listWithin is how long the start of a session waits until the host has asked for the tools.
const listWithin = 3 * time.Second

// awaitListing holds up the start of a session, and so its first turn, until the host has asked for the tools: a turn that begins
// before is one without them. It does so once.
func (s *Server) awaitListing(ctx context.Context) {
	late := time.NewTimer(listWithin)
	defer late.Stop()
	select {
	case <-s.listed:
	case <-late.C:
		s.listing.Do(func() { close(s.listed) })
	case <-ctx.Done():
	}
}

func (s *Server) answerHook(ctx context.Context, r hookRequest) hookReply {
	switch r.Event {
	case EventSessionStart, EventPrompt, EventTool, EventNotification, EventStop, EventEnd:
	case eventWritten:
		if r.Shown {
			s.shown(r.Page)
		} else {
			s.written(ctx, r.Page)
		}
		return hookReply{V: hookVersion}
	default:
		return hookReply{V: hookVersion, Error: "unknown event"}
	}
	if r.V != hookVersion {
		return hookReply{V: hookVersion, Error: "unknown version"}
	}
	if r.Event == EventSessionStart {
		s.awaitListing(ctx)
	}
	return s.event(ctx, r)
}

func readFrame(in *bufio.Reader, out any) error {
	var line []byte
	for {
		part, more, err := in.ReadLine()
		if err != nil {
			return err
		}
		if line = append(line, part...); len(line) > maxHookFrame {
			return wire.Errorf(wire.CodeResourceExhausted, "read frame of a hook: over %d bytes", maxHookFrame)
		}
		if !more {
			return wire.Decode(line, out, maxHookFrame)
		}
	}
}
