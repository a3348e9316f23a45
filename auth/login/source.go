package login

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// freshFor is how long an id token must still last to be handed out without a refresh.
	freshFor = 60 * time.Second
	// lastResort is how long it must still last to be handed out when the provider cannot be asked.
	lastResort = 10 * time.Second
	// refreshTimeout bounds a refresh that was begun, and what must be done after one.
	refreshTimeout = 15 * time.Second
	// lateTimeout bounds how long whoever has a token waits for others to keep what was not kept before.
	lateTimeout = time.Second
)

// SourceOptions are what a [Source] does not need.
type SourceOptions struct {
	// HTTP asks the provider; nil means a client of its own.
	HTTP *http.Client
}

// Source hands out fresh id tokens of one session. It reads the session anew each time, so that signing in and out elsewhere counts at once.
type Source struct {
	sessions Sessions
	key      Key
	lock     string
	hc       *http.Client
	gate     gate // one of this process at a time, before the lock that is among processes

	mu      sync.Mutex // guards the rest
	failed  error      // of the last refresh, nil after one that worked
	at      time.Time  // when it failed
	unsaved Session    // what a refresh gave and the store did not take
	behind  Session    // what the store has in its place
}

// NewSource returns the source of the session under key. In dir, a private folder that exists, is the lock file that makes all processes
// refresh once; all that share the sessions must be given the same. It panics when sessions is nil or dir is empty.
func NewSource(sessions Sessions, key Key, dir string, opts *SourceOptions) *Source {
	if sessions == nil || dir == "" {
		panic("login: a source needs sessions and a folder for its lock")
	}
	var hc *http.Client
	if opts != nil {
		hc = opts.HTTP
	}
	return &Source{sessions: sessions, key: key, lock: filepath.Join(dir, ".login-"+key.name()+".lock"), hc: client(hc), gate: newGate()}
}

// IDToken returns an id token that lasts for another minute at least, and when it ends. It is the one that is kept as long as that
// will do, else the session is refreshed, once among all processes that ask at the same time, and kept before the token is used.
// A refresh that was begun is brought to its end even when ctx ends, for at most 15 s, because its answer may be the only
// refresh token there is. When the provider cannot be asked, a token that lasts for another 10 s is returned.
//
// Errors: unauthenticated with [trust.ReasonExpired] when nobody is signed in or the session has ended, which it has only when the provider
// says so, and then it is deleted; unavailable when the provider or the store cannot be asked, and then nothing was
// changed; the code of ctx when that ended.
func (s *Source) IDToken(ctx context.Context) (token string, expires time.Time, err error) {
	began := time.Now()
	session, err := s.load(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	if t := session.tokens(); lasts(t, freshFor) {
		s.keepLate(ctx)
		return t.id, t.idExpires, nil
	}
	err = s.locked(ctx, func() error {
		if session, err = s.load(ctx); err != nil {
			return err
		}
		if t := session.tokens(); lasts(t, freshFor) {
			return nil // somebody else did it
		}
		if err := s.failedSince(began); err != nil {
			return err // whoever was before in the same queue was told no
		}
		session, err = s.refresh(ctx, session)
		s.note(err)
		return err
	})
	t := session.tokens()
	if err != nil && !(errors.Is(err, wire.ErrUnavailable) && lasts(t, lastResort)) {
		return "", time.Time{}, err
	}
	return t.id, t.idExpires, nil
}

func lasts(t tokens, d time.Duration) bool { return t.id != "" && time.Until(t.idExpires) >= d }

// SignIn keeps a session as the one of this source.
func (s *Source) SignIn(ctx context.Context, session Session) error {
	return s.locked(ctx, func() error {
		s.saved()
		s.note(nil)
		return s.sessions.Save(ctx, s.key, session)
	})
}

// Session returns the session that is kept, or not-found.
func (s *Source) Session(ctx context.Context) (Session, error) { return s.sessions.Load(ctx, s.key) }

// Logout ends the session at the provider if that has a revocation endpoint (RFC 7009), and forgets it here in any case. Its error is
// not-found when nobody was signed in, and unavailable when the provider was not told: then the session is forgotten here and ends
// there by itself.
func (s *Source) Logout(ctx context.Context) error {
	return s.locked(ctx, func() error {
		session, err := s.sessions.Load(ctx, s.key)
		if errors.Is(err, wire.ErrNotFound) {
			return err
		}
		told := err
		if err == nil {
			session, _ = s.newest(session)
			told = revoke(ctx, s.hc, session)
		}
		s.saved()
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
		defer cancel()
		if err := s.sessions.Delete(after, s.key); err != nil && !errors.Is(err, wire.ErrNotFound) {
			return err
		}
		if told != nil {
			return wire.Errorf(wire.CodeUnavailable, "signed out of %q here, but the provider was not told: %v", s.key.Issuer, told)
		}
		return nil
	})
}

// locked does what no other Source may do at the same time, in this process or another.
func (s *Source) locked(ctx context.Context, do func() error) error {
	if err := s.gate.enter(ctx); err != nil {
		return wire.Errorf(wire.CodeOf(err), "wait for the session of %q: %w", s.key.Issuer, err)
	}
	defer s.gate.leave()
	release, err := lockFile(ctx, s.lock)
	if err != nil {
		return err
	}
	defer release()
	return do()
}

// load returns the newest session there is.
func (s *Source) load(ctx context.Context) (Session, error) {
	kept, err := s.sessions.Load(ctx, s.key)
	if errors.Is(err, wire.ErrNotFound) {
		s.saved()
		return Session{}, trust.Deny(wire.CodeUnauthenticated, trust.ReasonExpired, "nobody is signed in at %q: run cotal login", s.key.Issuer)
	}
	if err != nil {
		return Session{}, err
	}
	newest, _ := s.newest(kept)
	return newest, nil
}

// newest returns what the store did not take where that is newer than what it has, and whether it is.
func (s *Source) newest(kept Session) (newest Session, late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, is, was := s.unsaved, kept.tokens(), s.behind.tokens()
	if u.Subject == "" || !u.Obtained.Equal(kept.Obtained) || is.refresh != was.refresh {
		return kept, false
	}
	if next := u.tokens(); next.refresh != is.refresh || next.idExpires.After(is.idExpires) {
		return u, true
	}
	return kept, false
}

// keepLate keeps what the store did not take when it had no room. Until then another process finds a refresh token that is spent, with which
// it would end the session. If this fails as well, the next caller tries again.
func (s *Source) keepLate(ctx context.Context) {
	s.mu.Lock()
	none := s.unsaved.Subject == ""
	s.mu.Unlock()
	if none {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lateTimeout)
	defer cancel()
	_ = s.locked(ctx, func() error {
		kept, err := s.sessions.Load(ctx, s.key)
		if err != nil {
			return err
		}
		if session, late := s.newest(kept); late {
			err = s.save(ctx, session)
		}
		if err == nil {
			s.saved()
		}
		return err
	})
}

// saved forgets what the store did not take.
func (s *Source) saved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsaved, s.behind = Session{}, Session{}
}

// keep remembers what the store did not take, which came of a refresh of old.
func (s *Source) keep(session, old Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsaved.Subject == "" || s.unsaved.tokens().refresh != old.tokens().refresh {
		s.behind = old
	}
	s.unsaved = session
}

func (s *Source) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.at = err, time.Now()
}

func (s *Source) failedSince(began time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil && s.at.After(began) {
		return s.failed
	}
	return nil
}

// refresh gets new tokens, keeps them and returns the session that has them. The caller holds the lock. An id token that is not accepted is
// dropped, and the refresh token that came with it is kept: the one before may be good for nothing but to end the session.
func (s *Source) refresh(ctx context.Context, old Session) (Session, error) {
	if err := ctx.Err(); err != nil {
		return old, wire.Errorf(wire.CodeOf(err), "renew sign-in at %q: %w", s.key.Issuer, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	if old.tokens().refresh == "" {
		return old, over(old.Provider, "the provider gave nothing to renew it with")
	}
	t, err := renew(ctx, s.hc, old)
	if err != nil {
		if trust.ReasonOf(err) == trust.ReasonExpired {
			s.forget(ctx, old)
		}
		return old, err
	}
	renewed, refusal := old.renewed(t, time.Now())
	if refusal != nil && renewed.tokens().refresh == old.tokens().refresh {
		return old, refusal
	}
	if err := s.save(ctx, renewed); err != nil {
		s.keep(renewed, old)
		if refusal != nil {
			return renewed, fmt.Errorf("%w; and the new refresh token is not kept: %v", refusal, err)
		}
		return renewed, err
	}
	s.saved()
	return renewed, refusal
}

// renewed is the session with the tokens of a refresh. With a refusal of the id token it is the one before with the new refresh token.
func (s Session) renewed(t tokens, received time.Time) (Session, error) {
	was := s.tokens()
	was.refresh = t.refresh
	if t.id == "" {
		return s.holding(was), wire.Errorf(wire.CodeFailedPrecondition,
			"renew sign-in at %q: the provider gives no id token on refresh: run cotal login", s.Provider.Issuer)
	}
	next, err := s.with(t, received)
	if err != nil {
		return s.holding(was), err
	}
	return next, nil
}

// save has a time of its own: what it saves cannot be had again.
func (s *Source) save(ctx context.Context, session Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	return s.sessions.Save(ctx, s.key, session)
}

// forget deletes a session that has ended, unless another one was put in its place meanwhile.
func (s *Source) forget(ctx context.Context, ended Session) {
	now, err := s.sessions.Load(ctx, s.key)
	if err == nil && now.tokens().refresh == ended.tokens().refresh {
		_ = s.sessions.Delete(ctx, s.key) // if this fails, the provider says the same again
	}
	s.saved()
}

func over(p Provider, why string) error {
	return trust.Deny(wire.CodeUnauthenticated, trust.ReasonExpired, "the session at %q ended (%s): run cotal login", p.Issuer, why)
}

// renew asks the provider for new tokens. It marks nothing as passing: a refresh token may be good for one use only.
func renew(ctx context.Context, hc *http.Client, s Session) (tokens, error) {
	t := s.tokens()
	if s.Provider.Shape == ShapeBetterAuth {
		id, err := jwtOf(ctx, hc, s.Provider, t.refresh)
		if p := (passing{}); errors.As(err, &p) {
			err = p.err
		}
		t.id = id
		return t, err
	}
	form := url.Values{"grant_type": {refreshGrant}, "refresh_token": {t.refresh}, "client_id": {s.Provider.ClientID}}
	if s.Provider.Resource != "" {
		form.Set("resource", s.Provider.Resource)
	}
	a, err := postForm(ctx, hc, s.Provider.TokenEndpoint, form)
	if err != nil {
		return tokens{}, err
	}
	f, ok := a.fields()
	switch name := f.text("error"); {
	case name == "invalid_grant":
		return tokens{}, over(s.Provider, "the provider no longer accepts it")
	case !ok:
		return tokens{}, wire.Errorf(wire.CodeUnavailable, "renew sign-in at %q: %s", s.Provider.Issuer, a.describe())
	case a.status >= 500, a.status == http.StatusTooManyRequests, name == "temporarily_unavailable", name == "server_error":
		return tokens{}, wire.Errorf(wire.CodeUnavailable, "renew sign-in at %q: the provider is out of order (HTTP %d)", s.Provider.Issuer, a.status)
	case name != "" || a.status != http.StatusOK:
		return tokens{}, wire.Errorf(wire.CodeFailedPrecondition, "renew sign-in at %q: the provider refuses (HTTP %d, error %q, %q): the session is kept",
			s.Provider.Issuer, a.status, clip(name), clip(f.text("error_description")))
	}
	next := tokens{refresh: f.text("refresh_token"), id: f.text("id_token")}
	if next.refresh == "" {
		next.refresh = t.refresh // RFC 6749 section 6: the old one goes on
	}
	return next, nil
}

// jwtOf gets an id token for a session of the Better Auth shape.
func jwtOf(ctx context.Context, hc *http.Client, p Provider, session string) (string, error) {
	if p.JWTEndpoint == "" {
		return "", wire.Errorf(wire.CodeFailedPrecondition, "identity provider %q: no JWT endpoint is known: configure it", p.Issuer)
	}
	a, err := get(ctx, hc, p.JWTEndpoint, http.Header{"Authorization": {"Bearer " + session}})
	if err != nil {
		return "", passing{err: err}
	}
	f, ok := a.fields()
	switch {
	case a.status == http.StatusUnauthorized:
		return "", over(p, "the provider no longer accepts it")
	case a.status >= 500 || a.status == http.StatusTooManyRequests:
		return "", passing{wire.Errorf(wire.CodeUnavailable, "renew sign-in at %q: the provider is out of order (HTTP %d)", p.Issuer, a.status), a.retryAfter()}
	case !ok || a.status != http.StatusOK || f.text("token") == "":
		return "", wire.Errorf(wire.CodeUnavailable, "renew sign-in at %q: %s", p.Issuer, a.describe())
	}
	return f.text("token"), nil
}

// revoke tells the provider that a session is over.
func revoke(ctx context.Context, hc *http.Client, s Session) error {
	p, secret := s.Provider, s.tokens().refresh
	if p.RevocationEndpoint == "" || secret == "" {
		return nil
	}
	var a answer
	var err error
	if p.Shape == ShapeBetterAuth {
		a, err = postJSON(ctx, hc, p.RevocationEndpoint, http.Header{"Authorization": {"Bearer " + secret}}, struct {
			Token string `json:"token"`
		}{secret})
	} else {
		a, err = postForm(ctx, hc, p.RevocationEndpoint, url.Values{"token": {secret}, "token_type_hint": {refreshGrant}, "client_id": {p.ClientID}})
	}
	if err == nil && (a.status < 200 || a.status > 299) && a.status != http.StatusUnauthorized {
		err = wire.Errorf(wire.CodeUnavailable, "%q answered HTTP %d", shown(p.RevocationEndpoint), a.status)
	}
	return err
}
