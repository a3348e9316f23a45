package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

type spawnArgs struct {
	Persona string `json:"persona" jsonschema:"name of the agent file on the supervisor's host; cotal_persona lists them"`
	Name    string `json:"name,omitempty" jsonschema:"name of the agent; it must be free. Default: that of the persona, numbered when it is in use"`
	Role    string `json:"role,omitempty" jsonschema:"role that it serves, instead of the persona's"`
	Agent   string `json:"agent,omitempty" jsonschema:"program that it lives in, instead of the persona's: claude, codex, opencode, gemini, command or script"`
	Model   string `json:"model,omitempty" jsonschema:"model, instead of the persona's; one that the program does not know is refused"`
	Variant string `json:"variant,omitempty" jsonschema:"variant of the model, such as its effort"`
	Cwd     string `json:"cwd,omitempty" jsonschema:"absolute folder on the supervisor's host"`
	Prompt  string `json:"prompt,omitempty" jsonschema:"the first thing for it to do"`
	// WithParent is true unless it is said.
	Outlives  bool   `json:"outlives_you,omitempty" jsonschema:"it goes on when you end; default: it ends with you"`
	RequestID string `json:"request_id,omitempty" jsonschema:"to repeat a call whose outcome is not known: the id that it was refused with. The same id never makes two agents"`
	Wait      *int   `json:"wait_seconds,omitempty" jsonschema:"how long to wait until it is ready, 0 to 300; 0: not at all; default 30"`
}

const defaultSpawnWait = 30

func (s *Server) spawn(ctx context.Context, _ *mcp.CallToolRequest, in spawnArgs) (string, error) {
	wait := defaultSpawnWait
	if in.Wait != nil {
		wait = *in.Wait
	}
	if wait < 0 || wait > maxWait {
		return "", undone(wire.CodeBadRequest, "spawn: wait_seconds %d is not from 0 to %d", wait, maxWait)
	}
	ask := s.manager.SpawnAgain
	if in.RequestID == "" {
		in.RequestID, ask = manager.RequestID(), s.manager.Spawn
	}
	reply, err := ask(ctx, wire.SpawnRequest{
		RequestID: in.RequestID, Persona: in.Persona, Name: in.Name, Role: in.Role, Agent: in.Agent, Model: in.Model, Variant: in.Variant,
		Cwd: in.Cwd, Prompt: in.Prompt, WithParent: !in.Outlives,
	}, "")
	if err != nil {
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Outcome == wire.OutcomeUnknown {
			return "", fmt.Errorf("%w; call again with request_id %q, which makes no second agent", err, in.RequestID)
		}
		return "", err
	}
	a := reply.Agent
	text := fmt.Sprintf("accepted: %s", a.Principal)
	if reply.Renamed {
		text += ", since the persona's name is in use"
	}
	if reply.Repeated {
		text += "; an earlier call with this request_id made it"
	}
	if wait == 0 {
		return text + "\n" + agentLines(a), nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Second)
	defer cancel()
	a, _ = s.manager.Settle(ctx, a, []string{wire.AgentStarting}, func(wire.AgentStatus, error) {}) // what is known is told, whatever ended the wait
	return text + "\n" + agentLines(a), nil
}

// agentLines are what is known of an agent: its process, and the agent in the space.
func agentLines(a wire.AgentStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %s", claim(a.Principal, wire.MaxName), a.State)
	if a.Reason != "" {
		b.WriteString(" (" + oneLine(a.Reason) + ")")
	}
	fmt.Fprintf(&b, ", runs in %s", said(a.Connector, maxName))
	if a.Model != "" {
		fmt.Fprintf(&b, " with the model %s", said(a.Model, maxName))
	}
	fmt.Fprintf(&b, "; process %s", a.Process.State)
	if a.Process.State == wire.ProcessExited {
		fmt.Fprintf(&b, " with code %d", a.Process.Code)
		if a.Process.Signal != "" {
			b.WriteString(" by " + said(a.Process.Signal, maxName))
		}
	}
	fmt.Fprintf(&b, ", in the space %s\n", a.Mesh.Status)
	if a.State == wire.AgentStarting {
		b.WriteString("It is still starting, which may take a while: cotal_roster shows it when it is here.\n")
	}
	if len(a.Process.LastLines) > 0 && a.State != wire.AgentReady {
		b.WriteString("the last lines of its terminal:\n")
		quote(&b, strings.Join(a.Process.LastLines, "\n"))
	}
	return b.String()
}

type despawnArgs struct {
	Name     string `json:"name,omitempty" jsonschema:"name or principal of an agent that you started; none: yourself"`
	Children bool   `json:"children,omitempty" jsonschema:"also what it started, if that is to go on without it"`
	Force    bool   `json:"force,omitempty" jsonschema:"also when it has only just begun"`
}

// stopWithin bounds a stop: the grace of its process, and then some.
const stopWithin = 30 * time.Second

func (s *Server) despawn(ctx context.Context, _ *mcp.CallToolRequest, in despawnArgs) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	req := wire.StopRequest{Children: in.Children, Force: in.Force}
	if in.Name == "" {
		var out wire.StopReply
		c := s.manager
		if c == nil {
			c = manager.New(s.ep)
		}
		if err := c.StopSelf(ctx, s.opts.Manager, req, &out); err != nil {
			return "", err
		}
		return "you are being ended\n" + agentLines(out.Agent), nil
	}
	if s.manager == nil {
		return "", undone(wire.CodePermissionDenied, "end agent %q: your credential allows you to end only yourself", in.Name)
	}
	a, err := s.manager.Find(ctx, in.Name)
	if err != nil {
		return "", err
	}
	out, err := s.manager.Stop(ctx, a, req)
	if err != nil {
		return "", err
	}
	text := agentLines(out.Agent)
	for _, c := range out.Children {
		text += agentLines(c)
	}
	return text, nil
}

type personaArgs struct {
	Name        string `json:"name,omitempty" jsonschema:"name of an agent file, of letters, digits, _ and -; none lists all"`
	Text        string `json:"text,omitempty" jsonschema:"defines the file, or changes the text of one that you defined"`
	Model       string `json:"model,omitempty" jsonschema:"with a text: the model"`
	Description string `json:"description,omitempty" jsonschema:"with a text: what it is for, in a sentence"`
	Role        string `json:"role,omitempty" jsonschema:"with a text, for operators alone: the role it serves. Others name the role in cotal_spawn"`
	Agent       string `json:"agent,omitempty" jsonschema:"with a text: the program that it lives in"`
}

func (s *Server) persona(ctx context.Context, _ *mcp.CallToolRequest, in personaArgs) (string, error) {
	if in.Text == "" {
		if in.Model+in.Description+in.Role+in.Agent != "" {
			return "", undone(wire.CodeBadRequest, "define persona %q: a text is missing", in.Name)
		}
		return s.personas(ctx, in.Name)
	}
	if in.Name == "" {
		return "", undone(wire.CodeBadRequest, "define persona: a name is missing")
	}
	p, err := s.manager.DefinePersona(ctx, "", wire.PersonaRequest{
		Name: in.Name, Text: in.Text, Model: in.Model, Description: in.Description, Role: in.Role, Connector: in.Agent,
	})
	if err != nil {
		return "", err
	}
	return "defined\n" + personaLines(p, false), nil
}

func (s *Server) personas(ctx context.Context, name string) (string, error) {
	replies, err := s.manager.Personas(ctx, name)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	n := 0
	for _, r := range replies {
		for _, p := range r.Personas {
			if n++; n > maxRoster {
				continue
			}
			b.WriteString(personaLines(p, name != ""))
		}
	}
	switch {
	case n > maxRoster:
		fmt.Fprintf(&b, "and %d more\n", n-maxRoster)
	case n == 0 && name != "":
		return "", undone(wire.CodeNotFound, "no agent file %q", name)
	case n == 0:
		return "there are no agent files\n", nil
	}
	return b.String(), nil
}

func personaLines(p wire.Persona, full bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s", said(p.Name, maxName))
	for _, f := range []struct{ what, value string }{
		{"role ", p.Role}, {"runs in ", p.Connector}, {"model ", p.Model}, {"defined by ", p.Owner}, {"unusable: ", p.Invalid}, {"", p.Description},
	} {
		if f.value != "" {
			b.WriteString(", " + f.what + said(f.value, maxActivity))
		}
	}
	b.WriteByte('\n')
	if full && p.Text != "" {
		quote(&b, p.Text)
	}
	return b.String()
}
