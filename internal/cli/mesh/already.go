package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

const (
	// liveTimeout bounds one question to a node that should be there.
	liveTimeout = 10 * time.Second
	// recordEvery is how often a start that waits for another one looks for its record.
	recordEvery = 50 * time.Millisecond
)

// errFree says that nobody runs the mesh after all: who held the lock only looked, or failed to start.
var errFree = errors.New("nobody runs the mesh")

// claim makes this process the one that runs the mesh, and returns what gives that up; or, when another one runs it,
// what runs.
func (u *up) claim(ctx context.Context, e *command.Env, p *plan) (release func(), running *UpResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, u.wait)
	defer cancel()
	for {
		if release, err := p.lock(); release != nil || err != nil {
			return release, nil, err
		}
		res, err := u.already(ctx, e, p)
		if !errors.Is(err, errFree) {
			return nil, &res, err
		}
	}
}

// already says what runs, asked of the node, and starts what does not. Somebody else holds the lock.
func (u *up) already(ctx context.Context, e *command.Env, p *plan) (UpResult, error) {
	run, err := p.awaitRun(ctx)
	if err != nil {
		return UpResult{}, err
	}
	if err := p.differs(u, run); err != nil {
		return UpResult{}, err
	}
	if run.Open {
		if err := target.Knock(ctx, run.URL); err != nil {
			return UpResult{}, p.mute(run, err)
		}
		return UpResult{
			V: command.V1, State: stateRunning, URL: run.URL, Root: p.project.Root, Space: p.space, PID: run.PID,
			Mode: modeOpen, Spaces: []SpaceLine{{Name: p.space, State: stateServing}}, Log: run.Log,
		}, nil
	}
	res, err := u.heal(ctx, e, p, run)
	res.Log = run.Log
	return res, err
}

// show prints a result; a space that is not served is an error after that.
func (r UpResult) show(e *command.Env) error {
	if err := e.Print(r, r.human); err != nil {
		return err
	}
	return unserved(r.Spaces)
}

// awaitRun returns the record of the run that holds the lock, waiting for it when that run is only starting. A record
// whose process is gone is an older run's. It returns errFree once nobody holds the lock.
func (p *plan) awaitRun(ctx context.Context) (*config.Run, error) {
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	for {
		run, err := p.project.Run()
		if err != nil {
			return nil, command.Hint(err, "stop the process that runs the mesh, remove the file and run again")
		}
		if target.Runs(run) {
			return run, nil
		}
		if release, err := p.project.Lock(); err == nil && release != nil {
			release()
			return nil, errFree
		}
		select {
		case <-ctx.Done():
			return nil, command.Hint(wire.Errorf(wire.CodeUnavailable, "another start of project %q is under way and not ready yet", p.project.Root), "look again with: cotal status")
		case <-tick.C:
		}
	}
}

// heal asks the node and makes it serve every space of the records.
func (u *up) heal(ctx context.Context, e *command.Env, p *plan, run *config.Run) (UpResult, error) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	node, err := p.dial(ctx, e, run)
	if err != nil {
		return UpResult{}, p.mute(run, err)
	}
	defer func() { _ = node.Close() }()
	st, err := node.Status(ctx)
	if err != nil {
		return UpResult{}, p.mute(run, err)
	}
	if err := u.misplaced(st); err != nil {
		return UpResult{}, err
	}
	if err := u.partedOtherwise(st); err != nil {
		return UpResult{}, err
	}
	healed, err := p.serveAll(ctx, node, st)
	if err != nil {
		return UpResult{}, err
	}
	people, err := p.healPeople(ctx, e, node, st)
	if err != nil {
		return UpResult{}, err
	}
	healed = append(healed, people...)
	if len(st.Broker.Impaired) > 0 {
		e.Progress("the broker cannot store; starting it again")
		if err := p.restore(ctx, node); err != nil {
			return UpResult{}, err
		}
		healed = append(healed, "the broker could not store and was started again")
	}
	if len(healed) > 0 {
		if st, err = node.Status(ctx); err != nil {
			return UpResult{}, p.mute(run, err)
		}
	}
	st.URL = run.URL
	res := p.result(st)
	res.Healed = healed
	if len(healed) > 0 {
		res.State = stateHealed
	}
	p.tell(&res)
	if from := p.project.Moved(); from != "" {
		e.Note("it was started in %s, which was moved since, and still writes there; start it here: %s", command.Safe(from), target.StartHere)
	}
	return res, nil
}

// restore has the broker started again and waits until every space is served and stores.
func (p *plan) restore(ctx context.Context, node *cotal.NodeClient) error {
	if err := node.Heal(ctx); err != nil {
		if errors.Is(err, wire.ErrExhausted) {
			return command.Hint(err, "make room on the disk; the mesh then stores again by itself, at once with: cotal up --detach")
		}
		return err
	}
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return command.Hint(wire.Errorf(wire.CodeUnavailable, "the broker of %q is starting again and does not serve yet", p.project.Root), "look again with: cotal status")
		case <-tick.C:
		}
		// Between its two lives the broker answers nobody: that is no error.
		if st, err := node.Status(ctx); err == nil && st.Healthy() {
			return nil
		}
	}
}

// serveAll adds the spaces that the records have and the node does not serve.
func (p *plan) serveAll(ctx context.Context, node *cotal.NodeClient, st cotal.Status) ([]string, error) {
	var healed []string
	for _, name := range p.known {
		if slices.ContainsFunc(st.Spaces, func(s cotal.SpaceStatus) bool { return s.Name == name }) {
			continue
		}
		if err := node.AddSpace(ctx, name); err != nil {
			return nil, fmt.Errorf("serve space %q again: %w", name, err)
		}
		healed = append(healed, fmt.Sprintf("space %q was not served and is now", name))
	}
	return healed, nil
}

func (p *plan) dial(ctx context.Context, e *command.Env, run *config.Run) (*cotal.NodeClient, error) {
	store, err := target.OpenStore(p.project)
	if err != nil {
		return nil, err
	}
	tc, err := target.TLSConfig(run.CA, run.TLSName)
	if err != nil {
		return nil, err
	}
	return cotal.DialNode(ctx, run.URL, store, &cotal.DialOptions{TLS: tc, Logger: e.Quiet()})
}

// mute explains a run that holds the lock and does not answer.
func (p *plan) mute(run *config.Run, err error) error {
	return command.Hint(fmt.Errorf("process %d runs the mesh of %q but gives no answer at %s: %w", run.PID, p.project.Root, run.URL, err),
		"end it and start again: cotal down && cotal up --detach")
}

// misplaced refuses --no-delivery and --no-supervisor, given or denied, when the running mesh has it otherwise.
func (u *up) misplaced(st cotal.Status) error {
	for _, s := range st.Spaces {
		if apart := s.Delivery == stateElsewhere; u.placed && apart != u.apart {
			return clash("--no-delivery", strconv.FormatBool(u.apart), strconv.FormatBool(apart))
		}
		if apart := s.Supervisor != nil && s.Supervisor.State == stateElsewhere; u.agented && apart != u.noAgents {
			return clash("--no-supervisor", strconv.FormatBool(u.noAgents), strconv.FormatBool(apart))
		}
	}
	return nil
}

func clash(flag, want, have string) error {
	return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "the mesh runs already with %s %s, not %s", flag, have, want), "restart it to change that: cotal down, then up again")
}

// differs refuses flags that the running mesh does not have: a running listener is never rebound.
func (p *plan) differs(u *up, run *config.Run) error {
	s, err := p.project.Settings()
	if err != nil {
		return err
	}
	host := s.Host
	if host == "" {
		host = defaultHost
	}
	switch {
	case u.port != 0 && u.port != portOf(run.URL):
		return clash("--port", fmt.Sprint(u.port), fmt.Sprint(portOf(run.URL)))
	case u.host != "" && u.host != host:
		return clash("--host", u.host, host)
	case u.cert != "" && p.cert != run.CA:
		return clash("--tls-cert", p.cert, orNone(run.CA))
	case u.strict != nil && *u.strict != s.Strict:
		return clash("--strict", fmt.Sprint(*u.strict), fmt.Sprint(s.Strict))
	case u.most != 0 && u.most != cmp.Or(s.MaxAgents, supervisor.DefaultMaxAgents):
		return clash("--max-agents", fmt.Sprint(u.most), fmt.Sprint(cmp.Or(s.MaxAgents, supervisor.DefaultMaxAgents)))
	}
	return u.exchangeDiffers(p.signing.exchange, s.People)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}
