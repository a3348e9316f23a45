package auth

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// oneShotLifetime bounds the credentials that the authority mints for its own single steps.
const oneShotLifetime = 5 * time.Minute

// expiryMargin is how long before its credential expires a session ends.
const expiryMargin = 5 * time.Second

// session is one connection with the authority profile.
type session struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	grants *space.Grants
	renew  time.Time // from then on a fresh one is opened
	expiry *time.Timer
}

// close ends the connection. It may be called more than once.
func (s *session) close() {
	s.expiry.Stop()
	s.nc.Close()
}

// slot keeps the session of one space. The session before it stays open until the next replacement, since calls
// may still be using it.
type slot struct {
	mu        sync.Mutex // guards the fields; held while connecting, so that one space never waits for another
	now, last *session
}

func (sl *slot) close() {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	for _, ses := range []*session{sl.now, sl.last} {
		if ses != nil {
			ses.close()
		}
	}
	sl.now, sl.last = nil, nil
}

// session returns the kept connection of s, or opens one when there is none, it is down or its credential is
// past three quarters of its lifetime.
func (a *Authority) session(ctx context.Context, s wire.Space) (*session, error) {
	a.mu.Lock()
	sl, ok := a.sessions[s]
	if !ok {
		sl = &slot{}
		a.sessions[s] = sl
	}
	a.mu.Unlock()

	sl.mu.Lock()
	defer sl.mu.Unlock()
	if sl.now != nil && time.Now().Before(sl.now.renew) && sl.now.nc.IsConnected() {
		return sl.now, nil
	}
	ses, err := a.open(ctx, s, trust.Authority)
	if err != nil {
		return nil, err
	}
	if sl.last != nil {
		sl.last.close()
	}
	sl.last, sl.now = sl.now, ses
	return ses, nil
}

// forget closes what is kept for s.
func (a *Authority) forget(s wire.Space) {
	a.mu.Lock()
	sl, ok := a.sessions[s]
	d := a.folds[s]
	delete(a.sessions, s)
	delete(a.folds, s)
	a.mu.Unlock()
	if d != nil {
		_ = d.Close() // says in the log what it could not write
	}
	if ok {
		sl.close()
	}
}

// oneShot runs fn over a connection with its own short credential of the given profile.
func (a *Authority) oneShot(ctx context.Context, s wire.Space, p trust.Profile, fn func(*session) error) error {
	ses, err := a.open(ctx, s, p)
	if err != nil {
		return err
	}
	defer ses.close()
	return fn(ses)
}

func (a *Authority) open(ctx context.Context, s wire.Space, p trust.Profile) (*session, error) {
	creds, err := a.ServiceCredential(ctx, s, p, oneShotLifetime)
	if err != nil {
		return nil, err
	}
	nc, err := a.dial(ctx, creds)
	if err != nil {
		return nil, fmt.Errorf("connect to space %q as %s: %w", s, p, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("open JetStream of space %q: %w", s, err)
	}
	// An idle session ends before its credential does: the broker would drop it, and it would try to come back for ever
	// with what is no longer accepted.
	expiry := time.AfterFunc(time.Until(creds.Identity().Expires.Add(-expiryMargin)), nc.Close)
	return &session{nc: nc, js: js, grants: space.NewGrants(js, s), renew: creds.RenewAt(), expiry: expiry}, nil
}

// ServiceCredential mints a credential for a role of the deployment itself (delivery, authority, provisioner,
// teardown, purger, undertaker, probe). Such roles carry no grant: the scoped signing key of the profile is their right.
func (a *Authority) ServiceCredential(ctx context.Context, s wire.Space, p trust.Profile, ttl time.Duration) (*trust.Credentials, error) {
	return a.service(ctx, mint.UserRequest{Space: s, Profile: p, TTL: ttl})
}

// SupervisorCredential is [Authority.ServiceCredential] for a supervisor that serves as an instance; the broker holds it to that.
func (a *Authority) SupervisorCredential(ctx context.Context, s wire.Space, instance string, ttl time.Duration) (*trust.Credentials, error) {
	return a.service(ctx, mint.UserRequest{Space: s, Profile: trust.Supervisor, Instance: instance, TTL: ttl})
}

func (a *Authority) service(ctx context.Context, r mint.UserRequest) (*trust.Credentials, error) {
	r.Principal = r.Profile.Principal()
	creds, err := a.mint.User(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("mint %s credential of space %q: %w", r.Profile, r.Space, err)
	}
	return creds, nil
}
