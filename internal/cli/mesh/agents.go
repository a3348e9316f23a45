package mesh

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/supervisor/connector"
	"github.com/cotal-go/cotal/wire"
)

// supervisor is how this start runs agents; nil when it does not.
func (p *plan) supervisor() (*cotal.SupervisorOptions, error) {
	if p.open || p.noAgents {
		return nil, nil
	}
	opts, err := target.SupervisorOptions(p.project, "", p.cert)
	opts.Keeper.MaxAgents = p.most
	return &opts, err
}

// agentEnv are the variables that agents are given of a supervisor's environment; see package supervisor.
func agentEnv() []string {
	return append([]string{"SHELL", "TERM", "COLORTERM", "LC_ALL", "LC_CTYPE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"},
		connector.PassEnv()...)
}

// leftBehind tells which agents go on after the mesh has stopped.
func (p *plan) leftBehind(e *command.Env, node *cotal.Node) {
	if left := node.Agents(p.space); len(left) > 0 {
		e.Note("agents go on: %s", agentNames(left))
		e.Note("cotal up takes them up again; to end them: cotal up --detach, then cotal down --with-agents")
	}
}

// agentNames lists agents for a person.
func agentNames(all []wire.AgentStatus) string {
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = command.Safe(a.Name)
		if a.Process.PID != 0 {
			names[i] += fmt.Sprintf(" (pid %d)", a.Process.PID)
		}
	}
	return strings.Join(names, ", ")
}

// supervisorsWithin bounds the question who supervises.
const supervisorsWithin = 3 * time.Second

// askSupervisors fills in which supervisors the spaces have beside the mesh's own.
func askSupervisors(ctx context.Context, node *cotal.NodeClient, res *StatusResult) {
	ctx, cancel := context.WithTimeout(ctx, supervisorsWithin)
	defer cancel()
	var mu sync.Mutex // guards both maps
	res.Supervisors, res.SupervisorsUnknown = map[string][]cotal.SupervisorPeer{}, map[string]string{}
	var wg sync.WaitGroup
	for _, s := range res.Node.Spaces {
		if s.Supervisor == nil || s.Supervisor.State != stateServing && s.Supervisor.State != stateElsewhere {
			continue
		}
		wg.Go(func() {
			all, err := node.SupervisorPeers(ctx, s.Name)
			all = slices.DeleteFunc(all, func(p cotal.SupervisorPeer) bool { return p.Instance == s.Supervisor.Instance })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				res.SupervisorsUnknown[s.Name] = err.Error()
			} else if len(all) > 0 {
				res.Supervisors[s.Name] = all
			}
		})
	}
	wg.Wait()
}

// supervisors names those of a space beside the mesh's own.
func (s SpaceLine) supervisors(p *command.Printer) {
	for _, v := range s.beside {
		says := view.Plural(uint64(max(0, v.Agents)), "agent")
		switch {
		case v.Refused != "":
			says = "refuses to tell: " + command.Safe(v.Refused)
		case v.Silent:
			says = view.Silent(v.ManagerPeer, time.Now())
		}
		p.Line("    supervisor %s on %s: %s", command.Safe(v.Instance), command.Safe(cmp.Or(v.Host, "an unknown host")), says)
	}
	switch v := s.Supervisor; {
	case s.unasked == "" && len(s.beside) == 0 && v != nil && v.State == stateElsewhere:
		p.Line("    no supervisor runs; start one: cotal serve supervisor --space %s", command.Quote(s.Name))
	case s.unasked != "":
		p.Line("    which supervisors there are is not known: %s", command.Safe(s.unasked))
	}
}

// running says of a space how its agents are run.
func (s SpaceLine) running(p *command.Printer) {
	st := s.Supervisor
	switch {
	case st == nil:
		return
	case st.State == stateElsewhere:
		p.Line("    agents run by processes of its own (cotal serve supervisor)")
		return
	}
	var counts []string
	for _, state := range slices.SortedFunc(maps.Keys(st.Agents), byLiving) {
		if n := st.Agents[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, state))
		}
	}
	line := "    supervisor " + st.State + ", agents: "
	if len(counts) == 0 {
		line += "none"
	}
	p.Line("%s", line+strings.Join(counts, ", "))
	for _, dir := range st.Unreadable {
		p.Line("    cannot read %s, whose agent may run", command.Safe(dir))
	}
	if st.Error != "" {
		p.Line("    %s", command.Safe(st.Error))
	}
}

// byLiving compares states of agents: those that run come first.
func byLiving(a, b string) int {
	order := []string{wire.AgentReady, wire.AgentStarting, wire.AgentStopping, wire.AgentBackoff, wire.AgentFailed, wire.AgentExited}
	return slices.Index(order, a) - slices.Index(order, b)
}

// unsupervised is an error when the agents of a space are not looked after.
func (s SpaceLine) unsupervised() error {
	st := s.Supervisor
	if st == nil || st.State == stateServing || st.State == stateElsewhere {
		return nil
	}
	why := st.Error
	if why == "" {
		why = "no reason given"
	}
	return command.Hint(wire.Errorf(wire.CodeUnavailable, "the supervisor of space %q is %s: %s", s.Name, st.State, why),
		"it is started again by itself, and agents go on meanwhile; look again with: cotal status")
}

// listWithin bounds the question which agents go on, which is only told.
const listWithin = 4 * time.Second

// agents ends the agents of the mesh with --with-agents, and otherwise looks which there are. Only with the flag is it an error that this
// cannot be done.
func (d *down) agents(ctx context.Context, e *command.Env, t *target.Target, res *DownResult) error {
	if !d.withAgents {
		limited, cancel := context.WithTimeout(ctx, listWithin)
		defer cancel()
		if err := d.list(limited, t, res); err != nil {
			res.AgentsUnknown = err.Error()
		}
		return nil
	}
	if run := t.Config.Run; run != nil && !target.Runs(run) {
		return noneKept(t.Config.Project)
	}
	if from := target.Moved(t.Config); from != "" { // neither its records nor its streams are to be relied on
		return command.Hint(wire.Errorf(wire.CodeUnavailable, "the mesh of %s was started in %s, which was moved since, and cannot end its agents with proof; nothing is stopped", t.Config.Project.Root, from),
			"start it here: "+target.StartHere+", then cotal down --with-agents")
	}
	e.Progress("ending the agents")
	err := d.endAgents(ctx, t, res)
	if err != nil && len(res.Ended) > 0 {
		e.Note("ended: %s", agentNames(res.Ended))
	}
	if err != nil {
		return command.Hint(err, "the mesh still runs; look with: cotal ps", "stop it and leave the agents working: cotal down")
	}
	return nil
}

// supervisedSpaces are the spaces of a mesh in which agents may run.
func supervisedSpaces(st cotal.Status) []string {
	var out []string
	for _, s := range st.Spaces {
		if s.Supervisor != nil {
			out = append(out, s.Name)
		}
	}
	return out
}

func (d *down) list(ctx context.Context, t *target.Target, res *DownResult) error {
	node, err := t.Node(ctx)
	if err != nil {
		return nil // it does not run, or hangs: nobody to ask
	}
	st, err := node.Status(ctx)
	if err != nil {
		return nil
	}
	for _, s := range supervisedSpaces(st) {
		if n, err := node.Supervisors(ctx, s); err == nil && n == 0 {
			continue
		}
		all, err := node.Agents(ctx, s)
		if err != nil {
			return err
		}
		res.Left = append(res.Left, all...)
	}
	return nil
}

func (d *down) endAgents(ctx context.Context, t *target.Target, res *DownResult) error {
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	st, err := node.Status(ctx)
	if err != nil {
		return t.Explain(err)
	}
	for left := true; left; { // until a pass finds none anywhere: the hold of the first space may be over after the last
		left = false
		for _, s := range supervisedSpaces(st) {
			ended, err := node.StopAgents(ctx, s, 0)
			res.Ended = append(res.Ended, ended...)
			if err != nil {
				return d.unknown(ctx, t, node, s, err)
			}
			left = left || len(ended) > 0
		}
	}
	if t.Config.Run == nil || t.Config.Project == nil {
		return nil // of another machine
	}
	return noneForgotten(t.Config.Project, supervisedSpaces(st))
}
