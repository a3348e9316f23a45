package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// fence and end are the lines around a script.
const (
	fence = "```script"
	end   = "```"
)

// maxExit is the largest code of exit; those above mean other things to a shell.
const maxExit = 125

// The statements.
const (
	verbSay    = "say"
	verbStatus = "status"
	verbWait   = "wait"
	verbPrint  = "print"
	verbSpawn  = "spawn"
	verbExit   = "exit"
	verbReply  = "reply"
	verbOn     = "on"
)

// The triggers of "on".
const (
	onDirect  = "dm"
	onMention = "mention"
	onRole    = "role"
	onChannel = "channel"
)

// statement is one line.
type statement struct {
	verb   string
	target string        // channel of say, persona of spawn
	text   string        // of say, print, reply; activity of status
	status wire.Status   // of status
	wait   time.Duration // of wait
	code   int           // of exit
}

// reaction is a statement for each message of a kind.
type reaction struct {
	on      string
	channel string // of on channel
	do      statement
}

// Program is a script that was read.
type Program struct {
	main  []statement
	react []reaction
}

// Parse reads the script in the text of an agent file. Without one it is the echo: hello in general, and every message to the agent is
// answered with its own text.
//
// Errors: bad-request, with the line in the text, for what is no statement, for a second script and for one without an end.
func Parse(text string) (*Program, error) {
	p := &Program{}
	state := 0 // before, in, after the script
	at := 0
	for line := range strings.Lines(text) {
		at++
		switch s := strings.TrimSpace(line); {
		case s == fence && state == 0:
			state = 1
		case s == fence && state == 2:
			return nil, wire.Errorf(wire.CodeBadRequest, "read script: line %d: a second script; put everything into the first", at)
		case state == 1 && s == end:
			state = 2
		case state == 1 && s != "" && !strings.HasPrefix(s, "#"):
			if err := p.add(s); err != nil {
				return nil, wire.Errorf(wire.CodeBadRequest, "read script: line %d: %v", at, err)
			}
		}
	}
	switch state {
	case 0:
		return echo(), nil
	case 1:
		return nil, wire.Errorf(wire.CodeBadRequest, "read script: line %d: the script has no end; close it with %s", at, end)
	}
	return p, nil
}

// echo is what an agent does without a script.
func echo() *Program {
	say := statement{verb: verbReply, text: "{text}"}
	return &Program{
		main:  []statement{{verb: verbSay, target: "general", text: "hello from {name}"}},
		react: []reaction{{on: onDirect, do: say}, {on: onMention, do: say}, {on: onRole, do: say}},
	}
}

// add takes one line.
func (p *Program) add(line string) error {
	verb, rest := word(line)
	if verb != verbOn {
		s, err := parseStatement(verb, rest, false)
		p.main = append(p.main, s)
		return err
	}
	var r reaction
	r.on, rest = word(rest)
	switch r.on {
	case onDirect, onMention, onRole:
	case onChannel:
		r.channel, rest = word(rest)
		r.channel = strings.TrimPrefix(r.channel, "#")
		if err := wire.ValidateChannel(r.channel); err != nil {
			return err
		}
	default:
		return wire.Errorf(wire.CodeBadRequest, "on %q: want on dm, on mention, on role or on channel <name>, and a statement", r.on)
	}
	verb, rest = word(rest)
	s, err := parseStatement(verb, rest, true)
	r.do = s
	p.react = append(p.react, r)
	return err
}

func parseStatement(verb, rest string, reacts bool) (statement, error) {
	s := statement{verb: verb, text: rest}
	switch verb {
	case verbSay:
		s.target, s.text = word(rest)
		s.target = strings.TrimPrefix(s.target, "#")
		if err := wire.ValidateChannel(s.target); err != nil {
			return s, err
		}
		return s, needs(verb, s.text, "say <channel> <text>")
	case verbReply:
		if !reacts {
			return s, wire.Errorf(wire.CodeBadRequest, "reply answers a message: write on dm reply <text>")
		}
		return s, needs(verb, s.text, "reply <text>")
	case verbPrint:
		return s, needs(verb, s.text, "print <text>")
	case verbSpawn:
		s.target, s.text = word(rest)
		return s, needs(verb, s.target, "spawn <persona>")
	case verbStatus:
		return s, s.parseStatus(rest)
	case verbWait:
		var err error
		if s.wait, err = time.ParseDuration(rest); err != nil || s.wait < 0 {
			return s, wire.Errorf(wire.CodeBadRequest, "wait %q: want a duration such as 500ms or 2s", rest)
		}
		return s, nil
	case verbExit:
		var err error
		if s.code, err = strconv.Atoi(rest); err != nil || s.code < 0 || s.code > maxExit {
			return s, wire.Errorf(wire.CodeBadRequest, "exit %q: want a code from 0 to %d", rest, maxExit)
		}
		return s, nil
	case "":
		return s, wire.Errorf(wire.CodeBadRequest, "a statement is missing")
	}
	return s, wire.Errorf(wire.CodeBadRequest, "no statement %q; there are say, status, wait, print, spawn, exit, on and, after on, reply", verb)
}

func (s *statement) parseStatus(rest string) error {
	name, activity := word(rest)
	s.text = activity
	switch s.status = wire.Status(name); s.status {
	case wire.StatusIdle, wire.StatusWorking, wire.StatusWaiting:
		return nil
	}
	return wire.Errorf(wire.CodeBadRequest, "status %q: want idle, working or waiting", name)
}

func needs(verb, text, usage string) error {
	if text == "" {
		return wire.Errorf(wire.CodeBadRequest, "%s is not complete: want %s", verb, usage)
	}
	return nil
}

// word cuts the first word off.
func word(s string) (first, rest string) {
	s = strings.TrimSpace(s)
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimSpace(s[i:])
}

// channels are those that the script listens in.
func (p *Program) channels() []string {
	var out []string
	for _, r := range p.react {
		if r.on == onChannel {
			out = append(out, r.channel)
		}
	}
	return out
}
