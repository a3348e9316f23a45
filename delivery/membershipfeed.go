package delivery

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

const (
	// memberSettle is how long after a notice memberships are read again: who connects subscribes a moment later.
	memberSettle = 250 * time.Millisecond
	// memberSpacing is the least time between two reads that nobody waits for.
	memberSpacing = time.Second
	// memberInterval is how often memberships are read when nothing tells of a change: a subscription tells nobody.
	memberInterval = 10 * time.Second
)

// membershipFeed publishes who becomes and ceases to be a member of what. It works only while somebody follows it, or asked
// for memberships a moment ago. All of it belongs to the goroutine of run but the channels.
type membershipFeed struct {
	nc      *nats.Conn
	space   wire.Space
	log     *slog.Logger
	members *space.Members
	live    *liveView
	subject string        // of events
	changed chan struct{} // a connection or a record changed

	followed bool // the broker has a subscriber of the feed
	dirty    time.Time
	read     time.Time // last try
	blind    time.Time // first try that failed since one went well; zero when the last went well
	primed   bool      // told is what watchers may have
	told     map[wire.Principal]told
	sequence uint64
}

// told is what watchers know of one principal.
type told struct {
	info wire.MemberInfo
	face []byte
}

func newMembershipFeed(nc *nats.Conn, members *space.Members, live *liveView, s wire.Space, serve *control.Service, log *slog.Logger) *membershipFeed {
	m := &membershipFeed{nc: nc, space: s, log: log, members: members, live: live, changed: make(chan struct{}, 1)}
	instance, epoch := serve.Instance()
	var err error
	m.subject, err = wire.EventSubject{Space: s, Endpoint: wire.DeliveryEndpoint, Instance: instance, Epoch: epoch, Topic: wire.TopicMembership}.Subject()
	if err != nil {
		panic("delivery: New: " + err.Error())
	}
	return m
}

// noticed takes a notice of the broker, from the goroutine that follows connections.
func (m *membershipFeed) noticed(c ConnectionChange) {
	if c.Missed || c.Connection.Profile.Lists() {
		m.touch()
	}
}

// touch says that a membership may have changed. Anybody may call it.
func (m *membershipFeed) touch() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// run follows until ctx ends.
func (m *membershipFeed) run(ctx context.Context) {
	records, err := m.nc.Subscribe(wire.RecordPrefix(wire.MembersBucket(m.space))+">", func(*nats.Msg) { m.touch() })
	if err == nil {
		defer func() { _ = records.Unsubscribe() }()
	}
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	for {
		select {
		case <-ctx.Done():
			m.end()
			return
		case <-alive.C:
			m.beat(ctx)
		case done := <-m.live.wanted:
			m.refresh(ctx)
			close(done)
		case <-m.changed:
			if m.dirty.IsZero() {
				m.dirty = time.Now()
			}
		case <-wake.C:
		}
		if m.due(time.Now()) {
			m.refresh(ctx)
		}
		if m.active(time.Now()) {
			wake.Reset(time.Until(m.next()))
		}
	}
}

// active reports whether somebody wants to know.
func (m *membershipFeed) active(now time.Time) bool {
	return m.followed || m.live.askedSince(now.Add(-liveAsked))
}

func (m *membershipFeed) due(now time.Time) bool {
	return m.active(now) && !m.next().After(now)
}

// next is when memberships are to be read again if somebody wants to know.
func (m *membershipFeed) next() time.Time {
	next := m.read.Add(memberInterval)
	if !m.primed {
		return m.read.Add(memberSpacing)
	}
	if !m.dirty.IsZero() {
		at := m.dirty.Add(memberSettle)
		if spaced := m.read.Add(memberSpacing); at.Before(spaced) {
			at = spaced
		}
		next = earlier(next, at)
	}
	return next
}

// beat says that the feed lives, and learns whether anybody heard: the broker answers a request that has no subscriber at
// once. The answer of a subscriber would mean nothing, and nobody is asked for one.
func (m *membershipFeed) beat(ctx context.Context) {
	if !m.nc.IsConnected() {
		return
	}
	now := time.Now()
	if !m.active(now) {
		m.primed, m.blind = false, time.Time{} // what was told is not kept up
	}
	e := wire.MembershipEvent{Kind: wire.RosterAlive, Sequence: m.sequence}
	if !m.blind.IsZero() && now.Sub(m.blind) > wire.LivenessWindow {
		e.StaleSince = m.blind.UnixMilli()
	}
	inbox := m.nc.NewInbox()
	answers := make(chan *nats.Msg, 1)
	sub, err := m.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return
	}
	defer func() { _ = sub.Unsubscribe() }()
	if m.nc.PublishRequest(m.subject, inbox, encode(e)) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	if m.nc.FlushWithContext(ctx) != nil {
		return
	}
	m.followed = true
	select {
	case msg := <-answers:
		m.followed = msg.Header.Get("Status") != "503"
	default:
	}
}

// refresh reads who is a member of what and publishes what changed. What is read first after a time in which nobody wanted
// to know is where watchers begin, and no event.
func (m *membershipFeed) refresh(ctx context.Context) {
	m.dirty, m.read = time.Time{}, time.Now()
	ctx, cancel := context.WithTimeout(ctx, liveWait)
	defer cancel()
	state, err := m.state(ctx)
	if err != nil {
		m.log.Debug("memberships cannot be read", logkey.Error, err)
		if m.blind.IsZero() {
			m.blind = m.read
		}
		return
	}
	m.blind = time.Time{}
	if m.primed {
		m.tell(state)
	}
	m.told, m.primed = state, true
}

// tell publishes the difference between what watchers know and what is.
func (m *membershipFeed) tell(state map[wire.Principal]told) {
	for _, p := range sorted(state) {
		if before, ok := m.told[p]; !ok || !bytes.Equal(before.face, state[p].face) {
			info := state[p].info
			m.publish(wire.MembershipEvent{Kind: wire.RosterChange, Member: &info})
		}
	}
	for _, p := range sorted(m.told) {
		if _, ok := state[p]; !ok {
			m.publish(wire.MembershipEvent{Kind: wire.RosterRemove, Principal: p.String()})
		}
	}
}

func sorted(state map[wire.Principal]told) []wire.Principal {
	out := make([]wire.Principal, 0, len(state))
	for p := range state {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b wire.Principal) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (m *membershipFeed) publish(e wire.MembershipEvent) {
	m.sequence++
	e.Sequence = m.sequence
	if err := m.nc.Publish(m.subject, encode(e)); err != nil {
		m.log.Debug("membership event not sent", logkey.Sequence, e.Sequence, logkey.Error, err)
	}
}

// end tells the watchers.
func (m *membershipFeed) end() {
	if err := m.nc.Publish(m.subject, encode(wire.MembershipEvent{Kind: wire.RosterEnd, Sequence: m.sequence})); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.nc.FlushWithContext(ctx) // best effort: without it the watchers notice the silence
}

// state reads who is a member of what: live from the broker's connections, durable from the records.
func (m *membershipFeed) state(ctx context.Context) (map[wire.Principal]told, error) {
	lives := map[wire.Lifecycle]*wire.MemberInfo{}
	of := func(l wire.Lifecycle) *wire.MemberInfo {
		if lives[l] == nil {
			lives[l] = &wire.MemberInfo{Principal: l.Principal.String(), UID: l.UID}
		}
		return lives[l]
	}
	if m.live.broker != nil {
		if err := m.live.renew(ctx); err != nil {
			return nil, err
		}
		m.live.mu.Lock()
		patterns := m.live.patterns
		m.live.mu.Unlock()
		for l, p := range patterns {
			of(l).Live = p
		}
	}
	err := m.members.All(ctx, func(ms space.Membership) error {
		last := ms.Last()
		info := of(ms.Lifecycle)
		info.Durable = append(info.Durable, wire.DurableMembership{Pattern: ms.Pattern, Generation: last.Generation, Joined: last.Join, Left: last.Leave})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return presentLives(lives), nil
}

// presentLives keeps one life of each principal: the one that listens now, else the one that joined last. Records of others
// are left from before and go when their lives are taken away.
func presentLives(lives map[wire.Lifecycle]*wire.MemberInfo) map[wire.Principal]told {
	out := make(map[wire.Principal]told, len(lives))
	for l, info := range lives {
		slices.SortFunc(info.Durable, func(a, b wire.DurableMembership) int { return strings.Compare(a.Pattern, b.Pattern) })
		if have, ok := out[l.Principal]; !ok || presentRather(info, &have.info) {
			out[l.Principal] = told{info: *info}
		}
	}
	for p, t := range out {
		t.face = encode(t.info)
		out[p] = t
	}
	return out
}

func presentRather(a, b *wire.MemberInfo) bool {
	if listens := len(a.Live) > 0; listens != (len(b.Live) > 0) {
		return listens
	}
	newest := func(m *wire.MemberInfo) (g uint64) {
		for _, d := range m.Durable {
			g = max(g, d.Generation)
		}
		return g
	}
	if x, y := newest(a), newest(b); x != y {
		return x > y
	}
	return a.UID > b.UID // whichever, but always the same
}
