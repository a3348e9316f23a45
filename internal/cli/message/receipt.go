package message

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

const receiptLong = `
Says what became of a message that you sent or received, with one line for each recipient: stored (nobody was given it
yet), handed-over, handled, answered, dead (it is not handed over any more; an operator can put it back), or gone (it is
no longer stored, so nothing more can be known).

The id is what cotal send printed. For a message to a role it is id@role:sequence: done work is no longer stored, and only
its place in the queue, and an answer by a holder of the role, tell what became of it. An id of your own choice (send --id) names no time; --since says how far back
to look for it, and --kind with id@sequence where it is.

With --wait it looks again until the message is handled, or answered with --answer, by every recipient. Exit code 5 then
says that it is dead, 8 that the time was over first. With --trace an operator asks about any message of the space.
`

const receiptExample = `
  cotal receipt 01jq3k6s2p6rdj2m4v7n8x9y0z
  cotal receipt 01jq3k6s2p6rdj2m4v7n8x9y0z@reviewer:7 --wait 5m
  cotal receipt build-42 --since 2h --trace --json
`

// receipt asks what became of a message.
type receipt struct {
	operand string
	kind    string
	since   string
	trace   bool
	answer  bool
	wait    time.Duration
}

// Pauses between two looks of --wait: short at first, then longer.
const (
	lookSoon  = 100 * time.Millisecond
	lookLater = 2 * time.Second
)

// defaultSince is how far back an id that names no time is looked for.
const defaultSince = 24 * time.Hour

// NewReceipt adds `cotal receipt`.
func NewReceipt(t *command.Tree) *cobra.Command {
	r := &receipt{}
	c := t.Add(command.Spec{
		Use: "receipt <id> [flags]", Short: "Say what became of a message", Long: receiptLong, Example: receiptExample,
		Args: command.One("id", &r.operand), Target: command.TargetPerson,
	}, r)
	f := c.Flags()
	f.StringVar(&r.kind, "kind", "", "channel, direct or role, when the id has a sequence (default role)")
	f.StringVar(&r.since, "since", "", "how far back to look for an id that names no time: a duration or a time (default 24h)")
	f.BoolVar(&r.trace, "trace", false, "as an operator: any message, whoever sent it")
	f.BoolVar(&r.answer, "answer", false, "with --wait: wait for an answer, not only until it is handled")
	f.Var(command.DurationFlag(&r.wait), "wait", "look again for so long, until it is handled")
	_ = c.RegisterFlagCompletionFunc("kind", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{view.KindChannel, view.KindDirect, view.KindRole}, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

// ReceiptOperand is what names a message to `cotal receipt`: its id, for a role's with its role and its place in the queue.
func ReceiptOperand(kind, id, role string, sequence uint64) string {
	if kind == view.KindRole {
		return id + "@" + role + ":" + strconv.FormatUint(sequence, 10)
	}
	return id
}

// ReceiptResult is what `cotal receipt --json` prints.
type ReceiptResult struct {
	command.V
	Space wire.Space `json:"space"`
	wire.ReceiptReply
}

// Run asks, and with --wait asks again.
func (r *receipt) Run(ctx context.Context, e *command.Env) error {
	req, err := r.request(time.Now())
	if err != nil {
		return err
	}
	why := target.Speaking
	if r.trace {
		why = target.Auditing
	}
	t, ep, leave, err := target.Enter(ctx, e, why)
	if err != nil {
		return err
	}
	defer leave()
	reply, err := r.look(ctx, e, ep, req)
	if err != nil {
		return t.Explain(r.explain(err, req, t.Space()))
	}
	res := ReceiptResult{V: command.V1, Space: ep.Space(), ReceiptReply: reply}
	if res.Recipients == nil {
		res.Recipients = []wire.RecipientReceipt{}
	}
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	r.remark(e, req, reply)
	return r.verdict(reply)
}

// request reads the operand: an id, or an id and its place.
func (r *receipt) request(now time.Time) (wire.ReceiptRequest, error) {
	req := wire.ReceiptRequest{ID: r.operand, Kind: r.kind}
	switch r.kind {
	case "", view.KindChannel, view.KindDirect, view.KindRole:
	default:
		return req, command.Usagef("--kind %q: want channel, direct or role", r.kind)
	}
	if r.wait < 0 {
		return req, command.Usagef("--wait must not be negative")
	}
	if r.answer && r.wait == 0 {
		return req, command.Usagef("--answer goes with --wait")
	}
	if at := strings.LastIndexByte(r.operand, '@'); at >= 0 {
		role, place, named := strings.Cut(r.operand[at+1:], ":")
		if !named {
			role, place = "", role
		}
		seq, err := strconv.ParseUint(place, 10, 64)
		if err != nil || seq == 0 || at == 0 || named && wire.ValidateRole(role) != nil {
			return req, command.Usagef("id %q: want an id, id@sequence, or id@role:sequence as cotal send prints it", r.operand)
		}
		req.ID, req.Sequence, req.Role = r.operand[:at], seq, role
		if req.Kind == "" {
			req.Kind = view.KindRole
		}
		if named && req.Kind != view.KindRole {
			return req, command.Usagef("--kind %s does not go with id@role:sequence", r.kind)
		}
	}
	if req.ID == "" {
		return req, command.Usagef("the id is empty")
	}
	if r.kind != "" && req.Sequence == 0 {
		return req, command.Usagef("--kind goes with id@sequence")
	}
	_, dated := wire.IDTime(req.ID)
	switch {
	case r.since != "":
		at, err := Since(r.since, now)
		if err != nil {
			return req, err
		}
		req.Since = at.UnixMilli()
	case !dated && req.Sequence == 0:
		req.Since = now.Add(-defaultSince).UnixMilli()
	}
	return req, nil
}

// look asks once, or until the message has come far enough or the time is over.
func (r *receipt) look(ctx context.Context, e *command.Env, ep *endpoint.Endpoint, req wire.ReceiptRequest) (wire.ReceiptReply, error) {
	ask := ep.Receipt
	if r.trace {
		ask = ep.Trace
	}
	end := time.Now().Add(r.wait)
	told := wire.Stage("")
	for pause := lookSoon; ; pause = min(2*pause, lookLater) {
		reply, err := ask(ctx, req)
		if err != nil || r.settled(reply) || !time.Now().Before(end) {
			return reply, err
		}
		if req.Sequence == 0 && reply.Sequence > 0 { // the next look need not search
			req.Kind, req.Sequence, req.Role = reply.Kind, reply.Sequence, reply.Role
		}
		if reply.Stage != told {
			e.Progress("%s; waiting", reply.Stage)
			told = reply.Stage
		}
		timer := time.NewTimer(min(pause, time.Until(end)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return reply, ctx.Err()
		}
	}
}

// settled reports whether waiting longer makes no difference.
func (r *receipt) settled(reply wire.ReceiptReply) bool {
	for _, rc := range reply.Recipients {
		switch rc.Stage {
		case wire.StageAnswered, wire.StageDead, wire.StageGone:
		case wire.StageHandled:
			if r.answer {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// verdict is how a wait ended.
func (r *receipt) verdict(reply wire.ReceiptReply) error {
	if r.wait == 0 {
		return nil
	}
	for _, rc := range reply.Recipients {
		if rc.Stage == wire.StageDead {
			return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "message %q is dead: %s", reply.ID, orNo(rc.Reason)), "an operator can put it back: cotal deadletter list")
		}
	}
	if !r.settled(reply) {
		what := "handled"
		if r.answer {
			what = "answered"
		}
		return wire.Errorf(wire.CodeDeadlineExceeded, "message %q is not %s after %s", reply.ID, what, command.Duration(r.wait))
	}
	return nil
}

func orNo(reason string) string {
	if reason == "" {
		return "no reason given"
	}
	return reason
}

// remark says what of the answer is not what was asked for.
func (r *receipt) remark(e *command.Env, req wire.ReceiptRequest, reply wire.ReceiptReply) {
	switch {
	case req.Sequence == 0:
	case reply.StoredMS > 0 && reply.Sequence != req.Sequence:
		e.Note("note: it is not at sequence %d, where it was looked for first; this one is at %d", req.Sequence, reply.Sequence)
	case r.guessed(req) && reply.Stage == wire.StageGone:
		e.Note("note: sequence %d was taken for that of a role's queue; for a direct message: --kind direct", req.Sequence)
	}
}

// guessed reports whether a sequence was taken for that of a role's queue without being told.
func (r *receipt) guessed(req wire.ReceiptRequest) bool {
	return req.Sequence > 0 && r.kind == "" && req.Role == ""
}

// explain says of a message that is not found no more than that, and where else it may be found.
func (r *receipt) explain(err error, req wire.ReceiptRequest, s wire.Space) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != wire.CodeNotFound {
		return err
	}
	whose := "that you sent or received"
	if r.trace {
		whose = fmt.Sprintf("in space %q", s)
	}
	out := wire.Errorf(wire.CodeNotFound, "no message %q %s", req.ID, whose)
	out.Details, out.Outcome = e.Details, e.Outcome
	var hints []string
	if r.guessed(req) {
		hints = append(hints, "the sequence was taken for that of a role's queue; for a direct message: --kind direct")
	}
	if req.Sequence == 0 {
		hints = append(hints, "a job that is done is found by id@role:sequence, as cotal send printed it")
	}
	if _, dated := wire.IDTime(req.ID); !dated && req.Sequence == 0 && r.since == "" {
		hints = append(hints, "an id of your own is looked for in the last day: --since 3d")
	}
	if e.Details["complete"] == false {
		hints = append(hints, "there is more than one look goes through; name its place: id@sequence --kind direct")
	}
	if !r.trace {
		hints = append(hints, "a message that is not yours is shown to operators: cotal receipt "+r.operand+" --trace")
	}
	return command.Hint(out, hints...)
}

func (r ReceiptResult) human(p *command.Printer) {
	to := r.To
	switch r.Kind {
	case view.KindChannel:
		to = "#" + r.Channel
	case view.KindRole:
		to = "role " + r.Role
	}
	line := command.Safe(r.Sender) + " → " + p.Bold(command.Safe(to))
	if r.To+r.Channel+r.Role == "" { // it is no longer stored
		line = p.Bold("message " + command.Safe(r.ID))
	}
	if r.Sequence > 0 {
		line += "  stored seq " + strconv.FormatUint(r.Sequence, 10)
	}
	if r.StoredMS > 0 {
		line += " at " + view.When(time.UnixMilli(r.StoredMS))
	}
	if r.Size > 0 {
		line += ", " + view.Plural(uint64(r.Size), "byte")
	}
	p.Line("%s", line)
	if len(r.Recipients) == 0 {
		p.Line("  %s; no recipient of its own: it is in the history for everybody who may read it", r.Stage)
	}
	for _, rc := range r.Recipients {
		p.Line("  %s", recipient(p, rc))
	}
	if r.Hidden > 0 {
		p.Line("  and %s whose membership you may not see", view.Plural(uint64(r.Hidden), "member"))
	}
}

// recipient is one line: who, how far, why, how often, answered by what.
func recipient(p *command.Printer, rc wire.RecipientReceipt) string {
	who := rc.Principal
	if rc.Role != "" {
		who = "role " + rc.Role
	}
	line := p.Bold(command.Safe(string(rc.Stage)))
	if rc.Stage == wire.StageAnswered && rc.Answer != "" {
		line = p.Bold("answered") + " by " + command.Safe(rc.Answer)
	}
	if who != "" {
		line = command.Safe(who) + ": " + line
	}
	why, counted := view.Why(rc.Reason, rc.Attempts)
	switch {
	case why != rc.Reason: // it began with what is said here
		line += " after " + view.Plural(uint64(rc.Attempts), "attempt")
		if why != "" {
			line += ": " + command.Safe(why)
		}
		counted = true
	case why != "":
		line += ", " + command.Safe(why)
	}
	if rc.Attempts > 1 && !counted {
		line += ", handed over " + strconv.Itoa(rc.Attempts) + " times"
	}
	if rc.Answer != "" && rc.Stage != wire.StageAnswered {
		line += ", answered by " + command.Safe(rc.Answer)
	}
	return line
}
