package person

import (
	"slices"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// action is what one line asks for.
type action struct {
	verb verb
	to   string // peer, role, channel or status
	text string
}

type verb int

const (
	verbNone verb = iota
	verbSay
	verbWho
	verbDirect
	verbAsk
	verbStatus
	verbChannel
	verbChannels
	verbLeave
	verbHelp
	verbQuit
)

const help = `plain text         post to the current channel; // begins a text with a slash
/who               who is here
/dm <peer> <text>  send a direct message
/ask <role> <text> ask anyone with a role
/status <s> [text] say what you are doing: idle, waiting or working
/channel <name>    join a channel and make it the current one
/channels          list the channels
/leave <channel>   end your membership of a channel
/help              this list
/quit              end the session`

// parse reads one line. It knows the grammar, not who is there.
func parse(line string) (action, error) {
	line = strings.TrimSpace(line)
	switch {
	case line == "":
		return action{}, nil
	case strings.HasPrefix(line, "//"):
		return action{verb: verbSay, text: line[1:]}, nil
	case line[0] != '/':
		return action{verb: verbSay, text: line}, nil
	}
	name, rest := cut(line[1:])
	switch name {
	case "who":
		return action{verb: verbWho}, nil
	case "dm":
		return addressed(verbDirect, "/dm <peer> <text>", rest, "@")
	case "ask":
		return addressed(verbAsk, "/ask <role> <text>", rest, "")
	case "status":
		return status(rest)
	case "channel":
		if rest == "" {
			return action{}, command.Usagef("usage: /channel <name>")
		}
		ch := strings.TrimPrefix(rest, "#")
		return action{verb: verbChannel, to: ch}, wire.ValidateChannel(ch)
	case "leave":
		if rest == "" {
			return action{}, command.Usagef("usage: /leave <channel>")
		}
		pt := strings.TrimPrefix(rest, "#")
		return action{verb: verbLeave, to: pt}, wire.ValidatePattern(pt)
	case "channels":
		return action{verb: verbChannels}, nil
	case "help", "?":
		return action{verb: verbHelp}, nil
	case "quit", "exit":
		return action{verb: verbQuit}, nil
	}
	return action{}, command.Usagef("no command /%s; see /help", name)
}

func addressed(v verb, usage, rest, trim string) (action, error) {
	to, text := cut(rest)
	if to == "" || text == "" {
		return action{}, command.Usagef("usage: %s", usage)
	}
	return action{verb: v, to: strings.TrimPrefix(to, trim), text: text}, nil
}

func status(rest string) (action, error) {
	s, text := cut(rest)
	if !slices.Contains([]wire.Status{wire.StatusIdle, wire.StatusWaiting, wire.StatusWorking}, wire.Status(s)) {
		return action{}, command.Usagef("usage: /status idle|waiting|working [what you are doing]")
	}
	return action{verb: verbStatus, to: s, text: text}, nil
}

// cut splits off the first word.
func cut(s string) (word, rest string) {
	s = strings.TrimSpace(s)
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimSpace(s[i:])
}
