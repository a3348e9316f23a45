package persona

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/supervisor/internal/yamldoc"
	"github.com/cotal-go/cotal/wire"
)

// Folder is where a project keeps its agent files, below its .cotal folder.
const Folder = "agents"

const suffix = ".md"

// Store is a folder of agent files. The folder need not be there: then it holds none, and the first file makes it.
//
// Nothing outside the folder is read or written, whatever links lie in it.
type Store struct {
	dir   string
	label string // how errors name the folder
}

// Open names a folder, usually .cotal/agents. It looks at nothing.
func Open(dir string) *Store {
	return &Store{dir: dir, label: filepath.ToSlash(filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir)))}
}

// Dir is the folder.
func (s *Store) Dir() string { return s.dir }

// Path is the file of a persona, there or not.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name+suffix) }

// shown is how errors name a file: without the folders of the host, since peers may see them.
func (s *Store) shown(name string) string { return s.label + "/" + name + suffix }

// Entry is one file of a folder: a persona, or what is wrong with it.
type Entry struct {
	Name    string
	Persona Persona
	// Err is why the file is none, with [ProblemsOf] where it could be read; nil for a good one.
	Err error
}

// List reads all files, by name. One that cannot be read is an entry with its error.
//
// Errors: resource-exhausted for more than [MaxFiles]; failed-precondition when the folder cannot be read.
func (s *Store) List() ([]Entry, error) {
	root, err := s.open(false)
	if err != nil || root == nil {
		return nil, err
	}
	defer root.Close()
	names, err := s.names(root)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(names))
	for _, name := range names {
		p, err := s.load(root, name)
		out = append(out, Entry{Name: name, Persona: p, Err: err})
	}
	return out, nil
}

// Names are the names of all files, good or not, sorted.
//
// Errors: as [Store.List].
func (s *Store) Names() ([]string, error) {
	root, err := s.open(false)
	if err != nil || root == nil {
		return nil, err
	}
	defer root.Close()
	return s.names(root)
}

func (s *Store) names(root *os.Root) ([]string, error) {
	files, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "list agent files in %q: %v", s.label, fserr.Cause(err))
	}
	var out []string
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok || strings.HasPrefix(name, ".") || readme(name) {
			continue
		}
		if len(out) == MaxFiles {
			return nil, wire.Errorf(wire.CodeResourceExhausted, "list agent files in %q: more than %d", s.label, MaxFiles)
		}
		out = append(out, name)
	}
	return out, nil
}

// Load reads one.
//
// Errors: bad-request for what cannot be a name; not-found; failed-precondition for a file that is no agent file, with [ProblemsOf],
// or that cannot be read, such as a link that leads out of the folder.
func (s *Store) Load(name string) (Persona, error) {
	if err := ValidateName(name); err != nil {
		return Persona{}, err
	}
	root, err := s.open(false)
	if err != nil {
		return Persona{}, err
	}
	if root == nil {
		return Persona{}, s.missing(name)
	}
	defer root.Close()
	return s.load(root, name)
}

// Source returns the bytes of a file, whether it is valid or not.
//
// Errors: as [Store.Load], but for what the file says.
func (s *Store) Source(name string) ([]byte, error) {
	if err := ValidateName(name); err != nil {
		return nil, err
	}
	root, err := s.open(false)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, s.missing(name)
	}
	defer root.Close()
	return s.read(root, name)
}

func (s *Store) load(root *os.Root, name string) (Persona, error) {
	data, err := s.read(root, name)
	if err != nil {
		return Persona{}, err
	}
	p, err := Parse(s.shown(name), name, data)
	if err != nil {
		return Persona{}, invalid(err)
	}
	return p, nil
}

// invalid is an error about a file that is there, for somebody who only named it.
func invalid(err error) error {
	if all := ProblemsOf(err); all != nil {
		return yamldoc.Problems(all).Under(wire.CodeFailedPrecondition)
	}
	return err
}

func (s *Store) missing(name string) error {
	e := wire.Errorf(wire.CodeNotFound, "load agent file %q: there is no %s", name, s.shown(name))
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

// open returns nil without an error when the folder is not there and is not to be made.
func (s *Store) open(make bool) (*os.Root, error) {
	if make {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return nil, wire.Errorf(wire.CodeFailedPrecondition, "make folder %q: %v", s.label, fserr.Cause(err))
		}
	}
	root, err := os.OpenRoot(s.dir)
	switch {
	case err == nil:
		return root, nil
	case errors.Is(err, fs.ErrNotExist) && !make:
		return nil, nil
	}
	return nil, wire.Errorf(wire.CodeFailedPrecondition, "open folder %q: %v", s.label, fserr.Cause(err))
}

// read returns a regular file of bounded size that lies in the folder.
func (s *Store) read(root *os.Root, name string) ([]byte, error) {
	refuse := func(format string, args ...any) ([]byte, error) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read %s: %s", s.shown(name), fmt.Sprintf(format, args...))
	}
	f, err := root.OpenFile(name+suffix, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not make us wait
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.missing(name)
	}
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
	case info.Size() > MaxFile:
		return refuse("%d bytes, want at most %d", info.Size(), MaxFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return refuse("%v", fserr.Cause(err))
	}
	if len(data) > MaxFile {
		return refuse("more than %d bytes", MaxFile)
	}
	return data, nil
}

// Create writes the file of a new persona.
//
// Errors: already-exists; bad-request for what would be no agent file; failed-precondition when it cannot be written.
func (s *Store) Create(p Persona) error {
	if err := ValidateName(p.Name); err != nil {
		return err
	}
	data := Render(p)
	if _, err := Parse(s.shown(p.Name), p.Name, data); err != nil {
		return err
	}
	return s.write(p.Name, data, false)
}

// Put writes a file as it is: a new one, or in place of the one that is there.
//
// Errors: as [Store.Create], without already-exists.
func (s *Store) Put(name string, data []byte) error {
	if _, err := Parse(s.shown(name), name, data); err != nil {
		return err
	}
	return s.write(name, data, true)
}

// Import writes a file as it is where none of that name is.
//
// Errors: as [Store.Create].
func (s *Store) Import(name string, data []byte) error {
	if _, err := Parse(s.shown(name), name, data); err != nil {
		return err
	}
	return s.write(name, data, false)
}

// write makes or replaces a file as one whole. Without replace the name is reserved first, so that of two who make it one does.
func (s *Store) write(name string, data []byte, replace bool) (err error) {
	root, err := s.open(true)
	if err != nil {
		return err
	}
	defer root.Close()
	fail := func(err error) error {
		return wire.Errorf(wire.CodeFailedPrecondition, "write %s: %v", s.shown(name), fserr.Cause(err))
	}
	if !replace {
		f, err := root.OpenFile(name+suffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return wire.Errorf(wire.CodeAlreadyExists, "make agent file %q: %s is there already", name, s.shown(name))
		}
		if err != nil {
			return fail(err)
		}
		_ = f.Close()
	}
	if err := atomicfile.WriteIn(root, name+suffix, data); err != nil {
		if !replace {
			_ = root.Remove(name + suffix)
		}
		return fail(err)
	}
	return nil
}

// Remove removes a file, valid or not.
//
// Errors: bad-request for what cannot be a name; not-found; failed-precondition.
func (s *Store) Remove(name string) error {
	if err := ValidateName(name); err != nil {
		return err
	}
	root, err := s.open(false)
	if err != nil {
		return err
	}
	if root == nil {
		return s.missing(name)
	}
	defer root.Close()
	switch err := root.Remove(name + suffix); {
	case errors.Is(err, fs.ErrNotExist):
		return s.missing(name)
	case err != nil:
		return wire.Errorf(wire.CodeFailedPrecondition, "remove %s: %v", s.shown(name), fserr.Cause(err))
	}
	return nil
}
