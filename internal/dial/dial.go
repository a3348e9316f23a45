// Package dial opens the broker connections of our own roles: the same options everywhere, so that no role gives
// up after repeated refusals, hides behind a changing name or reads a foreign inbox.
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Options says where and as whom to connect.
type Options struct {
	// URL is the broker's address; unused when InProcess is set.
	URL string
	// Locate says where the broker listens now, nats://host:port or tls://host:port and "" for nowhere; see [Locator]. It may be nil.
	Locate func() string
	// InProcess connects to a broker in this process.
	InProcess nats.InProcessConnProvider
	// Creds is the credential; nil only towards a broker in open mode.
	Creds *trust.Credentials
	// Name is the stable connection name that operators see.
	Name string
	// TLS is used with tls:// addresses; nil means the system's roots.
	TLS *tls.Config
	// Timeout bounds each attempt to connect. Default 5 s.
	Timeout time.Duration
	// OnError receives asynchronous errors of the connection, permission violations included. May be nil.
	OnError func(*nats.Conn, error)
	// Logger may be nil.
	Logger *slog.Logger
}

// Connect opens the connection. It reconnects for ever with growing, jittered pauses, also after refused
// credentials, and never presents a credential that has expired. While it fits into the timeout it asks once more when the broker sent it away
// undecided, as a slow one does.
//
// Errors: unauthenticated when the broker refuses the credential, expired when it is past its lifetime,
// unavailable when nothing answers.
func Connect(ctx context.Context, o Options) (*nats.Conn, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	opts := []nats.Option{
		nats.Name(o.Name), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.RetryOnFailedConnect(false),
		nats.CustomReconnectDelay(reconnectDelay), nats.Timeout(timeout(ctx, o.Timeout)),
		nats.PermissionErrOnSubscribe(true), nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
			level := slog.LevelWarn
			if errors.Is(err, nats.ErrBadHeaderMsg) {
				level = slog.LevelDebug // per message, whoever sends it; the readers leave it out
			}
			log.Log(context.Background(), level, "broker connection error", logkey.Name, o.Name, logkey.Error, err)
			if o.OnError != nil {
				o.OnError(nc, err)
			}
		}),
	}
	if o.Creds != nil {
		id := o.Creds.Identity()
		opts = append(opts, nats.CustomInboxPrefix(wire.InboxPrefix(id.Inbox)), nats.UserJWT(
			func() (string, error) {
				if o.Creds.Expired(time.Now()) {
					return "", wire.Errorf(wire.CodeExpired, "credential of %q expired at %s", id.Principal, id.Expires.Format(time.RFC3339))
				}
				return o.Creds.JWT(), nil
			}, Signing(o.Name, o.Creds.Sign)))
		if o.Creds.Token() != "" {
			opts = append(opts, nats.TokenHandler(o.Creds.Token))
		}
	}
	at := NewLocator(o.URL, o.Locate)
	switch {
	case o.InProcess != nil:
		opts = append(opts, InProcess(o.InProcess))
	default:
		opts = append(opts, nats.SetCustomDialer(&dialer{net.Dialer{Timeout: timeout(ctx, o.Timeout)}, at, o.TLS == nil && confined(o.URL)}))
	}
	if o.TLS != nil {
		opts = append(opts, nats.Secure(o.TLS))
	}
	end := time.Now().Add(timeout(ctx, o.Timeout))
	nc, err := nats.Connect(o.URL, opts...)
	for undecided(err) && time.Until(end) > trust.AuthTimeout && ctx.Err() == nil {
		nc, err = nats.Connect(o.URL, opts...)
	}
	if err != nil {
		return nil, translate(o, err)
	}
	if at != nil {
		go at.Watch(nc) // ends with nc
	}
	return nc, nil
}

// Signing is sign for brokers that ask who connects. One that does not ask is another than the credential is for: it lets everybody in, and
// would take what is meant for somebody else.
//
// Errors: unauthenticated for such a broker.
func Signing(name string, sign func([]byte) ([]byte, error)) func([]byte) ([]byte, error) {
	return func(nonce []byte) ([]byte, error) {
		if len(nonce) == 0 {
			return nil, wire.Errorf(wire.CodeUnauthenticated, "connect to broker as %q: the broker that answers does not ask who connects, so it is of another mesh", name)
		}
		return sign(nonce)
	}
}

// InProcess is nats.InProcessServer for one connection. nats.go forgets what an attempt to come back was made on when the broker
// refuses it, and does not close it: a socket ends when it is collected, and what carries a connection in this process never would.
// Here the next attempt closes it.
func InProcess(p nats.InProcessConnProvider) nats.Option {
	return nats.InProcessServer(&oneAtATime{p: p})
}

type oneAtATime struct {
	p nats.InProcessConnProvider

	mu   sync.Mutex // guards last
	last net.Conn
}

// InProcessConn implements nats.InProcessConnProvider.
func (o *oneAtATime) InProcessConn() (net.Conn, error) {
	o.mu.Lock()
	last := o.last
	o.last = nil
	o.mu.Unlock()
	if last != nil {
		_ = last.Close() // closed already, unless it was forgotten
	}
	conn, err := o.p.InProcessConn()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = conn
	return conn, err
}

// Refused reports whether an asynchronous error says that the broker no longer accepts the credential: it was revoked, it
// expired, or the key that signed it is gone. Reconnecting with the same credential is then in vain.
func Refused(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAccountAuthExpired)
}

// undecided reports whether the broker ended a connection before it came to the credential. nats.go has no error for that.
func undecided(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Authentication Timeout")
}

func translate(o Options, err error) error {
	var we *wire.Error
	switch {
	case errors.As(err, &we):
		return we
	case errors.Is(err, nats.ErrAuthExpired):
		return wire.Errorf(wire.CodeExpired, "connect to broker as %q: credential expired", o.Name)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return wire.Errorf(wire.CodeUnauthenticated, "connect to broker as %q: credential refused", o.Name)
	case undecided(err):
		return wire.Errorf(wire.CodeUnavailable, "connect to broker as %q: the broker did not come to the credential in time", o.Name)
	}
	where := o.URL
	if o.InProcess != nil {
		where = "in process"
	}
	if errors.Is(err, nats.ErrNoServers) {
		return wire.Errorf(wire.CodeUnavailable, "nothing answers at %q", where)
	}
	return wire.Errorf(wire.CodeUnavailable, "connect to broker %q: %v", where, err)
}

// reconnectDelay grows from 50 ms to 10 s with full jitter of a half, so that many clients do not return at once.
func reconnectDelay(attempts int) time.Duration {
	b := backoff.ExponentialBackOff{InitialInterval: 50 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 1.6, MaxInterval: 10 * time.Second}
	b.Reset()
	d := b.NextBackOff()
	for range min(attempts, 16) {
		d = b.NextBackOff()
	}
	return d
}

func timeout(ctx context.Context, d time.Duration) time.Duration {
	if d == 0 {
		d = 5 * time.Second
	}
	if dl, ok := ctx.Deadline(); ok {
		d = max(min(d, time.Until(dl)), time.Millisecond)
	}
	return d
}

// Wait pauses before attempt n (from 0) of a supervised task, or returns the context's error.
func Wait(ctx context.Context, n int) error {
	t := time.NewTimer(reconnectDelay(n))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for attempt %d: %w", n+1, ctx.Err())
	case <-t.C:
		return nil
	}
}

// Drain lets a connection finish what it has accepted, flushes what was published, and closes it. It returns
// when the connection is closed.
func Drain(nc *nats.Conn) {
	closed := make(chan struct{})
	var once sync.Once
	nc.SetClosedHandler(func(*nats.Conn) { once.Do(func() { close(closed) }) })
	if err := nc.Drain(); err != nil {
		nc.Close()
	}
	if nc.IsClosed() {
		return
	}
	<-closed
}
