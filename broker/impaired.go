package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Impairment says that an account cannot store any more. nats-server gives a stream up at its first write error and never
// tries again, also when the cause is gone: only [Server.Restart] ends it.
type Impairment struct {
	Account string    `json:"account,omitempty"` // public key; empty: all of them
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"`
}

// reasonFull is the reason of the one write error that goes away by itself.
const reasonFull = "disk full"

// illness collects the impairments of one life of the broker.
type illness struct {
	told func(Impairment) // may be nil

	mu   sync.Mutex // guards list
	list []Impairment
}

// hear looks for a write error in a log line. The caller may hold locks of nats-server.
func (l *illness) hear(format string, v []any) {
	var text string
	switch {
	case strings.Contains(format, "critical write error"), strings.Contains(format, "will be DISABLED"), strings.Contains(format, "disabling JetStream"):
		text = fmt.Sprintf(format, v...)
	default:
		return
	}
	im := Impairment{Account: accountIn(text), Since: time.Now().UTC(), Reason: text}
	switch _, cause, ok := strings.Cut(text, "critical write error: "); {
	case strings.Contains(text, "no space left"), strings.Contains(text, "out of file resources"):
		im.Reason = reasonFull
	case ok:
		im.Reason = cause
	}
	l.mu.Lock()
	known := slices.ContainsFunc(l.list, func(o Impairment) bool { return o.Account == im.Account })
	if !known {
		l.list = append(l.list, im)
	}
	l.mu.Unlock()
	if !known && l.told != nil {
		l.told(im)
	}
}

// accountIn is the account in a line about 'account > stream' or 'account > stream > consumer', or "".
func accountIn(text string) string {
	_, rest, ok := strings.Cut(text, "'")
	if !ok {
		return ""
	}
	account, _, ok := strings.Cut(rest, " > ")
	if !ok || strings.ContainsAny(account, " '") {
		return ""
	}
	return account
}

func (l *illness) all() []Impairment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// Impaired lists the accounts that cannot store, the first write error of each; empty in good health. What is listed stays
// until [Server.Restart], whether or not the disk has room again: see [Server.Room].
func (s *Server) Impaired() []Impairment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ill == nil {
		return nil
	}
	return s.ill.all()
}

// roomBytes is what must fit on the disk before a broker that ran out of it is worth starting again.
const roomBytes = 256 << 10

// Room tries whether the disk of the store takes new data. Errors: resource-exhausted when it is full; unavailable when
// it cannot be written for another reason.
func (s *Server) Room() error {
	f, err := os.CreateTemp(s.store.path, markerName+"-*"+tempSuffix) // swept at the next start after a crash
	if err == nil {
		_, err = f.Write(make([]byte, roomBytes))
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return wire.Errorf(wire.CodeResourceExhausted, "write to store directory %q: %s", filepath.Clean(s.store.path), reasonFull)
	}
	return wire.Errorf(wire.CodeUnavailable, "write to store directory %q: %v", filepath.Clean(s.store.path), err)
}
