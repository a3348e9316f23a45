package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// Supervisor is one that keeps its agents in a folder of its own.
type Supervisor struct {
	V     int    `json:"v"`
	Space string `json:"space"`
	State string `json:"state"` // its folder; relative to the root of the project where it is below that, so that it moves along
}

// SupervisorsDir is where [Project.NoteSupervisor] writes.
func (p *Project) SupervisorsDir() string { return filepath.Join(p.Dir, "run", "supervisors") }

// NoteSupervisor makes the folder state, an absolute path, and remembers that a supervisor of a space keeps its agents there. It is
// remembered for good: that the supervisor has ended says nothing of its agents.
func (p *Project) NoteSupervisor(space, state string) error {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "make folder %q: %v", state, fserr.Cause(err))
	}
	s := Supervisor{V: RecordVersion, Space: space, State: resolved(state)}
	if below, err := filepath.Rel(p.Root, s.State); err == nil && filepath.IsLocal(below) {
		s.State = below
	}
	name := sha256.Sum256([]byte(s.Space + "\x00" + s.State))
	return writeRecord(filepath.Join(p.SupervisorsDir(), hex.EncodeToString(name[:10])+".json"), s, 0o600)
}

// Supervisors are those that were noted, with absolute folders. The folder of one may be gone.
//
// Errors: failed-precondition for a record that cannot be read.
func (p *Project) Supervisors() ([]Supervisor, error) {
	entries, err := os.ReadDir(p.SupervisorsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read %q: %v", p.SupervisorsDir(), fserr.Cause(err))
	}
	var out []Supervisor
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		var s Supervisor
		if err := readRecord(filepath.Join(p.SupervisorsDir(), e.Name()), &s, &s.V); err != nil {
			return nil, err
		}
		if !filepath.IsAbs(s.State) {
			s.State = filepath.Join(p.Root, s.State)
		}
		out = append(out, s)
	}
	return out, nil
}
