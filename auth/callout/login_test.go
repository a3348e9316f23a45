package callout_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func TestLoginHasOwnRightsOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		const took = 100 * time.Millisecond
		w.records.decide = func(context.Context, *mint.ConnectionRequest) (string, error) {
			time.Sleep(took) // fake
			return "", nil
		}
		d := m.serve(t, w)
		ada, bob := newPerson(t, "ada"), newPerson(t, "bob")
		violations := make(chan error, 8)
		nc := m.login(t, w, ada, nats.Name("ada's laptop"),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err }))

		got := <-d.told
		if !got.OK || got.Reason != "" || got.Lifecycle != ada.Lifecycle || got.Server != m.srv.ID() || got.ConnectionName != "ada's laptop" ||
			!nkeys.IsValidPublicUserKey(got.UserKey) || got.Duration != took {
			t.Errorf("decision = %+v", got)
		}
		own := must(wire.ChannelSubject("main", ada.Principal, "general"))(t)
		for _, subject := range []string{
			must(wire.ChannelSubject("main", bob.Principal, "general"))(t), // a forged sender
			must(wire.ChannelSubject("main", ada.Principal, "other"))(t),   // a channel without a grant
			wire.CalloutSubject,
		} {
			if err := nc.Publish(subject, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := <-violations; !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("publish on %q: %v, want a permission violation", subject, err)
			}
		}
		if _, err := nc.SubscribeSync(wire.InboxPrefix(string(bob.UID)) + ".>"); err != nil {
			t.Fatal(err)
		}
		if err := <-violations; !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("subscribe to another inbox: %v, want a permission violation", err)
		}
		if err := nc.Publish(own, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-violations:
			t.Errorf("publish on %q: %v", own, err)
		default:
		}
		m.end(t, d)
	})
}

// N1, N2, N3: the client is refused at once, learns no reason, and the reason is told ten times out of ten.
func TestDenialsReachTheClientAndTellTheTruth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		w.records.decide = fails(trust.Deny(wire.CodePermissionDenied, trust.ReasonRevoked, "suspended for a secret reason"))
		d := m.serve(t, w)
		ada := newPerson(t, "ada")
		for range 10 {
			began := time.Now()
			nc, err := m.connect(w, w.bearer(t, ada, true, time.Minute), ada.key)
			refused(t, nc, err)
			if took := time.Since(began); took >= time.Second {
				t.Errorf("refused after %s, want no waiting", took)
			}
			if got := <-d.told; got.OK || got.Reason != trust.ReasonRevoked || got.Lifecycle != ada.Lifecycle || !got.Told {
				t.Errorf("decision = %+v, want %q of %v", got, trust.ReasonRevoked, ada.Lifecycle)
			}
		}
		for _, c := range w.responder.answers() {
			if c.Error != string(trust.ReasonRevoked) || c.Jwt != "" {
				t.Errorf("answer = %q %q, want the bare reason", c.Error, c.Jwt)
			}
		}
		if s := d.Stats(); s.Denied[trust.ReasonRevoked] != 10 || s.Taken != 10 || s.Bare != 0 {
			t.Errorf("stats = %+v", s)
		}
		m.end(t, d)
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main", "other")
		w := m.worlds["main"]
		ada, thief := newPerson(t, "ada"), newPerson(t, "ada")
		mine := w.bearer(t, ada, true, time.Minute)
		for name, c := range map[string]struct {
			token   string
			key     nkeys.KeyPair
			require bool
			decide  decider
			want    trust.Reason
		}{
			"no_bearer":          {token: "", key: ada.key, want: trust.ReasonMalformed},
			"no_bearer_at_all":   {token: "password", key: ada.key, want: trust.ReasonMalformed},
			"stolen_bearer":      {token: mine, key: thief.key, want: trust.ReasonKeyProof}, // beyond, row 14
			"no_key_named":       {token: w.bearer(t, ada, false, time.Minute), key: ada.key, require: true, want: trust.ReasonKeyProof},
			"cut_short":          {token: mine[:len(mine)-8], key: ada.key, want: trust.ReasonMalformed},
			"changed":            {token: swapLast(mine), key: ada.key, want: trust.ReasonSignature},
			"of_another_space":   {token: m.worlds["other"].bearer(t, ada, true, time.Minute), key: ada.key, want: trust.ReasonSignature},
			"authority_is_away":  {token: mine, key: ada.key, decide: fails(wire.Errorf(wire.CodeUnavailable, "no leader")), want: trust.ReasonUnavailable},
			"authority_has_bug":  {token: mine, key: ada.key, decide: fails(errors.New("oops")), want: trust.ReasonUnavailable},
			"authority_panics":   {token: mine, key: ada.key, decide: panics, want: trust.ReasonUnavailable},
			"jwt_for_another":    {token: mine, key: ada.key, decide: forAnother(t), want: trust.ReasonUnavailable},
			"jwt_without_an_end": {token: mine, key: ada.key, decide: ending(t, 0), want: trust.ReasonUnavailable},
			"jwt_that_outlives":  {token: mine, key: ada.key, decide: ending(t, time.Hour), want: trust.ReasonUnavailable},
			"no_jwt":             {token: mine, key: ada.key, decide: returns("a.b"), want: trust.ReasonUnavailable},
			"no_claims":          {token: mine, key: ada.key, decide: returns("a.b.c"), want: trust.ReasonUnavailable},
		} {
			w.records.decide = c.decide
			d := m.serve(t, w, func(o *callout.Options) { o.RequireKeyProof = c.require })
			if nc, err := m.connect(w, c.token, c.key); !errors.Is(err, nats.ErrAuthorization) {
				nc.Close()
				t.Errorf("%s: connect: %v, want %v", name, err, nats.ErrAuthorization)
			}
			if got := <-d.told; got.OK || got.Reason != c.want {
				t.Errorf("%s: decision = %+v, want %q", name, got, c.want)
			}
			if err := d.stop(); err != nil {
				t.Errorf("%s: Run: %v", name, err)
			}
		}
		for _, c := range w.responder.answers() {
			if c.Jwt != "" {
				t.Errorf("answer to %q holds a credential", c.Subject)
			}
		}
	})
}

func swapLast(token string) string {
	b := []byte(token)
	i := len(b) - 8
	if b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

func panics(context.Context, *mint.ConnectionRequest) (string, error) { panic("oops") }

func fails(err error) decider {
	return func(context.Context, *mint.ConnectionRequest) (string, error) { return "", err }
}

func returns(token string) decider {
	return func(context.Context, *mint.ConnectionRequest) (string, error) { return token, nil }
}

func forAnother(t testing.TB) decider {
	other := public(t, must(nkeys.CreateUser())(t))
	return func(_ context.Context, c *mint.ConnectionRequest) (string, error) {
		c.UserKey = other
		return "", nil
	}
}

// ending makes a JWT that ends after d, or never.
func ending(t testing.TB, d time.Duration) decider {
	key := must(nkeys.CreateAccount())(t)
	return func(_ context.Context, c *mint.ConnectionRequest) (string, error) {
		u := jwt.NewUserClaims(c.UserKey)
		if d != 0 {
			u.Expires = time.Now().Add(d).Unix()
		}
		return u.Encode(key)
	}
}

func TestBearerWithoutAKeyIsTakenUnlessOneIsRequired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		m.serve(t, w)
		ada, other := newPerson(t, "ada"), newPerson(t, "ada")
		nc, err := m.connect(w, w.bearer(t, ada, false, time.Minute), other.key)
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	})
}

// N6: a callout in an account of its own lets people into the data account of its space, and no other one.
func TestPlacement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "one", "two")
		one, two := m.worlds["one"], m.worlds["two"]
		m.serve(t, one)
		m.serve(t, two)
		ada, bob := newPerson(t, "ada"), newPerson(t, "bob")
		a, b := m.login(t, one, ada, nats.Name("ada")), m.login(t, two, bob, nats.Name("bob"))
		ctl := must(m.srv.Control(t.Context(), func(ctx context.Context) (*trust.Credentials, error) {
			return m.mint.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
		}, nil))(t)
		defer ctl.Close()
		for w, want := range map[*world]*person{one: ada, two: bob} {
			conns := must(ctl.Connections(t.Context(), w.account.Public))(t)
			if len(conns) != 1 || conns[0].Name != want.Actor {
				t.Errorf("connections of space %q = %+v, want that of %q", w.space, conns, want.Principal)
			}
		}
		a.Close()
		b.Close()

		// A callout that answers with a credential of the other space's account is refused by the broker itself.
		one.records.space = "two"
		nc, err := m.connect(one, one.bearer(t, ada, true, time.Minute), ada.key)
		refused(t, nc, err)
	})
}

func TestConnectionEndsWithItsBearer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		d := m.serve(t, w)
		ada := newPerson(t, "ada")
		told, closed := make(chan error, 8), make(chan struct{})
		token := w.bearer(t, ada, true, 15*time.Minute)
		began := time.Now().Truncate(time.Second)
		nc, err := m.connect(w, token, ada.key, nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		<-closed
		if err := <-told; !errors.Is(err, nats.ErrAuthExpired) {
			t.Errorf("closed with %v, want %v", err, nats.ErrAuthExpired)
		}
		if got := time.Since(began); got < 15*time.Minute || got > 15*time.Minute+time.Second {
			t.Errorf("closed after %s, want 15m", got)
		}
		<-d.told
		nc, err = m.connect(w, token, ada.key)
		refused(t, nc, err)
		if got := <-d.told; got.Reason != trust.ReasonExpired {
			t.Errorf("decision = %+v, want %q", got, trust.ReasonExpired)
		}
		m.end(t, d)
	})
}

// N12: every answer is about the key that was asked about, for the server that asked, by the callout account.
func TestAnswersAreForWhoAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		d := m.serve(t, w)
		ada := newPerson(t, "ada")
		keys := map[string]bool{}
		for i := range 6 {
			token := w.bearer(t, ada, true, time.Minute)
			if i%2 == 1 {
				token = "junk"
			}
			if nc, err := m.connect(w, token, ada.key); err == nil {
				nc.Close()
			}
			keys[(<-d.told).UserKey] = true
		}
		answers := w.responder.answers()
		if len(answers) != 6 || len(keys) != 6 {
			t.Fatalf("%d answers to %d keys, want 6", len(answers), len(keys))
		}
		for _, c := range answers {
			if !keys[c.Subject] || c.Audience != m.srv.ID() || c.IssuerAccount != w.responder.Account() || (c.Jwt == "") == (c.Error == "") {
				t.Errorf("answer about %q for %q by %q", c.Subject, c.Audience, c.IssuerAccount)
			}
			if c.Jwt == "" {
				continue
			}
			if u := must(jwt.DecodeUserClaims(c.Jwt))(t); u.Subject != c.Subject || u.IssuerAccount != w.account.Public {
				t.Errorf("credential of %q in %q, want of %q in %q", u.Subject, u.IssuerAccount, c.Subject, w.account.Public)
			}
		}
	})
}

func TestNew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMesh(t, "main")
		w := m.worlds["main"]
		nc := m.responderConn(t, w)
		for name, spoil := range map[string]func(*callout.Options){
			"no_list": func(o *callout.Options) { o.Servers = nil }, "no_space": func(o *callout.Options) { o.Space = "" },
			"workers": func(o *callout.Options) { o.Workers = -1 }, "queue": func(o *callout.Options) { o.Queue = -1 },
			"deadline": func(o *callout.Options) { o.Deadline = -1 },
			"account":  func(o *callout.Options) { o.Responder = nobody{w.responder} },
		} {
			o := m.options(w)
			spoil(&o)
			if _, err := callout.New(nc, o); wire.CodeOf(err) != wire.CodeBadRequest {
				t.Errorf("%s: %v, want %q", name, err, wire.CodeBadRequest)
			}
		}
		for name, spoil := range map[string]func(*callout.Options){
			"responder": func(o *callout.Options) { o.Responder = nil }, "validator": func(o *callout.Options) { o.Validator = nil },
			"authority": func(o *callout.Options) { o.Authority = nil },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("without a %s: no panic", name)
					}
				}()
				o := m.options(w)
				spoil(&o)
				_, _ = callout.New(nc, o)
			}()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s := must(callout.New(nc, m.options(w)))(t)
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run after the end: %v", err)
		}
		if s.Instance() == "" || s.Instance() == must(callout.New(nc, m.options(w)))(t).Instance() {
			t.Error("instances have the same name")
		}
		nc.Close()
		if err := must(callout.New(nc, m.options(w)))(t).Run(t.Context()); wire.CodeOf(err) != wire.CodeUnavailable {
			t.Errorf("Run on a closed connection: %v, want %q", err, wire.CodeUnavailable)
		}
	})
}

// nobody is a responder without an account.
type nobody struct{ *responder }

func (nobody) Account() string { return "nobody" }
