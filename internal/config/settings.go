package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/plainfile"
	"github.com/cotal-go/cotal/wire"
)

// RecordVersion is the version every record of this package carries in its field "v".
//
// History: 1 (2026-11) first edition.
const RecordVersion = 1

// Settings is what a project remembers from its first `cotal up`, so that the next one brings back the same
// mesh. A person may edit the file. It holds no secret: keys and certificates are paths.
type Settings struct {
	V int `json:"v"`
	// Space is the project's default space.
	Space string `json:"space,omitempty"`
	// Host and Port are the listening address; 0 means 4222 or, when taken, a free one.
	Host string `json:"host,omitempty"`
	Port int    `json:"port,omitempty"`
	// TLSCert and TLSKey are the files of the listener's certificate; both or neither.
	TLSCert string `json:"tlsCert,omitempty"`
	TLSKey  string `json:"tlsKey,omitempty"`
	// StoreDir holds the broker's files; empty means the folder "broker" of the project.
	StoreDir string `json:"storeDir,omitempty"`
	// Strict syncs every write before it is acknowledged.
	Strict bool `json:"strict,omitempty"`
	// Open is the mode without authentication.
	Open bool `json:"open,omitempty"`
	// MaxAgents bounds the agents of one supervisor that have not ended; 0 is its default.
	MaxAgents int `json:"maxAgents,omitempty"`
	// People is how people sign in, for spaces where they do.
	People People `json:"people,omitzero"`
}

// People is how the exchange of a project's spaces of people is served. The zero value is on loopback alone.
type People struct {
	// Port is that of the loopback face; 0: the system chooses.
	Port int `json:"exchangePort,omitempty"`
	// PublicPort is that of the public face, 0 for none; PublicURL is where its proxy is reached, and TrustedProxy believes
	// the proxy about who asks.
	PublicPort   int    `json:"exchangePublicPort,omitempty"`
	PublicURL    string `json:"exchangePublicUrl,omitempty"`
	TrustedProxy bool   `json:"exchangeTrustedProxy,omitempty"`
	// Advertise is the address of the broker that people are told; empty: that of the listener.
	Advertise string `json:"advertise,omitempty"`
	// RequireKeyProof refuses clients that do not bind their tokens to a key.
	RequireKeyProof bool `json:"requireKeyProof,omitempty"`
}

// Run is what a running `cotal up` leaves for other commands. It says where to ask, not what is true: status is
// always a live answer.
type Run struct {
	V       int       `json:"v"`
	PID     int       `json:"pid"`
	Start   string    `json:"start"` // see package process
	URL     string    `json:"url"`
	CA      string    `json:"ca,omitempty"`      // certificate file that clients on this machine may trust
	TLSName string    `json:"tlsName,omitempty"` // name the certificate is for, when it is not the host of URL
	Spaces  []string  `json:"spaces"`
	Open    bool      `json:"open,omitempty"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Log     string    `json:"log,omitempty"` // log file of a detached run
}

// Process is one process of this machine, by which a record names who does something for a project. It may have ended.
type Process struct {
	V     int    `json:"v"`
	PID   int    `json:"pid"`
	Start string `json:"start"` // see package process
}

// Mesh is what the machine knows about one project's mesh, so that commands work from any folder.
type Mesh struct {
	V    int    `json:"v"`
	Root string `json:"root"` // folder that holds .cotal
	URL  string `json:"url"`
	CA   string `json:"ca,omitempty"`
	// TLSName is the name the certificate is for, when it is not the host of URL.
	TLSName string   `json:"tlsName,omitempty"`
	Space   string   `json:"space"` // default space of the project
	Spaces  []string `json:"spaces"`
	Open    bool     `json:"open,omitempty"`
}

// readRecord fills v from the file, or reports fs.ErrNotExist.
func readRecord(path string, v any, version *int) error {
	const limit = 1 << 20
	f, err := plainfile.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fs.ErrNotExist
		}
		return wire.Errorf(wire.CodeFailedPrecondition, "read %q: %v", path, fserr.Cause(err))
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "read %q: %v", path, err)
	}
	if len(data) > limit {
		return wire.Errorf(wire.CodeFailedPrecondition, "read %q: larger than %d bytes", path, limit)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "read %q: %v", path, err)
	}
	if dec.More() {
		return wire.Errorf(wire.CodeFailedPrecondition, "read %q: more than one value in the file", path)
	}
	if *version != RecordVersion {
		return wire.Errorf(wire.CodeFailedPrecondition, "read %q: version %d, this program knows %d", path, *version, RecordVersion)
	}
	return nil
}

// readLine reads a file that holds one short line.
func readLine(path string) (string, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	return strings.TrimSpace(string(data)), err
}

// writeRecord replaces the file with v as one whole.
func writeRecord(path string, v any, perm fs.FileMode) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %q: %w", path, err)
	}
	return writeFile(path, append(data, '\n'), perm)
}

// writeFile replaces the file at path as a whole. Folders that are missing are made private.
func writeFile(path string, data []byte, perm fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "make folder %q: %w", dir, fserr.Cause(err))
	}
	if err := atomicfile.Write(path, data, perm); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "write %q: %w", path, fserr.Cause(err))
	}
	return nil
}

// WritePrivate writes a file that only its owner can read, as one whole. Without replace a file that exists is
// refused with already-exists.
func WritePrivate(path string, data []byte, replace bool) error {
	if !replace {
		// Create reserves the name; the rename below fills it.
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return wire.Errorf(wire.CodeAlreadyExists, "write %q: the file exists", path)
		}
		if err != nil {
			return wire.Errorf(wire.CodeFailedPrecondition, "write %q: %v", path, err)
		}
		_ = f.Close()
	}
	return writeFile(path, data, 0o600)
}
