package connector

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/wire"
)

const (
	commandName = "command"
	scriptName  = "script"
)

// slowHost is how long a host of a model may take until its tools run.
const slowHost = 30 * time.Second

// command runs any program as an agent that has a terminal and an identity. Whether it takes part in the space is its affair.
type command struct{}

var _ Connector = command{}

func (command) Name() string { return commandName }

func (command) Info() Info {
	return Info{
		Name: commandName, Title: "a command",
		Home:      "the user's",
		Approvals: "none: the program does what it does",
	}
}

// Prepare returns the program and its arguments as they are.
func (c command) Prepare(_ context.Context, r Request) (Launch, error) {
	if err := r.check(c.Info()); err != nil {
		return Launch{}, err
	}
	if len(r.Command) == 0 || r.Command[0] == "" {
		return Launch{}, wire.Errorf(wire.CodeBadRequest, "start a command: there is none: give the program and its arguments after --")
	}
	for _, arg := range r.Command {
		if strings.ContainsRune(arg, 0) {
			return Launch{}, wire.Errorf(wire.CodeBadRequest, "start a command: argument %q has a zero byte", arg)
		}
	}
	program := r.Command[0]
	if strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		program = filepath.Join(r.Cwd, program)
	}
	path, err := r.lookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return Launch{}, wire.Errorf(wire.CodeNotFound, "start a command: there is no program %q: give its path, or put its folder into PATH", r.Command[0])
	}
	return Launch{Argv: append([]string{path}, slices.Clone(r.Command[1:])...), Env: r.env()}, nil
}

// script runs the agent without a model that is built into cotal. It reads everything from the launch file.
type script struct{}

var _ Connector = script{}

func (script) Name() string { return scriptName }

func (script) Info() Info {
	return Info{
		Name: scriptName, Title: "the scripted agent", Persona: true, Prompt: true, Tools: true, Resumes: false,
		Home:      "none",
		Approvals: "none: it only talks in the space",
	}
}

// Prepare returns cotal's own command.
func (s script) Prepare(_ context.Context, r Request) (Launch, error) {
	if err := r.check(s.Info()); err != nil {
		return Launch{}, err
	}
	return Launch{Argv: []string{r.Program, scriptName}, Env: r.env(), Joins: true, Slow: 5 * time.Second}, nil
}
