package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// Machine is the per-user folder that lists the meshes of this machine. The zero value has no folder: it knows
// nothing and saves nothing.
type Machine struct {
	Dir string
}

// machineDir is COTAL_HOME, or ~/.cotal (on Windows %LOCALAPPDATA%\Cotal).
func machineDir(getenv func(string) string) Value {
	v := Value{Key: KeyHome}
	if dir := getenv(EnvHome); dir != "" {
		v.Value, v.Source = dir, fromEnv(EnvHome)
		return v
	}
	v.Source = SourceDefault
	if runtime.GOOS == "windows" {
		if dir := getenv("LOCALAPPDATA"); dir != "" {
			v.Value = filepath.Join(dir, "Cotal")
		}
		return v
	}
	if home := getenv("HOME"); home != "" {
		v.Value = filepath.Join(home, Folder)
	}
	return v
}

// Owns reports whether dir is the machine's own folder.
func (m Machine) Owns(dir string) bool {
	if m.Dir == "" {
		return false
	}
	if filepath.Clean(dir) == filepath.Clean(m.Dir) {
		return true
	}
	a, errA := os.Stat(dir)
	b, errB := os.Stat(m.Dir)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// meshID names the record of a root: one mesh per project folder.
func meshID(root string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(root)))
	return hex.EncodeToString(sum[:8])
}

func (m Machine) meshDir() string { return filepath.Join(m.Dir, "meshes") }
func (m Machine) meshFile(root string) string {
	return filepath.Join(m.meshDir(), meshID(root)+".json")
}
func (m Machine) currentFile() string { return filepath.Join(m.Dir, "current-mesh") }

// Meshes lists what the machine knows, by root. A record that cannot be read is an error that names the file.
func (m Machine) Meshes() ([]Mesh, error) {
	if m.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(m.meshDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "list meshes: %v", err)
	}
	var out []Mesh
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		var mesh Mesh
		err := readRecord(filepath.Join(m.meshDir(), e.Name()), &mesh, &mesh.V)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(NewProject(mesh.Root).Dir); errors.Is(err, fs.ErrNotExist) {
			continue // the project was deleted; nothing of the mesh is left to reach
		}
		out = append(out, mesh)
	}
	slices.SortFunc(out, func(a, b Mesh) int { return cmp.Compare(a.Root, b.Root) })
	return out, nil
}

// Save records a mesh. The first one known becomes the current one.
func (m Machine) Save(mesh Mesh) error {
	if m.Dir == "" {
		return nil
	}
	mesh.V = RecordVersion
	if err := writeRecord(m.meshFile(mesh.Root), mesh, 0o600); err != nil {
		return err
	}
	if cur, err := m.current(); err != nil || cur == "" || !m.has(cur) {
		return m.Use(mesh)
	}
	return nil
}

// Forget removes the record of a root; it is idempotent.
func (m Machine) Forget(root string) error {
	if m.Dir == "" {
		return nil
	}
	if err := os.Remove(m.meshFile(root)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wire.Errorf(wire.CodeFailedPrecondition, "forget mesh of %q: %v", root, fserr.Cause(err))
	}
	return m.notCurrent(meshID(root))
}

// notCurrent leaves the machine without a current mesh if it is this one.
func (m Machine) notCurrent(id string) error {
	if cur, err := m.current(); err == nil && cur == id {
		if err := os.Remove(m.currentFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return wire.Errorf(wire.CodeFailedPrecondition, "forget current mesh: %v", fserr.Cause(err))
		}
	}
	return nil
}

// Use makes a mesh the current one.
func (m Machine) Use(mesh Mesh) error {
	return writeFile(m.currentFile(), []byte(meshID(mesh.Root)+"\n"), 0o600)
}

// Current picks, of what Meshes returned, the current mesh; nil when none is.
func (m Machine) Current(meshes []Mesh) (*Mesh, error) {
	cur, err := m.current()
	if err != nil || cur == "" {
		return nil, err
	}
	for i := range meshes {
		if meshID(meshes[i].Root) == cur {
			return &meshes[i], nil
		}
	}
	return nil, nil
}

func (m Machine) current() (string, error) {
	if m.Dir == "" {
		return "", nil
	}
	line, err := readLine(m.currentFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", wire.Errorf(wire.CodeFailedPrecondition, "read current mesh: %v", err)
	}
	return line, nil
}

func (m Machine) has(id string) bool {
	for _, path := range []string{filepath.Join(m.meshDir(), id+".json"), m.signInFile(id)} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
