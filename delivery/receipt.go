package delivery

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// Reasons of a [wire.RecipientReceipt] besides what the recipient's client said.
const (
	reasonLeft     = "left"
	reasonRevoked  = "revoked"
	reasonExpired  = "expired"
	reasonOffline  = "offline"
	reasonUnknown  = "no such participant"
	reasonEnded    = "what became of it is no longer known: the name was revoked"
	reasonEarlier  = "what became of it is no longer known: the name was granted anew"
	reasonNoHolder = "nobody holds the role"
	reasonFinished = "it is in the queue no more: it was finished or dropped, or never was"
	reasonRetained = "it is beyond what the stream keeps"
)

func (d *Service) registerReceipts() {
	control.Handle(d.serve, control.Command{
		Name: wire.CommandReceipt, Effect: control.Read, Description: "What became of a message that the caller sent, received or may read.",
	}, func(ctx context.Context, req *control.Request, in wire.ReceiptRequest) (*wire.ReceiptReply, error) {
		return d.receipt(ctx, req.Caller, in)
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandTrace, Effect: control.Read, Description: "Operators only: what became of any message.",
	}, func(ctx context.Context, req *control.Request, in wire.TraceRequest) (*wire.ReceiptReply, error) {
		return d.fate(ctx, req.Caller, viewer{who: req.Caller.Principal, access: everything, all: true}, in)
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandReach, Effect: control.Read, Description: "Who would get a message to a principal, role or channel now.",
	}, func(ctx context.Context, req *control.Request, in wire.ReachRequest) (*wire.ReachReply, error) {
		return d.reach(ctx, req.Caller, in)
	})
	control.Handle(d.serve, control.Command{
		Name: wire.CommandInbox, Effect: control.Read, Description: "Operators only: a page of the direct messages that wait for a principal, without their bodies.",
	}, func(ctx context.Context, req *control.Request, in wire.InboxRequest) (*wire.InboxReply, error) {
		return d.inbox(ctx, req.Caller, in)
	})
}

func (d *Service) receipt(ctx context.Context, caller wire.Lifecycle, in wire.ReceiptRequest) (*wire.ReceiptReply, error) {
	v, err := d.viewerOf(ctx, caller)
	if err != nil {
		return nil, err
	}
	if v.access.why != "" {
		return nil, d.groundless(caller, v.access)
	}
	return d.fate(ctx, caller, v, in)
}

// groundless is the refusal of a caller without a grant that stands.
func (d *Service) groundless(caller wire.Lifecycle, a access) error {
	e := wire.Errorf(wire.CodePermissionDenied, "ask about messages as %q: %s", caller.Principal, a.why)
	e.Outcome = wire.OutcomeNotExecuted
	e.Details = map[string]any{"principal": caller.Principal.String(), "missing": "an active grant"}
	return e
}

// fate says what became of the message that in names, as far as v may know.
func (d *Service) fate(ctx context.Context, caller wire.Lifecycle, v viewer, in wire.ReceiptRequest) (*wire.ReceiptReply, error) {
	kind, err := checkReceiptRequest(in)
	if err != nil {
		return nil, err
	}
	h, err := d.find(ctx, v, kind, in)
	if err != nil {
		return nil, d.refuse(ctx, "find message", caller, err)
	}
	if h.hit == nil {
		r, err := d.absent(ctx, h, kind, in)
		return r, d.refuse(ctx, "find message", caller, err)
	}
	f := h.hit
	r := &wire.ReceiptReply{
		ID: in.ID, Kind: f.sub.Kind.String(), Sender: f.sub.Sender.String(), Channel: f.sub.Channel, Role: f.sub.Role,
		Sequence: f.sequence, StoredMS: f.at.UnixMilli(), Size: f.size,
	}
	d.feed.catchUp(ctx)
	switch f.sub.Kind {
	case wire.KindDirect:
		r.To = f.sub.To.String()
		r.Recipients, err = d.directFate(ctx, v, f)
	case wire.KindRole:
		r.Recipients, err = d.roleFate(ctx, v, f)
	default:
		r.Recipients, r.Hidden, err = d.channelFate(ctx, v, f)
	}
	r.Stage = least(r.Recipients)
	return r, d.refuse(ctx, "follow message", caller, err)
}

func checkReceiptRequest(in wire.ReceiptRequest) (kind wire.Kind, err error) {
	if in.Kind != "" {
		if kind, err = wire.ParseKind(in.Kind); err != nil {
			return 0, err
		}
	}
	switch {
	case in.ID == "" || len(in.ID) > wire.MaxID:
		return 0, wire.Errorf(wire.CodeBadRequest, "find message %q: an id has 1 to %d bytes", clip(in.ID), wire.MaxID)
	case in.Sequence != 0 && kind == 0:
		return 0, wire.Errorf(wire.CodeBadRequest, "find message %q: sequence %d without a kind", clip(in.ID), in.Sequence)
	case in.Since < 0:
		return 0, wire.Errorf(wire.CodeBadRequest, "find message %q: since %d is before 1970", clip(in.ID), in.Since)
	case in.Role != "" && kind != 0 && kind != wire.KindRole:
		return 0, wire.Errorf(wire.CodeBadRequest, "find message %q: a %s message has no role", clip(in.ID), kind)
	case in.Role != "":
		return kind, wire.ValidateRole(in.Role)
	}
	return kind, nil
}

// ranks orders the stages from the least advanced. Of a single recipient each is what it is.
var ranks = map[wire.Stage]int{
	wire.StageDead: 1, wire.StageGone: 2, wire.StageStored: 3, wire.StageHanded: 4, wire.StageHandled: 5, wire.StageAnswered: 6,
}

func least(all []wire.RecipientReceipt) wire.Stage {
	out := wire.StageStored
	for i, r := range all {
		if i == 0 || ranks[r.Stage] < ranks[out] {
			out = r.Stage
		}
	}
	return out
}

// directFate follows a direct message. What one life of the addressee left unhandled no later one gets, and with its queue goes
// what the broker knew of it.
func (d *Service) directFate(ctx context.Context, v viewer, f *found) ([]wire.RecipientReceipt, error) {
	out := wire.RecipientReceipt{Principal: f.sub.To.String(), Stage: wire.StageStored}
	s, err := d.standingOf(ctx, f.sub.To)
	if err != nil {
		return nil, err
	}
	waits := s.waits()
	switch {
	case s.life.UID == "":
	case f.sequence <= s.cut:
		out.Stage, out.Reason = wire.StageGone, reasonEarlier
	default:
		known, err := d.queueStage(ctx, &out, f, wire.DirectDurable(s.life))
		if err != nil {
			return nil, err
		}
		if !known && s.ended == reasonRevoked {
			out.Stage, out.Reason = wire.StageGone, reasonEnded
		}
	}
	filter, err := wire.DirectSubject(d.space, f.sub.Sender, f.sub.To)
	if err != nil {
		return nil, err
	}
	q := space.Query{Filter: filter, From: f.sequence + 1}
	if err := d.directAnswer(ctx, &out, f.msg.ID, q, nil); err != nil {
		return nil, err
	}
	explain(&out, waits)
	return []wire.RecipientReceipt{out}, nil
}

// roleFate follows role work that is still in its queue: it leaves it when it is handled.
func (d *Service) roleFate(ctx context.Context, v viewer, f *found) ([]wire.RecipientReceipt, error) {
	out := wire.RecipientReceipt{Role: f.sub.Role, Stage: wire.StageStored}
	if _, err := d.queueStage(ctx, &out, f, wire.RoleDurable(f.sub.Role)); err != nil {
		return nil, err
	}
	if v.all || v.who == f.sub.Sender {
		filter, err := wire.DirectFilter(d.space, f.sub.Sender)
		if err != nil {
			return nil, err
		}
		q := space.Query{Filter: filter, Since: f.at.Add(-clockSlack)}
		err = d.directAnswer(ctx, &out, f.msg.ID, q, func(from wire.Principal) (bool, error) { return d.worked(ctx, from, f.sub.Role) })
		if err != nil {
			return nil, err
		}
	}
	if out.Stage == wire.StageStored || out.Stage == wire.StageHanded {
		h, err := d.holders(ctx, f.sub.Role)
		if err != nil {
			return nil, err
		}
		explain(&out, h.waits())
	}
	return []wire.RecipientReceipt{out}, nil
}

// queueStage tells from a queue how far a message in it is, and is false when neither it nor a notice says anything.
//
// The broker says what was handed over, and up to where everything was settled. Of what was settled out of order above
// that it says nothing: it counts as handed over until the rest is settled too.
func (d *Service) queueStage(ctx context.Context, out *wire.RecipientReceipt, f *found, durable string) (known bool, err error) {
	stream := d.streamOf(f.sub.Kind)
	queue, err := space.InspectQueue(ctx, d.js, stream, durable)
	missing := wire.CodeOf(err) == wire.CodeNotFound
	switch {
	case err != nil && !missing:
		return false, err
	case !missing && f.sequence > queue.Delivered:
		return true, nil
	}
	dead, err := space.FindDead(ctx, d.js, d.space, stream, durable, f.sequence)
	switch {
	case err != nil:
		return false, err
	case dead != nil:
		out.Stage, out.Reason, out.Attempts = wire.StageDead, dead.Reason, dead.Deliveries
	case missing:
		return false, nil
	case f.sequence <= queue.Floor && f.sub.Kind == wire.KindDirect:
		out.Stage = wire.StageHandled
	default:
		out.Stage = wire.StageHanded
	}
	return true, nil
}

// explain sets why a message that is not handled waits.
func explain(out *wire.RecipientReceipt, waits string) {
	if out.Stage == wire.StageStored || out.Stage == wire.StageHanded {
		out.Reason = waits
	}
}

const (
	// answerMessages and answerBytes bound the search for an answer: one that comes after more than that is not found.
	answerMessages = 5000
	answerBytes    = 4 << 20
	// clockSlack is how far the times of two streams may differ.
	clockSlack = 10 * time.Second
)

// directAnswer looks for the first direct message that answers an id, and notes it. accept, which may be nil, decides
// whose answer counts.
func (d *Service) directAnswer(ctx context.Context, out *wire.RecipientReceipt, id string, q space.Query, accept func(wire.Principal) (bool, error)) error {
	return d.answers(ctx, wire.KindDirect, id, q, func(a *found) (more bool, err error) {
		if accept != nil {
			if ok, err := accept(a.sub.Sender); err != nil || !ok {
				return true, err
			}
		}
		answered(out, a)
		return false, nil
	})
}

// answered notes an answer. It takes nothing back from a message that is dead: somebody must still look after it.
func answered(out *wire.RecipientReceipt, a *found) {
	out.Principal, out.Answer = a.sub.Sender.String(), a.msg.ID
	if out.Stage != wire.StageDead {
		out.Stage, out.Reason = wire.StageAnswered, ""
	}
}

// answers calls fn with the messages that name an id in replyTo, until it returns false or an error.
func (d *Service) answers(ctx context.Context, kind wire.Kind, id string, q space.Query, fn func(*found) (more bool, err error)) error {
	var failed error
	_, err := d.walk(ctx, d.streamOf(kind), q, &budget{answerMessages, answerBytes}, func(m *space.Stored) bool {
		if !mayHold(m.Data, id) {
			return true
		}
		sub, msg, err := wire.Receive(m.Subject, m.Data)
		if err != nil || sub.Space != d.space || msg.ReplyTo != id {
			return true
		}
		more, err := fn(&found{sub: sub, msg: msg, sequence: m.Sequence, at: m.Time, size: len(m.Data)})
		failed = err
		return more && err == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// worked reports whether a principal holds a role, or held it last.
func (d *Service) worked(ctx context.Context, p wire.Principal, role string) (bool, error) {
	if d.open {
		return true, nil
	}
	grant, _, err := d.grants.Get(ctx, p)
	if wire.CodeOf(err) == wire.CodeNotFound {
		return false, nil
	}
	return err == nil && grant.Role == role, err
}

// absent is the answer when the message is not stored, or not the viewer's to know; it is the same for both.
//
// Role work is the case where something can be known all the same: it leaves the queue when it is finished. An answer
// of a holder of the role that came back to the caller shows that it was. What answers nothing is gone once its place is
// named: nobody can tell any more whose it was, so everybody hears that about any place, also one that the queue never had.
func (d *Service) absent(ctx context.Context, h *hunt, kind wire.Kind, in wire.ReceiptRequest) (*wire.ReceiptReply, error) {
	r := &wire.ReceiptReply{ID: in.ID, Kind: in.Kind, Sequence: in.Sequence, Stage: wire.StageGone}
	if in.Role != "" || d.open && kind != wire.KindDirect && kind != wire.KindChannel {
		a, err := d.lateAnswer(ctx, h.v, in)
		if err != nil {
			return nil, err
		}
		if a != nil {
			var of wire.RecipientReceipt
			answered(&of, a)
			r.Sender, r.Stage, r.Recipients = a.sub.To.String(), of.Stage, []wire.RecipientReceipt{of}
			return r, nil
		}
	}
	switch {
	case in.Sequence == 0, h.v.all && h.taken:
		return nil, h.missing(kind)
	case kind == wire.KindRole && !h.v.all:
		r.Recipients = []wire.RecipientReceipt{{Stage: wire.StageGone, Reason: reasonFinished}}
		return r, nil
	case !h.v.all && !h.v.open: // where the stream begins is not for everybody to know
		return nil, h.missing(kind)
	}
	state, err := space.State(ctx, d.js, d.streamOf(kind))
	if err != nil {
		return nil, err
	}
	switch {
	case kind == wire.KindRole && in.Sequence <= state.LastSeq:
		r.Recipients = []wire.RecipientReceipt{{Stage: wire.StageGone, Reason: reasonFinished}}
	case kind != wire.KindRole && in.Sequence < state.FirstSeq:
		r.Recipients = []wire.RecipientReceipt{{Stage: wire.StageGone, Reason: reasonRetained}}
	default:
		return nil, h.missing(kind)
	}
	return r, nil
}

// lateAnswer looks for an answer to role work that is stored no more, by who holds the role. Its addressee is who sent the
// work, or somebody who claims to have sent it, and deceives nobody else.
func (d *Service) lateAnswer(ctx context.Context, v viewer, in wire.ReceiptRequest) (a *found, err error) {
	q := space.Query{Filter: wire.StreamSubjects(d.space, wire.KindDirect)}
	if !v.all {
		if q.Filter, err = wire.DirectFilter(d.space, v.who); err != nil {
			return nil, err
		}
	}
	made, dated := wire.IDTime(in.ID)
	switch {
	case in.Since > 0:
		q.Since = time.UnixMilli(min(in.Since, lastMS))
	case dated:
		q.Since = made.Add(-farBefore)
	default:
		if q.From, err = lastStart(ctx, d.js, wire.DirectStream(d.space), q.Filter, answerMessages); err != nil || q.From == 0 {
			return nil, err
		}
	}
	err = d.answers(ctx, wire.KindDirect, in.ID, q, func(m *found) (bool, error) {
		if m.sequence <= v.cut {
			return true, nil
		}
		if ok, err := d.worked(ctx, m.sub.Sender, in.Role); err != nil || !ok {
			return true, err
		}
		a = m
		return false, nil
	})
	return a, err
}
