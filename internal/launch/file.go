package launch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// Env is the environment variable that holds the absolute path of the launch file. It is no secret.
const Env = "COTAL_LAUNCH"

// Version is the edition of the file. History: 1 (2026-11) first edition.
const Version = 1

// maxSize bounds a file in bytes: a persona's text and a prompt at their largest, escaped at their worst, and the rest.
const maxSize = 1 << 20

// File is what an agent is told. Paths are absolute.
type File struct {
	V     int        `json:"v"` // [Version]; Write fills a zero in
	Space wire.Space `json:"space"`
	// Server is the address of the broker, nats://host:port or tls://host:port.
	Server string `json:"server"`
	// TLS says that the connection is encrypted whatever the address says. CAFile are the certificates to trust besides the
	// system's, and TLSName is whom the broker's certificate must be for, if not for the host of the address.
	TLS     bool   `json:"tls,omitempty"`
	CAFile  string `json:"caFile,omitempty"`
	TLSName string `json:"tlsName,omitempty"`

	Principal string   `json:"principal"` // owner.actor
	UID       wire.UID `json:"uid"`
	Name      string   `json:"name"`
	Role      string   `json:"role,omitempty"`
	Connector string   `json:"connector"`
	Model     string   `json:"model,omitempty"`
	// Persona is the name of the agent file, PersonaText its text after the front matter.
	Persona     string `json:"persona,omitempty"`
	PersonaText string `json:"personaText,omitempty"`

	Manager string `json:"manager"`        // instance of the supervisor that started it
	Dir     string `json:"dir"`            // folder of the agent's files, where the launch file is
	Seat    string `json:"seat,omitempty"` // folder of its seat, for who wakes it
	// Creds is the path of a credential file that the supervisor keeps fresh, in a space of credential files; Exchange is how the
	// agent gets bearers in a space of people. Exactly one is set.
	Creds    string    `json:"creds,omitempty"`
	Exchange *Exchange `json:"exchange,omitempty"`

	Subscribe    []string `json:"subscribe,omitempty"`    // channels to join at the start
	Capabilities []string `json:"capabilities,omitempty"` // such as spawn
	Prompt       string   `json:"prompt,omitempty"`       // the first thing to do
	Wakes        bool     `json:"wakes,omitempty"`        // a line typed into its terminal wakes it
	HostSocket   string   `json:"hostSocket,omitempty"`   // unix socket on which its tools hear the hooks of its host
}

// Exchange is how an agent gets its bearers. It prints without the secret.
type Exchange struct {
	CapabilityFile string `json:"capabilityFile"` // leads to the space's exchange and changes when that starts again
	Owner          string `json:"owner"`
	Actor          string `json:"actor"`
	Secret         Secret `json:"secret"`
}

// Secret is the token by which an agent proves itself to the exchange. It prints and logs as [secret]; string(s) reveals it. Only a
// launch file encodes it.
type Secret string

// Format writes a fixed word, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secret]") }

// LogValue returns a fixed word.
func (s Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// Format writes whom the exchange is for.
func (x Exchange) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "[exchange for %s.%s]", x.Owner, x.Actor)
}

// LogValue returns whom the exchange is for.
func (x Exchange) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(x)) }

// Format writes whom the file is for.
func (f File) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "[launch file of %q, space %q]", f.Principal, f.Space)
}

// LogValue returns whom the file is for.
func (f File) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(f)) }

// Lifecycle is the identity that the file gives.
//
// Errors: bad-request for a principal that cannot be.
func (f File) Lifecycle() (wire.Lifecycle, error) {
	p, err := wire.ParsePrincipal(f.Principal)
	return wire.Lifecycle{Principal: p, UID: f.UID}, err
}

// Check says what is wrong with the file, nil for nothing.
//
// Errors: bad-request; unsupported-version for another edition.
func (f File) Check() error {
	if f.V != Version {
		return wire.Errorf(wire.CodeUnsupportedVersion, "edition %d: this build knows %d", f.V, Version)
	}
	life, err := f.Lifecycle()
	if err == nil {
		err = life.Validate()
	}
	if err == nil {
		err = f.Space.Validate()
	}
	if err != nil {
		return err
	}
	for _, v := range [][2]string{{"server", f.Server}, {"name", f.Name}, {"connector", f.Connector}, {"manager", f.Manager}, {"dir", f.Dir}} {
		if v[1] == "" {
			return wire.Errorf(wire.CodeBadRequest, "%s is missing", v[0])
		}
	}
	x := f.Exchange
	switch {
	case (f.Creds == "") == (x == nil):
		return wire.Errorf(wire.CodeBadRequest, "want exactly one of creds and exchange")
	case x != nil && (x.CapabilityFile == "" || x.Secret == ""):
		return wire.Errorf(wire.CodeBadRequest, "exchange: capabilityFile or secret is missing")
	case x != nil && (wire.Principal{Owner: x.Owner, Actor: x.Actor}) != life.Principal:
		return wire.Errorf(wire.CodeBadRequest, "exchange: it is for %s.%s, the file for %s", x.Owner, x.Actor, f.Principal)
	}
	paths := [][2]string{{"dir", f.Dir}, {"creds", f.Creds}, {"caFile", f.CAFile}, {"seat", f.Seat}, {"hostSocket", f.HostSocket}}
	if x != nil {
		paths = append(paths, [2]string{"capabilityFile", x.CapabilityFile})
	}
	for _, v := range paths {
		if v[1] != "" && !filepath.IsAbs(v[1]) {
			return wire.Errorf(wire.CodeBadRequest, "%s %q is not absolute", v[0], v[1])
		}
	}
	return nil
}

// Write puts the file at an absolute path, readable by the owner of the process alone, in one step: a reader sees the old one or the
// new one.
//
// Errors: those of [File.Check]; failed-precondition for a path that cannot be written.
func Write(path string, f File) error {
	if f.V == 0 {
		f.V = Version
	}
	if err := f.Check(); err != nil {
		return wire.Errorf(wire.CodeOf(err), "write launch file %q: %v", path, err)
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "write launch file %q: %v", path, err)
	}
	if len(data) > maxSize {
		return wire.Errorf(wire.CodeBadRequest, "write launch file %q: %d bytes, at most %d", path, len(data), maxSize)
	}
	if err := atomicfile.Write(path, append(data, '\n'), 0o600); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "write launch file %q: %v", path, fserr.Cause(err))
	}
	return nil
}

// Read reads a launch file.
//
// Errors: not-found when there is none; failed-precondition for a path that cannot be read, is no regular file, has another mode than
// 0600 or another owner than the user of this process; bad-request or unsupported-version for what it says.
func Read(path string) (File, error) {
	data, err := readOwn(path)
	if err != nil {
		return File{}, wire.Errorf(wire.CodeOf(err), "read launch file %q: %v", path, err)
	}
	var f File
	if err := wire.Decode(data, &f, maxSize); err != nil {
		return File{}, wire.Errorf(wire.CodeBadRequest, "read launch file %q: %v", path, err)
	}
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(new(File)); err != nil && f.V == Version {
		return File{}, wire.Errorf(wire.CodeBadRequest, "read launch file %q: %v", path, err)
	}
	if err := f.Check(); err != nil {
		return File{}, wire.Errorf(wire.CodeOf(err), "read launch file %q: %v", path, err)
	}
	return f, nil
}

// readOwn reads a file that nobody but the user of this process can read or has written.
func readOwn(path string) ([]byte, error) {
	in, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, wire.Errorf(wire.CodeNotFound, "there is none")
	case err != nil:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "%v", fserr.Cause(err))
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "%v", fserr.Cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "it is no regular file")
	}
	if err := private(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(in, maxSize+2))
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "%v", fserr.Cause(err))
	}
	return data, nil
}
