package manifest

import (
	"github.com/cotal-go/cotal/wire"
)

// Current is what there is. Agents are those that the supervisors know of, ended ones among them. Account is the public key of the
// broker account of the space, which one that is made anew under its name does not have; empty where nobody knows, as in open mode.
// Held are names that agents cannot have, as far as they are known.
type Current struct {
	Account  string
	Channels []wire.ChannelInfo
	Agents   []wire.AgentStatus
	Held     map[string]Holder
}

// Holder is who holds a name and is no agent: why agents cannot have it, and the command that frees it, empty for none.
type Holder struct{ Why, Free string }

// Action is what a step does.
type Action string

// The actions.
const (
	Create  Action = "create"  // it is not there
	Keep    Action = "keep"    // the deploy made it, and it is as the file says
	Exists  Action = "exists"  // it is there and not of the deploy: it is left as it is
	Update  Action = "update"  // settings of a channel that the deploy made are to be others
	Stale   Action = "stale"   // an agent that the deploy made would be made otherwise now: it goes on as it was made
	Again   Action = "again"   // an agent that the deploy made has ended: it is made anew
	Replace Action = "replace" // a stale agent is ended and made anew, where that was asked for, see [Replacing]
	Dropped Action = "dropped" // the deploy made it, and it is no longer in the file: it stays until the deploy is taken down
	Remove  Action = "remove"  // an agent that is no longer in the file is ended, where that was asked for, see [Replacing]
)

// What a step is about.
const (
	KindChannel = "channel"
	KindAgent   = "agent"
)

// Step is one thing of a plan. Why is set where the action does not say enough.
type Step struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Do   Action `json:"do"`
	Why  string `json:"why,omitempty"`

	// Channel and Agent are what it is about in the file; Revision is that of the settings that a change replaces, 0 for none.
	Channel  *Channel `json:"-"`
	Agent    *Agent   `json:"-"`
	Revision uint64   `json:"-"`
	Digest   string   `json:"-"`
	// Found is the agent that is there, if one is. Free is the command that frees a name which no agent holds.
	Found *wire.AgentStatus `json:"-"`
	Free  string            `json:"-"`
}

// Plan compares the file with what there is and with what the deploy made, l. Files are the contents of the agent files by agent.
// Channels come first; what is to be done comes in the order of the file.
func (t Team) Plan(l *Ledger, now Current, files map[string][]byte) []Step {
	var out []Step
	for i := range t.Channels {
		out = append(out, planChannel(&t.Channels[i], l, now))
	}
	for i := range t.Agents {
		a := &t.Agents[i]
		out = append(out, planAgent(a, files[a.Name], l, now))
	}
	return append(out, t.dropped(l, now)...)
}

// Replacing makes of a plan the one in which stale agents are replaced, and those that are no longer in the file are ended.
func Replacing(steps []Step) []Step {
	for i := range steps {
		switch s := &steps[i]; {
		case s.Do == Stale:
			s.Do = Replace
		case s.Surplus():
			s.Do, s.Why = Remove, "it is no longer in the file"
		}
	}
	return steps
}

// Surplus reports whether it is an agent that runs and is no longer in the file.
func (s Step) Surplus() bool {
	return s.Do == Dropped && s.Kind == KindAgent && s.Found != nil && !s.Found.Ended()
}

func planChannel(c *Channel, l *Ledger, now Current) Step {
	s := Step{Kind: KindChannel, Name: c.Name, Channel: c, Do: Create}
	var have *wire.ChannelConfig
	for _, info := range now.Channels {
		if info.Channel == c.Name {
			have, s.Revision = info.Config, info.Revision
		}
	}
	entry := l.Channel(c.Name)
	switch {
	case have == nil:
	case entry != nil && entry.ours(now.Account, s.Revision, *have):
		if s.Do = Keep; !same(*have, c.Config) {
			s.Do = Update
		}
	case entry != nil:
		s.Do, s.Why = Exists, entry.left(now.Account)
	default:
		s.Do, s.Why = Exists, "it has settings of its own"
	}
	return s
}

// whose says of which space an entry is.
type whose int

const (
	unknown whose = iota // the entry or the space has no account to compare
	this
	another // of the same name, gone
)

func (e LedgerChannel) of(account string) whose {
	switch {
	case e.Account == "" || account == "":
		return unknown
	case e.Account == account:
		return this
	}
	return another
}

// ours reports whether settings are still those that an entry made. Revisions begin anew with the space, so that where it may be
// another one the settings must be the same, too.
func (e LedgerChannel) ours(account string, revision uint64, have wire.ChannelConfig) bool {
	switch e.of(account) {
	case this:
		return e.Revision == revision || e.Revision == 0 && same(e.Config, have)
	case unknown:
		return (e.Revision == revision || e.Revision == 0) && same(e.Config, have)
	}
	return false
}

// left is why settings that are not ours are left alone.
func (e LedgerChannel) left(account string) string {
	if e.of(account) == another {
		return "the space was made anew since the deploy, and these settings are of that one"
	}
	return "its settings were changed since the deploy made them"
}

// Ours reports whether the settings of a channel are still those that the deploy made, and why they are to be left alone if not.
func (e LedgerChannel) Ours(now Current, info wire.ChannelInfo) (ours bool, why string) {
	if info.Config != nil && info.Channel == e.Channel && e.ours(now.Account, info.Revision, *info.Config) {
		return true, ""
	}
	return false, e.left(now.Account)
}

func same(a, b wire.ChannelConfig) bool {
	on := func(p *bool) int {
		switch {
		case p == nil:
			return 0
		case *p:
			return 1
		}
		return 2
	}
	return on(a.Replay) == on(b.Replay) && a.ReplayWindow == b.ReplayWindow && a.DeliveryClass == b.DeliveryClass &&
		a.Description == b.Description && a.Instructions == b.Instructions
}

func planAgent(a *Agent, file []byte, l *Ledger, now Current) Step {
	s := Step{Kind: KindAgent, Name: a.Name, Agent: a, Digest: a.Digest(file), Do: Create}
	entry := l.Agent(a.Name)
	var stranger *wire.AgentStatus
	for i := range now.Agents {
		have := &now.Agents[i]
		switch {
		case entry != nil && l.Made(*entry, *have):
			s.Found = have
		case !have.Ended() && actor(*have) == a.Name:
			stranger = have
		}
	}
	switch {
	case s.Found != nil && !s.Found.Ended():
		if s.Do = Keep; !a.is(entry.Digest, file) {
			s.Do, s.Why = Stale, "the file says it otherwise now"
		}
	case stranger != nil && stranger.Deploy == l.ID:
		s.Do, s.Why, s.Found = Exists, "an agent of this deploy has the name, and the ledger does not know it", stranger
	case stranger != nil:
		s.Do, s.Why, s.Found = Exists, "an agent that is not of this deploy has the name", stranger
	case now.Held[a.Name].Why != "":
		h := now.Held[a.Name]
		s.Do, s.Why, s.Free, s.Found = Exists, h.Why, h.Free, nil
	case s.Found != nil:
		s.Do, s.Why = Again, "it has ended"
	}
	return s
}

func actor(a wire.AgentStatus) string {
	p, err := wire.ParsePrincipal(a.Principal)
	if err != nil {
		return ""
	}
	return p.Actor
}

// dropped are the things that the deploy made and the file no longer has.
func (t Team) dropped(l *Ledger, now Current) []Step {
	var out []Step
	for _, e := range l.Channels {
		if !t.hasChannel(e.Channel) {
			out = append(out, Step{Kind: KindChannel, Name: e.Channel, Do: Dropped})
		}
	}
	for _, e := range l.Agents {
		if !t.hasAgent(e.Name) {
			s := Step{Kind: KindAgent, Name: e.Name, Do: Dropped}
			for i := range now.Agents {
				if l.Made(e, now.Agents[i]) {
					s.Found = &now.Agents[i]
				}
			}
			out = append(out, s)
		}
	}
	return out
}

func (t Team) hasChannel(name string) bool {
	for _, c := range t.Channels {
		if c.Name == name {
			return true
		}
	}
	return false
}

func (t Team) hasAgent(name string) bool {
	for _, a := range t.Agents {
		if a.Name == name {
			return true
		}
	}
	return false
}
