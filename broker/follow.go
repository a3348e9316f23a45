package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// followBacklog is how many notices may wait for a slow handler; when more come, some are missed, and it is told so.
const followBacklog = 1 << 12

// ReasonShutdown is the reason of a connection that ended because its server does.
const ReasonShutdown = "Server Shutdown"

func connectSubject(account string) string { return "$SYS.ACCOUNT." + account + ".CONNECT" }

func disconnectSubject(account string) string { return "$SYS.ACCOUNT." + account + ".DISCONNECT" }

// ConnectionChange is one notice about a client of an account.
type ConnectionChange struct {
	// Missed says that notices before this one may have been lost. Everything else is zero then.
	Missed bool
	// Connected says that the connection began; else it ended.
	Connected bool
	// Connection is who it is, without what a listing alone knows: traffic and subscriptions.
	Connection Connection
	// Reason is why it ended, in the broker's words; see ReasonShutdown.
	Reason string
	// At is the time by the server's clock.
	At time.Time
}

// notice is what a server says about a connection.
type notice struct {
	Time   time.Time `json:"timestamp"`
	Server serverRef `json:"server"`
	Client struct {
		Start   time.Time `json:"start"`
		Host    string    `json:"host"`
		ID      uint64    `json:"id"`
		Account string    `json:"acc"`
		User    string    `json:"user"`
		Name    string    `json:"name"`
		Lang    string    `json:"lang"`
		Version string    `json:"ver"`
		Tags    []string  `json:"tags"`
		JWT     string    `json:"jwt"`
	} `json:"client"`
	Reason string `json:"reason"`
}

// Follow tells fn of every client that connects to an account and of every connection of it that ends, from the calling
// goroutine, until ctx ends; then it returns nil. It outlives the renewal of the control's credential without missing any.
//
// The first call has Missed set and says that notices are told from then on. Missed comes again when the way to the
// broker was lost, and once it is there again: what a listing says after that call is not older than the notices that
// follow. A notice may come twice, and notices of different servers in any order. A server that crashes says nothing
// of its clients.
//
// Errors: bad-request for what is no account; permission-denied; expired when the credential was not renewed;
// unavailable after Close.
func (c *Control) Follow(ctx context.Context, account string, fn func(ConnectionChange)) error {
	if !nkeys.IsValidPublicAccountKey(account) {
		return wire.Errorf(wire.CodeBadRequest, "follow connections: %q is not the public key of an account", account)
	}
	f := &follower{c: c, account: account, fn: fn}
	defer f.leave()
	for {
		err := f.enter(ctx)
		if err == nil {
			err = f.listen(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("follow connections of account %q: %w", account, err)
		}
	}
}

// follower is one call of Follow.
type follower struct {
	c       *Control
	account string
	fn      func(ConnectionChange)
	on      *attachment // nil between two links
}

// attachment is what a follower has on one link. It counts as a call of the link, so that a link that is replaced stays
// until the follower has moved.
type attachment struct {
	link    *link
	notices chan *nats.Msg
	subs    []*nats.Subscription
	status  chan nats.Status
	dropped int
}

// enter subscribes on the present link and then leaves the one before, whose last notices it tells first. When the
// present one cannot be reached in time, it goes on without either.
func (f *follower) enter(ctx context.Context) error {
	before := f.on != nil
	try := ctx
	if before {
		var cancel context.CancelFunc
		try, cancel = context.WithTimeout(ctx, f.c.opts.Timeout)
		defer cancel()
	}
	next, err := f.attach(try)
	if before {
		f.finish(ctx)
	}
	if err != nil {
		if before && ctx.Err() == nil && !errors.Is(err, wire.ErrPermissionDenied) {
			return f.enter(ctx) // f.on is nil now: as at the start
		}
		return err
	}
	f.on = next
	if !before {
		f.fn(ConnectionChange{Missed: true})
	}
	return nil
}

// attach subscribes on the present link, and has the broker's word for it.
func (f *follower) attach(ctx context.Context) (*attachment, error) {
	l, err := f.c.use(ctx)
	if err != nil {
		return nil, err
	}
	a := &attachment{link: l, notices: make(chan *nats.Msg, followBacklog)}
	a.status = l.nc.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	for _, subject := range []string{connectSubject(f.account), disconnectSubject(f.account)} {
		var sub *nats.Subscription
		if sub, err = l.nc.ChanSubscribe(subject, a.notices); err != nil {
			break
		}
		a.subs = append(a.subs, sub)
	}
	if err == nil {
		err = f.prove(ctx, a)
	}
	if err != nil {
		a.release()
		if wire.CodeOf(err) == wire.CodeInternal {
			err = wire.Errorf(wire.CodeUnavailable, "subscribe: %v", err)
		}
		return nil, err
	}
	return a, nil
}

// prove waits until every server of the broker has the subscriptions, or they are refused. An answer to a ping comes from
// beyond them: it was sent over the same ways later.
func (f *follower) prove(ctx context.Context, a *attachment) error {
	ctx, cancel := context.WithTimeout(ctx, f.c.opts.Timeout)
	defer cancel()
	if err := a.link.nc.FlushWithContext(ctx); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "subscribe: %v", err)
	}
	if err := a.link.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		for _, subject := range []string{connectSubject(f.account), disconnectSubject(f.account)} {
			if strings.Contains(err.Error(), subject) {
				return errMayNotFollow(subject)
			}
		}
	}
	if _, err := f.c.servers(ctx); err != nil && !errors.Is(err, ErrIncomplete) {
		return err
	}
	return nil
}

func errMayNotFollow(subject string) error {
	return wire.Errorf(wire.CodePermissionDenied, "control broker: the system credential may not subscribe %q", subject)
}

func (a *attachment) release() {
	for _, s := range a.subs {
		_ = s.Unsubscribe() // fails only when the connection is gone
	}
	a.link.nc.RemoveStatusListener(a.status)
	a.link.calls.Done()
}

// finish tells what the old link has brought until now, and gives it up.
func (f *follower) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.c.opts.Timeout)
	defer cancel()
	err := f.on.link.nc.FlushWithContext(ctx)
	for range len(f.on.notices) {
		f.take(<-f.on.notices)
	}
	lost := f.on.lost()
	f.leave()
	if err != nil || lost {
		f.fn(ConnectionChange{Missed: true})
	}
}

func (f *follower) leave() {
	if f.on != nil {
		f.on.release()
		f.on = nil
	}
}

// listen tells notices until the link is replaced, which is no error, or can be followed no longer.
func (f *follower) listen(ctx context.Context) error {
	a := f.on
	for _, subject := range []string{connectSubject(f.account), disconnectSubject(f.account)} {
		var done func()
		ctx, done = f.c.watch(ctx, &wait{feed: subject})
		defer done()
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.link.replaced:
			return nil
		case msg := <-a.notices:
			f.take(msg)
		case s := <-a.status:
			if s == nats.CONNECTED {
				if err := f.prove(ctx, a); errors.Is(err, wire.ErrPermissionDenied) {
					return err
				}
			}
			f.fn(ConnectionChange{Missed: true})
			if s == nats.CLOSED {
				return wire.Errorf(wire.CodeUnavailable, "control broker: the connection is closed")
			}
		}
		if a.lost() {
			f.fn(ConnectionChange{Missed: true})
		}
	}
}

// lost reports whether notices found no room since it was last asked.
func (a *attachment) lost() bool {
	dropped := 0
	for _, s := range a.subs {
		n, _ := s.Dropped()
		dropped += n
	}
	more := dropped > a.dropped
	a.dropped = dropped
	return more
}

func (f *follower) take(msg *nats.Msg) {
	var n notice
	if err := json.Unmarshal(msg.Data, &n); err != nil || n.Client.ID == 0 {
		f.c.log.Warn("unreadable notice of a connection", logkey.Subject, msg.Subject, logkey.Error, err)
		f.fn(ConnectionChange{Missed: true})
		return
	}
	cl := n.Client
	ci := connInfo{
		CID: cl.ID, IP: cl.Host, Start: cl.Start, Name: cl.Name, Lang: cl.Lang, Version: cl.Version, User: cl.User, Account: cl.Account,
		JWT: cl.JWT, Tags: cl.Tags,
	}
	f.fn(ConnectionChange{
		Connected: msg.Subject == connectSubject(f.account), Connection: ci.connection(n.Server), Reason: n.Reason, At: n.Time,
	})
}
