package callout_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// lab is an open broker, on which the test plays the brokers that ask: it can say what no broker would.
type lab struct {
	w     *world
	nc    *nats.Conn // the asking side
	serve *nats.Conn // that of the service
	srv   *broker.Server
	o     callout.Options
}

func newLab(t testing.TB, ours ...*origin) *lab {
	t.Helper()
	ctx := context.Background()
	srv := must(broker.Start(ctx, broker.Trust{}, &broker.Options{Open: true, NoListen: true, StoreDir: t.TempDir()}))(t)
	t.Cleanup(srv.Shutdown)
	store := memstore.New()
	l := &lab{srv: srv, w: newWorld(t, must(mint.Init(ctx, store, nil))(t), store, "main"), nc: dialOpen(t, srv), serve: dialOpen(t, srv)}
	l.o = callout.Options{
		Space: "main", Responder: l.w.responder, Validator: l.w.validator, Authority: l.w.records,
		Servers: func(context.Context) ([]string, error) {
			var ids []string
			for _, s := range ours {
				ids = append(ids, s.id)
			}
			return ids, nil
		},
	}
	return l
}

// close ends everything inside a bubble.
func (l *lab) close() {
	l.nc.Close()
	l.serve.Close()
	l.srv.Shutdown()
}

func dialOpen(t testing.TB, srv *broker.Server) *nats.Conn {
	t.Helper()
	nc := must(nats.Connect("", nats.InProcessServer(srv.InProcess())))(t)
	t.Cleanup(nc.Close)
	return nc
}

// origin is a server that asks.
type origin struct {
	key, curve nkeys.KeyPair
	id, xkey   string
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	o := &origin{key: must(nkeys.CreateServer())(t), curve: must(nkeys.CreateCurveKeys())(t)}
	o.id, o.xkey = public(t, o.key), public(t, o.curve)
	return o
}

// claims are a good question about a person with a bearer.
func (o *origin) claims(t testing.TB, w *world, p *person, token string) *jwt.AuthorizationRequestClaims {
	t.Helper()
	c := jwt.NewAuthorizationRequestClaims(w.responder.Account())
	c.Audience = wire.CalloutAudience
	c.Expires = time.Now().Add(2 * time.Second).Unix()
	c.Server = jwt.ServerID{Name: "n", Host: "h", ID: o.id, XKey: o.xkey}
	c.UserNkey = public(t, must(nkeys.CreateUser())(t))
	const nonce = "fXk3vRzEf2eJYkQ"
	c.ClientInformation = jwt.ClientInformation{Host: "203.0.113.7", ID: 9, Kind: "Client", Type: "nats", Nonce: nonce}
	c.ConnectOptions = jwt.ConnectOptions{
		Token: token, Name: p.Actor, SignedNonce: base64.RawURLEncoding.EncodeToString(must(p.key.Sign([]byte(nonce)))(t)),
	}
	return c
}

// message seals a question to the callout account.
func (o *origin) message(t testing.TB, w *world, plain string) *nats.Msg {
	t.Helper()
	m := nats.NewMsg(wire.CalloutSubject)
	m.Header.Set(wire.CalloutKeyHeader, o.xkey)
	m.Data = must(o.curve.Seal([]byte(plain), w.responder.XKey()))(t)
	return m
}

func (o *origin) ask(t testing.TB, w *world, c *jwt.AuthorizationRequestClaims) *nats.Msg {
	t.Helper()
	return o.message(t, w, must(c.Encode(o.key))(t))
}

// read opens an answer as the server does.
func (o *origin) read(t testing.TB, w *world, sealed []byte) *jwt.AuthorizationResponseClaims {
	t.Helper()
	plain := must(o.curve.Open(sealed, w.responder.XKey()))(t)
	return must(jwt.DecodeAuthorizationResponseClaims(string(plain)))(t)
}

// What comes from no broker of ours, or from none at all, is not answered; what is good behind it is.
func TestDrops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours, rogue := newOrigin(t), newOrigin(t)
		l := newLab(t, ours)
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		with := func(o *origin, alter func(*jwt.AuthorizationRequestClaims)) *nats.Msg {
			c := o.claims(t, l.w, ada, token)
			alter(c)
			return o.ask(t, l.w, c)
		}
		keep := func(*jwt.AuthorizationRequestClaims) {}
		plain := must(ours.claims(t, l.w, ada, token).Encode(ours.key))(t)
		for _, c := range []struct {
			name string
			m    *nats.Msg
			want callout.Drop
		}{
			{"no_header", header(with(ours, keep), ""), callout.DropUnsealed},
			{"not_sealed", data(with(ours, keep), []byte(plain)), callout.DropUnsealed},
			{"empty", data(with(ours, keep), nil), callout.DropUnsealed},
			{"header_of_another_server", header(with(ours, keep), rogue.xkey), callout.DropUnsealed},
			{"header_is_junk", header(with(ours, keep), "X"+strings.Repeat("A", 55)), callout.DropUnsealed},
			{"not_a_question", ours.message(t, l.w, "hello"), callout.DropMalformed},
			{"a_user_jwt", ours.message(t, l.w, must(jwt.NewUserClaims(public(t, ada.key)).Encode(must(nkeys.CreateAccount())(t)))(t)), callout.DropMalformed},
			{"for_another_account", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.Subject = l.w.account.Public }), callout.DropMalformed},
			{"for_another_audience", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.Audience = "somebody" }), callout.DropMalformed},
			{"names_another_curve_key", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.Server.XKey = rogue.xkey }), callout.DropMalformed},
			{"names_another_server", with(rogue, func(c *jwt.AuthorizationRequestClaims) { c.Server.ID = ours.id }), callout.DropMalformed},
			{"not_pinned", with(rogue, keep), callout.DropForeign},
			{"says_it_is_pinned", rogue.message(t, l.w, impersonate(t, rogue, ours, rogue.xkey, l.w, ada, token)), callout.DropForged},
			{"signature_changed", ours.message(t, l.w, swapLast(plain)), callout.DropForged},
			{"signed_by_another", ours.message(t, l.w, impersonate(t, rogue, ours, ours.xkey, l.w, ada, token)), callout.DropForged},
			{"of_yesterday", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.Expires = time.Now().Add(-time.Hour).Unix() }), callout.DropStale},
			{"for_minutes", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.Expires = time.Now().Add(10 * time.Minute).Unix() }), callout.DropPatient},
			{"for_hours", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.Expires = time.Now().Add(2 * time.Hour).Unix() }), callout.DropPatient},
			{"of_tomorrow", ours.message(t, l.w, tomorrow(t, ours, plain)), callout.DropStale},
			{"for_ever", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.Expires = 0 }), callout.DropStale},
			{"no_user_key", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.UserNkey = "" }), callout.DropUnanswerable},
			{"user_key_is_an_account", with(ours, func(c *jwt.AuthorizationRequestClaims) { c.UserNkey = l.w.account.Public }), callout.DropUnanswerable},
		} {
			before := d.Stats()
			inbox := l.nc.NewInbox()
			sub := must(l.nc.SubscribeSync(inbox))(t)
			c.m.Reply = inbox
			if err := l.nc.PublishMsg(c.m); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if drops(d.Stats()) == drops(before) {
				time.Sleep(time.Second) // fake: one that is from nobody we know waits for the list first
				synctest.Wait()
			}
			after := d.Stats()
			if after.Dropped[c.want] != before.Dropped[c.want]+1 {
				t.Errorf("%s: dropped %v, before %v, want one more %q", c.name, after.Dropped, before.Dropped, c.want)
			}
			if n, _, err := sub.Pending(); err != nil || n != 0 {
				t.Errorf("%s: %d answers, %v", c.name, n, err)
			}
			l.admits(t, d, ours, ada, token)
		}

		// Another curve key of the same server is taken once a signature shows that it is.
		again := &origin{key: ours.key, id: ours.id, curve: rogue.curve, xkey: rogue.xkey}
		l.admits(t, d, again, ada, token)
		l.admits(t, d, ours, ada, token)
	})
}

func drops(s callout.Stats) (n uint64) {
	for _, v := range s.Dropped {
		n += v
	}
	return n
}

func header(m *nats.Msg, xkey string) *nats.Msg {
	m.Header.Del(wire.CalloutKeyHeader)
	if xkey != "" {
		m.Header.Set(wire.CalloutKeyHeader, xkey)
	}
	return m
}

func data(m *nats.Msg, b []byte) *nats.Msg {
	m.Data = b
	return m
}

// impersonate makes a question that names a server of ours, its id as the issuer included, signed by another one.
func impersonate(t testing.TB, signer, named *origin, xkey string, w *world, p *person, token string) string {
	t.Helper()
	c := named.claims(t, w, p, token)
	c.Server.XKey = xkey
	parts := strings.Split(must(c.Encode(named.key))(t), ".")
	return sign(t, signer.key, parts[0], string(must(base64.RawURLEncoding.DecodeString(parts[1]))(t)))
}

// sign makes a JWT of a header and claims as they are.
func sign(t testing.TB, key nkeys.KeyPair, head, claims string) string {
	t.Helper()
	signed := head + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	return signed + "." + base64.RawURLEncoding.EncodeToString(must(key.Sign([]byte(signed)))(t))
}

// tomorrow moves a question one day ahead.
func tomorrow(t testing.TB, o *origin, plain string) string {
	t.Helper()
	parts := strings.Split(plain, ".")
	claims := string(must(base64.RawURLEncoding.DecodeString(parts[1]))(t))
	for _, name := range []string{"iat", "exp"} {
		before, rest, _ := strings.Cut(claims, `"`+name+`":`)
		digits := rest[:strings.IndexAny(rest, ",}")]
		claims = before + `"` + name + `":` + strconv.FormatInt(must(strconv.ParseInt(digits, 10, 64))(t)+86400, 10) + rest[len(digits):]
	}
	return sign(t, o.key, parts[0], claims)
}

// admits asks a good question and fails the test unless the answer is a credential.
func (l *lab) admits(t testing.TB, d *desk, o *origin, p *person, token string) {
	t.Helper()
	c := o.claims(t, l.w, p, token)
	m := o.ask(t, l.w, c)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answer, err := l.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		t.Fatalf("good question: %v, stats %+v", err, d.Stats())
	}
	got := o.read(t, l.w, answer.Data)
	if got.Error != "" || got.Subject != c.UserNkey || got.Audience != o.id {
		t.Fatalf("good question: refused with %q, about %q", got.Error, got.Subject)
	}
}

// A question that somebody recorded and sends again yields an answer that they cannot open, and it is a refusal.
func TestReplay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours, thief := newOrigin(t), newOrigin(t)
		l := newLab(t, ours)
		run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		m := ours.ask(t, l.w, ours.claims(t, l.w, ada, l.w.bearer(t, ada, true, time.Minute)))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		first := must(l.nc.RequestMsgWithContext(ctx, m))(t)
		again := nats.NewMsg(m.Subject)
		again.Header, again.Data = m.Header, m.Data
		second := must(l.nc.RequestMsgWithContext(ctx, again))(t)
		if got := ours.read(t, l.w, first.Data); got.Jwt == "" {
			t.Errorf("first: refused with %q", got.Error)
		}
		if got := ours.read(t, l.w, second.Data); got.Jwt != "" || got.Error != string(trust.ReasonReplayed) {
			t.Errorf("second: %+v, want a refusal as %q", got, trust.ReasonReplayed)
		}
		for _, answer := range []*nats.Msg{first, second} {
			if strings.HasPrefix(string(answer.Data), "eyJ") {
				t.Error("an answer can be read without a key")
			}
			if _, err := thief.curve.Open(answer.Data, l.w.responder.XKey()); err == nil {
				t.Error("a stranger opened an answer")
			}
		}
	})
}

// What is no client, or too large, is refused; of what came from a broker of ours nothing stays without an answer.
func TestRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours := newOrigin(t)
		l := newLab(t, ours)
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		leaf := ours.claims(t, l.w, ada, token)
		leaf.ClientInformation.Kind = "Leafnode"
		large := data(ours.ask(t, l.w, ours.claims(t, l.w, ada, token)), make([]byte, callout.MaxRequest+1))
		for name, m := range map[string]*nats.Msg{"leaf": ours.ask(t, l.w, leaf), "large": large} {
			answer, err := l.nc.RequestMsg(m, 30*time.Second)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(answer.Data) > 0 && ours.read(t, l.w, answer.Data).Jwt != "" {
				t.Errorf("%s: let in", name)
			}
			if got := <-d.told; got.OK || got.Reason != trust.ReasonMalformed {
				t.Errorf("%s: decision = %+v, want %q", name, got, trust.ReasonMalformed)
			}
		}
	})
}

// A broker has another id after each restart: the first questions of an unknown one wait for the list.
func TestNewServerIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, next, rogue := newOrigin(t), newOrigin(t), newOrigin(t)
		l := newLab(t, first)
		var ids atomic.Pointer[[]string]
		var asked atomic.Int64
		ids.Store(&[]string{first.id})
		l.o.Servers = func(context.Context) ([]string, error) {
			asked.Add(1)
			if list := *ids.Load(); list != nil {
				return list, nil
			}
			return nil, errors.New("nobody answers")
		}
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		l.admits(t, d, first, ada, token)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times at the start, want 1", n)
		}

		ids.Store(&[]string{next.id})
		began := time.Now()
		for range 3 {
			l.admits(t, d, next, ada, token)
		}
		if n := asked.Load(); n != 2 || time.Since(began) > time.Second {
			t.Errorf("asked %d times in %s, want once more and within a second", n, time.Since(began))
		}

		// The first one is gone now, and a list that cannot be had changes nothing.
		ids.Store(new([]string))
		began = time.Now()
		for range 100 {
			if err := l.nc.PublishMsg(reply(l.nc, rogue.ask(t, l.w, rogue.claims(t, l.w, ada, token)))); err != nil {
				t.Fatal(err)
			}
			if err := l.nc.PublishMsg(reply(l.nc, first.ask(t, l.w, first.claims(t, l.w, ada, token)))); err != nil {
				t.Fatal(err)
			}
			l.admits(t, d, next, ada, token)
			time.Sleep(50 * time.Millisecond) // fake
		}
		time.Sleep(2 * time.Second) // fake
		synctest.Wait()
		if n := asked.Load() - 2; n > 7 {
			t.Errorf("asked %d times in %s of unknown servers, want once a second", n, time.Since(began))
		}
		if s := d.Stats(); s.Dropped[callout.DropForeign] != 200 {
			t.Errorf("dropped %v, want 200 as %q", s.Dropped, callout.DropForeign)
		}
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		l.close()
	})
}

// What arrives from a new server while the list is read does not wait for another reading.
func TestQuestionsDuringAReading(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, next := newOrigin(t), newOrigin(t)
		l := newLab(t, first)
		defer l.close()
		reading, asked := make(chan struct{}), 0
		l.o.Servers = func(context.Context) ([]string, error) {
			if asked++; asked == 1 {
				return []string{first.id}, nil
			}
			<-reading
			return []string{next.id}, nil
		}
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		time.Sleep(2 * time.Second) // fake: the reading at the start is long ago
		began := time.Now()
		var subs []*nats.Subscription
		for range 3 {
			subs = append(subs, l.send(t, next.ask(t, l.w, next.claims(t, l.w, ada, token))))
			synctest.Wait() // the first began a reading
		}
		close(reading)
		for i, sub := range subs {
			m, err := sub.NextMsg(30 * time.Second)
			if err != nil {
				t.Fatalf("question %d: %v", i+1, err)
			}
			if got := next.read(t, l.w, m.Data); got.Jwt == "" {
				t.Errorf("question %d: refused with %q", i+1, got.Error)
			}
		}
		if took := time.Since(began); took >= time.Second || asked != 2 {
			t.Errorf("answered after %s and %d readings, want no waiting and 2", took, asked)
		}
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// What waits for the list is bounded.
func TestUnknownServersWaitInABoundedPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours, rogue := newOrigin(t), newOrigin(t)
		l := newLab(t, ours)
		defer l.close()
		l.o.Queue = 4
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		token := l.w.bearer(t, ada, true, time.Minute)
		for i := range 7 {
			if err := l.nc.PublishMsg(reply(l.nc, rogue.ask(t, l.w, rogue.claims(t, l.w, ada, token)))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got, want := d.Stats().Dropped[callout.DropForeign], uint64(max(0, i-3)); got != want {
				t.Errorf("dropped %d of %d, want %d", got, i+1, want)
			}
		}
		l.admits(t, d, ours, ada, token)
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if got := d.Stats(); got.Dropped[callout.DropForeign] != 7 || got.Taken != 8 {
			t.Errorf("stats = %+v, want 7 dropped of 8", got)
		}
	})
}

func reply(nc *nats.Conn, m *nats.Msg) *nats.Msg {
	m.Reply = nc.NewInbox()
	return m
}

// With no list at all nobody is answered, and a service without a way to get one is not made.
func TestNoListRefusesEverybody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours := newOrigin(t)
		l := newLab(t)
		d := run(t, l.serve, l.o)
		ada := newPerson(t, "ada")
		m := ours.ask(t, l.w, ours.claims(t, l.w, ada, l.w.bearer(t, ada, true, time.Minute)))
		if _, err := l.nc.RequestMsg(m, 5*time.Second); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("question: %v, want %v", err, nats.ErrTimeout)
		}
		if n := len(l.w.records.asked()); n != 0 {
			t.Errorf("the authority was asked %d times", n)
		}
		l.o.Servers = nil
		if _, err := callout.New(l.serve, l.o); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("New without a list: %v, want %q", err, wire.CodeBadRequest)
		}
		if err := d.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		l.close()
	})
}
