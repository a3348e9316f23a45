package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// LedgerFolder is where a project keeps its ledgers, below its .cotal folder.
const LedgerFolder = "deploys"

const (
	ledgerSuffix = ".json"
	maxLedger    = 1 << 20
)

// Ledgers is a folder of ledgers, usually .cotal/deploys. It need not be there.
type Ledgers struct{ dir string }

// OpenLedgers names a folder. It looks at nothing.
func OpenLedgers(dir string) *Ledgers { return &Ledgers{dir: dir} }

// Dir is the folder.
func (s *Ledgers) Dir() string { return s.dir }

// Load reads the ledger of a deploy.
//
// Errors: not-found; failed-precondition for a file that is not a private file of this user in the folder, or no ledger of that deploy.
func (s *Ledgers) Load(id string) (*Ledger, error) {
	refuse := func(format string, args ...any) (*Ledger, error) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read ledger %s/%s%s: %s", LedgerFolder, id, ledgerSuffix, fmt.Sprintf(format, args...))
	}
	missing := func() (*Ledger, error) {
		return nil, wire.Errorf(wire.CodeNotFound, "there is no ledger of deploy %q", id)
	}
	if wire.ValidateRole(id) != nil {
		return missing()
	}
	root, err := os.OpenRoot(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return missing()
	}
	if err != nil {
		return refuse("%v", fserr.Cause(err))
	}
	defer root.Close()
	name := id + ledgerSuffix
	switch info, err := root.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return missing()
	case err != nil:
		return refuse("%v", fserr.Cause(err))
	case !info.Mode().IsRegular():
		return refuse("not a file")
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return refuse("%v", fserr.Cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return refuse("%v", fserr.Cause(err))
	case !info.Mode().IsRegular():
		return refuse("not a file")
	case info.Size() > maxLedger:
		return refuse("more than %d bytes", maxLedger)
	}
	if err := private(info); err != nil {
		return refuse("%v", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLedger))
	if err != nil {
		return refuse("%v", fserr.Cause(err))
	}
	l, err := parseLedger(id, data)
	if err != nil {
		return refuse("%v", err)
	}
	return l, nil
}

// parseLedger reads what Save wrote, and nothing else.
func parseLedger(id string, data []byte) (*Ledger, error) {
	l := &Ledger{}
	if err := wire.Decode(data, l, maxLedger); err != nil {
		return nil, err
	}
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&Ledger{}); err != nil {
		return nil, err
	}
	if err := l.validate(id); err != nil {
		return nil, err
	}
	return l, nil
}

// Save writes a ledger, 0600 in a folder 0700, as one whole; an empty one is removed.
//
// Errors: failed-precondition; internal for what Load would refuse.
func (s *Ledgers) Save(l *Ledger) error {
	fail := func(err error) error {
		return wire.Errorf(wire.CodeFailedPrecondition, "write ledger of deploy %q: %v", l.ID, fserr.Cause(err))
	}
	if err := l.validate(l.ID); err != nil {
		return wire.Errorf(wire.CodeInternal, "write ledger of deploy %q: %v", l.ID, err)
	}
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fail(err)
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return fail(err)
	}
	defer root.Close()
	name := l.ID + ledgerSuffix
	if l.Empty() {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
		return nil
	}
	if err := atomicfile.WriteIn(root, name, append(data, '\n')); err != nil {
		return fail(err)
	}
	return nil
}

// List returns the ledgers of the folder, by id; those that cannot be read are left out.
//
// Errors: failed-precondition when the folder cannot be read.
func (s *Ledgers) List() ([]*Ledger, error) {
	files, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "list ledgers: %v", fserr.Cause(err))
	}
	var out []*Ledger
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ledgerSuffix)
		if !ok || len(out) == maxListed {
			continue
		}
		if l, err := s.Load(id); err == nil {
			out = append(out, l)
		}
	}
	return out, nil
}

const maxListed = 256
