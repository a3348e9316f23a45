package endpoint

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// presence is the record that says this endpoint is here, written every two seconds.
type presence struct {
	e       *Endpoint
	subject string

	mu     sync.Mutex // guards record
	record wire.Presence
}

func (e *Endpoint) newPresence() (*presence, error) {
	id := e.identity
	subject, err := wire.PresenceSubject(id.Space, id.Principal)
	if err != nil {
		return nil, err
	}
	return &presence{e: e, subject: subject, record: wire.Presence{
		Status: wire.StatusIdle, LifecycleUID: id.UID,
		Card: wire.Card{
			ID: id.Principal.String(), Name: e.from.Name, Kind: e.opts.Kind, Role: id.Role, Description: e.opts.Description,
			Tags: e.opts.Tags, Skills: e.opts.Skills, Meta: maps.Clone(e.opts.Meta), ProtocolVersion: wire.ProtocolVersion,
		},
	}}, nil
}

// SetStatus says what the endpoint is doing: a status other than offline, which Close says, and a free text. It returns
// when the broker has it. A quiet endpoint has none to set: failed-precondition.
func (e *Endpoint) SetStatus(ctx context.Context, status wire.Status, activity string) error {
	if status == wire.StatusOffline {
		return wire.Errorf(wire.CodeBadRequest, "set status %q: an endpoint that is here is not offline", status)
	}
	return e.setPresence(ctx, func(p *wire.Presence) { p.Status, p.Activity = status, activity })
}

// SetAttention says how the endpoint wants to be disturbed: open, dnd or focus. It returns when the broker has it.
func (e *Endpoint) SetAttention(ctx context.Context, attention string) error {
	return e.setPresence(ctx, func(p *wire.Presence) { p.Attention = attention })
}

// SetCondition says what the program that the endpoint works for reported, such as a rate limit; nil says that it is over. It
// returns when the broker has it.
func (e *Endpoint) SetCondition(ctx context.Context, c *wire.Condition) error {
	if c != nil {
		kept := *c
		c = &kept
	}
	return e.setPresence(ctx, func(p *wire.Presence) { p.Condition = c })
}

func (e *Endpoint) setPresence(ctx context.Context, change func(*wire.Presence)) error {
	if _, err := e.current(); err != nil {
		return err
	}
	if e.presence == nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "set presence of %s: the endpoint is quiet", e.identity.Principal)
	}
	return e.presence.set(ctx, change)
}

// set changes the record, writes it and keeps the change when it was written.
func (p *presence) set(ctx context.Context, change func(*wire.Presence)) error {
	p.mu.Lock()
	next := p.record
	p.mu.Unlock()
	change(&next)
	data, err := encodePresence(&next)
	if err != nil {
		return err
	}
	msg, err := p.e.request(ctx, p.act(), data)
	if err != nil {
		return err
	}
	if err := p.written(msg.Data); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.record)
	return nil
}

func (p *presence) act() act {
	return act{"write presence of", p.e.identity.Principal.String(), p.subject, "its own presence"}
}

func (p *presence) written(answer []byte) error {
	s, err := parseStored(answer, "KV_"+wire.PresenceBucket(p.e.identity.Space))
	if err != nil {
		return err
	}
	if s.Error != nil {
		return s.refusal(p.act())
	}
	return nil
}

// beat writes the record without waiting: the next one follows in two seconds, and it stands for six.
func (p *presence) beat() {
	p.mu.Lock()
	data, err := encodePresence(&p.record)
	p.mu.Unlock()
	if err == nil {
		_ = p.e.link.Load().nc.Publish(p.subject, data) // a lost connection is reported where it is noticed
	}
}

// farewell writes the offline record, so that nobody has to wait for the last one to lapse.
func (p *presence) farewell(l *link, timeout time.Duration) {
	if !l.nc.IsConnected() {
		return
	}
	p.mu.Lock()
	p.record.Status, p.record.Activity = wire.StatusOffline, ""
	data, err := encodePresence(&p.record)
	p.mu.Unlock()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(noContext, timeout)
	defer cancel()
	_, _, _ = l.try(ctx, &outgoing{subject: p.subject, data: data}) // without it the record lapses
}

// heartbeat runs until ctx ends.
func (p *presence) heartbeat(ctx context.Context) {
	t := time.NewTicker(wire.HeartbeatInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.beat()
		case <-ctx.Done():
			return
		}
	}
}

// encodePresence checks the record and writes it with the current time.
func encodePresence(p *wire.Presence) ([]byte, error) {
	p.TS = time.Now().UnixMilli()
	if err := p.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "encode presence: %v", err)
	}
	if len(data) > wire.MaxPresence {
		return nil, wire.Errorf(wire.CodeBadRequest, "encode presence: %d bytes, at most %d", len(data), wire.MaxPresence)
	}
	return data, nil
}
