package login

import (
	"context"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// What says who somebody is without a session.
const (
	byLaunch  = "launch"  // the launch file of the agent in whose shell the command runs
	byFile    = "file"    // a credential file
	byProject = "project" // the trust records of the project, under the login name
	byNobody  = "nobody"  // a mesh without authentication, under the login name
)

// SelfResult is what `cotal whoami --json` prints where nobody signs in, and in the shell of an agent.
type SelfResult struct {
	command.V
	Space string `json:"space"`
	Mesh  string `json:"mesh"` // the address of its broker
	Owner string `json:"owner"`
	Actor string `json:"actor"`
	// Granted is what the actor may do; absent in a mesh without authentication.
	Granted *Granted `json:"granted,omitempty"`
	By      string   `json:"by"`             // launch, file, project or nobody
	Path    string   `json:"path,omitempty"` // of the file, or the folder of the project
	Agent   *Agent   `json:"agent,omitempty"`
}

// Agent is what the supervisor says of an agent in its shell.
type Agent struct {
	UID        wire.UID `json:"uid"`
	Connector  string   `json:"connector"`
	Persona    string   `json:"persona,omitempty"`
	Supervisor string   `json:"supervisor"`
}

// self says who commands speak as where they need no session, as with a credential file. It reports false where people sign in, or no mesh is known.
func self(ctx context.Context, e *command.Env) (done bool, err error) {
	t, err := target.Open(e)
	if err != nil {
		return false, err
	}
	defer t.Close()
	if t.Config.Creds.Value == "" {
		if p, err := t.People(ctx); p != nil || err != nil || t.Config.Project == nil && !t.Foreign() {
			return false, err
		}
	}
	ep, err := t.Endpoint(ctx, target.Speaking)
	if err != nil {
		return false, err
	}
	defer func() { _ = ep.Close() }()
	id, me := ep.Identity(), ep.Lifecycle().Principal
	res := &SelfResult{V: command.V1, Space: string(t.Space()), Mesh: t.Config.Server.Value, Owner: me.Owner, Actor: me.Actor, By: byProject}
	switch f := t.Launch(); {
	case f != nil:
		res.By, res.Path = byLaunch, e.Getenv(launch.Env)
		res.Agent = &Agent{UID: f.UID, Connector: f.Connector, Persona: f.Persona, Supervisor: f.Manager}
	case t.Config.Open:
		res.By = byNobody
	case t.Config.Creds.Value != "":
		res.By, res.Path = byFile, t.Config.Creds.Value
	case t.Config.Project != nil:
		res.Path = t.Config.Project.Root
	}
	if res.By != byNobody {
		res.Granted = &Granted{Role: id.Role, Scope: []string{}, Subscribe: list(id.Subscribe), Publish: list(id.Publish)}
		if res.By == byFile {
			res.Granted.Profile = string(id.Profile)
			res.Granted.Reads, res.Granted.Posts = view.Rights(id)
		}
		if id.Spawns {
			res.Granted.Scope = append(res.Granted.Scope, trust.ScopeSpawn)
		}
	}
	return true, e.Print(res, res.human)
}

func (r *SelfResult) human(p *command.Printer) {
	p.Line("space %s", p.Bold(r.Space))
	you(p, r.Owner, r.Actor, r.Granted)
	if a := r.Agent; a != nil {
		what := a.Connector
		if a.Persona != "" {
			what += ", of agent file " + a.Persona
		}
		p.Line("  agent:    %s", command.Safe(what))
	}
	p.Line("  mesh:     %s", command.Safe(r.Mesh))
	p.Line("  by:       %s", command.Safe(map[string]string{
		byLaunch: "launch file " + r.Path, byFile: "credential file " + r.Path, byNobody: "a mesh that asks nobody who they are",
		byProject: "the trust records of " + r.Path + ", a short credential for each command",
	}[r.By]))
}
