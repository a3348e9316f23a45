package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/supervisor/relay"
	"github.com/cotal-go/cotal/wire"
)

// reaches says whether a caller may act on an agent, and know of it.
func (by Caller) reaches(r *record) bool {
	switch by.Mode {
	case wire.ModeAny:
		return true
	case wire.ModeOwner:
		return r.principal().Owner == by.Life.Owner
	}
	return by.is(r) || r.below(by.Life.UID)
}

// is says whether the caller is the agent.
func (by Caller) is(r *record) bool {
	return r.UID == by.Life.UID && r.Principal == by.Life.Principal.String()
}

// locate returns an agent that the caller may act on.
//
// Errors: bad-request for what is no uid; permission-denied for one that is not the caller's; not-found when there is none here and no
// other supervisor is known, else unavailable.
func (k *Keeper) locate(by Caller, u wire.UID) (*agent, error) {
	if err := u.Validate(); err != nil {
		return nil, err
	}
	a := k.find(u)
	if a == nil {
		others := k.otherPeers()
		if len(others) == 0 {
			return nil, wire.Errorf(wire.CodeNotFound, "find agent %q: this supervisor has none of that life, and there is no other", u)
		}
		e := wire.Errorf(wire.CodeUnavailable, "find agent %q: supervisor %q has none of that life; %d others may", u, k.instance, len(others))
		e.Outcome, e.Details = wire.OutcomeNotExecuted, map[string]any{"instance": k.instance, "others": len(others)}
		return nil, e
	}
	rec := a.snapshot()
	if !by.reaches(&rec) {
		e := wire.Errorf(wire.CodePermissionDenied, "act on agent %q: it was not started under %q", rec.Principal, by.Life.Principal)
		e.Outcome, e.Details = wire.OutcomeNotExecuted, map[string]any{"principal": by.Life.Principal.String(), "grant": "operator"}
		return nil, e
	}
	return a, nil
}

// Agents returns the agents that a caller may know of and that fit the request, oldest first. Last lines are those of processes that have
// ended, and come when they or a single agent are asked for. Many that have ended come without their folders and reasons, see wordsRoom.
func (k *Keeper) Agents(by Caller, req wire.AgentsRequest) wire.AgentsReply {
	out := wire.AgentsReply{Instance: k.instance, Host: k.opts.Host, Agents: []wire.AgentStatus{}, Peers: append([]wire.ManagerPeer{k.self()}, k.otherPeers()...)}
	if by.Mode == wire.ModeAny {
		out.Unreadable = k.Unreadable()
	}
	room, words := linesRoom, wordsRoom
	for _, a := range k.all() {
		rec := a.snapshot()
		switch {
		case !by.reaches(&rec), req.UID != "" && rec.UID != req.UID, req.Deploy != "" && rec.Plan.Deploy != req.Deploy:
		case req.Name != "" && rec.Principal != req.Name && rec.Plan.Name != req.Name:
		case !req.Ended && rec.State.over():
		default:
			st := k.status(a, req.Lines || req.Name != "" || req.UID != "")
			if room -= size(st.Process.LastLines); room < 0 {
				st.Process.LastLines = nil
			}
			if st.Ended() {
				if words -= encoded(st.Cwd, st.Reason, st.Process.Left); words < 0 {
					st.Cwd, st.Reason, st.Process.Left = "", "", nil
				}
			}
			out.Agents = append(out.Agents, st)
		}
	}
	return out
}

// linesRoom bounds the last lines of all agents of one answer, in bytes: further ones come without.
const linesRoom = 256 << 10

// wordsRoom bounds, in bytes as they are sent, what is told of the agents of one answer that have ended and whose length somebody else chose:
// folder, reason, and daemons that were left. Further ones come without, so that the answer can be sent whatever was started.
const wordsRoom = 128 << 10

func encoded(values ...any) (n int) {
	for _, v := range values {
		data, _ := json.Marshal(v) // strings and lists of them
		n += len(data)
	}
	return n
}

func size(lines []string) int {
	n := 0
	for _, l := range lines {
		n += len(l)
	}
	return n
}

// Await returns when an agent is in none of the states any more, or answers as it is just before the deadline.
//
// Errors: those of locating it; bad-request without states.
func (k *Keeper) Await(ctx context.Context, by Caller, req wire.AwaitRequest, deadline time.Time) (wire.AgentStatus, error) {
	if len(req.From) == 0 {
		return wire.AgentStatus{}, wire.Errorf(wire.CodeBadRequest, "await agent %q: no states to leave", req.UID)
	}
	a, err := k.locate(by, req.UID)
	if err != nil {
		return wire.AgentStatus{}, err
	}
	t := time.NewTimer(time.Until(deadline.Add(-answerRoom)))
	defer t.Stop()
	for {
		rec, changed := a.watchChange()
		phase := rec.State.Phase
		setDefault(&phase, wire.AgentStarting)
		if !slices.Contains(req.From, phase) {
			return k.status(a, true), nil
		}
		select {
		case <-changed:
		case <-t.C:
			return k.status(a, true), nil
		case <-ctx.Done():
			return k.status(a, true), nil
		}
	}
}

// maxGrace bounds the grace of a stop.
const maxGrace = time.Hour

// Stop ends an agent and returns when nothing of its process is left; its grant is then being retired. Without a UID it is the caller.
// For one that is being stopped already, less grace shortens what is left of the grace.
//
// Errors: those of locating it; failed-precondition before its minimum lifetime, unless the caller is itself or an operator, or forces it; deadline-exceeded,
// outcome unknown, when it has not ended in time, and unavailable, outcome unknown, when the keeper ends before: it is being ended all
// the same.
func (k *Keeper) Stop(ctx context.Context, by Caller, req wire.StopRequest) (wire.StopReply, error) {
	u := req.UID
	if by.Mode == wire.ModeSelf || u == "" && by.Mode == wire.ModeNone {
		u = by.Life.UID
	}
	grace := time.Duration(req.Grace) * time.Millisecond
	if req.Grace < 0 || req.Grace > maxGrace.Milliseconds() {
		return wire.StopReply{}, wire.Errorf(wire.CodeBadRequest, "stop agent: a grace of %d ms, at most %d", req.Grace, maxGrace.Milliseconds())
	}
	a, err := k.locate(by, u)
	if err != nil {
		return wire.StopReply{}, err
	}
	rec := a.snapshot()
	if err := k.oldEnough(by, &rec, req.Force); err != nil {
		return wire.StopReply{}, err
	}
	why := "stopped by " + by.Life.Principal.String()
	if by.is(&rec) {
		why = "it stopped itself"
	}
	below := k.stopTree(ctx, a, Event{Kind: EventStop, Grace: grace, Reason: why}, func(r *record) bool {
		return r.below(u) && (req.Children || r.WithParent && r.ParentUID == u)
	})
	for _, x := range append([]*agent{a}, below...) {
		if err := x.awaitEnd(ctx); err != nil {
			return wire.StopReply{}, err
		}
	}
	out := wire.StopReply{Agent: k.status(a, true)}
	for _, c := range below {
		out.Children = append(out.Children, k.status(c, true))
	}
	return out, nil
}

// stopTree stops an agent and those of the others that are with it, which it returns in the order of their lives. One that is being
// started by an agent that ends is refused once that has the event, see admit, and listed before, so they are listed until all that were
// told have it, and no more come.
func (k *Keeper) stopTree(ctx context.Context, a *agent, e Event, with func(*record) bool) []*agent {
	told := map[wire.UID]*agent{}
	reads := map[*agent]<-chan struct{}{a: a.send(e)}
	e.Reason += " with the one that started it"
	tell := func() (more bool) {
		for _, c := range k.where(func(r *record) bool { return with(r) && !r.State.over() && told[r.UID] == nil }) {
			told[c.uid], reads[c], more = c, c.send(e), true
		}
		return more
	}
	tell() // whatever keeps the first one from reading what it was sent
	for more := true; more; more = tell() {
		for x, read := range reads {
			x.awaitRead(ctx, read)
		}
		clear(reads)
	}
	return slices.SortedFunc(maps.Values(told), func(a, b *agent) int { return strings.Compare(string(a.uid), string(b.uid)) })
}

// oldEnough refuses a stop in the first moments of an agent, which an agent that starts others asks for more often by mistake than not.
// Operators mean it.
func (k *Keeper) oldEnough(by Caller, r *record, force bool) error {
	age := time.Since(r.Created)
	if force || by.Mode == wire.ModeAny || by.is(r) || r.State.over() || age >= k.opts.MinLife {
		return nil
	}
	e := wire.Errorf(wire.CodeFailedPrecondition, "stop agent %q: it was started %v ago, and lives at least %v unless that is forced", r.Principal,
		age.Round(100*time.Millisecond), k.opts.MinLife)
	e.Outcome, e.Details = wire.OutcomeNotExecuted, map[string]any{"ageMs": age.Milliseconds(), "minimumMs": k.opts.MinLife.Milliseconds()}
	return e
}

// awaitEnd waits until the process of an agent that is being stopped is known to have ended.
func (a *agent) awaitEnd(ctx context.Context) error {
	for {
		rec, changed := a.watchChange()
		if rec.State.over() {
			return nil
		}
		select {
		case <-changed:
		case <-a.k.stopped:
			e := wire.Errorf(wire.CodeUnavailable, "stop agent %q: the supervisor stops; the next one goes on with it", rec.Principal)
			e.Outcome = wire.OutcomeUnknown // it is being ended
			return e
		case <-ctx.Done():
			return wire.Errorf(wire.CodeDeadlineExceeded, "stop agent %q: it is not known to have ended yet (%s), and is being ended", rec.Principal, reason(&rec.State))
		}
	}
}

// DetailOver is set in the error of a restart of an agent whose life is over: its name can be given to a new one.
const DetailOver = "over"

// Restart starts an agent that has ended, or ends one and starts it again, and returns once that is under way. It looks first whether
// the agent can be started: one that runs is not ended for a start that fails.
//
// Errors: those of locating it; failed-precondition for one that is being stopped or whose life is over, and when no seat can be started
// or nothing written; resource-exhausted for one that has ended, and unavailable, as of a spawn; those of the connector.
func (k *Keeper) Restart(ctx context.Context, by Caller, req wire.RestartRequest) (wire.AgentStatus, error) {
	a, err := k.locate(by, req.UID)
	if err != nil {
		return wire.AgentStatus{}, err
	}
	rec := a.snapshot()
	switch {
	case rec.State.Grant == GrantRetiring, rec.State.Grant == GrantRetired:
		e := wire.Errorf(wire.CodeFailedPrecondition, "restart agent %q: its life is over; spawn it again", rec.Principal)
		e.Details = map[string]any{DetailOver: true}
		return wire.AgentStatus{}, e
	case rec.State.Phase == wire.AgentStopping:
		return wire.AgentStatus{}, wire.Errorf(wire.CodeFailedPrecondition, "restart agent %q: it is being stopped", rec.Principal)
	case rec.State.Begun, rec.State.Phase == "":
		return k.status(a, true), nil // it is being started
	}
	if err := a.startable(ctx, &rec.Plan); err != nil {
		e := wire.Errorf(wire.CodeOf(err), "restart agent %q: nothing is changed, it could not be started again: %v", rec.Principal, err)
		e.Outcome = wire.OutcomeNotExecuted
		return wire.AgentStatus{}, e
	}
	release, err := k.reserve(&rec, fmt.Sprintf("restart agent %q", rec.Principal))
	if err != nil {
		return wire.AgentStatus{}, err
	}
	read, err := k.startAgain(a, rec.Principal)
	if err != nil {
		release()
		return wire.AgentStatus{}, err
	}
	k.begin(func(run context.Context) { // the place is held until the agent has it, also when the caller waits no longer
		defer release()
		a.awaitRead(run, read)
	})
	a.awaitRead(ctx, read)
	return k.status(a, true), nil
}

// terminal returns the seat of an agent that the caller may act on.
//
// Errors: those of locating it; failed-precondition when its process does not run.
func (k *Keeper) terminal(by Caller, u wire.UID) (*agent, Seat, error) {
	a, err := k.locate(by, u)
	if err != nil {
		return nil, nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seat == nil || a.rec.State.Process != wire.ProcessRunning {
		return nil, nil, wire.Errorf(wire.CodeFailedPrecondition, "reach the terminal of %q: its process does not run, it is %s", a.rec.Principal, a.rec.State.Phase)
	}
	return a, a.seat, nil
}

// Attach offers a session at the terminal of an agent. Nobody drives the terminal that it runs in: an agent that types at its own
// prompt says yes to itself where its host asks a person.
//
// Errors: those of locating it; permission-denied for an agent that wants to drive itself; failed-precondition when its process does not run, or
// its seat does not answer; those of the relay.
func (k *Keeper) Attach(ctx context.Context, by Caller, req wire.AttachRequest) (wire.AttachReply, error) {
	if req.Drive && req.UID == by.Life.UID {
		e := wire.Errorf(wire.CodePermissionDenied, "attach to %q: an agent looks at its own terminal and does not type there", by.Life.Principal)
		e.Outcome = wire.OutcomeNotExecuted
		return wire.AttachReply{}, e
	}
	a, seat, err := k.terminal(by, req.UID)
	if err != nil {
		return wire.AttachReply{}, err
	}
	limited, cancel := context.WithTimeout(ctx, seatAnswer)
	defer cancel()
	out, err := k.relay.Offer(limited, relay.Caller{Life: by.Life, Mode: by.Mode}, a.uid, seat.Terminal(), req)
	if silent(limited, err) {
		e := wire.Errorf(wire.CodeFailedPrecondition, "attach to %q: its seat does not answer; its process may be stopped", a.life().Principal)
		e.Outcome = wire.OutcomeNotExecuted
		return wire.AttachReply{}, e
	}
	return out, err
}

// seatAnswer is how long a seat has to answer a question about its terminal, which it does at once: less than callers wait for the
// answer that it does not.
const seatAnswer = 3 * time.Second

// silent reports whether the answer of a seat did not come in time.
func silent(limited context.Context, err error) bool {
	return limited.Err() != nil && wire.CodeOf(err) == wire.CodeDeadlineExceeded
}

// Input types a line into the terminal of an agent.
//
// Errors: those of locating it; bad-request for text that is too long; failed-precondition when its process does not run; deadline-exceeded
// when its seat does not answer.
func (k *Keeper) Input(ctx context.Context, by Caller, req wire.InputRequest) (wire.InputReply, error) {
	if len(req.Text) > wire.MaxPrompt {
		return wire.InputReply{}, wire.Errorf(wire.CodeBadRequest, "type into agent: %d bytes, at most %d", len(req.Text), wire.MaxPrompt)
	}
	a, seat, err := k.terminal(by, req.UID)
	if err != nil {
		return wire.InputReply{}, err
	}
	data := []byte(req.Text)
	if !req.NoEnter {
		data = append(data, '\r')
	}
	limited, cancel := context.WithTimeout(ctx, seatAnswer)
	defer cancel()
	if err := seat.Terminal().Input(limited, data); silent(limited, err) {
		return wire.InputReply{}, wire.Errorf(wire.CodeDeadlineExceeded,
			"type into %q: its seat does not answer; its process may be stopped, and what was typed may come when it goes on", a.life().Principal)
	} else if err != nil {
		return wire.InputReply{}, err
	}
	return wire.InputReply{Bytes: len(data)}, nil
}
