package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cotal-go/cotal/wire"
)

// What a ledger begins with.
const (
	LedgerVersion = "cotal-ledger/v1"
	LedgerKind    = "Deploy"
)

// Ledger is what was made of one team file. It is written before each thing is asked for and after it was made, so that it names
// everything that may be there.
type Ledger struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ID marks the agents of the deploy; it follows from File, the name of the team file, see [FileName].
	ID    string     `json:"id"`
	File  string     `json:"file"`
	Space wire.Space `json:"space"`
	// Run is random: the same file deployed anew asks for agents under other ids.
	Run      string          `json:"run"`
	Created  int64           `json:"created"` // ms since 1970
	Channels []LedgerChannel `json:"channels"`
	Agents   []LedgerAgent   `json:"agents"`
	Files    []LedgerFile    `json:"files"`
}

// LedgerChannel is a channel whose settings the deploy made. Revision 0 says that they were asked for and nobody confirmed it. Account is
// what tells the space from one of the same name that was made after it, see [Current]; empty where nobody knew.
type LedgerChannel struct {
	Channel  string             `json:"channel"`
	Revision uint64             `json:"revision"`
	Account  string             `json:"account,omitempty"`
	Config   wire.ChannelConfig `json:"config"`
}

// LedgerAgent is an agent that the deploy made. Without a UID it was asked for and nobody confirmed it.
type LedgerAgent struct {
	Name      string   `json:"name"`
	Try       int      `json:"try"` // counts how often the deploy made an agent of this name
	RequestID string   `json:"requestId"`
	Digest    string   `json:"digest"`
	Principal string   `json:"principal,omitempty"`
	UID       wire.UID `json:"uid,omitempty"`
}

// LedgerFile is an agent file that the deploy put into the project's folder, by the name of the persona and 64 hex digits, see
// [Ledger.FileDigest].
type LedgerFile struct {
	Persona string `json:"persona"`
	SHA256  string `json:"sha256"`
}

// FileName is how a ledger names a team file: by where it lies below the folder of the project, with slashes, so that a project that was
// moved has its deploys. A file elsewhere, and any where root is empty, is named by its absolute path; builds before named all files so.
func FileName(root, path string) string {
	rel, err := filepath.Rel(root, path)
	if root == "" || err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return filepath.ToSlash(rel)
}

// Path is the absolute path of the team file.
func (l *Ledger) Path(root string) string {
	if filepath.IsAbs(l.File) {
		return l.File
	}
	return filepath.Join(root, filepath.FromSlash(l.File))
}

// isFileName reports whether FileName can have returned it.
func isFileName(s string) bool {
	return filepath.IsAbs(s) || filepath.IsLocal(filepath.FromSlash(s)) && path.Clean(s) == s && s != "."
}

// DeployID is the id of the deploy of a team file, by its [FileName]: the name of the file and eight hex digits.
func DeployID(file string) string {
	base := filepath.Base(file)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	const most = 40
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && wire.ValidateRole(string(r)) == nil {
			return r
		}
		return '_'
	}, base)
	if len(name) > most {
		name = name[:most]
	}
	if name == "" {
		name = "team"
	}
	return name + "-" + hash(file)[:8]
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// NewLedger begins the deploy of a team file, by its [FileName]. Now is ms since 1970.
func NewLedger(file string, space wire.Space, now int64) *Ledger {
	return &Ledger{
		APIVersion: LedgerVersion, Kind: LedgerKind, ID: DeployID(file), File: file, Space: space, Run: string(wire.NewUID()), Created: now,
		Channels: []LedgerChannel{}, Agents: []LedgerAgent{}, Files: []LedgerFile{},
	}
}

// Empty reports whether nothing of the deploy is left.
func (l *Ledger) Empty() bool { return len(l.Channels)+len(l.Agents)+len(l.Files) == 0 }

// RequestID is the id under which the deploy asks for an agent: the same for the same try, whoever asks.
func (l *Ledger) RequestID(name string, try int) string {
	return "deploy-" + hash(strings.Join([]string{l.ID, l.Run, name, strconv.Itoa(try)}, "\x00"))[:40]
}

// FileDigest is what the entry of an agent file says of the content that the deploy wrote: SHA-256 over that, the run and the name. Like
// the id of a request it is that of this run alone, so that an entry which was put in beside, with the digest of a file that is there,
// takes nothing down.
func (l *Ledger) FileDigest(name string, data []byte) string {
	return hash(strings.Join([]string{l.ID, l.Run, "file", name, string(data)}, "\x00"))
}

// Wrote reports whether an agent file is as the deploy wrote it.
func (l *Ledger) Wrote(name string, data []byte) bool {
	return slices.Contains(l.Files, LedgerFile{Persona: name, SHA256: l.FileDigest(name, data)})
}

// maxAccount bounds the public key of an account, which has 56 characters.
const maxAccount = 64

// Agent is the entry of an agent, nil for none.
func (l *Ledger) Agent(name string) *LedgerAgent {
	if i := slices.IndexFunc(l.Agents, func(a LedgerAgent) bool { return a.Name == name }); i >= 0 {
		return &l.Agents[i]
	}
	return nil
}

// Channel is the entry of a channel, nil for none.
func (l *Ledger) Channel(name string) *LedgerChannel {
	if i := slices.IndexFunc(l.Channels, func(c LedgerChannel) bool { return c.Channel == name }); i >= 0 {
		return &l.Channels[i]
	}
	return nil
}

// Made reports whether an agent is the one of an entry: made by this deploy, under the same request, and the same life where that is
// known. Nothing else about an agent is trusted before it is ended.
func (l *Ledger) Made(e LedgerAgent, a wire.AgentStatus) bool {
	return a.Deploy == l.ID && a.RequestID == e.RequestID && a.RequestID != "" && (e.UID == "" || a.UID == e.UID && a.Principal == e.Principal)
}

// validate refuses what no deploy can have written. ID is that of the file's name.
func (l *Ledger) validate(id string) error {
	bad := func(format string, args ...any) error {
		return wire.Errorf(wire.CodeFailedPrecondition, format, args...)
	}
	switch {
	case l.APIVersion != LedgerVersion || l.Kind != LedgerKind:
		return bad("it is not a ledger of %s", LedgerVersion)
	case l.ID != id || !isFileName(l.File) || DeployID(l.File) != l.ID:
		return bad("it is the ledger of something else")
	case l.Space.Validate() != nil, wire.UID(l.Run).Validate() != nil:
		return bad("its space or run cannot be")
	case len(l.Channels) > 4*MaxChannels || len(l.Agents) > 4*MaxAgents || len(l.Files) > 4*MaxAgents:
		return bad("it names more than a deploy makes")
	}
	seen := map[string]bool{}
	again := func(key string) bool { was := seen[key]; seen[key] = true; return was }
	for _, c := range l.Channels {
		if wire.ValidateChannel(c.Channel) != nil || c.Config.Validate() != nil || len(c.Account) > maxAccount || again("channel "+c.Channel) {
			return bad("its channel %.80q cannot be", c.Channel)
		}
	}
	for _, a := range l.Agents {
		if !l.agentOK(a) || again("agent "+a.Name) {
			return bad("its agent %.80q cannot be", a.Name)
		}
	}
	for _, f := range l.Files {
		if wire.ValidateRole(f.Persona) != nil || len(f.SHA256) != 2*sha256.Size || again("file "+f.Persona) {
			return bad("its agent file %.80q cannot be", f.Persona)
		}
	}
	return nil
}

func (l *Ledger) agentOK(a LedgerAgent) bool {
	if wire.ValidateActor(a.Name) != nil || a.Try < 1 || a.Try > 1<<20 || a.RequestID != l.RequestID(a.Name, a.Try) || (a.UID == "") != (a.Principal == "") {
		return false
	}
	if a.UID == "" {
		return true
	}
	who, err := wire.ParsePrincipal(a.Principal)
	return err == nil && who.OwnerKnown() && who.Actor == a.Name && a.UID.Validate() == nil
}
