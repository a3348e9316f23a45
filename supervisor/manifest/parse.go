package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/supervisor/internal/yamldoc"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

// Load reads a team file. Shown is how errors name it.
//
// Errors: not-found; failed-precondition for what cannot be read or is no file of at most [MaxFile] bytes; those of [Parse].
func Load(path, shown string) (Team, error) {
	refuse := func(code wire.Code, format string, args ...any) (Team, error) {
		return Team{}, wire.Errorf(code, "read team file %q: %s", shown, fmt.Sprintf(format, args...))
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return refuse(wire.CodeNotFound, "there is no such file")
	}
	if err != nil {
		return refuse(wire.CodeFailedPrecondition, "%v", fserr.Cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return refuse(wire.CodeFailedPrecondition, "%v", fserr.Cause(err))
	case !info.Mode().IsRegular():
		return refuse(wire.CodeFailedPrecondition, "not a file")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return refuse(wire.CodeFailedPrecondition, "%v", fserr.Cause(err))
	}
	if len(data) > MaxFile {
		return refuse(wire.CodeFailedPrecondition, "more than %d bytes", MaxFile)
	}
	return Parse(shown, data)
}

// Parse reads a team file. File is how errors name it. One mark of byte order before the text, as some editors put it there, means nothing.
//
// Errors: bad-request, with persona.ProblemsOf.
func Parse(file string, data []byte) (Team, error) {
	p := &parser{r: &yamldoc.Report{}, team: Team{File: file}}
	p.read(yamldoc.Parse(file, persona.TrimMark(data), 1, p.r))
	if err := p.r.Err(); err != nil {
		return Team{}, err
	}
	return p.team, nil
}

// parser reads one file. Its lists keep the order of the file.
type parser struct {
	r        *yamldoc.Report
	team     Team
	defaults wire.ChannelConfig
	members  map[string][]string // agents of each entry, by its key
	entries  []string            // keys of the entries
}

func (p *parser) read(doc *yamldoc.Node) {
	if doc == nil {
		if p.r.OK() {
			p.r.Add(yamldoc.Place{File: p.team.File, Line: 1, Column: 1}, "begin with apiVersion: "+APIVersion, "the file is empty")
		}
		return
	}
	f := doc.Map(p.r, "a team file", yamldoc.Keys{
		Known:   []string{"apiVersion", "kind", "space", "agent", "defaults", "channels", "agents"},
		Renamed: map[string]string{"version": "apiVersion", "mesh": "space", "personas": "agents", "connector": "agent"},
	})
	if f == nil {
		return
	}
	p.header(doc.At, f)
	if n, ok := f["defaults"]; ok {
		if n.Value.Kind == yamldoc.Empty {
			p.r.Add(n.At, "remove the key", "defaults has no value")
		}
		p.defaults = p.settings(n.Value.Map(p.r, "defaults", yamldoc.Keys{Known: []string{"replay", "replayWindow", "deliveryClass"}}))
	}
	p.agents(doc.At, f)
	p.channels(f)
}

func (p *parser) header(at yamldoc.Place, f map[string]yamldoc.Field) {
	for _, want := range []struct{ key, value, also string }{{"apiVersion", APIVersion, ""}, {"kind", Kind, "Mesh"}} {
		n, ok := f[want.key]
		if !ok {
			p.r.Add(at, "add "+want.key+": "+want.value, "%s is missing", want.key)
			continue
		}
		switch s, good := n.Text(p.r); {
		case !good, s == want.value:
		case s == want.also:
			p.r.Add(n.Value.At, "write "+want.value+": a mesh is set up by the flags of cotal up, and this file has its channels and agents", "%s is %q", want.key, s)
		default:
			p.r.Add(n.Value.At, "write "+want.value, "%s is %q", want.key, yamldoc.Clip(s))
		}
	}
	if n, ok := f["space"]; ok {
		if s, good := n.Line(p.r, wire.MaxToken); good {
			space, err := wire.ParseSpace(s)
			if err != nil {
				p.r.Add(n.Value.At, "write letters, digits, _ and -", "space %q is no space", s)
			}
			p.team.Space = space
		}
	}
	if n, ok := f["agent"]; ok {
		p.team.Agent = p.word(n)
	}
}

// word reads a name that goes to a program: it must not be taken for a flag.
func (p *parser) word(n yamldoc.Field) string {
	s, good := n.Line(p.r, 120)
	if good && strings.HasPrefix(s, "-") {
		p.r.Add(n.Value.At, "remove the dash", "%s %q would be read as a flag", n.Key, s)
	}
	return s
}

// settings reads what a channel, or all channels, are set to.
func (p *parser) settings(f map[string]yamldoc.Field) wire.ChannelConfig {
	c := p.defaults
	if n, ok := f["replay"]; ok {
		if on, good := n.Bool(p.r); good {
			c.Replay = &on
		}
	}
	for key, into := range map[string]*string{"replayWindow": &c.ReplayWindow, "deliveryClass": &c.DeliveryClass} {
		n, ok := f[key]
		if !ok {
			continue
		}
		s, good := n.Line(p.r, 40)
		*into = s
		one := wire.ChannelConfig{}
		fix := "write live or durable"
		if key == "replayWindow" {
			one.ReplayWindow, fix = s, "write a number and s, m, h or d, such as 12h"
		} else {
			one.DeliveryClass = s
		}
		if good && one.Validate() != nil {
			p.r.Add(n.Value.At, fix, "%s is %q", key, s)
		}
	}
	for key, to := range map[string]struct {
		into *string
		most int
	}{"description": {&c.Description, wire.MaxDescription}, "instructions": {&c.Instructions, wire.MaxInstructions}} {
		n, ok := f[key]
		if !ok {
			continue
		}
		s, good := n.Text(p.r)
		if count := utf8.RuneCountInString(s); good && count > to.most {
			p.r.Add(n.Value.At, "shorten it", "%s has %d characters, want at most %d", key, count, to.most)
		}
		*to.into = s
	}
	return c
}

func (p *parser) channels(f map[string]yamldoc.Field) {
	n, ok := f["channels"]
	if !ok {
		p.team.Open = true
		return
	}
	if n.Value.Kind == yamldoc.Empty { // with and without channels mean opposite rights
		p.r.Add(n.At, "remove the key, so that agents have the channels of their own files, or write {} for no channels at all", "channels has no value")
		return
	}
	fields := n.Value.Names(p.r, "channels")
	if len(fields) > MaxChannels {
		p.r.Add(n.At, "", "%d channels, want at most %d", len(fields), MaxChannels)
		return
	}
	for _, ch := range fields {
		if wire.ValidateChannel(ch.Key) != nil {
			fix := "write letters, digits, _ and -, parts joined by dots"
			if wire.ValidatePattern(ch.Key) == nil {
				fix = "name each channel: a pattern has no settings"
			} else if strings.HasPrefix(ch.Key, "#") {
				fix = "write it without #"
			}
			p.r.Add(ch.At, fix, "%q is no channel", yamldoc.Clip(ch.Key))
			continue
		}
		p.channel(ch)
	}
	for i := range p.team.Agents {
		p.lists(&p.team.Agents[i])
	}
}

func (p *parser) channel(ch yamldoc.Field) {
	keys := []string{"description", "instructions", "replay", "replayWindow", "deliveryClass", "subscribe", "allowSubscribe", "allowPublish"}
	f := ch.Value.Map(p.r, "a channel", yamldoc.Keys{Known: keys, Renamed: map[string]string{
		"publish": "allowPublish", "members": "subscribe", "read": "allowSubscribe", "post": "allowPublish", "delivery": "deliveryClass",
	}})
	c := Channel{Name: ch.Key, Config: p.settings(f)}
	c.Subscribe = p.who(f, "subscribe")
	c.AllowPublish = p.who(f, "allowPublish")
	if n, ok := f["allowSubscribe"]; ok {
		c.AllowSubscribe = p.who(f, "allowSubscribe")
		for _, a := range c.Subscribe {
			if !slices.Contains(c.AllowSubscribe, a) {
				p.r.Add(n.Value.At, "add it, or remove it from subscribe", "%s hears channel %s and is not in allowSubscribe", a, ch.Key)
			}
		}
	} else {
		c.AllowSubscribe = slices.Clone(c.Subscribe)
	}
	p.team.Channels = append(p.team.Channels, c)
}

// who reads a list of agents. The key of an entry with a count means all of its agents.
func (p *parser) who(f map[string]yamldoc.Field, key string) []string {
	n, ok := f[key]
	if !ok {
		return nil
	}
	var out []string
	n.Set(p.r, MaxAgents, wire.MaxToken, func(entry string) (problem, fix string) {
		agents, declared := p.members[entry]
		if !declared {
			return fmt.Sprintf("%q is no agent of this file", yamldoc.Clip(entry)), p.nearest(entry)
		}
		for _, a := range agents {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
		return "", ""
	})
	return out
}

func (p *parser) nearest(name string) string {
	for _, a := range p.team.Agents {
		if a.Name == name {
			return "name its entry, " + a.Entry + ": that means all of its agents"
		}
	}
	if s := yamldoc.Suggest(name, p.entries); s != "" {
		return s
	}
	return "declare it below agents"
}

// lists computes what an agent may do from the channels of the file.
func (p *parser) lists(a *Agent) {
	a.Subscribe, a.AllowSubscribe, a.AllowPublish = []string{}, []string{}, []string{}
	for _, c := range p.team.Channels {
		if slices.Contains(c.Subscribe, a.Name) {
			a.Subscribe = append(a.Subscribe, c.Name)
		}
		if slices.Contains(c.AllowSubscribe, a.Name) {
			a.AllowSubscribe = append(a.AllowSubscribe, c.Name)
		}
		if slices.Contains(c.AllowPublish, a.Name) {
			a.AllowPublish = append(a.AllowPublish, c.Name)
		}
	}
}

// agentFile is the persona that a path leads to, by the name of the file.
func agentFile(path string) (name string, ok bool) {
	base := path[strings.LastIndexAny(path, `/\`)+1:]
	name, ok = strings.CutSuffix(base, ".md")
	return name, ok && persona.ValidateName(name) == nil
}
