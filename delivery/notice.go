package delivery

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/header"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// noticeBacklog is how many of the broker's notices may wait to be passed on; those beyond are lost to the senders,
	// who still find out when they ask.
	noticeBacklog = 1024
	// noticeTimeout bounds passing one on.
	noticeTimeout = 5 * time.Second
)

// notices tells senders that a message of theirs is dead. It is a courtesy: a notice can be lost, and a receipt cannot. Of
// several instances one passes a notice on.
type notices struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	space    wire.Space
	log      *slog.Logger
	instance string
	epoch    string
	heard    chan *nats.Msg
	subs     []*nats.Subscription
}

func newNotices(nc *nats.Conn, js jetstream.JetStream, s wire.Space, serve *control.Service, log *slog.Logger) *notices {
	n := &notices{nc: nc, js: js, space: s, log: log, heard: make(chan *nats.Msg, noticeBacklog)}
	n.instance, n.epoch = serve.Instance()
	return n
}

// subscribe listens to what the broker tells about the queues.
func (n *notices) subscribe() {
	for _, subject := range wire.DeadSubjects(n.space) {
		// A queue's name is one token, and no more is permitted.
		subject = strings.TrimSuffix(subject, ">") + "*"
		sub, err := n.nc.ChanQueueSubscribe(subject, wire.QueueGroup(wire.DeliveryEndpoint), n.heard)
		if err != nil { // the connection is gone, which ends the service
			n.log.Warn("dead letters are not followed; senders are not told", logkey.Subject, subject, logkey.Error, err)
			continue
		}
		n.subs = append(n.subs, sub)
	}
}

func (n *notices) stop() {
	for _, sub := range n.subs {
		_ = sub.Unsubscribe() // fails only when the connection is gone
	}
	n.subs = nil
}

// run passes on what was heard since subscribe, until ctx ends.
func (n *notices) run(ctx context.Context) {
	defer n.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-n.heard:
			if err := n.pass(ctx, msg); err != nil && ctx.Err() == nil {
				n.log.Debug("notice of a dead letter not passed on", logkey.Subject, msg.Subject, logkey.Error, err)
			}
		}
	}
}

// pass tells the sender of one dead letter. What breaks the contract has no sender that could be believed, and whoever wrote
// it is told nothing.
func (n *notices) pass(ctx context.Context, msg *nats.Msg) error {
	where, err := wire.ParseDeadSubject(msg.Subject)
	if err != nil || !header.Whole(msg) {
		return err
	}
	var body advisory
	if err := json.Unmarshal(msg.Data, &body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	event := wire.ReceiptEvent{Sequence: body.Sequence, Recipient: wire.RecipientReceipt{
		Stage: wire.StageDead, Reason: space.DeadReason(where.Terminated, body.Deliveries, body.Reason), Attempts: body.Deliveries,
	}}
	q := space.Query{Filter: wire.StreamSubjects(n.space, wire.KindDirect), From: body.Sequence, Limit: 1, MaxBytes: 1}
	if where.Stream == wire.RoleStream(n.space) {
		q.Filter = wire.StreamSubjects(n.space, wire.KindRole)
	}
	var sender wire.Principal
	var stored *space.Stored
	_, err = space.Read(ctx, n.js, where.Stream, q, func(m *space.Stored) error {
		sub, letter, err := wire.Receive(m.Subject, m.Data)
		if err != nil || m.Sequence != body.Sequence || sub.Space != n.space {
			return err
		}
		stored = m
		sender, event.ID, event.Kind = sub.Sender, letter.ID, sub.Kind.String()
		if event.Recipient.Role = sub.Role; sub.Kind == wire.KindDirect {
			event.Recipient.Principal = sub.To.String()
		}
		return nil
	})
	if err != nil || sender.IsZero() {
		return err
	}
	// Whoever reads one queue can have the broker note anything about any message.
	if handed, err := space.Handed(ctx, n.js, n.space, where.Stream, where.Consumer, stored); err != nil || !handed {
		return err
	}
	subject, err := wire.EventSubject{
		Space: n.space, Endpoint: wire.DeliveryEndpoint, Instance: n.instance, Epoch: n.epoch, Topic: wire.TopicReceipt + "." + sender.String(),
	}.Subject()
	if err != nil {
		return err
	}
	return n.nc.Publish(subject, encode(event))
}
