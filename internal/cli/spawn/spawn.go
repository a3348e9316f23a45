package spawn

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/team"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/wire"
)

const spawnLong = `
Starts an agent on the host of a supervisor: from an agent file, .cotal/agents/<persona>.md there, with what the flags say over it, or
from flags alone with --agent or a command after --. Without any of these it is the file "default".

The supervisor accepts at once and tells the identity; what the agent may do is never more than what you may. Then the command waits, for
--wait at most, until the agent is seen in the space (ready), has failed or has ended, and prints what its process does and what the
space says of it. An agent that is still starting when the wait ends goes on starting: that is exit code 0, and cotal ps shows how it
went on. With --no-wait the command ends once the request was accepted.

A name that is given with --name is refused when it is in use; the name of the file gets a number instead. When no answer comes the
request is repeated under the same id, which is told if nothing helps: repeat the command with that --request-id, and there is one
agent whatever became of the first. In the shell of an agent the new one is its child: it may stop that, and with --with-parent it ends
with its parent.

With --file the channels and agents of a team file are made instead, in the mesh that runs; --dry-run shows what that would be, who
could read and post where, and which programs that agents live in are not found on this machine.
` + team.Help + `
Exit code 5 means that the agent failed to start or ended at once, and how its output ended is shown; 8 that no answer came.
`

const spawnExample = `
  cotal spawn reviewer
  cotal spawn reviewer --name anna --model opus --prompt "review branch fix-42"
  cotal spawn --name builder --restart always -- make -C web watch
  cotal spawn -f cotal.yaml --dry-run
`

// spawn starts an agent.
type spawn struct {
	req    wire.SpawnRequest
	env    []string
	on     string
	wait   time.Duration
	noWait bool
	team   team.Options
	alone  func(flag string) bool // whether a flag that is for one agent was given
	again  bool                   // the request id was given: an earlier command may have asked
}

const defaultPersona = "default"

// New adds `cotal spawn`.
func New(t *command.Tree) *cobra.Command {
	s := &spawn{wait: time.Minute}
	var c *cobra.Command
	c = t.Add(command.Spec{
		Use: "spawn [persona] [flags] [-- command…]", Short: "Start an agent", Long: spawnLong, Example: spawnExample, Target: command.TargetSelf, Changes: true,
		Args:     func(args []string) error { return s.operands(args, c.ArgsLenAtDash()) },
		Complete: command.First(target.CompletePersonas),
	}, s)
	s.flags(c)
	s.team.AddFlags(c, "team file whose channels and agents are made")
	s.team.AddReplace(c)
	s.alone = c.Flags().Changed
	return c
}

func (s *spawn) flags(c *cobra.Command) {
	f, r := c.Flags(), &s.req
	f.StringVar(&r.Name, "name", "", "name of the agent (default: that of the agent file, numbered if it is in use)")
	f.StringVar(&r.Agent, "agent", "", "what runs: claude, codex, opencode, gemini, command or script (default: what the agent file says)")
	f.StringVar(&r.Model, "model", "", "model that it is to use; one that it cannot use is refused")
	f.StringVar(&r.Variant, "variant", "", "variant of the model, such as an effort")
	f.StringVar(&r.Role, "role", "", "role whose messages it takes")
	f.StringVar(&r.Cwd, "cwd", "", "folder that it works in, on the supervisor's host (default: what the agent file says, or the project's)")
	f.StringVar(&r.Prompt, "prompt", "", "the first thing it is told to do")
	f.StringSliceVar(&r.Subscribe, "subscribe", nil, "channels that it joins")
	f.StringSliceVar(&r.AllowSubscribe, "allow-subscribe", nil, "channel patterns that it may read")
	f.StringSliceVar(&r.AllowPublish, "allow-publish", nil, "channel patterns that it may post to")
	f.StringSliceVar(&r.Capabilities, "capability", nil, "spawn: it may start agents itself; role:<name> with it: ones that take the messages of that role")
	f.StringArrayVar(&s.env, "env", nil, "NAME=value for its environment, never a secret; may be repeated")
	f.StringVar(&r.Restart, "restart", "", "when it is started again: never, on-failure or always (default on-failure)")
	f.BoolVar(&r.WithParent, "with-parent", false, "end it when the agent that asks for it ends")
	f.StringVar(&s.on, "on", "", "supervisor, by its instance or host (default: the one with the fewest agents)")
	f.StringVar(&r.RequestID, "request-id", "", "repeat an earlier request: it makes no second agent")
	f.Var(command.DurationFlag(&s.wait), "wait", "how long to wait until it is ready")
	f.BoolVar(&s.noWait, "no-wait", false, "end once the request was accepted")
	f.BoolVarP(&s.noWait, "detach", "d", false, "the same as --no-wait")
	_ = f.MarkHidden("detach") // agents always run in the background; it is known from elsewhere
	_ = c.RegisterFlagCompletionFunc("agent", fixed("claude", "codex", "opencode", "gemini", "command", "script"))
	_ = c.RegisterFlagCompletionFunc("restart", fixed("never", "on-failure", "always"))
}

func fixed(words ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// operands takes the persona, and the command after the dashes at position dash, -1 for none.
func (s *spawn) operands(args []string, dash int) error {
	if dash >= 0 {
		if s.req.Command = args[dash:]; len(s.req.Command) == 0 {
			return command.Usagef("a command is missing after --")
		}
		args = args[:dash]
	}
	if len(args) > 1 {
		return command.Usagef("want at most one operand <persona>, got %d; a command stands after --", len(args))
	}
	if len(args) == 1 {
		s.req.Persona = args[0]
	}
	if ext := filepath.Ext(s.req.Persona); ext == ".yaml" || ext == ".yml" { // no agent file is named so
		return command.Hint(command.Usagef("%q names no agent file; a team file goes with --file", s.req.Persona), "cotal spawn -f "+command.Quote(s.req.Persona))
	}
	return nil
}

// request completes and checks what the flags said.
func (s *spawn) request(dir string) error {
	r := &s.req
	switch {
	case s.wait <= 0:
		return command.Usagef("--wait %s: want more than 0s, or --no-wait", s.wait)
	case r.Agent == "" && len(r.Command) > 0:
		r.Agent = "command"
	case len(r.Command) > 0 && r.Agent != "command":
		return command.Usagef("--agent %s takes no command after --", r.Agent)
	case r.Persona == "" && r.Agent == "":
		r.Persona = defaultPersona
	}
	if r.Name != "" {
		if err := target.CheckActor(r.Name); err != nil {
			return err
		}
	}
	if r.Cwd != "" && !filepath.IsAbs(r.Cwd) {
		r.Cwd = filepath.Join(dir, r.Cwd)
	}
	for _, kv := range s.env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return command.Usagef("--env: want NAME=value")
		}
		if r.Env == nil {
			r.Env = map[string]string{}
		}
		r.Env[name] = value
	}
	if s.again = r.RequestID != ""; !s.again {
		r.RequestID = manager.RequestID()
	}
	return nil
}

// Result is one line of `cotal spawn --json`: the first when the request was accepted, the second, unless --no-wait, when the wait ended.
type Result struct {
	command.V
	Agent wire.AgentStatus `json:"agent"`
	// Renamed says that the name of the agent file was in use; Repeated that an earlier request of the same id had made the agent.
	Renamed  bool `json:"renamed,omitempty"`
	Repeated bool `json:"repeated,omitempty"`
	// Settled is set in the second line, unless the agent was still starting.
	Settled bool `json:"settled,omitempty"`
}

// Run asks, prints what was accepted, and waits.
func (s *spawn) Run(ctx context.Context, e *command.Env) error {
	if err := s.team.Check(); err != nil {
		return err
	}
	if s.team.File != "" {
		return s.deploy(ctx, e)
	}
	if err := s.request(e.Dir); err != nil {
		return err
	}
	t, m, leave, err := target.EnterManager(ctx, e)
	if err != nil {
		return err
	}
	defer leave()
	ask := m.Spawn
	if s.again {
		ask = m.SpawnAgain
	}
	reply, err := ask(ctx, s.req, s.on)
	if err != nil {
		return s.refused(ctx, t, m, err)
	}
	first := Result{V: command.V1, Agent: reply.Agent, Renamed: reply.Renamed, Repeated: reply.Repeated}
	if err := e.Each(first, first.accepted); err != nil || s.noWait {
		return err
	}
	a, err := t.Settle(ctx, m, reply.Agent, s.wait)
	if err != nil {
		return err
	}
	last := Result{V: command.V1, Agent: a, Renamed: reply.Renamed, Repeated: reply.Repeated, Settled: a.State != wire.AgentStarting}
	verdict := target.Verdict(a)
	if err := e.Each(last, func(p *command.Printer) {
		view.Agent(p, target.AgentName(a), a, verdict != nil || a.State == wire.AgentExited)
	}); err != nil {
		return err
	}
	if !last.Settled {
		e.Note("it goes on starting; how it is: cotal ps, what it shows: cotal attach %s", target.AgentName(a))
	}
	return verdict
}

// deploy makes a team instead of one agent.
func (s *spawn) deploy(ctx context.Context, e *command.Env) error {
	for _, flag := range []string{
		"name", "agent", "model", "variant", "role", "cwd", "prompt", "subscribe", "allow-subscribe", "allow-publish", "capability", "env", "restart", "with-parent", "request-id",
	} {
		if s.alone(flag) {
			return command.Usagef("--%s is for one agent, and --file makes a team", flag)
		}
	}
	if s.req.Persona != "" || s.req.Command != nil {
		return command.Usagef("an operand is for one agent, and --file makes a team")
	}
	t, err := team.Load(e, s.team.File)
	if err != nil {
		return err
	}
	if s.team.DryRun {
		return team.DryRun(ctx, e, t, s.team)
	}
	o := s.team
	o.On, o.Wait = s.on, s.wait
	if s.noWait {
		o.Wait = 0
	}
	return team.Deploy(ctx, e, t, o)
}

func (r Result) accepted(p *command.Printer) {
	a := r.Agent
	name := target.AgentName(a)
	verb := "accepted"
	if r.Repeated {
		verb = "was accepted before"
	}
	with := a.Connector
	if a.Model != "" {
		with += ", model " + a.Model
	}
	p.Line("%s  %s as %s: %s, on %s", p.Bold(command.Safe(name)), verb, command.Safe(a.Principal), command.Safe(with), command.Safe(a.Host))
	if r.Renamed {
		p.Line("  the name %s was in use", command.Safe(a.Persona))
	}
}

// refused adds to a refusal what a person can do about it.
func (s *spawn) refused(ctx context.Context, t *target.Target, m *manager.Client, err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if ok && e.Outcome == wire.OutcomeUnknown {
		id, _ := e.Details["requestId"].(string)
		return command.Hint(err, "whether the agent was made is unknown; ask again without making a second one: the same command with --request-id "+id)
	}
	if ok && e.Details["program"] != nil {
		if name := bare(ctx, m); name != "" {
			return command.Hint(t.Explain(err), "one that needs no program and no model: cotal spawn "+command.Quote(name))
		}
	}
	if names, unknown := connectors(e); unknown {
		if meant := command.Meant(s.req.Agent, names); meant != "" {
			return command.Hint(t.Explain(err), meant)
		}
		return t.Explain(err)
	}
	if ok && e.Details[manager.DetailSupervisors] != nil {
		return target.NoSupervisor(err, s.on)
	}
	if errors.Is(err, wire.ErrNotFound) && s.req.Persona != "" {
		hints := []string{"which agent files there are: cotal persona list"}
		if meant := command.Meant(s.req.Persona, personas(ctx, m)); meant != "" {
			hints = append(hints, meant)
		}
		return command.Hint(t.Explain(err), hints...)
	}
	return t.Explain(err)
}

// connectors are those that there are, when an error says that the one of the request is none of them.
func connectors(e *wire.Error) (names []string, unknown bool) {
	if e == nil {
		return nil, false
	}
	list, unknown := e.Details[connector.DetailConnectors].([]any)
	for _, v := range list {
		if name, ok := v.(string); ok {
			names = append(names, name)
		}
	}
	return names, unknown
}

// personas are the names of the agent files of all supervisors that answer.
func personas(ctx context.Context, m *manager.Client) []string {
	replies, err := m.Personas(ctx, "")
	if err != nil {
		return nil
	}
	var out []string
	for _, r := range replies {
		for _, p := range r.Personas {
			out = append(out, p.Name)
		}
	}
	return out
}

// bare is an agent file that runs without a host program, the first by name, or "".
func bare(ctx context.Context, m *manager.Client) string {
	replies, err := m.Personas(ctx, "")
	if err != nil {
		return ""
	}
	for _, r := range replies {
		for _, p := range r.Personas {
			if p.Connector == "script" && p.Invalid == "" {
				return p.Name
			}
		}
	}
	return ""
}
