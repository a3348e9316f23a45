package config

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/plainfile"
	"github.com/cotal-go/cotal/wire"
)

// Folder is the name of the folder that makes a folder a project.
const Folder = ".cotal"

// ignored keeps everything of the project folder out of version control that a machine writes or that is secret.
const ignored = "# written by cotal: keys, run-time state and broker files stay on this machine\n" +
	"auth/\nspace.*/\nbroker/\nrun/\nlog/\ndeploys/\n"

// Project is one project folder. Make one with [FindProject] or [NewProject].
type Project struct {
	// Root is the folder that holds Dir, Dir the .cotal folder itself.
	Root, Dir string
}

// FindProject returns the nearest project at or above dir, or nil when there is none. The machine's own folder is
// not a project, though it has the same name in the home folder.
func FindProject(dir string, m Machine) (*Project, error) {
	dir = resolved(dir)
	for {
		p := NewProject(dir)
		info, err := os.Stat(p.Dir)
		switch {
		case err == nil && info.IsDir() && !m.Owns(p.Dir):
			return p, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, wire.Errorf(wire.CodeFailedPrecondition, "look for a project at %q: %v", dir, err)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil, nil
		}
		dir = parent
	}
}

// resolved is the one path of a folder, whatever links lead to it: records of a project carry it.
func resolved(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return filepath.Clean(dir)
}

// NewProject names the project of folder root, whether it exists or not.
func NewProject(root string) *Project {
	root = resolved(root)
	return &Project{Root: root, Dir: filepath.Join(root, Folder)}
}

// Create makes the project folder, private to its owner. It is idempotent.
func (p *Project) Create() error {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "make project folder %q: %v", p.Dir, fserr.Cause(err))
	}
	ignore := filepath.Join(p.Dir, ".gitignore")
	if _, err := os.Lstat(ignore); errors.Is(err, fs.ErrNotExist) {
		return writeFile(ignore, []byte(ignored), 0o644)
	}
	return nil
}

// StateDir is where the broker of a project keeps its files unless settings say otherwise.
func (p *Project) StateDir() string { return filepath.Join(p.Dir, "broker") }

// StateOf is where the broker of a project keeps its files under the settings.
func (p *Project) StateOf(s Settings) string {
	if s.StoreDir != "" {
		return s.StoreDir
	}
	return p.StateDir()
}

// LogFile is where a detached run logs.
func (p *Project) LogFile() string { return filepath.Join(p.Dir, "log", "up.log") }

// Lock takes the lock that the process which runs the project's mesh holds, and returns what gives it back. It
// returns nil without an error when another process holds it. The system gives the lock back when its holder dies.
func (p *Project) Lock() (release func(), err error) {
	path := p.lockFile()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "make folder of %q: %v", path, fserr.Cause(err))
	}
	if err := plainfile.Check(os.Lstat(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "lock %q: %v", path, fserr.Cause(err))
	}
	l := flock.New(path, flock.SetPermissions(0o600), flock.SetFlag(os.O_CREATE|os.O_RDONLY|plainfile.Flags))
	ok, err := l.TryLock()
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "lock %q: %v", path, err)
	}
	if !ok {
		return nil, nil
	}
	held, err := l.Stat()
	if there, serr := os.Lstat(path); err != nil || serr != nil || !os.SameFile(held, there) {
		_ = l.Close()
		return nil, nil // a start that failed has just taken the file away; who looks again finds the new one
	}
	_ = os.Truncate(path, 0) // what an earlier holder left there is over
	return func() { _ = l.Close() }, nil
}

// lockedRun is the run that the holder of the lock left in the lock file, nil when nobody holds it or the holder is only
// starting. Unlike the record, it cannot outlive its process.
func (p *Project) lockedRun() *Run {
	var r Run
	if readRecord(p.lockFile(), &r, &r.V) != nil {
		return nil
	}
	release, err := p.Lock()
	if err != nil {
		return nil
	}
	if release != nil {
		release()
		return nil
	}
	return &r
}

// Held reports whether the process of a run holds the lock, which it does as long as it lives.
func (p *Project) Held(r Run) bool {
	held := p.lockedRun()
	return held != nil && held.PID == r.PID && held.Start == r.Start
}

// CredsKey is the key of a named credential in the secret store of the project.
func (p *Project) CredsKey(space, name string) string {
	return "auth/creds/space." + hex.EncodeToString([]byte(space)) + "/" + name + ".creds"
}

// CredsFile is the file of a named credential.
func (p *Project) CredsFile(space, name string) string {
	return filepath.Join(p.Dir, filepath.FromSlash(p.CredsKey(space, name)))
}

// Trusted reports whether the project holds trust records, so that its commands may mint for themselves.
func (p *Project) Trusted() bool {
	_, err := os.Stat(filepath.Join(p.Dir, "auth", "broker.json"))
	return err == nil
}

// Spaces lists, sorted, the spaces that the project holds records of.
func (p *Project) Spaces() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(p.Dir, "auth"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read trust records of %q: %v", p.Root, err)
	}
	var out []string
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), "account.")
		if !ok {
			continue
		}
		raw, err := hex.DecodeString(strings.TrimSuffix(name, ".json"))
		if err != nil || !strings.HasSuffix(name, ".json") {
			continue
		}
		out = append(out, string(raw))
	}
	slices.Sort(out)
	return out, nil
}

// LastPort is the port of the last start, or 0. A start that is free to choose tries it first, so that clients which
// kept the address find the mesh again.
func (p *Project) LastPort() int {
	line, err := readLine(p.portFile())
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(line)
	if err != nil || port < 1 || port > 65535 {
		return 0
	}
	return port
}

// SavePort remembers the port of a start.
func (p *Project) SavePort(port int) error {
	return writeFile(p.portFile(), []byte(strconv.Itoa(port)+"\n"), 0o600)
}

func (p *Project) portFile() string     { return filepath.Join(p.Dir, "run", "port") }
func (p *Project) settingsFile() string { return filepath.Join(p.Dir, "config.json") }
func (p *Project) lockFile() string     { return filepath.Join(p.Dir, "run", "up.lock") }
func (p *Project) runFile() string      { return filepath.Join(p.Dir, "run", "up.json") }
func (p *Project) keeperFile() string   { return filepath.Join(p.Dir, "run", "keeper.json") }
func (p *Project) placeFile() string    { return filepath.Join(p.Dir, "run", "place.json") }
func (p *Project) startingFile() string { return filepath.Join(p.Dir, "run", "starting.json") }

// Settings reads what the project remembers; the zero value when it remembers nothing yet.
func (p *Project) Settings() (Settings, error) {
	var s Settings
	err := readRecord(p.settingsFile(), &s, &s.V)
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, nil
	}
	if err != nil {
		return Settings{}, err
	}
	return s, p.checkSettings(s)
}

func (p *Project) checkSettings(s Settings) error {
	bad := func(format string, args ...any) error {
		return wire.Errorf(wire.CodeFailedPrecondition, "read %q: "+format, append([]any{p.settingsFile()}, args...)...)
	}
	if s.Space != "" {
		if _, err := wire.ParseSpace(s.Space); err != nil {
			return bad("%v", err)
		}
	}
	if s.Port < 0 || s.Port > 65535 {
		return bad("port %d, allowed 0 to 65535", s.Port)
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return bad("tlsCert and tlsKey must be given together")
	}
	if err := s.People.Check(); err != nil {
		return bad("people: %v", err)
	}
	return nil
}

// SaveSettings writes what the project remembers.
func (p *Project) SaveSettings(s Settings) error {
	s.V = RecordVersion
	return writeRecord(p.settingsFile(), s, 0o644)
}

// place says which folder the records of a project are for.
type place struct {
	V    int    `json:"v"`
	Root string `json:"root"`
	// ID is the folder's own. A copy has that of its original until it is started itself.
	ID string `json:"id"`
}

func (p *Project) place() (place, error) {
	var at place
	return at, readRecord(p.placeFile(), &at, &at.V)
}

// Original is the folder of the project that this one is a copy of, "" for none. What the records of a copy say of processes is about those of
// the original, so [Project.Run], [Project.Keeper] and [Project.Starting] find none there. A folder that was moved is no copy.
func (p *Project) Original() string {
	own, err := p.place()
	if err != nil || own.Root == p.Root {
		return ""
	}
	other := NewProject(own.Root)
	if at, err := other.place(); err != nil || at.ID != own.ID {
		return ""
	}
	here, errHere := os.Stat(p.Dir)
	there, errThere := os.Stat(other.Dir)
	if errHere != nil || errThere != nil || os.SameFile(here, there) { // one folder under two paths
		return ""
	}
	return own.Root
}

// Moved is the folder that the records of the project are for when this is neither that one nor a copy of it, "" else. The next start settles that;
// while a mesh runs, it was started there.
func (p *Project) Moved() string {
	own, err := p.place()
	if err != nil || own.Root == p.Root || p.Original() != "" {
		return ""
	}
	here, errHere := os.Stat(p.Dir)
	there, errThere := os.Stat(NewProject(own.Root).Dir)
	if errHere != nil || errThere == nil && os.SameFile(here, there) { // one folder under two paths
		return ""
	}
	return own.Root
}

// Settle notes that the records are for this folder. The caller holds the lock, and has taken away what a copy brought with it.
func (p *Project) Settle() error {
	at, err := p.place()
	copied := p.Original() != ""
	if err == nil && at.Root == p.Root {
		return nil
	}
	if err != nil || copied {
		at.ID = rand.Text()
	}
	if copied {
		for _, file := range []string{p.runFile(), p.keeperFile(), p.startingFile()} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return wire.Errorf(wire.CodeFailedPrecondition, "remove %q: %v", file, fserr.Cause(err))
			}
		}
	}
	at.V, at.Root = RecordVersion, p.Root
	return writeRecord(p.placeFile(), at, 0o600)
}

// Run reads the record of the last start, or returns nil when there is none. When the record is gone or cannot be read
// while its process runs, it is what that process left in its lock file.
func (p *Project) Run() (*Run, error) {
	if p.Original() != "" {
		return nil, nil
	}
	var r Run
	err := readRecord(p.runFile(), &r, &r.V)
	if err == nil {
		return &r, nil
	}
	if held := p.lockedRun(); held != nil {
		return held, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, err
}

// SaveRun writes the record of a start. The caller holds the lock.
func (p *Project) SaveRun(r Run) error {
	r.V = RecordVersion
	if err := writeRecord(p.runFile(), r, 0o600); err != nil {
		return err
	}
	// In place, because the lock is on this very file. Where a locked file cannot be written the record is all there is.
	if data, err := json.Marshal(r); err == nil {
		_ = overwrite(p.lockFile(), data)
	}
	return nil
}

func overwrite(path string, data []byte) error {
	f, err := plainfile.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// ForgetRun removes the record of a start; it is idempotent.
func (p *Project) ForgetRun() error {
	if err := os.Remove(p.runFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wire.Errorf(wire.CodeFailedPrecondition, "remove %q: %v", p.runFile(), fserr.Cause(err))
	}
	return nil
}

// Keeper reads the record of the process that starts the detached run again when it ends unasked, or returns nil when there is none.
func (p *Project) Keeper() (*Process, error) { return p.readProcess(p.keeperFile()) }

// SaveKeeper writes the record of a keeper, over that of an earlier one.
func (p *Project) SaveKeeper(k Process) error { return saveProcess(p.keeperFile(), k) }

// ForgetKeeper removes the record of a keeper, unless it is another one's by now; it is idempotent.
func (p *Project) ForgetKeeper(k Process) error { return p.forgetProcess(p.keeperFile(), k) }

// Starting reads the record of the process in the background that starts the detached run, or returns nil when there is none.
func (p *Project) Starting() (*Process, error) { return p.readProcess(p.startingFile()) }

// SaveStarting writes the record of a start, over that of an earlier one. The caller holds the lock: when it gives that back, the start
// goes on.
func (p *Project) SaveStarting(s Process) error { return saveProcess(p.startingFile(), s) }

// ForgetStarting removes the record of a start, unless it is another one's by now; it is idempotent.
func (p *Project) ForgetStarting(s Process) error { return p.forgetProcess(p.startingFile(), s) }

func (p *Project) readProcess(path string) (*Process, error) {
	if p.Original() != "" {
		return nil, nil
	}
	var r Process
	err := readRecord(path, &r, &r.V)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

func saveProcess(path string, r Process) error {
	r.V = RecordVersion
	return writeRecord(path, r, 0o600)
}

func (p *Project) forgetProcess(path string, r Process) error {
	if now, err := p.readProcess(path); err != nil || now == nil || now.PID != r.PID || now.Start != r.Start {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wire.Errorf(wire.CodeFailedPrecondition, "remove %q: %v", path, fserr.Cause(err))
	}
	return nil
}
