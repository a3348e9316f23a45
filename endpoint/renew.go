package endpoint

import (
	"context"
	"errors"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Pauses between attempts to renew, doubling from the first to the last, or to a twentieth of the credential's life
// when that is less.
const (
	renewRetryMin = time.Second
	renewRetryMax = time.Minute
	// Those after a refusal that only a person can change. The address it comes from is spared, and so is whoever reads along.
	finalFirst = 5 * time.Second
	finalLast  = 5 * time.Minute
	// settling is how long both links receive. The broker may have decided whom a message goes to and be about to send
	// it while the new subscription is made and the old one ended; and the other brokers of a cluster learn about
	// the new one a little later.
	settling = 250 * time.Millisecond
	// winding bounds how long the old link waits for messages that were asked for: a request for them stands no longer.
	winding = pullExpires + time.Second
)

// errOtherLife means that the name belongs to another life now.
var errOtherLife = errors.New("another life")

// errNotNewer means that the source still has the credential in use.
var errNotNewer = wire.Errorf(wire.CodeUnavailable, "renew credential: the source has no newer one")

// renewal keeps the endpoint on a link with a valid credential until ctx ends. It acts at three quarters of the
// credential's life, when the broker refused it, and when the link closed by itself.
func (e *Endpoint) renewal(ctx context.Context) {
	attempt := 0
	clock := time.NewTimer(e.untilRenewal())
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		case <-e.kick:
		}
		err := e.restore(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := e.untilRenewal()
		if err != nil {
			attempt++
			wait = e.renewPause(attempt)
			switch {
			case final(err) && !e.Connected(): // only a person can change it
				wait = min(finalFirst<<min(attempt-1, 6), finalLast)
			case e.link.Load().nc.IsClosed():
				wait = min(wait, delayLast) // this is a reconnect
			}
			wait = max(wait, asked(err))
			ev := EventRenewalFailed{Err: err, Attempt: attempt, Wait: wait}
			if c := e.credentials(); c != nil {
				ev.Expires = c.Identity().Expires
			}
			e.events.emit(ev)
		} else {
			attempt = 0
		}
		clock.Reset(wait)
	}
}

// final reports whether the source was refused for a reason that time does not change: somebody took rights away, or has to give
// them.
func final(err error) bool {
	switch trust.ReasonOf(err) {
	case trust.ReasonNotGranted, trust.ReasonRevoked, trust.ReasonGrantExpired, trust.ReasonExceedsParent, trust.ReasonParent, trust.ReasonScope,
		trust.ReasonView, trust.ReasonActorToken, trust.ReasonIssuer, trust.ReasonAudience, trust.ReasonSubject, trust.ReasonStaticMode:
		return true
	}
	return errors.Is(err, errOtherLife)
}

// asked is how long whoever refused asked to be left alone, zero when it did not.
func asked(err error) time.Duration {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return 0
	}
	seconds, _ := e.Details["retryAfter"].(float64)
	return time.Duration(min(max(seconds, 0), finalLast.Seconds()) * float64(time.Second))
}

// untilRenewal is how long the credential in use needs no renewal.
func (e *Endpoint) untilRenewal() time.Duration {
	const never = 365 * 24 * time.Hour
	c := e.credentials()
	if c == nil || e.src == nil {
		return never
	}
	return max(0, time.Until(c.RenewAt()))
}

func (e *Endpoint) renewPause(attempt int) time.Duration {
	last := renewRetryMax
	if c := e.credentials(); c != nil {
		id := c.Identity()
		last = max(renewRetryMin, min(last, id.Expires.Sub(id.IssuedAt)/20))
	}
	return min(renewRetryMin<<min(attempt-1, 10), last)
}

// restore does what the state asks for: a new link when the old one is gone, a newer credential when it is time or
// the one in use was refused, else nothing.
func (e *Endpoint) restore(ctx context.Context) error {
	l := e.link.Load()
	gone := l.nc.IsClosed()
	if e.src == nil {
		if gone {
			return e.replace(ctx, nil)
		}
		return e.enrolAgain(ctx)
	}
	cur := l.creds.Load()
	now := time.Now()
	due, refused := !now.Before(cur.RenewAt()), l.refused.Load() > tolerated(cur)
	if !gone && !due && !refused {
		return nil
	}
	next, err := e.newer(ctx, cur, refused)
	switch {
	case err != nil && gone && !cur.Expired(now):
		next = cur // good enough to come back
	case errors.Is(err, errNotNewer) && !gone && !due:
		return nil // refused, and nothing to do about it but to go on trying
	case err != nil:
		return err
	}
	if gone || l.nc.IsConnected() {
		return e.replace(ctx, next)
	}
	if refused || cur.Expired(now) {
		l.creds.Store(next) // presented from the next attempt on, which need not wait
		_ = l.nc.ForceReconnect()
		e.events.emit(EventRenewed{Expires: next.Identity().Expires})
		return nil
	}
	return wire.Errorf(wire.CodeUnavailable, "renew credential: the broker cannot be reached")
}

// tolerated is how many refusals in a row say nothing about a credential. Who shows a bearer is also refused while nobody decides about
// it, as right after the broker came back: were everybody to ask for another at once, the allowance of the person would be spent on nothing.
func tolerated(c *trust.Credentials) int32 {
	if c.Token() != "" {
		return 1
	}
	return 0
}

// enrolAgain makes the queues of an open space anew after one was lost: the broker drops them when nobody reads for long.
func (e *Endpoint) enrolAgain(ctx context.Context) error {
	if !e.unenrolled.Swap(false) {
		return nil
	}
	if err := e.enrol(ctx); err != nil {
		e.unenrolled.Store(true)
		return err
	}
	return nil
}

// newer fetches a credential and checks that it continues the one in use. One that expires sooner does when the one in use
// was refused: it took rights away, see auth.Authority.Renew.
func (e *Endpoint) newer(ctx context.Context, cur *trust.Credentials, refused bool) (*trust.Credentials, error) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	next, err := e.src.Credentials(ctx)
	if err != nil {
		return nil, sourceError(err)
	}
	if next == nil {
		return nil, wire.Errorf(wire.CodeUnauthenticated, "renew credential: the source has none")
	}
	was, id := cur.Identity(), next.Identity()
	if next.Same(cur) {
		return nil, errNotNewer
	}
	if was.Space == id.Space && was.Principal == id.Principal && was.UID != id.UID {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "renew credential: %q was granted anew and has begun another life (%w); this one is over, connect again", id.Principal, errOtherLife)
	}
	for _, same := range []struct {
		what, was, is string
	}{
		{"space", string(was.Space), string(id.Space)},
		{"lifecycle", was.Lifecycle.String(), id.Lifecycle.String()},
		{"profile", string(was.Profile), string(id.Profile)},
		{"role", was.Role, id.Role},
		{"inbox", was.Inbox, id.Inbox},
	} {
		if same.was != same.is {
			return nil, wire.Errorf(wire.CodeFailedPrecondition, "renew credential: its %s is %q, not %q; connect again to go on as that", same.what, same.is, same.was)
		}
	}
	if later := id.Expires.After(was.Expires) || refused && !id.IssuedAt.Before(was.IssuedAt); !later {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "renew credential: it expires at %s, not after the one in use", id.Expires.UTC().Format(time.RFC3339))
	}
	if next.Expired(time.Now()) {
		return nil, wire.Errorf(wire.CodeExpired, "renew credential: it expired at %s", id.Expires.UTC().Format(time.RFC3339))
	}
	return next, nil
}

// replace moves the endpoint to a new link with the given credential. Whatever fails, the old link stays in use.
func (e *Endpoint) replace(ctx context.Context, creds *trust.Credentials) error {
	dialCtx, cancel := context.WithTimeout(ctx, e.opts.ConnectTimeout)
	defer cancel()
	l, err := e.dial(dialCtx, creds)
	if err != nil {
		return err
	}
	h, err := e.move(dialCtx, l)
	if err != nil {
		l.close()
		return err
	}
	e.wg.Go(func() { e.finish(ctx, h) })
	if p := e.presence; p != nil {
		p.beat()
	}
	if creds != nil {
		e.events.emit(EventRenewed{Expires: creds.Identity().Expires})
	}
	return nil
}

// handover is what is left on the old link after a move.
type handover struct {
	old     *link
	feeds   []*feed
	pullers []*puller
}

// move makes l the link of everything: what is received is received there too before anything stops on the old
// link, so nothing is missed, and it is shown only after the old link's is, so nothing is shown twice or out of order.
func (e *Endpoint) move(ctx context.Context, l *link) (h handover, err error) {
	e.topo.Lock()
	defer e.topo.Unlock()
	next := make(map[*Subscription]*feed, len(e.joins))
	defer func() {
		if err != nil {
			for _, f := range next {
				close(f.dropped)
			}
		}
	}()
	filters := make([]string, 0, len(e.joins))
	for s := range e.joins {
		f, err := s.attach(l, s.cur.done)
		if err != nil {
			return handover{}, err
		}
		next[s] = f
		filters = append(filters, s.filter)
	}
	denied, err := l.confirm(ctx, filters...)
	if err != nil {
		return handover{}, e.failure(act{verb: "renew connection to", operand: e.server.text}, err, false)
	}
	for _, filter := range denied {
		e.events.emit(EventDenied{Subject: filter, Err: e.denied(act{"subscribe to", filter, filter, "that subscription"})})
	}
	if c := e.caller.Load(); c != nil {
		if err := c.Attach(ctx, l.nc); err != nil {
			return handover{}, err
		}
	}
	old := e.link.Load()
	h = handover{old: old}
	if !old.nc.IsConnected() {
		e.breaks.Add(1) // its callback may not have come yet
	}
	e.link.Store(l)
	old.retire()
	for s, f := range next {
		h.feeds = append(h.feeds, s.cur)
		s.cur = f
		if s.again != nil {
			s.again(f)
		}
	}
	for _, q := range e.queues {
		q.cur.wind()
		h.pullers = append(h.pullers, q.cur)
	}
	close(old.replaced)
	return h, nil
}

// finish ends the old link when everything on it is done: what it receives is handled, what it sent is answered. A
// queue goes on with the new link only then, so that its messages stay in order. When ctx ends first, the endpoint is
// closing, and what was not handled is given back.
func (e *Endpoint) finish(ctx context.Context, h handover) {
	defer h.old.close()
	ended := h.endFeeds(ctx)
	e.endPullers(ctx, h)
	for _, ch := range append(ended, h.old.retire()) {
		select {
		case <-ch:
		case <-ctx.Done():
			return
		}
	}
	if c := e.caller.Load(); c != nil {
		_ = c.Detach(ctx, h.old.nc) // ends at the latest with ctx; a closed connection was detached by itself
	}
}

// endFeeds ends the old feeds once the new ones have surely taken over, and returns channels that close when their
// messages have been handled.
func (h handover) endFeeds(ctx context.Context) (ended []<-chan struct{}) {
	if len(h.feeds) == 0 {
		return nil
	}
	pause := time.NewTimer(settling)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-h.old.closed:
	case <-ctx.Done():
	}
	for _, f := range h.feeds {
		drain(h.old.nc, f.sub)
		ended = append(ended, f.done)
	}
	return ended
}

// endPullers ends the old pullers when what they asked for has come, and goes on with their queues.
func (e *Endpoint) endPullers(ctx context.Context, h handover) {
	until := time.Now().Add(h.patience())
	for _, p := range h.pullers {
		limit := time.NewTimer(time.Until(until))
		select {
		case <-p.wind():
		case <-h.old.closed:
		case <-limit.C:
		case <-ctx.Done():
		}
		limit.Stop()
		select {
		case <-p.stop(ctx.Err() != nil):
			e.restart(p)
		case <-ctx.Done():
			bound := time.NewTimer(e.opts.CloseTimeout)
			waitAll([]<-chan struct{}{p.stop(true)}, bound.C)
			bound.Stop()
		}
	}
}

// patience is how long the old link may be used still: it must not live to see its credential expire.
func (h handover) patience() time.Duration {
	if c := h.old.creds.Load(); c != nil {
		return max(0, min(winding, time.Until(c.Identity().Expires)/2))
	}
	return winding
}

// restart goes on with the queue of a puller that has ended.
func (e *Endpoint) restart(p *puller) {
	e.topo.Lock()
	defer e.topo.Unlock()
	if e.closing.Load() || p.q.cur != p {
		return
	}
	l := e.link.Load()
	if err := p.q.start(l); err != nil { // only on a closed connection, which is being replaced
		e.events.emit(EventQueueLost{Kind: p.q.kind, Err: e.failure(p.q.act(), err, false)})
	}
}
