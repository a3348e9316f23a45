package mesh

import (
	"context"
	"fmt"
	"slices"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
)

// keepAgain gives a mesh in the background whose keeper is gone another one, and returns what to tell a person when nothing keeps it.
func (u *up) keepAgain(ctx context.Context, e *command.Env, p *plan, r *UpResult) string {
	if !u.detach || u.once {
		return ""
	}
	if _, kept := target.Keeper(p.project); kept {
		return ""
	}
	if _, begun := target.Starter(p.project); begun { // it is about to be the keeper
		return ""
	}
	const what = "nothing starts it again when it is killed"
	if r.Log == "" { // in the foreground, or under a service manager, somebody else sees the end
		return what + "; for that: cotal down, then cotal up --detach"
	}
	if err := u.startKeeper(ctx, e, p, r); err != nil {
		return fmt.Sprintf("%s: %v", what, err)
	}
	r.State, r.Healed = stateHealed, append(r.Healed, "its keeper, which starts it again when it is killed, was gone; there is another one")
	return ""
}

// startKeeper starts a process that keeps the mesh which runs, and waits until it does.
func (u *up) startKeeper(ctx context.Context, e *command.Env, p *plan, r *UpResult) error {
	log, err := openLog(p.project.LogFile())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd, err := u.like(*r).child(e, p, "--keep", "--adopt")
	if err != nil {
		return err
	}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start its keeper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start its keeper: %w", err)
	}
	_, err = u.await(ctx, out, cmd, p)
	return err
}

// like is the command line that brings up what runs: what is left to processes of their own is not remembered elsewhere.
func (u *up) like(r UpResult) *up {
	out := *u
	i := slices.IndexFunc(r.Spaces, func(s SpaceLine) bool { return s.Name == r.Space })
	if i < 0 {
		return &out
	}
	s := r.Spaces[i]
	if s.State == stateElsewhere {
		out.placed, out.apart = true, true
	}
	if s.Supervisor != nil && s.Supervisor.State == stateElsewhere {
		out.agented, out.noAgents = true, true
	}
	if r.parted() {
		out.parted, out.away = true, true
	}
	return &out
}
