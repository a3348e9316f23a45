package supervisor

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// The bounds of the terminal of an agent.
const maxCols, maxRows = 1000, 500

// maxEnv bounds the variables of a request, and maxEnvValue each, in bytes.
const (
	maxEnv      = 64
	maxEnvValue = 4096
)

// checkSpawn refuses a request that cannot be, whatever the host has. Errors have code bad-request.
func checkSpawn(r wire.SpawnRequest) error {
	bad := func(format string, args ...any) error {
		return wire.Errorf(wire.CodeBadRequest, "spawn: "+format, args...)
	}
	switch {
	case wire.ValidateRole(r.RequestID) != nil: // the same characters
		return bad("request id %.80q is not [A-Za-z0-9_-]{1,%d}", r.RequestID, wire.MaxToken)
	case r.Persona == "" && r.Agent == "":
		return bad("it names no persona and no agent")
	case r.Persona != "" && wire.ValidateRole(r.Persona) != nil:
		return bad("persona %.80q is not [A-Za-z0-9_-]{1,%d}", r.Persona, wire.MaxToken)
	case r.Name != "" && wire.ValidateActor(r.Name) != nil:
		return bad("name %.80q is not [A-Za-z0-9_]{1,%d}", r.Name, wire.MaxToken)
	case r.Role != "" && wire.ValidateRole(r.Role) != nil:
		return bad("role %.80q is not [A-Za-z0-9_-]{1,%d}", r.Role, wire.MaxToken)
	case r.Cwd != "" && !filepath.IsAbs(r.Cwd):
		return bad("folder %.200q is not absolute", r.Cwd)
	case len(r.Prompt) > wire.MaxPrompt:
		return bad("the prompt has %d bytes, at most %d", len(r.Prompt), wire.MaxPrompt)
	case r.Restart != "" && r.Restart != RestartNever && r.Restart != RestartOnFailure && r.Restart != RestartAlways:
		return bad("restart %.40q is not never, on-failure or always", r.Restart)
	case r.Cols < 0 || r.Cols > maxCols || r.Rows < 0 || r.Rows > maxRows:
		return bad("a terminal of %d by %d, at most %d by %d", r.Cols, r.Rows, maxCols, maxRows)
	case len(r.Env) > maxEnv:
		return bad("%d variables, at most %d", len(r.Env), maxEnv)
	case len(r.Deploy) > wire.MaxName:
		return bad("deploy has %d bytes, at most %d", len(r.Deploy), wire.MaxName)
	}
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") || len(name)+len(value) > maxEnvValue {
			return bad("variable %.80q cannot be, or is longer than %d bytes", name, maxEnvValue)
		}
		if strings.HasPrefix(name, "COTAL_") {
			return bad("variable %.80q: those that begin with COTAL_ are the supervisor's", name)
		}
	}
	return nil
}

// plan puts an agent file and a request together. Fixed says that the name was given and is not numbered; restart is the mode.
func (k *Keeper) plan(r wire.SpawnRequest) (p *plan, fixed bool, restart string, err error) {
	var file persona.Persona
	switch {
	case r.Persona == "":
		file = persona.Persona{Name: r.Agent, Subscribe: []string{persona.DefaultChannel}}
	case k.opts.Personas == nil:
		return nil, false, "", wire.Errorf(wire.CodeNotFound, "spawn: there is no persona %q: this host has no agent files", r.Persona)
	default:
		if file, err = k.opts.Personas.Load(r.Persona); err != nil {
			return nil, false, "", err
		}
	}
	name := r.Name
	setDefault(&name, file.Actor())
	p = &plan{
		Name: name, Persona: r.Persona, PersonaText: file.Text, Prompt: r.Prompt, Deploy: r.Deploy,
		Connector: cmp.Or(r.Agent, file.Agent, k.opts.Connectors[0].Name()),
		Model:     cmp.Or(r.Model, file.Model), Variant: cmp.Or(r.Variant, file.Variant), Role: cmp.Or(r.Role, file.Role),
		Command: pick(r.Command, file.Command), Env: maps.Clone(file.Env), Capabilities: pick(r.Capabilities, file.Capabilities),
		Subscribe: pick(r.Subscribe, file.Subscribe), AllowPublish: pick(r.AllowPublish, file.AllowPublish),
		AllowSubscribe: pick(r.AllowSubscribe, file.AllowSubscribe),
		Cols:           cmp.Or(r.Cols, seat.DefaultCols), Rows: cmp.Or(r.Rows, seat.DefaultRows),
	}
	if p.Env == nil {
		p.Env = map[string]string{}
	}
	maps.Copy(p.Env, r.Env)
	if r.Agent != "" && r.Agent != file.Agent && file.Agent != "" { // what the file says of its own host is not for another
		p.Model, p.Variant, p.Command = r.Model, r.Variant, r.Command
	}
	if p.AllowSubscribe == nil || r.AllowSubscribe == nil && r.Subscribe != nil {
		p.AllowSubscribe = cover(p.AllowSubscribe, p.Subscribe)
	}
	for _, ch := range p.Subscribe {
		if !wire.PatternsCover(p.AllowSubscribe, ch) {
			return nil, false, "", wire.Errorf(wire.CodeBadRequest, "spawn: it is to hear %.80q, which it may not read: add it to what it may", ch)
		}
	}
	p.Cwd, err = k.folder(r.Cwd, file.Cwd)
	p.Below = k.below(p.Cwd)
	return p, r.Name != "", cmp.Or(r.Restart, file.Restart, RestartOnFailure), err
}

func pick(over, file []string) []string {
	if over != nil {
		return over
	}
	return file
}

// cover adds what is to be heard to what may be read.
func cover(may, hear []string) []string {
	out := append([]string(nil), may...)
	for _, ch := range hear {
		if !wire.PatternsCover(out, ch) {
			out = append(out, ch)
		}
	}
	return out
}

// folder returns the folder that an agent works in: that of the request, that of its file below the project, or the project.
func (k *Keeper) folder(asked, file string) (string, error) {
	dir := asked
	switch {
	case dir == "" && filepath.IsAbs(file):
		dir = file
	case dir == "":
		dir = filepath.Join(k.opts.Project, file)
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return "", wire.Errorf(wire.CodeBadRequest, "spawn: %q is no folder", dir)
	}
	if err != nil {
		return "", wire.Errorf(wire.CodeBadRequest, "spawn: work in %q: %v", dir, fserr.Cause(err))
	}
	return filepath.Clean(dir), nil
}

// below is where a folder lies in the project of the host, with slashes; empty for elsewhere, and where the host named no project: the
// folder of a process that happens to be another one next time says nothing of a move.
func (k *Keeper) below(dir string) string {
	if k.project == "" || dir == "" {
		return ""
	}
	real, err := filepath.EvalSymlinks(dir) // a link may lead into the project
	if err != nil {
		real = dir
	}
	for _, at := range []string{dir, real} {
		if rel, err := filepath.Rel(k.project, at); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel)
		}
	}
	return ""
}

// relocate has a plan of before work in its folder where the project is now. One of a build that did not note where in the project that is
// works where it did.
func (k *Keeper) relocate(p *plan) {
	if rel := filepath.FromSlash(p.Below); k.project != "" && filepath.IsLocal(rel) {
		p.Cwd = filepath.Join(k.project, rel)
	}
	p.Below = k.below(p.Cwd)
}
