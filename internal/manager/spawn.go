package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/wire"
)

const (
	// spawnTry bounds one try of a spawn, spawnTries how often a lost reply is asked for again.
	spawnTry   = 5 * time.Second
	spawnTries = 6
	// spawnPause is before a try that follows one which nobody heard: a supervisor that starts again needs a moment.
	spawnPause = 500 * time.Millisecond
)

// RequestID makes an id for a spawn.
func RequestID() string { return strings.ToLower(rand.Text()) }

// Spawn asks for an agent and returns once it was accepted. On names the supervisor, by instance, the beginning of one, or host; empty
// takes the one with the fewest agents, and the next when that does not have the persona or has no room. A lost reply is asked for
// again, at the same supervisor and with the same request id, which is made when req has none.
//
// Errors: those of [Client.Census] and of the supervisor; not-found or conflict for on; unavailable or deadline-exceeded with outcome
// unknown and "requestId" in the details when no answer came: then the same request id may be asked with again.
func (c *Client) Spawn(ctx context.Context, req wire.SpawnRequest, on string) (wire.SpawnReply, error) {
	if req.RequestID == "" {
		req.RequestID = RequestID()
	}
	census, err := c.Census(ctx, wire.AgentsRequest{})
	if err != nil {
		return wire.SpawnReply{}, err
	}
	return c.spawn(ctx, census, req, on)
}

// SpawnAgain is [Client.Spawn] for a request id that was asked with before, by an earlier call or process, and whose outcome is not
// known. Only the supervisor that was asked then knows the request, so it is found first.
//
// Errors: those of Spawn; bad-request without an id; unavailable, not executed, when nobody that answers knows the request and some
// supervisor is silent, since that one may.
func (c *Client) SpawnAgain(ctx context.Context, req wire.SpawnRequest, on string) (wire.SpawnReply, error) {
	if req.RequestID == "" {
		return wire.SpawnReply{}, wire.Errorf(wire.CodeBadRequest, "spawn again: no request id")
	}
	census, err := c.Census(ctx, wire.AgentsRequest{Ended: true})
	if err != nil {
		return wire.SpawnReply{}, err
	}
	all := census.Agents()
	if i := slices.IndexFunc(all, func(a wire.AgentStatus) bool { return a.RequestID == req.RequestID }); i >= 0 {
		on = all[i].Instance
	} else if err := census.Complete("whether request " + req.RequestID + " made an agent"); err != nil {
		e, _ := errors.AsType[*wire.Error](err)
		e.Outcome, e.Details["requestId"] = wire.OutcomeNotExecuted, req.RequestID
		return wire.SpawnReply{}, e
	}
	return c.spawn(ctx, census, req, on)
}

// spawn asks the supervisors that on leaves, one after the other.
func (c *Client) spawn(ctx context.Context, census Census, req wire.SpawnRequest, on string) (wire.SpawnReply, error) {
	hosts, err := choose(census, on)
	if err != nil {
		return wire.SpawnReply{}, err
	}
	for _, h := range hosts {
		var out wire.SpawnReply
		if out, err = c.spawnAt(ctx, req, h); err == nil {
			return out, nil
		}
		e, ok := errors.AsType[*wire.Error](err)
		elsewhere := ok && e.Outcome == wire.OutcomeNotExecuted && (e.Code == wire.CodeNotFound || e.Code == wire.CodeResourceExhausted)
		if !elsewhere {
			break
		}
	}
	return wire.SpawnReply{}, err
}

// spawnAt asks one supervisor until it answers.
func (c *Client) spawnAt(ctx context.Context, req wire.SpawnRequest, instance string) (out wire.SpawnReply, err error) {
	lost := false // an earlier try may have been executed
	for try := range spawnTries {
		within, cancel := context.WithTimeout(ctx, spawnTry)
		err = c.caller.Call(within, c.target(wire.CommandSpawn, instance, wire.Lifecycle{}), req, &out)
		cancel()
		code := wire.CodeOf(err)
		if err == nil || code != wire.CodeUnavailable && code != wire.CodeDeadlineExceeded || ctx.Err() != nil {
			break
		}
		e, ok := errors.AsType[*wire.Error](err)
		lost = lost || !ok || e.Outcome != wire.OutcomeNotExecuted
		if try == spawnTries-1 || code == wire.CodeUnavailable && pause.For(ctx, spawnPause) != nil {
			break
		}
	}
	if err == nil {
		return out, nil
	}
	return out, marked(err, req.RequestID, lost || ctx.Err() != nil)
}

// marked is err with the request id by which it can be asked again, and the outcome over all tries.
func marked(err error, id string, lost bool) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return err
	}
	m := *e
	m.Message = err.Error()
	m.Details = map[string]any{"requestId": id}
	for k, v := range e.Details {
		m.Details[k] = v
	}
	switch e.Code {
	case wire.CodeUnavailable, wire.CodeDeadlineExceeded, wire.CodeCancelled:
		if lost && e.Outcome != wire.OutcomeExecuted {
			m.Outcome = wire.OutcomeUnknown
		}
	}
	return &m
}

// choose returns the instances to ask, in order.
func choose(census Census, on string) ([]string, error) {
	list := slices.Clone(census.Replies)
	slices.SortStableFunc(list, func(a, b wire.AgentsReply) int { return cmp.Compare(running(a), running(b)) })
	var fits []string
	for _, r := range list {
		if r.Instance == on {
			return []string{on}, nil
		}
		if on == "" || r.Host == on || strings.HasPrefix(r.Instance, on) {
			fits = append(fits, r.Instance)
		}
	}
	switch {
	case on == "":
		return fits, nil
	case len(fits) == 1:
		return fits, nil
	case len(fits) > 1:
		return nil, wire.Errorf(wire.CodeConflict, "supervisor %q: several are there: %s", on, strings.Join(fits, ", "))
	}
	return nil, census.Missing(on)
}

// DetailSupervisors is a []string in the error of [Census.Missing]: instances and hosts.
const DetailSupervisors = "supervisors"

// Missing is the error of a supervisor that is none of the census: not-found, with those that there are, or that of [Census.Complete], as long as it
// may be one that did not answer.
func (c Census) Missing(on string) error {
	if err := c.Complete("supervisor " + on); err != nil {
		return err
	}
	names := []string{}
	for _, r := range c.Replies {
		if names = append(names, r.Instance); !slices.Contains(names, r.Host) {
			names = append(names, r.Host)
		}
	}
	err := wire.Errorf(wire.CodeNotFound, "no supervisor %q; there are: %s", on,
		spoken(c.Replies, func(r wire.AgentsReply) string { return r.Instance + " on " + r.Host }))
	err.Details = map[string]any{DetailSupervisors: names}
	return err
}

// running is how many agents a supervisor says it has, those included that the caller may not know of.
func running(r wire.AgentsReply) int {
	for _, p := range r.Peers {
		if p.Instance == r.Instance {
			return p.Agents
		}
	}
	return 0
}
