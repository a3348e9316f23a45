package manifest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/cotal-go/cotal/wire"
)

// What a team file begins with.
const (
	APIVersion = "cotal/v1"
	Kind       = "Team"
)

// Bounds of a team.
const (
	MaxChannels = 64
	MaxAgents   = 64 // after counting
	MaxCount    = 32 // of one entry
	MaxFile     = 64 << 10
)

// Team is a team file that is valid. Channels and Agents are in the order of the file.
type Team struct {
	// File is how errors name the file.
	File string
	// Space is the space that the file is for; empty takes the one that the command means.
	Space wire.Space
	// Agent is what runs an agent of which neither its entry nor its agent file says it.
	Agent    string
	Channels []Channel
	Agents   []Agent
	// Open is set when the file has no channels: then agents have the lists of their own files.
	Open bool
}

// Channel is a channel of a team. The lists hold names of agents.
type Channel struct {
	Name string
	// Config are its settings, with the defaults of the file.
	Config wire.ChannelConfig
	// Subscribe hear it from the start, AllowSubscribe may read it (those who hear it among them), AllowPublish may post to it.
	Subscribe, AllowSubscribe, AllowPublish []string
}

// Agent is one agent of a team.
type Agent struct {
	// Name is the actor. Of an entry with a count they are numbered: worker_1, worker_2.
	Name string
	// Entry is the key in the file, and Place where it stands.
	Entry, Place string
	// Persona is the agent file by name; File, when set, is the path of one that the entry names instead, as written there.
	Persona, File                             string
	Agent, Model, Variant, Role, Cwd, Restart string
	// Folder is Cwd made absolute by the caller; empty where that is to be asked for as it is in the file.
	Folder string
	Prompt string
	// Capabilities is nil when the entry says nothing about them.
	Capabilities []string
	Env          map[string]string
	// The lists are nil in a team without channels; else they are exactly what follows from the channels.
	Subscribe, AllowSubscribe, AllowPublish []string
}

// Request is what makes the agent, as a part of a deploy.
func (a Agent) Request(deploy, requestID string) wire.SpawnRequest {
	return wire.SpawnRequest{
		RequestID: requestID, Deploy: deploy, Persona: a.Persona, Name: a.Name, Agent: a.Agent, Model: a.Model, Variant: a.Variant, Role: a.Role,
		Cwd: cmp.Or(a.Folder, a.Cwd), Prompt: a.Prompt, Restart: a.Restart, Env: maps.Clone(a.Env), Capabilities: slices.Clone(a.Capabilities),
		Subscribe: slices.Clone(a.Subscribe), AllowSubscribe: slices.Clone(a.AllowSubscribe), AllowPublish: slices.Clone(a.AllowPublish),
	}
}

// Digest changes when the agent would be another one: 64 hex digits over its request and the content of its agent file. The folder that it
// works in counts as it stands in the file, so that a team which was moved is what it was.
func (a Agent) Digest(persona []byte) string {
	a.Folder = ""
	return a.digest(persona)
}

// is reports whether a digest is that of the agent. In those of builds before, its folder counts with its absolute path.
func (a Agent) is(digest string, persona []byte) bool {
	return digest == a.Digest(persona) || digest == a.digest(persona)
}

func (a Agent) digest(persona []byte) string {
	data, err := json.Marshal(a.Request("", ""))
	if err != nil {
		panic("manifest: " + err.Error()) // strings, maps and lists of them always encode
	}
	sum := sha256.Sum256(append(append(data, 0), persona...))
	return hex.EncodeToString(sum[:])
}

// ChannelAccess is who does what at a channel, by names of agents in the order of the file.
type ChannelAccess struct {
	Channel  string   `json:"channel"`
	Hears    []string `json:"hears"`    // from the start
	MayRead  []string `json:"mayRead"`  // those who hear it among them
	MayPost  []string `json:"mayPost"`  //
	Declared bool     `json:"declared"` // in the file, not only in an agent file
}

// Access is the access graph of a team, and of each agent what it may do.
type Access struct {
	Channels []ChannelAccess `json:"channels"`
	Agents   []AgentAccess   `json:"agents"`
}

// AgentAccess is what one agent may do. Channels may be patterns when they come from its own file. A list is nil, and absent in JSON, where
// nobody knows what the file says.
type AgentAccess struct {
	Name           string   `json:"name"`
	Persona        string   `json:"persona"`
	Agent          string   `json:"agent,omitempty"`
	Role           string   `json:"role,omitempty"`
	Capabilities   []string `json:"capabilities,omitzero"`
	Subscribe      []string `json:"subscribe,omitzero"`
	AllowSubscribe []string `json:"allowSubscribe,omitzero"`
	AllowPublish   []string `json:"allowPublish,omitzero"`
}

// Access is the graph. Known says what the agent file of an agent has, by which what the team file leaves open is filled in; what is nil
// there, or of an agent that it does not know, stays nil. A channel, or pattern, that one agent names has everybody in it whose lists take all
// of it in, as a grant does.
func (t Team) Access(known func(a Agent) (AgentAccess, bool)) Access {
	out := Access{Channels: []ChannelAccess{}, Agents: []AgentAccess{}}
	seen := map[string]bool{}
	add := func(name string, declared bool) {
		if !seen[name] {
			seen[name] = true
			out.Channels = append(out.Channels, ChannelAccess{Channel: name, Hears: []string{}, MayRead: []string{}, MayPost: []string{}, Declared: declared})
		}
	}
	for _, c := range t.Channels {
		add(c.Name, true)
	}
	for _, a := range t.Agents {
		row := t.row(a, known)
		out.Agents = append(out.Agents, row)
		for _, ch := range slices.Concat(row.Subscribe, row.AllowSubscribe, row.AllowPublish) {
			add(ch, false)
		}
	}
	for i := range out.Channels {
		c := &out.Channels[i]
		for _, row := range out.Agents {
			for _, l := range []struct {
				of []string
				to *[]string
			}{{row.Subscribe, &c.Hears}, {row.AllowSubscribe, &c.MayRead}, {row.AllowPublish, &c.MayPost}} {
				if wire.PatternsCover(l.of, c.Channel) {
					*l.to = append(*l.to, row.Name)
				}
			}
		}
	}
	return out
}

func (t Team) row(a Agent, known func(a Agent) (AgentAccess, bool)) AgentAccess {
	row := AgentAccess{Name: a.Name, Persona: a.Persona, Agent: a.Agent, Role: a.Role, Capabilities: a.Capabilities,
		Subscribe: a.Subscribe, AllowSubscribe: a.AllowSubscribe, AllowPublish: a.AllowPublish}
	if known != nil {
		if f, ok := known(a); ok {
			fill(&row, f)
		}
	}
	return row
}

// fill takes from the agent file what the team file does not say.
func fill(row *AgentAccess, f AgentAccess) {
	if row.Agent == "" {
		row.Agent = f.Agent
	}
	if row.Role == "" {
		row.Role = f.Role
	}
	for _, list := range []struct{ to, from *[]string }{
		{&row.Capabilities, &f.Capabilities}, {&row.Subscribe, &f.Subscribe}, {&row.AllowSubscribe, &f.AllowSubscribe}, {&row.AllowPublish, &f.AllowPublish},
	} {
		if *list.to == nil {
			*list.to = *list.from
		}
	}
}
