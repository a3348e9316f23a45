package manifest

import (
	"fmt"
	"strings"

	"github.com/cotal-go/cotal/supervisor/internal/yamldoc"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

func (p *parser) agents(at yamldoc.Place, f map[string]yamldoc.Field) {
	p.members = map[string][]string{}
	n, ok := f["agents"]
	if !ok {
		if _, has := f["channels"]; !has {
			p.r.Add(at, "add agents: or channels:", "the file declares nothing")
		}
		return
	}
	if n.Value.Kind == yamldoc.Empty { // all of them may be commented out: then nobody meant that there be none
		p.r.Add(n.At, "name the agents, or remove the key", "agents has no value")
		return
	}
	for _, entry := range n.Value.Names(p.r, "agents") {
		p.entry(entry)
	}
	if len(p.team.Agents) > MaxAgents {
		p.r.Add(n.At, "", "%d agents, want at most %d", len(p.team.Agents), MaxAgents)
	}
}

// entry reads one entry, which is one agent or several of the same kind.
func (p *parser) entry(e yamldoc.Field) {
	if wire.ValidateRole(e.Key) != nil {
		p.r.Add(e.At, "write letters, digits, _ and -", "%q is no name of an agent", yamldoc.Clip(e.Key))
		return
	}
	a := Agent{Entry: e.Key, Place: e.At.String()}
	count, counted := 1, false
	switch e.Value.Kind {
	case yamldoc.Scalar:
		p.file(&a, e)
	case yamldoc.Map:
		count, counted = p.body(&a, e)
	default:
		p.r.Add(e.At, "name its agent file: "+e.Key+": {persona: <name>}", "agent %s says nothing", e.Key)
	}
	p.entries = append(p.entries, e.Key)
	p.members[e.Key] = nil
	name := persona.ActorName(e.Key)
	for i := range count {
		one := a
		if one.Name = name; counted { // also of one: an entry that grows and shrinks keeps its agents
			one.Name = fmt.Sprintf("%s_%d", name, i+1)
		}
		if len(one.Name) > wire.MaxToken {
			p.r.Add(e.At, "shorten it", "agent %q has %d characters, want at most %d", one.Name, len(one.Name), wire.MaxToken)
		}
		for _, other := range p.team.Agents {
			if other.Name == one.Name {
				p.r.Add(e.At, "rename one of them", "agent %s is also made by %s", one.Name, other.Entry)
			}
		}
		p.members[e.Key] = append(p.members[e.Key], one.Name)
		p.team.Agents = append(p.team.Agents, one)
	}
}

// file reads an entry that is the path of an agent file, or the name of one.
func (p *parser) file(a *Agent, f yamldoc.Field) {
	s, ok := f.Line(p.r, 4096)
	switch name, path := agentFile(s); {
	case !ok:
	case path:
		a.Persona, a.File = name, s
	case persona.ValidateName(s) == nil:
		a.Persona = s
	default:
		p.r.Add(f.Value.At, "write the name of an agent file, or its path ending in .md", "%q is no agent file", yamldoc.Clip(s))
	}
}

// body reads an entry that is a map, and returns its count and whether it has one.
func (p *parser) body(a *Agent, e yamldoc.Field) (count int, counted bool) {
	keys := []string{"persona", "count", "agent", "model", "variant", "cwd", "role", "prompt", "restart", "capabilities", "env"}
	f := e.Value.Map(p.r, "agent "+e.Key, yamldoc.Keys{Known: keys, Renamed: map[string]string{
		"file": "persona", "config": "persona", "connector": "agent", "replicas": "count", "instructions": "prompt",
	}})
	switch n, ok := f["persona"]; {
	case ok:
		p.file(a, n)
	case f["agent"].Value == nil && p.team.Agent == "":
		p.r.Add(e.At, "add persona: <name of an agent file>, or agent: <what runs it>", "agent %s names neither an agent file nor what runs it", e.Key)
	}
	count = 1
	if n, ok := f["count"]; ok {
		counted = true
		if c, good := n.Int(p.r, 1, MaxCount); good {
			count = c
		}
	}
	for key, into := range map[string]*string{"agent": &a.Agent, "model": &a.Model, "variant": &a.Variant} {
		if n, ok := f[key]; ok {
			*into = p.word(n)
		}
	}
	if a.Persona == "" && a.Agent == "" {
		a.Agent = p.team.Agent
	}
	p.rest(a, f)
	return count, counted
}

func (p *parser) rest(a *Agent, f map[string]yamldoc.Field) {
	if n, ok := f["cwd"]; ok {
		a.Cwd, _ = n.Line(p.r, 4096)
	}
	if n, ok := f["role"]; ok {
		s, good := n.Line(p.r, wire.MaxToken)
		if a.Role = s; good && wire.ValidateRole(s) != nil {
			p.r.Add(n.Value.At, "write letters, digits, _ and -", "role %q is no role", s)
		}
	}
	if n, ok := f["prompt"]; ok {
		s, good := n.Text(p.r)
		if a.Prompt = s; good && (len(s) > wire.MaxPrompt || strings.ContainsRune(s, 0)) {
			p.r.Add(n.Value.At, "shorten it", "prompt has %d bytes, want at most %d", len(s), wire.MaxPrompt)
		}
	}
	if n, ok := f["restart"]; ok {
		s, good := n.Line(p.r, 40)
		if a.Restart = s; good && persona.ValidateRestart(s) != nil {
			p.r.Add(n.Value.At, "write never, on-failure or always", "restart is %q", s)
		}
	}
	if n, ok := f["capabilities"]; ok {
		a.Capabilities = n.Set(p.r, MaxAgents, 2*wire.MaxToken, func(s string) (string, string) {
			if persona.ValidateCapability(s) != nil {
				return fmt.Sprintf("%q is none", yamldoc.Clip(s)), "write spawn, or role:<role>"
			}
			return "", ""
		})
	}
	if n, ok := f["env"]; ok {
		a.Env = n.Texts(p.r, 64, 4000, func(name string) (string, string) {
			if persona.ValidateEnvName(name) != nil {
				return fmt.Sprintf("%q cannot be set", yamldoc.Clip(name)), "write letters, digits and _; what begins with COTAL_ is the supervisor's"
			}
			return "", ""
		})
	}
}
