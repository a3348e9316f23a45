package view

import (
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// mostLeft is how many of the daemons that an agent left are named.
const mostLeft = 3

// Process is what is known of an agent's process, in a phrase: "running, pid 12" or "exited with code 1, leaving tmux: server (40)".
func Process(p wire.AgentProcess) string {
	out := ""
	switch p.State {
	case wire.ProcessRunning:
		out = "running"
		if p.PID != 0 {
			out += ", pid " + strconv.Itoa(p.PID)
		}
	case wire.ProcessExited:
		out = "exited with code " + strconv.Itoa(p.Code)
		if p.Signal != "" {
			out = "ended by " + p.Signal
		}
		if n := len(p.Left); n > mostLeft {
			out += ", leaving " + strings.Join(p.Left[:mostLeft], ", ") + " and " + strconv.Itoa(n-mostLeft) + " more"
		} else if n > 0 {
			out += ", leaving " + strings.Join(p.Left, ", ")
		}
	case wire.ProcessLost:
		out = "lost with its seat"
	default:
		return "not begun"
	}
	if p.Restarts > 0 {
		out += ", started again " + strconv.Itoa(p.Restarts) + "×"
	}
	return command.Safe(out)
}

// Mesh is what the space says of an agent, in a word or, with its activity and condition, a phrase: "working: tests". It is "none" of
// one that runs and of which the space has nothing: that one need not join, and is not away.
func Mesh(a wire.AgentStatus) string {
	m := a.Mesh
	out := string(m.Status)
	switch {
	case out == "":
		out = string(wire.StatusUnknown)
	case a.State == wire.AgentReady && m.Status == wire.StatusOffline && m.Since == 0:
		out = "none"
	case m.Status == wire.StatusOffline && m.Gone != "":
		out += " (" + m.Gone + ")"
	}
	if m.Activity != "" {
		out += ": " + m.Activity
	}
	if m.Condition != "" {
		out += " (" + m.Condition + ")"
	}
	return command.Safe(out)
}

// Agent writes both facts about an agent under its name, and with lines how its terminal ended.
func Agent(p *command.Printer, name string, a wire.AgentStatus, lines bool) {
	state := a.State
	if a.Reason != "" {
		state += ": " + a.Reason
	}
	p.Line("%s  %s", p.Bold(command.Safe(name)), command.Safe(state))
	p.Line("  process  %s", Process(a.Process))
	p.Line("  mesh     %s", Mesh(a))
	if lines {
		LastLines(p, a.Process.LastLines)
	}
}

// LastLines writes how the output of a terminal ended, each line marked as what it is.
func LastLines(p *command.Printer, lines []string) {
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		return
	}
	p.Line("  its last output:")
	for _, l := range lines {
		p.Line("  │ %s", command.Safe(strings.TrimRight(l, " ")))
	}
}

// Silent says what is known of a supervisor that does not answer.
func Silent(s wire.ManagerPeer, now time.Time) string {
	agents := Plural(uint64(max(0, s.Agents)), "agent")
	switch {
	case s.Left:
		return "left " + Age(time.UnixMilli(s.Heard), now) + " ago; " + agents + " of it went on"
	case s.Heard > 0:
		return "does not answer, last heard " + Age(time.UnixMilli(s.Heard), now) + " ago; it kept " + agents + " then"
	}
	return "does not answer, never heard; it kept " + agents + " then"
}

// Age is how long ago something was, in its largest unit: 12s, 5m, 3h, 2d. The zero time is "-".
func Age(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	switch d := max(0, now.Sub(at)); {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	default:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
}
