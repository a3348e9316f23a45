package endpoint

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cotal-go/cotal/wire"
)

// JoinOptions shapes a membership. The zero value works.
type JoinOptions struct {
	// Replay shows what the channels hold already, as far as their settings allow a backlog, before what comes: with
	// Delivery.Replayed set, in stored order, of a pattern one channel after the other. It is shown when the membership
	// begins: what an earlier process of the same life has joined already goes on with what is not handled. When a membership
	// that was left has something unhandled, that comes in its place and once: after what is older, before what was posted
	// between leaving and joining. What was handled beyond it is left out.
	Replay bool
	// ReplayHandled, with Replay, also shows to a resumed membership what was handled in an earlier process or is older than
	// the membership.
	ReplayHandled bool
	// Manual lets the program say when a message is handled, with [Delivery.Ack] and its like, instead of by returning from
	// the handler. At most 254 messages may be unsettled; then no more are shown until one is. Until the backstop is
	// established, and on live channels, messages need no settling.
	Manual bool
}

// Membership receives the messages of the channels of one pattern as their member.
type Membership struct {
	*backlog

	settings JoinOptions
	left     atomic.Uint64 // nothing after it is of the membership; 0: it is open

	// Who holds sub.run uses these.
	mode    mode
	mark    continuity // what had been lost when all that came live was shown
	skip    uint64     // what is live up to here was shown from what is stored
	drifted bool       // the position has ranges of what was shown without the backstop

	// The goroutine that catches up uses these.
	backfill *backfill // what is to be replayed
	planned  bool      // it was decided what is
	skipTo   uint64    // skip, once that was replayed
	complete bool      // nothing can have been missed since before
	before   continuity
	finished bool // the membership was left, and all of it shown

	holes []hole // guarded by backlog.mu
	start uint64 // what was missed up to here is none, or was told; guarded by backlog.mu

	state sync.Mutex // guards the fields below; taken last, alone
	reply wire.JoinReply
	known bool  // reply is there
	stale bool  // and must be asked for again
	err   error // why the backstop does not work
	told  bool  // that it does not
	ahead bool  // that what arrives live is shown all the same
	gone  bool  // it ended
}

// MembershipStatus is how a membership is doing.
type MembershipStatus struct {
	// Class is "durable" or "live", "" while it is not known; see wire.JoinReply.Class.
	Class string
	// Durable says that what is missed is kept until it is handled.
	Durable bool
	// Established says that delivery answered: it keeps what is to be kept. Err says why not.
	Established bool
	// Joined is the sequence after which the membership began, Floor the one up to which everything is recorded as handled.
	Joined, Floor uint64
	// Earlier are the parts, when it was joined, of memberships before this one in which something may have been unhandled. That
	// comes too; who shows history up to Joined leaves them out.
	Earlier []wire.SequenceRange
	// Behind says that something missed is being read, or will be.
	Behind bool
	Err    error
}

// Join becomes a member of every channel that the pattern matches, or goes on as one, and receives their messages. Of
// channels whose delivery class is durable nothing is missed: what is posted while the endpoint is away or too slow is kept,
// within retention, and shown later, in stored order. A message was handled when its handler has returned, which is
// reported within a second or so; after a crash, what was not reported is shown again. In one process nothing is shown
// twice. Channels of the class live are received as by [Endpoint.Listen].
//
// A handler that panics is given the message again after a second, then two, and so on; later messages wait. After
// Options.MaxAttempts the message is given up, see [EventGaveUp]. The handler must neither stop nor leave its own
// membership nor close its endpoint; they wait for it.
//
// When Join returns nil the broker has accepted the subscription. If delivery does not answer, what arrives live waits for
// it, to be shown in order, for 15 s while the broker is there; then, and at once when delivery does not allow it, the
// membership is a live one, see [EventBackstop], and the endpoint keeps trying. So it is when delivery is away later.
//
// Errors: bad-request for a bad pattern; already-exists when this endpoint has joined it; permission-denied when the
// credential does not cover the whole pattern; unavailable or deadline-exceeded when the broker did not confirm the
// subscription; cancelled; [ErrClosed]. It panics on a nil handler.
func (e *Endpoint) Join(ctx context.Context, pattern string, fn func(*Delivery), opts *JoinOptions) (*Membership, error) {
	if fn == nil {
		panic("endpoint: Join needs a handler")
	}
	filter, err := wire.LiveFilter(e.identity.Space, pattern)
	if err != nil {
		return nil, err
	}
	m := e.newMembership(pattern, filter, fn, opts)
	if err := e.enter(ctx, m); err != nil {
		m.cancel()
		return nil, err
	}
	bounded, cancel := e.bounded(ctx)
	defer cancel()
	err = m.enlist(bounded)
	if errors.Is(ctx.Err(), context.Canceled) {
		m.quit()
		return nil, e.failure(m.sub.act(), ctx.Err(), true)
	}
	m.mu.Lock()
	m.again = true
	m.mu.Unlock()
	if err != nil {
		m.pause = m.begun(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.startLocked()
	return m, nil
}

func (e *Endpoint) newMembership(pattern, filter string, fn func(*Delivery), opts *JoinOptions) *Membership {
	m := &Membership{}
	if opts != nil {
		m.settings = *opts
	}
	sub := e.subscription(pattern, filter, nil)
	m.backlog = newBacklog(e, m, sub, fn, m.settings.Manual)
	m.behind.Store(true)
	sub.take, sub.again = m.receive, m.moved
	return m
}

// enter registers m, and subscribes.
func (e *Endpoint) enter(ctx context.Context, m *Membership) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	e.topo.Lock()
	defer e.topo.Unlock()
	if _, err := e.current(); err != nil {
		return err
	}
	if e.member(m.sub.pattern) != nil {
		return wire.Errorf(wire.CodeAlreadyExists, "join channel %q: this endpoint has joined it", m.sub.pattern)
	}
	m.feed = new(feed) // older than any
	if err := e.admit(ctx, m.sub); err != nil {
		return err
	}
	m.mu.Lock()
	m.feed = m.sub.cur
	m.mu.Unlock()
	e.crowd.Lock()
	defer e.crowd.Unlock()
	e.members[m.sub.pattern] = m
	return nil
}

// member returns the membership of a pattern, nil when there is none in this process.
func (e *Endpoint) member(pattern string) *Membership {
	e.crowd.Lock()
	defer e.crowd.Unlock()
	return e.members[pattern]
}

// backlogs returns everything that catches up.
func (e *Endpoint) backlogs() []*backlog {
	e.crowd.Lock()
	defer e.crowd.Unlock()
	all := make([]*backlog, 0, len(e.members)+1)
	for _, m := range e.members {
		all = append(all, m.backlog)
	}
	if e.mentions != nil {
		all = append(all, e.mentions.backlog)
	}
	return all
}

// Pattern returns what the membership covers.
func (m *Membership) Pattern() string { return m.sub.pattern }

// String names the membership.
func (m *Membership) String() string { return "membership of channels " + strconv.Quote(m.sub.pattern) }

// Status returns how the membership is doing.
func (m *Membership) Status() MembershipStatus {
	m.mu.Lock()
	floor, _ := m.pos.report()
	behind := m.behind.Load() || m.again
	if m.version != m.reported {
		floor = m.floor
	}
	m.mu.Unlock()
	m.state.Lock()
	defer m.state.Unlock()
	s := MembershipStatus{
		Class: m.reply.Class, Durable: m.known && m.reply.Durable, Established: m.known && m.err == nil && !m.gone,
		Joined: m.reply.Joined, Earlier: slices.Clone(m.reply.Earlier), Floor: max(floor, m.reply.Floor), Behind: (behind || m.err != nil) && !m.gone, Err: m.err,
	}
	if !s.Durable {
		s.Floor = 0
	}
	return s
}

// Sync reports what was handled, now. Its error is that of the backstop when it is not established, else that of the call.
func (m *Membership) Sync(ctx context.Context) error {
	m.state.Lock()
	known, err := m.known, m.err
	m.state.Unlock()
	if !known {
		return err
	}
	return m.report(ctx)
}

// Stop receives no more and keeps the membership: what comes is kept and shown after the next Join of this life. When it
// returns nil no handler runs, and what was handled is recorded. It waits for the running handler, which must not call
// it; when ctx ends first the rest happens by itself. Its error is else that of the last report: what it could not say is
// shown again.
func (m *Membership) Stop(ctx context.Context) error {
	if err := m.cease(ctx, "stop membership of channel"); err != nil {
		return err
	}
	return m.report(ctx)
}

// Leave is Stop that ends the membership: what comes is not kept, and what was not handled is given up. After an error the
// membership may exist still; Leave can be called again.
func (m *Membership) Leave(ctx context.Context) error {
	if err := m.cease(ctx, "leave channel"); err != nil {
		return err
	}
	m.state.Lock()
	req := wire.LeaveRequest{Pattern: m.sub.pattern, Generation: m.reply.Generation, Discard: true}
	nothing := m.gone || m.known && !m.reply.Durable || !m.known && isDenied(m.err)
	m.state.Unlock()
	if nothing {
		return nil
	}
	err := m.call(ctx, wire.CommandLeave, req, new(wire.LeaveReply))
	if errors.Is(err, wire.ErrNotFound) {
		err = nil
	}
	if err == nil {
		m.state.Lock()
		m.gone = true
		m.state.Unlock()
	}
	return err
}

// cease ends receiving and waits until no handler runs.
func (m *Membership) cease(ctx context.Context, verb string) error {
	for _, ch := range m.quit() {
		select {
		case <-ch:
		case <-ctx.Done():
			code, why := wire.CodeCancelled, "cancelled while the handler still ran"
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				code, why = wire.CodeDeadlineExceeded, "the handler still runs; the rest happens when it has returned"
			}
			err := wire.Errorf(code, "%s %q: %s", verb, m.sub.pattern, why)
			err.Outcome = wire.OutcomeUnknown
			return err
		}
	}
	return nil
}

// quit ends receiving. The channels close when no handler runs any more.
func (m *Membership) quit() []<-chan struct{} {
	m.halt()
	done := m.sub.end()
	m.e.crowd.Lock()
	if m.e.members[m.sub.pattern] == m {
		delete(m.e.members, m.sub.pattern)
	}
	m.e.crowd.Unlock()
	return []<-chan struct{}{done, m.ended()}
}

// LeaveChannel ends a membership that this or an earlier process of the same life began. What was not handled is still
// shown to whoever joined in this process, or joins again, unless discard is set. Errors are those of Call; not-found when
// there is no membership.
func (e *Endpoint) LeaveChannel(ctx context.Context, pattern string, discard bool) (wire.LeaveReply, error) {
	var reply wire.LeaveReply
	if err := wire.ValidatePattern(pattern); err != nil {
		return reply, err
	}
	if err := e.delivery(ctx, wire.CommandLeave, wire.LeaveRequest{Pattern: pattern, Discard: discard}, &reply); err != nil {
		return reply, err
	}
	if m := e.member(pattern); m != nil {
		m.left.Store(reply.Left)
		m.fall() // shows the rest, and ends
	}
	return reply, nil
}

// Memberships lists who is a member of what, a page of it. Errors are those of Call.
func (e *Endpoint) Memberships(ctx context.Context, req wire.MembershipsRequest) (wire.MembershipsReply, error) {
	var reply wire.MembershipsReply
	err := e.delivery(ctx, wire.CommandMemberships, req, &reply)
	return reply, err
}
