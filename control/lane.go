package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// lane is one connection that a service takes requests from.
type lane struct {
	nc    *nats.Conn
	subs  []*nats.Subscription
	since time.Time // when the broker had accepted them

	stop chan struct{} // ends watch
	wg   sync.WaitGroup
}

// brokerTimeout bounds a round trip to the broker where the context has no deadline.
const brokerTimeout = 5 * time.Second

// overlap is how long a connection stays after another has joined. The broker finds the subscriptions of a message and then
// delivers it: for a moment it may know only those of before.
const overlap = 250 * time.Millisecond

// AddConn takes requests from nc too and sends replies over it from now on. It returns once the broker has accepted
// the subscriptions. To move a service to a renewed connection, add the new one, then remove the old one: no request
// is lost and none runs twice, because both connections are in the same queue groups meanwhile.
//
// Errors: permission-denied, naming the subscription; unavailable; failed-precondition when the service is not
// running or nc is there already.
func (s *Service) AddConn(ctx context.Context, nc *nats.Conn) error {
	l := &lane{nc: nc, stop: make(chan struct{})}
	if err := s.admit(l); err != nil {
		return err
	}
	// Requests come as soon as it is subscribed, and their answers need a connection: while there is no other, this one.
	first := s.current.CompareAndSwap(nil, l)
	err := s.subscribe(ctx, l)
	if err == nil {
		err = s.install(l)
	}
	if err != nil {
		if first {
			s.current.CompareAndSwap(l, nil)
		}
		l.drop()
		return fmt.Errorf("serve endpoint %q: %w", s.name, err)
	}
	return nil
}

// admit refuses a connection that cannot be added.
func (s *Service) admit(l *lane) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseRunning {
		return wire.Errorf(wire.CodeFailedPrecondition, "add connection to endpoint %q: it does not run", s.name)
	}
	if s.find(l.nc) >= 0 {
		return wire.Errorf(wire.CodeFailedPrecondition, "add connection to endpoint %q: it is there already", s.name)
	}
	return nil
}

// find returns the index of the lane of nc, or -1. The lock is held.
func (s *Service) find(nc *nats.Conn) int {
	return slices.IndexFunc(s.lanes, func(l *lane) bool { return l.nc == nc })
}

// install makes a subscribed lane the one that replies leave on.
func (s *Service) install(l *lane) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != phaseRunning || s.find(l.nc) >= 0 {
		return wire.Errorf(wire.CodeFailedPrecondition, "the service stopped or has the connection already")
	}
	l.since = time.Now()
	s.lanes = append(s.lanes, l)
	s.current.Store(l)
	l.wg.Go(func() { s.watch(l) })
	return nil
}

// subscribe joins the three rails. The instance's own rails use a queue group of the instance: with one connection it
// changes nothing, with two it keeps a request from running twice.
func (s *Service) subscribe(ctx context.Context, l *lane) error {
	rails := []struct {
		rail            wire.Rail
		instance, group string
	}{
		{wire.RailOne, "", wire.QueueGroup(s.name)},
		{wire.RailAll, "", s.opts.Instance},
		{wire.RailInst, s.opts.Instance, s.opts.Instance},
	}
	for _, r := range rails {
		filter, err := wire.ServeFilter(s.space, r.rail, s.name, r.instance)
		if err != nil {
			return err
		}
		sub, err := l.nc.QueueSubscribe(filter, r.group, s.receive)
		if err != nil {
			return fmt.Errorf("subscribe %q: %w", filter, connError(err))
		}
		l.subs = append(l.subs, sub)
	}
	if err := flush(ctx, l.nc); err != nil {
		return err
	}
	for _, sub := range l.subs {
		if err := refused(l.nc, sub.Subject); err != nil {
			return err
		}
	}
	return nil
}

// RemoveConn takes no more requests from nc and returns when those it delivered have been accepted. Their replies leave
// on the remaining connection, so nc may be closed at once. The last connection cannot be removed: end Run instead. The
// newest connection has served for a quarter of a second before the old one goes, so RemoveConn may wait for that.
//
// Errors: not-found when the service does not use nc; failed-precondition for the last one; deadline-exceeded when ctx
// ends first, in which case requests that nc delivered may be lost with it.
func (s *Service) RemoveConn(ctx context.Context, nc *nats.Conn) error {
	l, _, err := s.detach(nc, false)
	if err != nil {
		return fmt.Errorf("remove connection from endpoint %q: %w", s.name, err)
	}
	err = pause(ctx, time.Until(s.current.Load().since.Add(overlap)))
	if err == nil {
		err = l.quiet(ctx)
	} else {
		l.drop()
	}
	l.finish()
	if err != nil {
		return fmt.Errorf("remove connection from endpoint %q: %w", s.name, err)
	}
	return nil
}

// detach takes the lane of nc off the list, points replies at the newest one left and says how many those are.
func (s *Service) detach(nc *nats.Conn, evenLast bool) (l *lane, left int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(nc)
	if i < 0 {
		return nil, 0, wire.Errorf(wire.CodeNotFound, "it is not used here")
	}
	if len(s.lanes) == 1 && !evenLast {
		return nil, 0, wire.Errorf(wire.CodeFailedPrecondition, "it is the last one")
	}
	l = s.lanes[i]
	s.lanes = slices.Delete(slices.Clone(s.lanes), i, i+1)
	left = len(s.lanes)
	if left > 0 {
		s.current.Store(s.lanes[left-1])
	}
	return l, left, nil
}

// watch notices that a connection has closed for good. Disconnections that the client heals do not count.
func (s *Service) watch(l *lane) {
	closed := l.nc.StatusChanged(nats.CLOSED)
	defer l.nc.RemoveStatusListener(closed)
	if !l.nc.IsClosed() {
		select {
		case <-closed:
		case <-l.stop:
			return
		}
	}
	_, left, err := s.detach(l.nc, true)
	if err != nil {
		return // removed meanwhile, or the service drains
	}
	s.log.Warn("connection of endpoint closed", logkey.Count, left)
	if left == 0 {
		s.lose(wire.Errorf(wire.CodeUnavailable, "every connection is closed"))
	}
}

// lose ends Run with the first cause.
func (s *Service) lose(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
		close(s.lost)
	}
}

// Denied takes note that the broker refused a subscription or a reply of the service, and reports whether the subject is
// one. Call it from the error handler of each connection with the subject that a permission violation names, see
// [DeniedSubject]. A service that may not hear one of its rails any more ends Run with permission-denied; a reply that
// may not leave is logged.
func (s *Service) Denied(subject string) bool {
	if r, err := wire.ParseReplySubject(subject); err == nil {
		mine := r.Endpoint == s.name && r.Instance == s.opts.Instance && r.Epoch == s.opts.Epoch
		if mine {
			s.log.Error("the credential lacks the reply rail", logkey.Subject, subject)
		}
		return mine
	}
	s.mu.Lock()
	lanes, running := s.lanes, s.phase == phaseRunning
	s.mu.Unlock()
	for _, l := range lanes {
		for _, sub := range l.subs {
			if sub.Subject == subject && running {
				s.lose(subscriptionDenied(subject))
				return true
			}
		}
	}
	return false
}

// quiet ends the subscriptions and returns when what they delivered has been handed to the service. Without a broker
// there is nobody to take leave of, and it returns at once.
func (l *lane) quiet(ctx context.Context) error {
	broken := l.nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer l.nc.RemoveStatusListener(broken)
	if !l.nc.IsConnected() {
		l.drop()
		return nil
	}
	ended := make(chan struct{}, len(l.subs))
	waiting := 0
	for _, sub := range l.subs {
		sub.SetClosedHandler(func(string) { ended <- struct{}{} })
		if sub.Drain() == nil {
			waiting++
		}
	}
	for range waiting {
		select {
		case <-ended:
		case <-broken:
			l.drop()
			return nil
		case <-ctx.Done():
			return wire.Errorf(wire.CodeDeadlineExceeded, "drain subscriptions: %w", ctx.Err())
		}
	}
	return nil
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return wire.Errorf(wire.CodeDeadlineExceeded, "wait for the broker: %w", ctx.Err())
	}
}

// finish sends what is buffered and ends watch. Call quiet before.
func (l *lane) finish() {
	close(l.stop)
	l.wg.Wait()
	if !l.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = flush(ctx, l.nc) // best effort: the owner closes the connection, which flushes again
}

// drop ends the subscriptions at once.
func (l *lane) drop() {
	for _, sub := range l.subs {
		_ = sub.Unsubscribe() // fails only when the connection is gone, and the subscription with it
	}
}

// flush makes a round trip, within ctx or brokerTimeout.
func flush(ctx context.Context, nc *nats.Conn) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, brokerTimeout)
		defer cancel()
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		return connError(err)
	}
	return nil
}

// connError translates an error of the NATS client; nothing was done.
func connError(err error) *wire.Error {
	code := wire.CodeUnavailable
	if errors.Is(err, nats.ErrMaxPayload) {
		code = wire.CodeResourceExhausted
	}
	e := wire.Errorf(code, "broker: %w", err)
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

// refused reports that the broker has denied the subscription. The client learns it from an asynchronous error only,
// of which it keeps the last: call it after a flush.
func refused(nc *nats.Conn, subject string) error {
	err := nc.LastError()
	if err == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("Subscription to %q", subject)) {
		return nil
	}
	return subscriptionDenied(subject)
}

func subscriptionDenied(subject string) *wire.Error {
	e := wire.Errorf(wire.CodePermissionDenied, "subscribe %q: the credential lacks this subscription", subject)
	e.Details = map[string]any{"subject": subject}
	e.Outcome = wire.OutcomeNotExecuted
	return e
}
