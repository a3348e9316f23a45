package endpoint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// Draft is a message to be sent: what its sender decides.
type Draft struct {
	// ID identifies the message to its receivers, which show one of each sender once. Sending the same ID to the
	// same target again from this endpoint within two minutes stores nothing twice. Empty means a fresh one.
	ID string
	// Parts is the content, at least one part.
	Parts []wire.Part
	// Mentions are lower-case names.
	Mentions []string
	// ReplyTo is the id of the message this one answers, ContextID groups messages.
	ReplyTo, ContextID string
}

// Text returns a draft of one text part.
func Text(s string) Draft { return Draft{Parts: []wire.Part{wire.Text(s)}} }

// Receipt says that the broker stored a message.
type Receipt struct {
	// ID is the message's id.
	ID string
	// Stream and Sequence are where it is stored. The live copy of a channel message carries the same Sequence.
	Stream   string
	Sequence uint64
	// Duplicate says that this endpoint sent a message with this ID to this target before, and this one was not stored.
	Duplicate bool
}

// Post sends a message to a channel.
//
// Errors, all [*wire.Error]: bad-request for a draft or channel outside the contract; permission-denied, at once, when
// the credential does not cover the channel; resource-exhausted when the space is full; unavailable when nothing
// stores the channel's messages or the broker could not be reached, outcome not-executed; deadline-exceeded or
// cancelled when ctx ended first, outcome unknown; [ErrClosed].
func (e *Endpoint) Post(ctx context.Context, channel string, d Draft) (Receipt, error) {
	subject, err := e.channelSubjects.get(channel, e.channelSubject)
	if err != nil {
		return Receipt{}, err
	}
	return e.send(ctx, target{kind: wire.KindChannel, name: channel}, subject, &d)
}

// Direct sends a message to one principal, who gets it even when it is away at the moment. Errors are those of Post.
func (e *Endpoint) Direct(ctx context.Context, to wire.Principal, d Draft) (Receipt, error) {
	subject, err := e.directSubjects.get(to, e.directSubject)
	if err != nil {
		return Receipt{}, err
	}
	return e.send(ctx, target{kind: wire.KindDirect, to: to}, subject, &d)
}

// Ask sends a message to any one holder of a role; exactly one takes it. Errors are those of Post.
func (e *Endpoint) Ask(ctx context.Context, role string, d Draft) (Receipt, error) {
	subject, err := e.roleSubjects.get(role, e.roleSubject)
	if err != nil {
		return Receipt{}, err
	}
	return e.send(ctx, target{kind: wire.KindRole, name: role}, subject, &d)
}

// target is whom a message is for.
type target struct {
	kind wire.Kind
	name string // channel or role
	to   wire.Principal
}

// act describes sending to t, for errors.
func (t target) act(subject string) act {
	switch t.kind {
	case wire.KindDirect:
		return act{"send to", t.to.String(), subject, "direct messages"}
	case wire.KindRole:
		return act{"ask role", t.name, subject, "role messages"}
	default:
		return act{"post to channel", t.name, subject, "publish " + t.name}
	}
}

func (e *Endpoint) send(ctx context.Context, t target, subject string, d *Draft) (Receipt, error) {
	o := outgoing{subject: subject, id: d.ID, draft: d, to: t}
	if o.id == "" {
		o.id = wire.NewID()
	}
	o.key = e.dedupKey(subject, o.id)
	msg, err := e.roundTrip(ctx, &o)
	if err != nil {
		return Receipt{}, err
	}
	s, err := parseStored(msg.Data, e.streamOf(t.kind))
	if err != nil {
		return Receipt{}, err
	}
	if s.Error != nil {
		return Receipt{}, s.refusal(o.describe())
	}
	// A fresh id can be a duplicate only of what was sent again because a connection was lost.
	return Receipt{ID: o.id, Stream: s.Stream, Sequence: s.Sequence, Duplicate: s.Duplicate && d.ID != ""}, nil
}

// newDedupKey returns what the broker recognises a repeated message by. It compares the header over all senders and
// addressees of a stream, so the id alone would let anybody who guesses it use it up, and would swallow the second of two
// messages with one id to two addressees. And it tells the last value of a stream to whoever publishes there with a wrong
// Nats-Expected-Last-Msg-Id, so the id alone would be known to strangers. The key is secret to the endpoint.
func newDedupKey() func(subject, id string) string {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails, see crypto/rand
	return func(subject, id string) string {
		var room [512]byte // of most subjects and ids
		in := append(append(append(append(room[:0], secret[:]...), subject...), 0), id...)
		sum := sha256.Sum256(in)
		var out [22]byte
		base64.RawURLEncoding.Encode(out[:], sum[:16])
		return string(out[:])
	}
}

// outgoing is a publish that wants an answer: a message, or with no draft a request.
type outgoing struct {
	subject string
	id      string // of the message
	key     string // message id header, by which the broker knows a repeated publish; empty: none
	draft   *Draft
	to      target
	data    []byte    // body of a request
	act     act       // of a request
	began   time.Time // when a message was made first
}

func (o *outgoing) describe() act {
	if o.draft != nil {
		return o.to.act(o.subject)
	}
	return o.act
}

// roundTrip publishes o and returns the one answer to it. When the link is replaced meanwhile it goes on with the next:
// the broker drops what it has already by its id.
func (e *Endpoint) roundTrip(ctx context.Context, o *outgoing) (*nats.Msg, error) {
	for everSent := false; ; {
		l, err := e.current()
		if err != nil {
			return nil, err
		}
		msg, sent, err := l.try(ctx, o)
		if err == nil {
			return msg, nil
		}
		everSent = everSent || sent
		if errors.Is(err, errRetired) || errors.Is(err, errLinkClosed) {
			err = e.follow(ctx, l)
		}
		if err == nil && everSent && o.draft != nil && time.Since(o.began) > resendLimit {
			err = errNoAnswer
		}
		if err != nil {
			return nil, e.failure(o.describe(), err, everSent)
		}
	}
}

// try is one attempt on one link.
func (l *link) try(ctx context.Context, o *outgoing) (msg *nats.Msg, sent bool, err error) {
	w, err := l.borrow()
	if err != nil {
		return nil, false, err
	}
	w.msg.Subject = o.subject
	w.setID(o.key)
	if o.draft == nil {
		w.msg.Data = o.data
	} else if err := l.e.encode(w, o); err != nil {
		l.giveBack(w, true)
		return nil, false, err
	}
	msg, sent, err = l.exchange(ctx, w)
	l.giveBack(w, err == nil || errors.Is(err, errNoResponders))
	return msg, sent, err
}

// follow waits until l, which takes no more, has been replaced.
func (e *Endpoint) follow(ctx context.Context, l *link) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	select {
	case <-l.replaced:
		return nil
	case <-e.quit:
		return errLinkClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// encode writes the message into w's buffer.
func (e *Endpoint) encode(w *waiter, o *outgoing) error {
	m, d := &w.draft, o.draft
	if o.began.IsZero() {
		o.began = time.Now()
	}
	*m = wire.Message{
		ID: o.id, TS: o.began.UnixMilli(), Space: e.identity.Space, From: e.from,
		Parts: d.Parts, Mentions: d.Mentions, ReplyTo: d.ReplyTo, ContextID: d.ContextID,
	}
	switch o.to.kind {
	case wire.KindDirect:
		m.To = o.to.to.String()
	case wire.KindRole:
		m.ToService = o.to.name
	default:
		m.Channel = o.to.name
	}
	var err error
	w.buf, err = m.AppendJSON(w.buf[:0])
	w.msg.Data = w.buf
	return err
}

func (e *Endpoint) streamOf(k wire.Kind) string {
	switch k {
	case wire.KindDirect:
		return e.directStream
	case wire.KindRole:
		return e.roleStream
	default:
		return e.chatStream
	}
}

func (e *Endpoint) channelSubject(channel string) (string, error) {
	return wire.ChannelSubject(e.identity.Space, e.identity.Principal, channel)
}

func (e *Endpoint) directSubject(to wire.Principal) (string, error) {
	return wire.DirectSubject(e.identity.Space, to, e.identity.Principal)
}

func (e *Endpoint) roleSubject(role string) (string, error) {
	return wire.RoleSubject(e.identity.Space, role, e.identity.Principal)
}

// maxSubjects bounds how many subjects a cache keeps before it starts anew.
const maxSubjects = 1024

// subjects caches the subjects of one kind of target: building one checks every token.
type subjects[K comparable] struct {
	mu sync.RWMutex
	m  map[K]string
}

func (s *subjects[K]) get(k K, build func(K) (string, error)) (string, error) {
	s.mu.RLock()
	subject, ok := s.m[k]
	s.mu.RUnlock()
	if ok {
		return subject, nil
	}
	subject, err := build(k)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= maxSubjects {
		s.m = make(map[K]string)
	}
	s.m[k] = subject
	return subject, nil
}
