package seat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/term"
	"github.com/cotal-go/cotal/wire"
)

// Version is the version of the files and of the protocol of a seat. A client speaks exactly one.
const Version = 1

// Marker is the environment variable by which every process of an agent's tree is known: its value is the uid of the agent's life.
const Marker = "COTAL_SEAT"

// Defaults of a [Spec], and its limits.
const (
	DefaultCols  = 120
	DefaultRows  = 32
	DefaultRing  = 256 << 10        // bytes
	DefaultGrace = 10 * time.Second //
	MaxRing      = 16 << 20
	MaxInput     = 256 << 10 // bytes of one Input
	MaxPending   = 1 << 20   // bytes of input that the agent has not read yet
)

// Bounds of Exit.LastLines.
const (
	maxLastLines = wire.MaxLastLines
	maxLastLine  = 400 // characters
)

// Names in a seat's folder.
const (
	specFile   = "spec.json"
	recordFile = "seat.json"
	exitFile   = "exit.json"
	errorFile  = "error.json"
	logFile    = "seat.log"
	lockFile   = "lock"
	socketFile = "seat.sock"
)

// ErrGone says that the seat's process is no more. What the agent ended with may stand in its folder: see [Read]. If it does not, the
// seat was killed, and [Sweep] ends what it left.
var ErrGone = errors.New("seat is gone")

// Spec is what a seat is told. It is kept as spec.json, 0600. The agent's own secret is not in it; its environment has the keys of model
// providers that are passed on to the host, so it prints and logs as whose seat it is.
type Spec struct {
	V         int           `json:"v"`         // Version; Start sets it
	ID        wire.UID      `json:"id"`        // the agent's life
	Space     wire.Space    `json:"space"`     //
	Principal string        `json:"principal"` // owner.actor
	Argv      []string      `json:"argv"`      // the program, looked up in PATH of Env, and its arguments
	Env       []string      `json:"env"`       // all of the agent's environment, NAME=value; Marker is added
	Dir       string        `json:"dir"`       // absolute working folder of the agent
	Cols      int           `json:"cols"`      // 0 is DefaultCols
	Rows      int           `json:"rows"`      // 0 is DefaultRows
	Ring      int           `json:"ring"`      // bytes of output kept for viewers that are slow; 0 is DefaultRing, at most MaxRing
	Grace     time.Duration `json:"grace"`     // ns from TERM to KILL when the seat itself is told to end; 0 is DefaultGrace
}

// Format writes whose seat it is, whatever the verb.
func (s Spec) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "[seat of %q, space %q]", s.Principal, s.Space)
}

// LogValue returns whose seat it is.
func (s Spec) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(s)) }

func (s Spec) withDefaults() Spec {
	or := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	s.V = Version
	or(&s.Cols, DefaultCols)
	or(&s.Rows, DefaultRows)
	or(&s.Ring, DefaultRing)
	if s.Grace == 0 {
		s.Grace = DefaultGrace
	}
	return s
}

// check returns why the spec cannot be followed, with code bad-request.
func (s Spec) check() error {
	bad := func(format string, args ...any) error { return wire.Errorf(wire.CodeBadRequest, format, args...) }
	if s.V != Version {
		return wire.Errorf(wire.CodeUnsupportedVersion, "read seat spec: version %d, not %d", s.V, Version)
	}
	if err := s.ID.Validate(); err != nil {
		return err
	}
	switch {
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return bad("check seat spec: no program")
	case !filepath.IsAbs(s.Dir):
		return bad("check seat spec: working folder %q is not absolute", s.Dir)
	case s.Cols < 1 || s.Cols > term.MaxCols || s.Rows < 1 || s.Rows > term.MaxRows:
		return bad("check seat spec: size %dx%d, limit %dx%d", s.Cols, s.Rows, term.MaxCols, term.MaxRows)
	case s.Ring < 0 || s.Ring > MaxRing:
		return bad("check seat spec: ring of %d bytes, limit %d", s.Ring, MaxRing)
	case s.Grace < 0:
		return bad("check seat spec: negative grace %v", s.Grace)
	}
	for _, a := range s.Argv {
		if strings.ContainsRune(a, 0) {
			return bad("check seat spec: an argument holds a zero byte")
		}
	}
	for _, e := range s.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" || strings.ContainsRune(e, 0) {
			return bad("check seat spec: environment entry %q is not NAME=value", name)
		}
	}
	return nil
}

// Process names one process of this boot.
type Process struct {
	PID     int    `json:"pid"`
	Started int64  `json:"started"` // the system's own record of when it began; compared, never read
	Name    string `json:"name"`    // of its program, as far as the system keeps it
}

// Exit is what an agent ended with.
type Exit struct {
	Code      int       `json:"code"`
	Signal    string    `json:"signal,omitempty"` // such as SIGKILL; then Code is 0
	At        time.Time `json:"at"`
	LastLines []string  `json:"lastLines,omitempty"` // of its terminal; at most 20 of at most 400 characters
	Left      []Process `json:"left,omitempty"`      // what had made itself a daemon, and runs on
}

// ClipLines returns the last of the lines, as many of them and as much of each as an exit keeps. The lines given stay as they are.
func ClipLines(lines []string) []string {
	out := slices.Clone(lines[max(0, len(lines)-maxLastLines):])
	for i, l := range out {
		if utf8.RuneCountInString(l) > maxLastLine {
			out[i] = string([]rune(l)[:maxLastLine])
		}
	}
	return out
}

// Info is what a seat says of itself.
type Info struct {
	PID     int       `json:"pid"` // of the agent
	Started time.Time `json:"started"`
	Cols    int       `json:"cols"`
	Rows    int       `json:"rows"`
	Exit    *Exit     `json:"exit,omitempty"`
	Daemons []Process `json:"daemons,omitempty"` // what the agent started and what then made itself a daemon
}

// Record is what a folder says of its seat.
type Record struct {
	Spec Spec `json:"-"`
	// V is the version of the record; 0 says that no seat has begun here yet.
	V       int       `json:"v"`
	Boot    string    `json:"boot"` // names the boot of the machine for which the start times hold
	Seat    Process   `json:"seat"`
	Agent   Process   `json:"agent"`
	Started time.Time `json:"started"`
	Socket  string    `json:"socket"`
	Daemons []Process `json:"daemons,omitempty"`
	// Counts says that the seat tells how much of what was typed it has written: see [Client.Written].
	Counts bool  `json:"counts,omitempty"`
	Exit   *Exit `json:"-"`
}

// StartOptions say how a seat is started.
type StartOptions struct {
	Program string       // the cotal binary, absolute
	Args    []string     // of the program, before the folder: normally seat
	Dir     string       // the seat's own folder, absolute; made 0700
	Spec    Spec         //
	Logger  *slog.Logger // nil discards
}

// Read returns what the folder says: what the seat was told, its processes, and the exit if the agent has ended. It asks no process,
// so the processes may be gone. Errors: not-found without a spec, bad-request for files that are not a seat's.
func Read(dir string) (Record, error) {
	var r Record
	if err := readJSON(dir, specFile, &r.Spec); err != nil {
		return Record{}, err
	}
	if err := r.Spec.check(); err != nil {
		return Record{}, err
	}
	if err := readJSON(dir, recordFile, &r); err != nil && !errors.Is(err, wire.ErrNotFound) {
		return Record{}, err
	}
	if r.V != 0 && r.V != Version {
		return Record{}, wire.Errorf(wire.CodeUnsupportedVersion, "read seat %q: %s: version %d, not %d", dir, recordFile, r.V, Version)
	}
	var e Exit
	switch err := readJSON(dir, exitFile, &e); {
	case err == nil:
		r.Exit = &e
	case !errors.Is(err, wire.ErrNotFound):
		return Record{}, err
	}
	return r, nil
}

// ReadExit returns what the agent of a folder ended with, if that was kept, whatever has become of the other files.
func ReadExit(dir string) (Exit, bool) {
	var e Exit
	err := readJSON(dir, exitFile, &e)
	return e, err == nil
}

func readJSON(dir, name string, into any) error {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Errorf(wire.CodeNotFound, "read seat %q: no %s", dir, name)
	}
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "read seat %q: %v", dir, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return wire.Errorf(wire.CodeBadRequest, "read seat %q: %s: %v", dir, name, err)
	}
	return nil
}

// writeJSON replaces the file in one step, readable by its owner only.
func writeJSON(dir, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "write %s of seat %q: %v", name, dir, err)
	}
	if err := atomicfile.Write(filepath.Join(dir, name), append(data, '\n'), 0o600); err != nil {
		return wire.Errorf(wire.CodeInternal, "write %s of seat %q: %v", name, dir, err)
	}
	return nil
}
