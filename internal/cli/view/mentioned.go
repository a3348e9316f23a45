package view

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/wire"
)

// Mentioned says in a line who is told of a mention in a channel, and of every other name why nobody is.
func Mentioned(channel string, all []wire.MentionReach) string {
	var told, rest []string
	beyond := 0
	for _, m := range all {
		switch {
		case m.Tier == wire.ReachLive:
			told = append(told, called(m)+" (there)")
		case m.Tier == wire.ReachStored && m.Reason == wire.MentionUnsure:
			told = append(told, called(m)+" (there or away)")
		case m.Tier == wire.ReachStored:
			told = append(told, called(m)+" (away)")
		case m.Reason == target.MentionBeyond:
			beyond++
		default:
			rest = append(rest, notTold(channel, m))
		}
	}
	if beyond > 0 {
		rest = append(rest, fmt.Sprintf("%s beyond the %d that count", Plural(uint64(beyond), "name"), wire.MaxMentioned))
	}
	line := strings.Join(rest, "; ")
	if len(told) == 0 {
		return "mentioned nobody: " + line
	}
	return strings.TrimSuffix("mentioned: "+strings.Join(told, ", ")+"; "+line, "; ")
}

func notTold(channel string, m wire.MentionReach) string {
	switch m.Reason {
	case wire.MentionUnknown:
		return "nobody is called " + quoted(m.Name)
	case wire.MentionAmbiguous:
		return "several are called " + quoted(m.Name) + ", name one by its principal"
	case wire.MentionUnread:
		return called(m) + " may not read " + Channel(channel)
	case wire.MentionSelf:
		return called(m) + " is you"
	}
	return called(m) + " is not told: " + command.Safe(m.Reason)
}

// called is the principal as people write it.
func called(m wire.MentionReach) string {
	if m.Principal == "" {
		return quoted(m.Name)
	}
	return command.Safe(strings.TrimPrefix(m.Principal, wire.LocalOwner+"."))
}

func quoted(name string) string { return command.Safe(strconv.Quote(name)) }
