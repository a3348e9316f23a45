package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// SignIn is what the machine remembers of a space that somebody signed in at, so that commands find it again. It holds
// nothing secret: the session is kept in [Machine.SessionDir].
type SignIn struct {
	V int `json:"v"`
	// URL is where a mesh elsewhere says how to sign in; Root is the project folder of a mesh of this machine. One of both.
	URL  string `json:"url,omitempty"`
	Root string `json:"root,omitempty"`
	// Space is the space, Issuer the identity provider of the session.
	Space  string `json:"space"`
	Issuer string `json:"issuer"`
	// Actor is the name to act under; empty leaves the choice to the mesh.
	Actor string `json:"actor,omitempty"`
	// Server is the broker of a mesh elsewhere, as that said last; empty when it does not say. Exchange is where it gives tokens.
	Server   string `json:"server,omitempty"`
	Exchange string `json:"exchange,omitempty"`
	// CA is a file of certificates that the mesh and its provider are checked against besides the system's; empty for none.
	CA string `json:"ca,omitempty"`
}

// EnvSessions says where new sessions are sealed, keyring or file; without it the keyring is used where it works.
const EnvSessions = "COTAL_SESSIONS"

// Remote reports whether the mesh is elsewhere: nothing of it is on this machine but the session.
func (s SignIn) Remote() bool { return s.URL != "" }

// Mesh names space and mesh together. Equal names are the same space.
func (s SignIn) Mesh() string {
	where := "root " + s.Root
	if s.Remote() {
		where = "url " + s.URL
	}
	text, err := json.Marshal([2]string{where, s.Space}) // unambiguous, whatever stands in either
	if err != nil {
		panic(err) // strings always encode
	}
	return string(text)
}

func (s SignIn) id() string {
	sum := sha256.Sum256([]byte(s.Mesh()))
	return hex.EncodeToString(sum[:8])
}

// SessionDir is the private folder of sessions at identity providers; empty when the machine has no folder.
func (m Machine) SessionDir() string {
	if m.Dir == "" {
		return ""
	}
	return filepath.Join(m.Dir, "sessions")
}

func (m Machine) signInDir() string { return filepath.Join(m.meshDir(), "people") }
func (m Machine) signInFile(id string) string {
	return filepath.Join(m.signInDir(), id+".json")
}

// SignIns lists what the machine remembers, those of meshes elsewhere first. A record that cannot be read is an error that
// names the file.
func (m Machine) SignIns() ([]SignIn, error) {
	if m.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(m.signInDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "list sign-ins: %v", err)
	}
	var out []SignIn
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		var s SignIn
		err := readRecord(filepath.Join(m.signInDir(), e.Name()), &s, &s.V)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SignIn) int {
		return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(a.URL, b.URL), cmp.Compare(a.Space, b.Space))
	})
	return out, nil
}

// remotes lists the meshes elsewhere.
func (m Machine) remotes() ([]SignIn, error) {
	all, err := m.SignIns()
	return slices.DeleteFunc(all, func(s SignIn) bool { return !s.Remote() }), err
}

// SignInOf returns what is remembered of the space that s names, or s as it is.
func (m Machine) SignInOf(s SignIn) (SignIn, error) {
	if m.Dir == "" {
		return s, nil
	}
	var have SignIn
	err := readRecord(m.signInFile(s.id()), &have, &have.V)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return s, err
	}
	return have, nil
}

// SaveSignIn remembers a sign-in. A mesh elsewhere becomes the current one.
//
// Errors: failed-precondition for a machine without a folder.
func (m Machine) SaveSignIn(s SignIn) error {
	if m.Dir == "" {
		return NoHome()
	}
	s.V = RecordVersion
	if err := writeRecord(m.signInFile(s.id()), s, 0o600); err != nil {
		return err
	}
	if !s.Remote() {
		return nil
	}
	return m.UseSignIn(s)
}

// NoHome is the error of a machine without a folder of its own.
func NoHome() error {
	return wire.Errorf(wire.CodeFailedPrecondition, "this machine has no folder to keep a session in: set %s", EnvHome)
}

// UseSignIn makes a mesh elsewhere the current one.
func (m Machine) UseSignIn(s SignIn) error {
	return writeFile(m.currentFile(), []byte(s.id()+"\n"), 0o600)
}

// ForgetSignIn removes what is remembered; it is idempotent.
func (m Machine) ForgetSignIn(s SignIn) error {
	if m.Dir == "" {
		return nil
	}
	if err := os.Remove(m.signInFile(s.id())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wire.Errorf(wire.CodeFailedPrecondition, "forget sign-in at %q: %v", cmp.Or(s.URL, s.Root), fserr.Cause(err))
	}
	return m.notCurrent(s.id())
}

// currentRemote picks, of the meshes elsewhere, the current one; nil when none is.
func (m Machine) currentRemote(remotes []SignIn) (*SignIn, error) {
	cur, err := m.current()
	if err != nil || cur == "" {
		return nil, err
	}
	for i := range remotes {
		if remotes[i].id() == cur {
			return &remotes[i], nil
		}
	}
	return nil, nil
}
