package persona

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/supervisor/internal/yamldoc"
	"github.com/cotal-go/cotal/wire"
)

// readAccess reads what the agent may do, and fills in what the file leaves out.
func readAccess(r *yamldoc.Report, p *Persona, f map[string]yamldoc.Field) {
	read := func(key string, check func(string) (string, string)) ([]string, bool) {
		n, ok := f[key]
		if !ok {
			return nil, false
		}
		return n.Set(r, maxChannels, wire.MaxChannel, check), true
	}
	subscribe, hears := read("subscribe", channelPattern)
	allow, limits := read("allowSubscribe", channelPattern)
	p.AllowPublish, _ = read("allowPublish", channelPattern)
	p.Capabilities, _ = read("capabilities", capability)
	broken := hears && subscribe == nil || limits && allow == nil // told already
	p.Subscribe, p.AllowSubscribe = defaults(subscribe, hears, allow, limits)
	if broken {
		return
	}
	if at, ch := uncovered(f, p); ch != "" {
		r.Add(at, "add it to allowSubscribe, or remove it here", "subscribe: %q is not within allowSubscribe", yamldoc.Clip(ch))
	}
}

// defaults fills in what an agent hears and may read: general, and what it hears. A file that limits what is read and leaves general
// out hears nothing from the start.
func defaults(subscribe []string, hears bool, allow []string, limits bool) (s, a []string) {
	if !hears {
		subscribe = []string{DefaultChannel}
		if limits && !wire.PatternsCover(allow, DefaultChannel) {
			subscribe = nil
		}
	}
	if !limits {
		allow = slices.Clone(subscribe)
	}
	return subscribe, allow
}

// uncovered is the first channel that the agent would hear and may not read.
func uncovered(f map[string]yamldoc.Field, p *Persona) (yamldoc.Place, string) {
	n := f["subscribe"].Value
	for i, ch := range p.Subscribe {
		if wire.PatternsCover(p.AllowSubscribe, ch) {
			continue
		}
		if n.Kind == yamldoc.List {
			return n.Items[i].At, ch
		}
		return n.At, ch
	}
	return yamldoc.Place{}, ""
}

func channelPattern(s string) (problem, fix string) {
	if strings.HasPrefix(s, "#") && wire.ValidatePattern(s[1:]) == nil {
		return fmt.Sprintf("%q is no channel", yamldoc.Clip(s)), "write it without #"
	}
	if wire.ValidatePattern(s) != nil {
		return fmt.Sprintf("%q is no channel", yamldoc.Clip(s)), `write letters, digits, _ and -, parts joined by dots; "*" is one part, a last ">" all that follow`
	}
	return "", ""
}

func capability(s string) (problem, fix string) {
	if s == CapabilitySpawn {
		return "", ""
	}
	if role, ok := strings.CutPrefix(s, "role:"); ok && wire.ValidateRole(role) == nil {
		return "", ""
	}
	return fmt.Sprintf("%q is none", yamldoc.Clip(s)), "write spawn, or role:<role>"
}

// ValidateCapability reports whether s is a capability: spawn or role:<role>. Its error has code bad-request.
func ValidateCapability(s string) error {
	if problem, fix := capability(s); problem != "" {
		return wire.Errorf(wire.CodeBadRequest, "check capability: %s; %s", problem, fix)
	}
	return nil
}
