package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// chunkMessages and chunkNames bound what is served at a time: settings and memberships are read once for it, and its
	// pointers are on their way together.
	chunkMessages = 128
	chunkNames    = 512
	// chunkReads bounds the reads of memberships that are on their way at a time.
	chunkReads = 16
)

// quota counts the mentions of each sender in a minute. Nobody can hold up those of others for longer than its own share
// takes. The minutes are those at which messages were stored, so that what waited for a service is not cut, and a later look at
// the same messages comes to the same.
type quota struct {
	minute int64
	used   map[wire.Principal]int
}

// take returns how many of n mentions count, and whether these are the first that do not.
func (q *quota) take(sender wire.Principal, at time.Time, n int) (allowed int, first bool) {
	if minute := at.Unix() / 60; q.used == nil || minute > q.minute {
		q.minute, q.used = minute, map[wire.Principal]int{}
	}
	used := q.used[sender]
	q.used[sender] = used + n
	allowed = min(n, max(wire.MaxMentionsPerMinute-used, 0))
	return allowed, allowed < n && used <= wire.MaxMentionsPerMinute
}

// begun is what is known of messages that were begun and not finished, because storing a pointer failed.
type begun struct {
	allowed map[uint64]int  // how many mentions of a message count
	stored  map[string]bool // pointers, by message id
}

func newBegun() begun { return begun{map[uint64]int{}, map[string]bool{}} }

// pointer is one on its way to its stream.
type pointer struct {
	to      wire.Lifecycle
	sub     wire.Subject
	seq     uint64
	durable bool // whether the channel is
	future  jetstream.PubAckFuture
}

func (p *pointer) id() string { return strconv.FormatUint(p.seq, 10) + "." + p.to.String() }

// serve stores the pointers of the first of some messages, and returns of how many. The names are brought up to date after
// all of them were stored, so everybody who was granted before is known. The position moves when the pointers of everything
// up to it are stored.
func (m *mentions) serve(ctx context.Context, msgs []candidate) (int, error) {
	if err := m.names.sync(ctx); err != nil {
		return 0, err
	}
	var chunk []pointer
	n, classes := 0, m.classes()
	for ; n < len(msgs) && n < chunkMessages && len(chunk) < chunkNames; n++ {
		if msgs[n].seq <= m.done { // another instance was faster
			continue
		}
		meant, err := m.meant(ctx, msgs[n], classes)
		if err != nil {
			return 0, err
		}
		chunk = append(chunk, meant...)
	}
	chunk, err := m.withoutMembers(ctx, chunk)
	if err != nil {
		return 0, err
	}
	if failed, err := m.store(ctx, chunk); err != nil {
		m.done = max(m.done, failed-1)
		return 0, err
	}
	if n > 0 {
		m.done = max(m.done, msgs[n-1].seq)
	}
	clear(m.began.allowed)
	clear(m.began.stored)
	return n, m.saveNow(ctx)
}

// meant returns a pointer for each peer that a message mentions and that may read its channel. It checks the message as any
// receiver would.
func (m *mentions) meant(ctx context.Context, c candidate, classes *classes) ([]pointer, error) {
	sub, msg, err := wire.Receive(c.subject, c.data)
	if err != nil || sub.Kind != wire.KindChannel && sub.Kind != wire.KindLive || sub.Space != m.space || msg.Channel != sub.Channel {
		m.log.Debug("message with mentions dropped", logkey.Sequence, c.seq, logkey.Reason, string(wire.ReasonOf(err)), logkey.Error, err)
		return nil, nil
	}
	var out []pointer
	for _, name := range m.counting(c, sub.Sender, msg.Mentions) {
		l, holders := resolve(m.names, name, time.Now())
		if holders != 1 || l.Principal == sub.Sender || !m.names.reads(l, sub.Channel) || slices.ContainsFunc(out, func(p pointer) bool { return p.to == l }) {
			continue
		}
		out = append(out, pointer{to: l, sub: sub, seq: c.seq})
	}
	if len(out) == 0 {
		return nil, nil
	}
	class, err := classes.of(ctx, sub.Channel)
	if err != nil && !errors.Is(err, wire.ErrInternal) { // settings that cannot be read make no member
		return nil, err
	}
	for i := range out {
		out[i].durable = err == nil && class == wire.ClassDurable
	}
	return out, nil
}

// counting returns the mentions of a message that count.
func (m *mentions) counting(c candidate, sender wire.Principal, names []string) []string {
	names = names[:min(len(names), wire.MaxMentioned)]
	n, known := m.began.allowed[c.seq]
	if !known {
		var first bool
		if n, first = m.quota.take(sender, c.at, len(names)); first {
			m.log.Warn("mentions of a sender beyond those of a minute are dropped", logkey.Principal, sender.String(), logkey.Sequence, c.seq)
		}
		m.began.allowed[c.seq] = n
	}
	return names[:n]
}

// withoutMembers leaves out the pointers of those who get the message as a durable member. Whoever gets both shows it once.
func (m *mentions) withoutMembers(ctx context.Context, chunk []pointer) ([]pointer, error) {
	of := map[wire.Lifecycle][]space.Membership{}
	for _, p := range chunk {
		if p.durable {
			of[p.to] = nil
		}
	}
	lives := make([]wire.Lifecycle, 0, len(of))
	for l := range of {
		lives = append(lives, l)
	}
	found, errs := make([][]space.Membership, len(lives)), make([]error, len(lives))
	var wg sync.WaitGroup
	for worker := range min(chunkReads, len(lives)) {
		wg.Go(func() {
			for i := worker; i < len(lives); i += chunkReads {
				found[i], errs[i] = m.members.Of(ctx, lives[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, l := range lives {
		of[l] = found[i]
	}
	return slices.DeleteFunc(chunk, func(p pointer) bool {
		return p.durable && slices.ContainsFunc(of[p.to], func(ms space.Membership) bool {
			return wire.PatternMatches(ms.Pattern, p.sub.Channel) && ms.Contains(p.seq)
		})
	}), nil
}

// store stores pointers, in order, and waits for all of them. Who stores one again, here or elsewhere, adds nothing. When one
// fails it returns the sequence of its message.
func (m *mentions) store(ctx context.Context, chunk []pointer) (failed uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for i := range chunk {
		if m.began.stored[chunk[i].id()] {
			continue
		}
		if chunk[i].future, err = m.send(&chunk[i]); err != nil {
			failed, err = chunk[i].seq, fmt.Errorf("store pointer to message %d for %q: %w", chunk[i].seq, chunk[i].to.Principal, err)
			chunk = chunk[:i]
			break
		}
	}
	for i := range chunk {
		p := &chunk[i]
		if p.future == nil {
			continue
		}
		var refusal error
		select {
		case <-p.future.Ok():
			m.began.stored[p.id()] = true
		case refusal = <-p.future.Err():
		case <-ctx.Done():
			refusal = ctx.Err()
		}
		if refusal != nil && (err == nil || failed > p.seq) {
			failed, err = p.seq, fmt.Errorf("store pointer to message %d for %q: %w", p.seq, p.to.Principal, refusal)
		}
	}
	return failed, err
}

// send sends one pointer on its way, or none for a life that has no place: in an open space a peer may call its life what it
// likes.
func (m *mentions) send(p *pointer) (jetstream.PubAckFuture, error) {
	subject, err := wire.MentionRecord(m.space, p.to)
	if err != nil {
		return nil, nil
	}
	body := encode(wire.NewMentionPointer(p.sub.Channel, p.seq, p.sub.Sender))
	return m.js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: body}, jetstream.WithMsgID(p.id()),
		jetstream.WithExpectStream(wire.MentionStream(m.space)), jetstream.WithRetryAttempts(0))
}
