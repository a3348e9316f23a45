package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// maxReceiptEvent bounds one notice about a message of this endpoint.
const maxReceiptEvent = 8 << 10

// Receipt asks what became of a message that this endpoint's principal sent or received. One that the broker has not
// confirmed yet is accepted, which only this endpoint knows.
//
// Errors are those of Call; not-found for a message that there is not, or not for this principal to know about.
func (e *Endpoint) Receipt(ctx context.Context, req wire.ReceiptRequest) (wire.ReceiptReply, error) {
	if r, ok := e.accepted(req.ID); ok {
		return r, nil
	}
	var r wire.ReceiptReply
	err := e.delivery(ctx, wire.CommandReceipt, req, &r)
	return r, err
}

// Trace is Receipt of anybody's message, for operators. Errors are those of Call.
func (e *Endpoint) Trace(ctx context.Context, req wire.TraceRequest) (wire.ReceiptReply, error) {
	var r wire.ReceiptReply
	err := e.delivery(ctx, wire.CommandTrace, req, &r)
	return r, err
}

// Reach asks who would get a message to a principal, a role or a channel now. Errors are those of Call.
func (e *Endpoint) Reach(ctx context.Context, req wire.ReachRequest) (wire.ReachReply, error) {
	var r wire.ReachReply
	err := e.delivery(ctx, wire.CommandReach, req, &r)
	return r, err
}

// Inbox lists what waits for a principal, without the bodies, for operators. A participant reads its own messages with
// HandleDirect or ReadDirect. Errors are those of Call.
func (e *Endpoint) Inbox(ctx context.Context, req wire.InboxRequest) (wire.InboxReply, error) {
	var r wire.InboxReply
	err := e.delivery(ctx, wire.CommandInbox, req, &r)
	return r, err
}

// accepted is the receipt of a message that waits for the broker's word.
func (e *Endpoint) accepted(id string) (wire.ReceiptReply, bool) {
	m, ok := e.link.Load().unconfirmed(id)
	if !ok {
		return wire.ReceiptReply{}, false
	}
	r := wire.ReceiptReply{
		ID: id, Kind: wire.KindChannel.String(), Sender: m.From.ID, Channel: m.Channel, To: m.To, Role: m.ToService,
		Stage: wire.StageAccepted, Recipients: []wire.RecipientReceipt{},
	}
	switch {
	case m.To != "":
		r.Kind = wire.KindDirect.String()
	case m.ToService != "":
		r.Kind = wire.KindRole.String()
	}
	return r, true
}

// unconfirmed returns the message with an id that waits for its answer on this link.
func (l *link) unconfirmed(id string) (wire.Message, bool) {
	if id == "" {
		return wire.Message{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiters {
		if w.draft.ID == id {
			return w.draft, true
		}
	}
	return wire.Message{}, false
}

// EventUndelivered says that a message of this endpoint's principal is dead with one recipient: it is not handed over any
// more. It is told as it happens and not repeated; [Endpoint.Receipt] says the same later.
type EventUndelivered struct {
	wire.ReceiptEvent
}

func (e EventUndelivered) String() string {
	text := fmt.Sprintf("%s message %q was not delivered to %s", e.Kind, e.ID, e.recipient())
	if e.Recipient.Reason != "" {
		text += ": " + e.Recipient.Reason
	}
	return text
}

func (e EventUndelivered) recipient() string {
	if e.Recipient.Role != "" {
		return "role " + e.Recipient.Role
	}
	return e.Recipient.Principal
}

func (e EventUndelivered) attrs() []any {
	return []any{logkey.Message, e.ID, logkey.To, e.recipient(), logkey.Attempt, e.Recipient.Attempts, logkey.Reason, e.Recipient.Reason}
}

func (EventUndelivered) level() slog.Level { return slog.LevelWarn }

// notices receives what the delivery service says about this endpoint's own messages.
type notices struct {
	filter string // "" without the right to them

	mu   sync.Mutex // guards seen
	seen seen       // replicas say the same, and two links hear it during a renewal
}

func newNotices(id trust.Identity) (*notices, error) {
	n := &notices{seen: newSeen(DefaultDedup)}
	if id.Profile != trust.Agent {
		return n, nil
	}
	var err error
	n.filter, err = wire.EventFilter(id.Space, wire.DeliveryEndpoint, receiptTopic(id.Principal))
	return n, err
}

func receiptTopic(p wire.Principal) string { return wire.TopicReceipt + "." + p.String() }

// hear subscribes to the notices. Without the right to them there are none: they are a courtesy.
func (l *link) hear() error {
	n := l.e.notices
	if n.filter == "" {
		return nil
	}
	_, err := l.nc.Subscribe(n.filter, l.e.notice)
	return err
}

func (e *Endpoint) notice(m *nats.Msg) {
	from, err := wire.ParseEventSubject(m.Subject)
	if err != nil || from.Space != e.identity.Space || from.Endpoint != wire.DeliveryEndpoint || from.Topic != receiptTopic(e.identity.Principal) {
		e.foreign(m, "the notices about own messages")
		return
	}
	var ev wire.ReceiptEvent
	if err := wire.Decode(m.Data, &ev, maxReceiptEvent); err != nil {
		e.drop(m, err)
		return
	}
	if e.notices.first(&ev) {
		e.events.emit(EventUndelivered{ev})
	}
}

// first reports whether ev was not told before.
func (n *notices) first(ev *wire.ReceiptEvent) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	key, _ := n.seen.key(ev.Kind+" "+strconv.FormatUint(ev.Sequence, 10), "to "+ev.Recipient.Principal+ev.Recipient.Role)
	_, known := n.seen.find(key)
	n.seen.put(key, mark{})
	return !known
}
