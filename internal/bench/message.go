package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// rawMessage is the message shape of the contract as somebody writes it down who has nothing but its text.
type rawMessage struct {
	ID    string `json:"id"`
	TS    int64  `json:"ts"`
	Space string `json:"space"`
	From  struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"from"`
	Channel   string    `json:"channel,omitempty"`
	To        string    `json:"to,omitempty"`
	ToService string    `json:"toService,omitempty"`
	Parts     []rawPart `json:"parts"`
}

type rawPart struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// rawPeer speaks the contract with nats.go alone.
type rawPeer struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	creds *trust.Credentials
}

func (l *lab) rawPeer(ctx context.Context, role string) (*rawPeer, error) {
	creds, err := l.creds(ctx, role)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(l.node.URL(), rawOptions(creds)...)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	p, err := newRawPeer(nc, creds)
	if err != nil {
		nc.Close()
	}
	return p, err
}

func newRawPeer(nc *nats.Conn, creds *trust.Credentials) (*rawPeer, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	return &rawPeer{nc: nc, js: js, creds: creds}, nil
}

func (p *rawPeer) send(ctx context.Context, subject string, m rawMessage) error {
	id := p.creds.Identity()
	m.From.ID, m.From.Name, m.ID = id.Principal.String(), id.Actor, nuid.Next()
	data, err := rawBody(string(id.Space), m)
	if err != nil {
		return err
	}
	_, err = p.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}, jetstream.WithMsgID(m.ID))
	return err
}

// rawBody completes and encodes a message.
func rawBody(space string, m rawMessage) ([]byte, error) {
	if m.ID == "" {
		m.ID = nuid.Next()
	}
	m.TS, m.Space, m.Parts = time.Now().UnixMilli(), space, []rawPart{{Kind: "text", Text: text}}
	return json.Marshal(m)
}

func rawDecode(data []byte) bool {
	var m rawMessage
	return json.Unmarshal(data, &m) == nil && m.ID != "" && len(m.Parts) == 1
}

func draft() endpoint.Draft { return endpoint.Draft{Parts: []wire.Part{wire.Text(text)}} }

// posts measures channel messages stored and received by a number of members.
func posts(members int) pair {
	n := map[int]int{1: 20_000, 10: 10_000, 100: 2_000}[members]
	return pair{name: fmt.Sprintf("channel/%d", members), series: messageSeries("messages/s"), setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		var c closers
		fail := func(err error) (measure, measure, func(), error) {
			c.close()
			return nil, nil, nil, err
		}
		sender, err := l.peer(ctx, "")
		if err != nil {
			return fail(err)
		}
		c.add(func() { _ = sender.Close() })
		ours, raw := newTally(), newTally()
		channel := fmt.Sprintf("ours%d", members)
		for range members {
			ep, err := l.peer(ctx, "")
			if err != nil {
				return fail(err)
			}
			c.add(func() { _ = ep.Close() })
			if _, err := ep.Listen(ctx, channel, func(*endpoint.Delivery) { ours.hit() }); err != nil {
				return fail(err)
			}
		}
		rawSender, err := l.rawPeer(ctx, "")
		if err != nil {
			return fail(err)
		}
		c.add(rawSender.nc.Close)
		for range members {
			p, err := l.rawPeer(ctx, "")
			if err != nil {
				return fail(err)
			}
			c.add(p.nc.Close)
			if err := p.listen(fmt.Sprintf("cotal.bench.live.*.*.raw%d", members), raw); err != nil {
				return fail(err)
			}
		}
		subject := fmt.Sprintf("cotal.bench.chat.local.%s.raw%d", rawSender.creds.Identity().Actor, members)
		return throughput(ours, l.count(n), members, l.singles(), func(ctx context.Context) error {
				_, err := sender.Post(ctx, channel, draft())
				return err
			}), throughput(raw, l.count(n), members, l.singles(), func(ctx context.Context) error {
				return rawSender.send(ctx, subject, rawMessage{Channel: fmt.Sprintf("raw%d", members)})
			}), c.close, nil
	}}
}

func (p *rawPeer) listen(subject string, t *tally) error {
	sub, err := p.nc.Subscribe(subject, func(m *nats.Msg) {
		if rawDecode(m.Data) {
			t.hit()
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	return p.nc.Flush()
}

func (p *rawPeer) consume(ctx context.Context, stream, durable string, t *tally, opts ...jetstream.PullConsumeOpt) (func(), error) {
	cons, err := p.js.Consumer(ctx, stream, durable)
	if err != nil {
		return nil, fmt.Errorf("bind %s: %w", durable, err)
	}
	cc, err := cons.Consume(func(m jetstream.Msg) {
		if rawDecode(m.Data()) && m.Ack() == nil {
			t.hit()
		}
	}, opts...)
	if err != nil {
		return nil, fmt.Errorf("consume %s: %w", durable, err)
	}
	return cc.Stop, nil
}

// directs measures direct messages stored, received and acknowledged.
func directs() pair {
	return pair{name: "direct", series: messageSeries("messages/s"), setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		return l.queued(ctx, "", 1)
	}}
}

// roles measures role messages taken by one of three holders.
func roles() pair {
	return pair{name: "role", series: messageSeries("messages/s"), setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		return l.queued(ctx, "worker", 3)
	}}
}

// queued sets up receivers of a queue on both sides: direct messages without a role.
func (l *lab) queued(ctx context.Context, role string, receivers int) (measure, measure, func(), error) {
	var c closers
	fail := func(err error) (measure, measure, func(), error) {
		c.close()
		return nil, nil, nil, err
	}
	ours, raw := newTally(), newTally()
	rawRole := ""
	if role != "" {
		rawRole = "raw" + role
	}
	sender, err := l.peer(ctx, "")
	if err != nil {
		return fail(err)
	}
	c.add(func() { _ = sender.Close() })
	rawSender, err := l.rawPeer(ctx, "")
	if err != nil {
		return fail(err)
	}
	c.add(rawSender.nc.Close)
	var to wire.Principal
	var rawTo trust.Identity
	for range receivers {
		ep, err := l.peer(ctx, role)
		if err != nil {
			return fail(err)
		}
		c.add(func() { _ = ep.Close() })
		to = ep.Principal()
		take := func(d *endpoint.Delivery) {
			if d.Ack(ctx) == nil {
				ours.hit()
			}
		}
		handle := ep.HandleDirect
		if role != "" {
			handle = ep.HandleRole
		}
		if err := handle(ctx, take); err != nil {
			return fail(err)
		}
		p, err := l.rawPeer(ctx, rawRole)
		if err != nil {
			return fail(err)
		}
		c.add(p.nc.Close)
		rawTo = p.creds.Identity()
		stream, durable := "DM_bench", fmt.Sprintf("dm_local-%s-%s", rawTo.Actor, rawTo.UID)
		if role != "" {
			stream, durable = "TASK_bench", "svc_"+rawRole
		}
		most := 256 // what one pull request may ask for, as the contract says
		if role != "" {
			most = 32
		}
		stop, err := p.consume(ctx, stream, durable, raw, jetstream.PullMaxMessages(most))
		if err != nil {
			return fail(err)
		}
		c.add(stop)
	}
	from := rawSender.creds.Identity().Actor
	subject, shape := fmt.Sprintf("cotal.bench.inst.local.%s.local.%s", rawTo.Actor, from), rawMessage{To: rawTo.Principal.String()}
	send := func(ctx context.Context) error {
		_, err := sender.Direct(ctx, to, draft())
		return err
	}
	if role != "" {
		subject, shape = fmt.Sprintf("cotal.bench.svc.%s.local.%s", rawRole, from), rawMessage{ToService: rawRole}
		send = func(ctx context.Context) error {
			_, err := sender.Ask(ctx, role, draft())
			return err
		}
	}
	return throughput(ours, l.count(10_000), 1, l.singles(), send),
		throughput(raw, l.count(10_000), 1, l.singles(), func(ctx context.Context) error { return rawSender.send(ctx, subject, shape) }), c.close, nil
}
