package supervisor

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// recordVersion is the edition of agent.json. History: 1 (2026-11) first edition.
const recordVersion = 1

// maxRecord bounds agent.json in bytes, well above a request and an agent file at their largest, escaped at their worst and quoted once more by
// the reason of a failure: what was written must be read again, or the agent is nobody's.
const maxRecord = 16 << 20

// record is what is kept of one agent, in <dir>/<uid>/agent.json. It holds no secret.
type record struct {
	V         int      `json:"v"`
	UID       wire.UID `json:"uid"`
	Principal string   `json:"principal"`
	// Label marks its grant, so that a grant whose answer was lost is found.
	Label string `json:"label"`
	// Asked is who asked for it, RequestID under what id, and Digest what for: a repeated request is known by the three.
	Asked     string `json:"asked"`
	RequestID string `json:"requestId"`
	Digest    string `json:"digest"`
	Renamed   bool   `json:"renamed,omitempty"`

	Parent    string   `json:"parent,omitempty"` // principal that it is held under
	ParentUID wire.UID `json:"parentUid,omitempty"`
	// Lineage are the lives that it was started under, from the nearest on; all of them reach it.
	Lineage []wire.UID `json:"lineage,omitempty"`
	// Depth counts the agents among them.
	Depth      int  `json:"depth"`
	WithParent bool `json:"withParent,omitempty"`

	Plan    plan      `json:"plan"`
	Created time.Time `json:"created"`
	Rules   Rules     `json:"rules"`
	State   State     `json:"state"`
	// Seat is the id of the seat of the present run.
	Seat      wire.UID `json:"seat,omitempty"`
	LastLines []string `json:"lastLines,omitempty"`
	// Left are processes that the last run left behind on purpose.
	Left []string `json:"left,omitempty"`
	// Renew is when its credential file is made anew, zero for never; Expires is when the file ends.
	Renew   time.Time `json:"renew,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	// TokenHash is that of the secret of the last start, which a renewal repeats.
	TokenHash string `json:"tokenHash,omitempty"`
	// Start numbers the last start that the authority was asked for, whatever came of it; that of the grant is 0. A run asks for one
	// more at each try.
	Start uint64 `json:"start,omitempty"`
}

// plan is what an agent is started with: the agent file and the request, put together once.
type plan struct {
	Name        string `json:"name"`
	Persona     string `json:"persona,omitempty"`
	PersonaText string `json:"personaText,omitempty"`
	Connector   string `json:"connector"`
	Model       string `json:"model,omitempty"`
	Variant     string `json:"variant,omitempty"`
	Role        string `json:"role,omitempty"`
	Cwd         string `json:"cwd"`
	// Below is where Cwd lies in the project, with slashes, empty for elsewhere: a project that was moved has it at another path.
	Below          string            `json:"below,omitempty"`
	Prompt         string            `json:"prompt,omitempty"`
	Command        []string          `json:"command,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Subscribe      []string          `json:"subscribe,omitempty"`
	AllowSubscribe []string          `json:"allowSubscribe,omitempty"`
	AllowPublish   []string          `json:"allowPublish,omitempty"`
	Capabilities   []string          `json:"capabilities,omitempty"`
	Deploy         string            `json:"deploy,omitempty"`
	Cols           int               `json:"cols"`
	Rows           int               `json:"rows"`
	// Uses is the model that the host was told, which is what it reports; Wakes is as in connector.Launch.
	Uses  string `json:"uses,omitempty"`
	Wakes bool   `json:"wakes,omitempty"`
}

func (r *record) principal() wire.Principal {
	p, _ := wire.ParsePrincipal(r.Principal) // checked when it was made or read
	return p
}

func (r *record) life() wire.Lifecycle { return wire.Lifecycle{Principal: r.principal(), UID: r.UID} }

// settled says that nothing of the agent is left but the record.
func (r *record) settled() bool { return r.State.Grant == GrantRetired }

// below says whether the agent was started under a life.
func (r *record) below(u wire.UID) bool {
	for _, l := range r.Lineage {
		if l == u {
			return true
		}
	}
	return false
}

// The names below the folder of an agent.
const (
	recordFile = "agent.json"
	launchFile = "launch.json"
	credsFile  = "agent.creds"
	hostDir    = "host" // the connector's
	socketFile = "host.sock"
	roomFile   = ".room" // see agent.startable
	seatPrefix = "seat-"
)

func seatDir(dir string, run int) string { return filepath.Join(dir, seatPrefix+strconv.Itoa(run)) }

// saveRecord writes a record into the folder of its agent.
func saveRecord(dir string, r *record) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "write record of %q: %v", r.Principal, err)
	}
	if err := atomicfile.Write(filepath.Join(dir, recordFile), data, 0o600); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "write record of %q: %v", r.Principal, fserr.Cause(err))
	}
	return nil
}

// readRecord reads the record of a folder.
//
// Errors: not-found when there is none; failed-precondition for one that cannot be read or is of another edition.
func readRecord(dir string) (*record, error) {
	path := filepath.Join(dir, recordFile)
	info, err := os.Stat(path)
	var data []byte
	if err == nil && info.Size() > maxRecord {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read record %q: %d bytes, at most %d", path, info.Size(), maxRecord)
	}
	if err == nil {
		data, err = os.ReadFile(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, wire.Errorf(wire.CodeNotFound, "read record %q: there is none", path)
	case err != nil:
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read record %q: %v", path, fserr.Cause(err))
	}
	r := new(record)
	if err := wire.Decode(data, r, maxRecord); err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read record %q: %v", path, err)
	}
	if r.V != recordVersion {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read record %q: edition %d, this build knows %d", path, r.V, recordVersion)
	}
	if _, err := wire.ParsePrincipal(r.Principal); err != nil || r.UID.Validate() != nil || string(r.UID) != filepath.Base(dir) {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "read record %q: it is of no agent of this folder", path)
	}
	return r, nil
}

// instanceFile has the name of the instance.
const instanceFile = "instance"

// ownInstance reads the name of the instance, or makes one the first time.
func ownInstance(dir string) (string, error) {
	name, err := InstanceOf(dir)
	if errors.Is(err, wire.ErrNotFound) {
		name = string(wire.NewUID())[:16]
		return name, atomicfile.Write(filepath.Join(dir, instanceFile), []byte(name+"\n"), 0o600)
	}
	return name, err
}

// shred removes what a life leaves behind, its secrets first, but not its record.
func shred(dir string) error {
	var all []error
	for _, name := range []string{credsFile, launchFile} {
		all = append(all, overwrite(filepath.Join(dir, name)))
	}
	entries, err := os.ReadDir(dir)
	all = append(all, err)
	for _, e := range entries {
		if e.Name() != recordFile {
			all = append(all, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(all...)
}

// overwrite empties a file before it goes, for the case that something holds it open.
func overwrite(path string) error {
	err := os.Truncate(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
