package exchange

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strings"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/wire"
)

const (
	capabilityBytes       = 32
	capabilityFileVersion = 1
	maxCapabilityFile     = 4 << 10
)

// Capability opens the loopback face: 32 random bytes as hex. It prints, logs and encodes as a fixed word;
// [Capability.Reveal] is the one way to its text. The zero value opens nothing.
type Capability struct{ reveal func() string }

// NewCapability takes 64 lower-case hex digits. Its error has code bad-request and quotes nothing.
func NewCapability(text string) (Capability, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != capabilityBytes || hex.EncodeToString(raw) != text {
		return Capability{}, wire.Errorf(wire.CodeBadRequest, "read capability: not %d lower-case hex digits", 2*capabilityBytes)
	}
	return Capability{reveal: func() string { return text }}, nil
}

func newCapability() Capability {
	var raw [capabilityBytes]byte
	_, _ = rand.Read(raw[:]) // never fails, see crypto/rand
	text := hex.EncodeToString(raw[:])
	return Capability{reveal: func() string { return text }}
}

// Reveal returns the text, to be sent as "Authorization: Bearer <text>"; empty for the zero value.
func (c Capability) Reveal() string {
	if c.reveal == nil {
		return ""
	}
	return c.reveal()
}

// Format writes a fixed word whatever the verb.
func (Capability) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[capability]") }

// LogValue returns a fixed word.
func (Capability) LogValue() slog.Value { return slog.StringValue("[capability]") }

// MarshalText returns a fixed word, so that an encoder that walks into a capability writes nothing of use.
func (Capability) MarshalText() ([]byte, error) { return []byte("[capability]"), nil }

// opens reports whether a request carries the capability, in constant time whatever it carries.
func (c Capability) opens(h http.Header) bool {
	lines := h.Values("Authorization")
	if c.reveal == nil || len(lines) != 1 {
		return false
	}
	scheme, given, ok := strings.Cut(lines[0], " ")
	have, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(c.reveal()))
	same := subtle.ConstantTimeCompare(have[:], want[:]) == 1
	return ok && strings.EqualFold(scheme, "Bearer") && same
}

// CapabilityFile is what a running exchange leaves for programs of the same user.
type CapabilityFile struct {
	// URL is the base of the loopback face, "http://127.0.0.1:<port>".
	URL string
	// PID is the process that serves it.
	PID int
	// Capability opens it.
	Capability Capability
	// PublicURL is the base of the public face, empty when there is none.
	PublicURL string
}

type capabilityRecord struct {
	Ver       int    `json:"ver"`
	URL       string `json:"url"`
	PID       int    `json:"pid"`
	Cap       string `json:"cap"`
	PublicURL string `json:"publicUrl,omitempty"`
}

// LoadCapabilityFile reads the file that a running exchange left at path.
//
// Errors: not-found when there is none, so no exchange runs; failed-precondition for a file that others may read or write, or
// that is not of this build; unavailable when it cannot be read.
func LoadCapabilityFile(path string) (CapabilityFile, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return CapabilityFile{}, wire.Errorf(wire.CodeNotFound, "read capability file %q: no exchange runs here; start the space first", path)
	case err != nil:
		return CapabilityFile{}, wire.Errorf(wire.CodeUnavailable, "read capability file %q: %w", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return CapabilityFile{}, wire.Errorf(wire.CodeUnavailable, "read capability file %q: %w", path, err)
	}
	if mode := info.Mode(); !mode.IsRegular() || runtime.GOOS != "windows" && mode.Perm()&0o077 != 0 {
		return CapabilityFile{}, wire.Errorf(wire.CodeFailedPrecondition,
			"read capability file %q: its mode is %v, and it must be a file of its owner alone; start the space again", path, mode)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCapabilityFile+1))
	if err != nil {
		return CapabilityFile{}, wire.Errorf(wire.CodeUnavailable, "read capability file %q: %w", path, err)
	}
	var rec capabilityRecord
	if wire.Decode(data, &rec, maxCapabilityFile) != nil || rec.Ver != capabilityFileVersion {
		return CapabilityFile{}, wire.Errorf(wire.CodeFailedPrecondition, "read capability file %q: it is not of this build; start the space again", path)
	}
	c, err := NewCapability(rec.Cap)
	if err != nil {
		return CapabilityFile{}, wire.Errorf(wire.CodeFailedPrecondition, "read capability file %q: it holds no capability; start the space again", path)
	}
	return CapabilityFile{URL: rec.URL, PID: rec.PID, Capability: c, PublicURL: rec.PublicURL}, nil
}

// write puts the file in place so that a reader sees the old or the new one, and never one that others may read.
func (c CapabilityFile) write(path string) error {
	data, err := json.Marshal(capabilityRecord{Ver: capabilityFileVersion, URL: c.URL, PID: c.PID, Cap: c.Capability.Reveal(), PublicURL: c.PublicURL})
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "write capability file %q", path)
	}
	if err := atomicfile.Write(path, append(data, '\n'), 0o600); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "write capability file %q: %w", path, err)
	}
	return nil
}

// remove takes the file away if it is still the one that was written. Between the look and the removal another process may put
// its own there: so it is first renamed, which takes exactly one file, and put back when that turns out to be another's.
func (c CapabilityFile) remove(path string) error {
	ours := func(file string) bool {
		have, err := LoadCapabilityFile(file)
		return err == nil && have.Capability.Reveal() == c.Capability.Reveal()
	}
	if !ours(path) {
		return nil
	}
	taken := path + "." + strings.ToLower(rand.Text())
	if err := os.Rename(path, taken); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return wire.Errorf(wire.CodeUnavailable, "remove capability file %q: %w", path, err)
	}
	if !ours(taken) {
		_ = os.Link(taken, path) // does nothing when the other has written a newer one
	}
	if err := os.Remove(taken); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "remove capability file %q: %w", taken, err)
	}
	return nil
}
