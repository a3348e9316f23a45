package oidc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// When a key set is read again.
const (
	// UnknownKeyGap is the least time between two reads for the sake of a key id that the set does not have.
	UnknownKeyGap = time.Minute
	// MinFresh and MaxFresh bound how long a set counts as fresh, whatever the provider says; MinFresh when it says nothing.
	MinFresh = 5 * time.Minute
	MaxFresh = 24 * time.Hour
	// MinPause and MaxPause bound the time without a read after one that failed. It doubles with each failure.
	MinPause = time.Second
	MaxPause = time.Minute
)

// KeySetOptions are the optional parts of [NewKeySet]. Nil means the zero value.
type KeySetOptions struct {
	// HTTP makes the requests; nil means a client that dials directly. Its cookies and redirect policy are not used.
	HTTP *http.Client
	// Log gets a warning when reading begins to fail and a line when it works again. Nil means no log.
	Log *slog.Logger
}

// KeySet is the key set at one address, read when it is needed and kept. It is a [KeyResolver].
//
// A set is read at the first login; again in the background by a login that finds it older than the provider allowed; before
// the answer when it is older than twice that; and for a key id it does not have, at most once per [UnknownKeyGap]. Logins
// that need the same read share it, and none of them can cancel it. A read replaces the whole set: a key that is gone
// verifies nothing from then on.
//
// When reading fails the last good set stays in use, however long, and nothing is read for a pause that grows from [MinPause]
// to [MaxPause]; a login whose key is not in the set is refused at once during it. The first login after the pause reads
// again. [KeySet.Status] shows all of that.
type KeySet struct {
	uri     string
	http    *http.Client
	log     *slog.Logger
	invalid error

	running sync.WaitGroup

	mu       sync.Mutex // guards what follows
	set      *keyring
	fetched  time.Time     // when the read that gave set began
	fresh    time.Duration // how long set is fresh
	asked    time.Time     // when the last successful read for an unknown key id began
	failures int
	retry    time.Time // no read before
	last     error     // of the last read
	reads    uint64
	current  *fetch
	closed   bool
}

var _ KeyResolver = (*KeySet)(nil)

// fetch is one read on its way. err is set before done is closed.
type fetch struct {
	done    chan struct{}
	err     error
	cancel  context.CancelFunc
	unknown bool
}

// NewKeySet returns the key set at an address, without reading it. An address that [Pin.Validate] refuses is never asked:
// the set then has no key. Close it when it is no longer needed.
func NewKeySet(uri string, opts *KeySetOptions) *KeySet {
	var o KeySetOptions
	if opts != nil {
		o = *opts
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &KeySet{uri: uri, http: newClient(o.HTTP), log: o.Log, invalid: checkURL("jwksUri", uri)}
}

// Close ends a read that is on its way and waits for it. A closed set still answers from what it has. Close may be called
// more than once.
func (k *KeySet) Close() error {
	k.mu.Lock()
	k.closed = true
	if k.current != nil {
		k.current.cancel()
	}
	k.mu.Unlock()
	k.running.Wait()
	return nil
}

// Status is how a [KeySet] stands.
type Status struct {
	// Keys counts the usable keys of the last good set, and Fetched says when it was read; zero when there was none yet.
	Keys    int
	Fetched time.Time
	// Stale says that the set is older than the provider allowed to keep it. It is in use all the same.
	Stale bool
	// Reads counts the requests made so far.
	Reads uint64
	// Failures counts those that failed since the last good one, Err is why the last did, and Retry is when the next may be made.
	Failures int
	Err      string
	Retry    time.Time
}

// Status returns how the set stands at this moment.
func (k *KeySet) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Status{Fetched: k.fetched, Reads: k.reads, Failures: k.failures, Retry: k.retry}
	if k.set != nil {
		s.Keys = k.set.usable
		s.Stale = time.Since(k.fetched) >= k.fresh
	}
	if k.last != nil {
		s.Err = k.last.Error()
	}
	return s
}

// Keys returns the keys for an id and algorithm as [KeyResolver] says. It waits for a read that it needs, at most 5 s, and
// no longer than ctx. The result is shared: it must not be changed.
func (k *KeySet) Keys(ctx context.Context, kid, alg string) ([]jose.JSONWebKey, error) {
	if k.invalid != nil {
		return nil, away(0, k.invalid)
	}
	k.mu.Lock()
	found, f, err := k.look(ctx, kid, alg)
	k.mu.Unlock()
	if f == nil || err != nil {
		return found, err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		if len(found) > 0 {
			return found, nil
		}
		return nil, unavailable(ctx.Err(), 0)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set != nil {
		found = k.set.find(kid, alg)
	}
	if len(found) == 0 && f.err != nil {
		return nil, unavailable(f.err, time.Until(k.retry))
	}
	return found, nil
}

// look answers from what is there, or with the read to wait for. The caller holds mu.
func (k *KeySet) look(ctx context.Context, kid, alg string) ([]jose.JSONWebKey, *fetch, error) {
	now := time.Now()
	if k.set == nil {
		f := k.read(ctx, now)
		if f == nil {
			return nil, nil, unavailable(k.last, k.retry.Sub(now))
		}
		return nil, f, nil
	}
	found := k.set.find(kid, alg)
	if age := now.Sub(k.fetched); len(found) > 0 || k.set.ids[kid] {
		if age < k.fresh {
			return found, nil, nil
		}
		f := k.read(ctx, now)
		if age < 2*k.fresh || k.failures > 0 {
			f = nil // not worth waiting for
		}
		return found, f, nil
	}
	if k.current == nil && !k.asked.IsZero() && now.Sub(k.asked) < UnknownKeyGap {
		return nil, nil, nil
	}
	joined := k.current != nil
	f := k.read(ctx, now)
	if f == nil {
		return nil, nil, unavailable(k.last, k.retry.Sub(now))
	}
	if !joined {
		f.unknown, k.asked = true, now
	}
	return nil, f, nil
}

// read returns the read on its way, or begins one unless it is too early for that. The caller holds mu.
func (k *KeySet) read(ctx context.Context, now time.Time) *fetch {
	if k.current != nil {
		return k.current
	}
	if k.closed || now.Before(k.retry) {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &fetch{done: make(chan struct{}), cancel: cancel}
	k.current = f
	k.reads++
	k.running.Go(func() {
		defer cancel()
		body, age, err := get(ctx, k.http, k.uri)
		var set *keyring
		if err == nil {
			set, err = parseKeys(body)
		}
		k.finish(ctx, f, set, now, age, err)
	})
	return f
}

// finish takes the outcome of a read in.
func (k *KeySet) finish(ctx context.Context, f *fetch, set *keyring, began time.Time, age time.Duration, err error) {
	k.mu.Lock()
	failed := k.failures
	k.current, k.last, f.err = nil, err, err
	var pause time.Duration
	if err != nil {
		pause = min(MinPause<<min(k.failures, 16), MaxPause)
		k.failures++
		k.retry = time.Now().Add(pause)
		if f.unknown {
			k.asked = time.Time{} // the pause limits what failed
		}
	} else {
		k.set, k.fetched, k.fresh = set, began, min(max(age, MinFresh), MaxFresh)
		k.failures, k.retry = 0, time.Time{}
	}
	close(f.done)
	k.mu.Unlock()
	switch {
	case err != nil && failed == 0:
		k.log.WarnContext(ctx, "key set of the identity provider cannot be read", logkey.URL, k.uri, logkey.Error, err, logkey.Wait, pause)
	case err == nil && failed > 0:
		k.log.InfoContext(ctx, "key set of the identity provider is read again", logkey.URL, k.uri, logkey.Attempt, failed+1)
	}
}

var errClosed = errors.New("the key set is closed")

func unavailable(err error, wait time.Duration) error {
	if err == nil {
		err = errClosed
	}
	return away(wait, err)
}

// away is the refusal while keys cannot be had. Its sentence is for whoever signs in, a stranger so far; the cause, which names
// addresses, stands in the text of the whole error, for the log.
func away(wait time.Duration, cause error) error {
	next := ""
	if wait > 0 {
		next = fmt.Sprintf(", next try in %s", wait.Truncate(time.Second)+time.Second)
	}
	return fmt.Errorf("%w: %w", trust.Deny(wire.CodeUnavailable, trust.ReasonIDP, "the keys of the identity provider cannot be read%s", next), cause)
}
