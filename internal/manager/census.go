package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

const (
	// firstWithin bounds how long a question to all waits for the first answer, of a host that is slow, answerWithin how long those have that
	// it tells of.
	firstWithin, answerWithin = 15 * time.Second, 2 * time.Second
	// maxReply bounds the answer of one supervisor, in bytes.
	maxReply = 8 << 20
)

// Census is what the supervisors of a space say of their agents.
type Census struct {
	Replies []wire.AgentsReply // of those that answered, by instance
	Refused []Refusal          // of those that answered with a refusal, by instance
	Silent  []wire.ManagerPeer // those that are known and did not answer, also because they left and their agents went on, by instance
}

// Refusal is a supervisor that would not say. Of one that no other has heard of, the instance alone is known.
type Refusal struct {
	wire.ManagerPeer
	Err *wire.Error `json:"error"`
}

// Census asks every supervisor for agents. The first answer, for which it waits up to fifteen seconds, tells of the others, which then have two.
//
// Errors: unavailable when no supervisor answers; permission-denied when the caller may not ask; the refusal of the last one when all
// that answered refused. Who did not answer is no error here, see [Census.Complete].
func (c *Client) Census(ctx context.Context, req wire.AgentsRequest) (Census, error) {
	return c.census(ctx, wire.CommandAgents, req)
}

// Drain has every supervisor take no agents for hold, at most a minute, and start none again that has ended; what is under way is refused. The
// census has the agents that have not ended: until the hold is over no others come. A hold of 0 takes agents again. Operators alone may.
//
// Errors are as for [Client.Census].
func (c *Client) Drain(ctx context.Context, hold time.Duration) (Census, error) {
	return c.census(ctx, wire.CommandDrain, wire.DrainRequest{Hold: hold.Milliseconds()})
}

// census asks every supervisor a command that is answered with agents.
func (c *Client) census(ctx context.Context, command string, req any) (Census, error) {
	replies, refused, peers, err := gather(ctx, c, command, req, func(r wire.AgentsReply) (string, []wire.ManagerPeer) { return r.Instance, r.Peers })
	if err != nil {
		return Census{}, err
	}
	out := Census{Replies: replies}
	slices.SortFunc(replies, func(a, b wire.AgentsReply) int { return strings.Compare(a.Instance, b.Instance) })
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		r := Refusal{ManagerPeer: peers[name], Err: refused[name]}
		r.Instance = name
		out.Refused = append(out.Refused, r)
	}
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		answered := refused[name] != nil || slices.ContainsFunc(replies, func(r wire.AgentsReply) bool { return r.Instance == name })
		if p := peers[name]; !answered && !p.Gone() {
			out.Silent = append(out.Silent, p)
		}
	}
	return out, nil
}

// gather asks all instances until as many have answered as the first answers say there are. Those that refused are apart.
func gather[T any](ctx context.Context, c *Client, command string, req any, who func(T) (string, []wire.ManagerPeer)) ([]T, map[string]*wire.Error, map[string]wire.ManagerPeer, error) {
	peers := map[string]wire.ManagerPeer{}
	heard, refused := map[string]T{}, map[string]*wire.Error{}
	var last error // of the refusals
	begun, within := time.Now(), firstWithin
	for expect := 1; ; within = answerWithin {
		answers, err := c.caller.Scatter(ctx, c.target(command, "", wire.Lifecycle{}), req, within, expect)
		if len(answers) == 0 && len(heard)+len(refused) == 0 {
			return nil, nil, nil, nobody(err, time.Since(begun))
		}
		for _, a := range answers {
			var r T
			if a.Err != nil {
				if last = a.Err; !has(heard, a.Instance) {
					refused[a.Instance] = a.Err
				}
				continue
			}
			if err := wire.Decode(a.Data, &r, maxReply); err != nil {
				return nil, nil, nil, wire.Errorf(wire.CodeContractMismatch, "ask supervisor %q: %v", a.Instance, err)
			}
			name, known := who(r)
			if name != a.Instance { // both are its claim; one that is whole says the same twice
				return nil, nil, nil, wire.Errorf(wire.CodeContractMismatch, "ask supervisor %q: it calls itself %q", a.Instance, name)
			}
			heard[name] = r
			delete(refused, name) // it changed its mind
			for _, p := range known {
				if p.Heard >= peers[p.Instance].Heard {
					peers[p.Instance] = p
				}
			}
		}
		if len(heard) == 0 && err != nil {
			return nil, nil, nil, last
		}
		missing := 0
		if len(heard) == 0 {
			missing = 1 // those that refuse do not tell of the others
		}
		for name, p := range peers {
			if !has(heard, name) && refused[name] == nil && !p.Gone() {
				missing++
			}
		}
		want := len(heard) + len(refused) + missing
		if missing == 0 || err != nil || expect >= want {
			return values(heard), refused, peers, nil
		}
		expect = want
	}
}

func has[T any](m map[string]T, name string) bool { _, ok := m[name]; return ok }

func values[T any](m map[string]T) []T {
	out := make([]T, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// nobody is the error of a question to all that no supervisor answered: it changes nothing, so silence leaves nothing open.
func nobody(err error, after time.Duration) error {
	if wire.CodeOf(err) != wire.CodeDeadlineExceeded {
		return err
	}
	out := wire.Errorf(wire.CodeUnavailable, "no supervisor answers%s", waited(after))
	out.Details = map[string]any{control.DetailEndpoint: wire.ManagerEndpoint}
	return out
}

// Agents are all agents of the census, by principal and then by when their state began.
func (c Census) Agents() []wire.AgentStatus {
	var out []wire.AgentStatus
	for _, r := range c.Replies {
		out = append(out, r.Agents...)
	}
	slices.SortFunc(out, func(a, b wire.AgentStatus) int {
		return cmp.Or(strings.Compare(a.Principal, b.Principal), cmp.Compare(a.Since, b.Since))
	})
	return out
}

// Details of the error of [Census.Complete].
const (
	DetailRefused = "refused" // []Refusal
	DetailSilent  = "silent"  // []wire.ManagerPeer
	// DetailUnreadable is a map[string][]wire.UID: the lives, by instance.
	DetailUnreadable = "unreadable"
)

// unread are the replies of those that cannot read all that they keep.
func (c Census) unread() []wire.AgentsReply {
	return slices.DeleteFunc(slices.Clone(c.Replies), func(r wire.AgentsReply) bool { return len(r.Unreadable) == 0 })
}

// Complete is nil when every supervisor that is known said what it has, else an error unavailable that names those that did not: what
// they refused with, or when they were last heard, or which lives they cannot read. What is what the answer leaves open, such as "agents".
func (c Census) Complete(what string) error {
	unread := c.unread()
	if len(c.Refused)+len(c.Silent)+len(unread) == 0 {
		return nil
	}
	n := len(c.Replies) + len(c.Refused)
	all := n + len(c.Silent)
	text := fmt.Sprintf("%s: unknown, %d of %d supervisors answered", what, n, all)
	details := map[string]any{"answered": n, "expected": all}
	if len(c.Refused) > 0 {
		text += "; refused: " + spoken(c.Refused, func(r Refusal) string { return at(r.ManagerPeer) + " (" + r.Err.Error() + ")" })
		details[DetailRefused] = c.Refused
	}
	if len(c.Silent) > 0 {
		text += "; silent: " + spoken(c.Silent, func(p wire.ManagerPeer) string {
			ago := time.Since(time.UnixMilli(p.Heard)).Round(time.Second).String() + " ago"
			switch {
			case p.Left:
				ago = "left " + ago + ", its agents go on: " + strconv.Itoa(p.Agents)
			case p.Heard > 0:
				ago = "last heard " + ago
			default:
				ago = "never heard"
			}
			return at(p) + " (" + ago + ")"
		})
		details[DetailSilent] = c.Silent
	}
	if len(unread) > 0 {
		lives := map[string][]wire.UID{}
		text += "; not readable: " + spoken(unread, func(r wire.AgentsReply) string {
			lives[r.Instance] = r.Unreadable
			return "what " + at(wire.ManagerPeer{Instance: r.Instance, Host: r.Host}) + " keeps of " +
				spoken(r.Unreadable, func(u wire.UID) string { return string(u) }) + ", which may run"
		})
		details[DetailUnreadable] = lives
	}
	e := wire.Errorf(wire.CodeUnavailable, "%s", text)
	e.Details = details
	return e
}

func spoken[T any](all []T, word func(T) string) string {
	out := make([]string, len(all))
	for i, v := range all {
		out[i] = word(v)
	}
	return strings.Join(out, ", ")
}

func at(p wire.ManagerPeer) string {
	if p.Host == "" {
		return p.Instance
	}
	return p.Instance + " on " + p.Host
}

// Find locates an agent by its name or principal. Of several lives under one principal the one that has not ended is meant, or the
// last one.
//
// Errors: bad-request for an empty name, which would mean every agent; those of [Client.Census]; not-found when all supervisors answered
// and none knows it; unavailable when some did not answer; conflict when the name means agents of several owners.
func (c *Client) Find(ctx context.Context, name string) (wire.AgentStatus, error) {
	if name == "" {
		e := wire.Errorf(wire.CodeBadRequest, "the name of the agent is empty")
		e.Outcome = wire.OutcomeNotExecuted
		return wire.AgentStatus{}, e
	}
	census, err := c.Census(ctx, wire.AgentsRequest{Name: name, Ended: true})
	if err != nil {
		return wire.AgentStatus{}, err
	}
	fits := map[string]wire.AgentStatus{}
	for _, a := range census.Agents() { // by when the state began
		if have, ok := fits[a.Principal]; !ok || have.Ended() || !a.Ended() {
			fits[a.Principal] = a
		}
	}
	live := make([]wire.AgentStatus, 0, len(fits))
	for _, a := range fits {
		if !a.Ended() {
			live = append(live, a)
		}
	}
	if len(live) == 0 {
		live = values(fits)
	}
	switch {
	case len(live) == 1:
		return live[0], nil
	case len(live) > 1:
		ids := make([]string, len(live))
		for i, a := range live {
			ids[i] = a.Principal
		}
		slices.Sort(ids)
		return wire.AgentStatus{}, wire.Errorf(wire.CodeConflict, "%q means several agents: %s", name, strings.Join(ids, ", "))
	}
	if err := census.Complete(fmt.Sprintf("whether there is an agent %q", name)); err != nil {
		return wire.AgentStatus{}, err
	}
	e := wire.Errorf(wire.CodeNotFound, "no agent %q that you may know of", name)
	e.Outcome = wire.OutcomeNotExecuted
	return wire.AgentStatus{}, e
}

// Personas are the agent files of every supervisor's host; with a name, of that one with its text and, for whom they
// tell, what it allows.
//
// Errors are as for [Client.Census].
func (c *Client) Personas(ctx context.Context, name string) ([]wire.PersonasReply, error) {
	out, _, _, err := gather(ctx, c, wire.CommandPersonas, wire.PersonasRequest{Name: name}, func(r wire.PersonasReply) (string, []wire.ManagerPeer) { return r.Instance, nil })
	slices.SortFunc(out, func(a, b wire.PersonasReply) int { return strings.Compare(a.Instance, b.Instance) })
	return out, err
}
