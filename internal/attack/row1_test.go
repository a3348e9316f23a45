package attack_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// forge is a user JWT of an account that says what the thief likes, for a key that may be its own.
func (w *town) forge(t testing.TB, key, account, subject string, edit func(*jwt.UserClaims)) string {
	t.Helper()
	c := jwt.NewUserClaims(subject)
	c.SetScoped(true)
	c.IssuerAccount, c.Expires = account, time.Now().Add(5*time.Minute).Unix()
	c.Tags = jwt.TagList{"owner:local", "actor:mallory", "uid:" + strings.Repeat("m", 26), "inbox:" + strings.Repeat("m", 26), "nosub:=", "pub:>", "sub:>"}
	edit(c)
	pair := must[nkeys.KeyPair](t)(nkeys.FromSeed(w.seedOf(t, key)))
	return must[string](t)(c.Encode(pair))
}

// raw makes an intruder of a connection that a thief opened.
func raw(t testing.TB, connect func(...nats.Option) (*nats.Conn, error)) (*intruder, error) {
	t.Helper()
	in := &intruder{id: trust.Identity{Lifecycle: wire.Lifecycle{Principal: local("mallory"), UID: wire.UID(strings.Repeat("m", 26))}}}
	nc, err := connect(nats.CustomInboxPrefix("_INBOX_"+strings.Repeat("m", 26)), nats.PermissionErrOnSubscribe(true), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			in.mu.Lock()
			in.denied = append(in.denied, err.Error())
			in.mu.Unlock()
		}
	}))
	if err != nil {
		return nil, err
	}
	t.Cleanup(nc.Close)
	in.nc = nc
	return in, nil
}

// mustBeAnAgent fails unless the connection of a thief speaks as the agent that it claims to be and has nothing of the profiles above it.
func mustBeAnAgent(t *testing.T, s wire.Space, in *intruder) {
	t.Helper()
	subject := must[string](t)
	own := subject(wire.ChannelSubject(s, in.id.Principal, "general"))
	if err := in.nc.Publish(own, []byte("x")); err != nil {
		t.Fatal(err)
	}
	in.barrier(t)
	if in.refused(own) {
		t.Errorf("the agent cannot post as itself, so nothing is proved")
	}
	request := func(command string) string {
		return subject(wire.RequestSubject{
			Space: s, Rail: wire.RailOne, Endpoint: wire.DeliveryEndpoint, Command: command, Caller: in.id.Lifecycle, Nonce: "abcdefghijklmnopqrstuv",
		}.Subject())
	}
	for _, subject := range []string{
		request(wire.CommandChannelSet), request(wire.CommandTrace), request(wire.CommandInbox), request(wire.CommandEnrol), // admin, operator
		wire.RecordPrefix(wire.AuthorityBucket(s)) + "grant.local.mallory", // authority
		"$JS.API.STREAM.CREATE." + wire.ChatStream(s), "$JS.API.STREAM.DELETE." + wire.ChatStream(s), "$JS.API.STREAM.PURGE." + wire.ChatStream(s),
		wire.CalloutSubject, "$SYS.REQ.CLAIMS.UPDATE", // callout, system
	} {
		in.mustNotPublish(t, subject, []byte(`{}`))
	}
	for _, subject := range []string{wire.CalloutSubject, "$SYS.>", ">", subject(wire.DirectFilter(s, local("victim")))} {
		in.mustNotSubscribe(t, subject)
	}
}

// TestRow1StolenAgentKeyMintsAgentsAlone holds the signing key of agents of a space of credential files, and of one of people.
// What it signs is an agent, whatever it says, or nobody: no admin, operator, authority, callout or system user.
func TestRow1StolenAgentKeyMintsAgentsAlone(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*town{
		"credential_files": {Mesh: cotaltest.New(t, &cotaltest.Options{Spaces: []string{"other"}})},
		"people":           newTown(t, &cotaltest.Options{Spaces: []string{"other"}}),
	} {
		t.Run(name, func(t *testing.T) {
			m, s := w.authority().Mint(), w.Space()
			rec := must[trust.AccountRecord](t)(m.Account(t.Context(), s))
			other := must[trust.AccountRecord](t)(m.Account(t.Context(), "other"))
			user := must[nkeys.KeyPair](t)(nkeys.CreateUser())
			public := must[string](t)(user.PublicKey())
			connect := func(edit func(*jwt.UserClaims)) (*intruder, error) {
				token := w.forge(t, trust.SigningKey(s, trust.Agent), rec.Public, public, edit)
				return raw(t, func(more ...nats.Option) (*nats.Conn, error) {
					return rude{jwt: token, name: "thief", sign: user.Sign}.connect(w.InProcess(), more...)
				})
			}
			for said, edit := range map[string]func(*jwt.UserClaims){
				"nothing of its own":       func(*jwt.UserClaims) {},
				"the profile of an admin":  func(c *jwt.UserClaims) { c.Tags.Add("profile:admin", "cmd:delivery.trace", "scope:admin") },
				"the profile of authority": func(c *jwt.UserClaims) { c.Tags.Add("profile:authority", "profile:operator") },
			} {
				in, err := connect(edit)
				if err != nil {
					t.Fatalf("%s: %v", said, err)
				}
				mustBeAnAgent(t, s, in)
				in.nc.Close()
			}
			accounts := map[string]string{"another space": other.Public, "the system account": m.SystemPublic(), "an account of its own": newAccount(t)}
			if rec.Callout != nil {
				accounts["the callout account"], accounts["the callout account of another space"] = rec.Callout.Public, other.Callout.Public
			}
			for said, account := range accounts {
				if in, err := connect(func(c *jwt.UserClaims) { c.IssuerAccount = account }); err == nil {
					in.nc.Close()
					t.Errorf("connected to %s", said)
				}
			}
			for said, edit := range map[string]func(*jwt.UserClaims){
				"permissions": func(c *jwt.UserClaims) { c.Pub.Allow, c.Sub.Allow = jwt.StringList{">"}, jwt.StringList{">"} },
				"responses":   func(c *jwt.UserClaims) { c.Resp = &jwt.ResponsePermission{MaxMsgs: -1} },
				"no scope":    func(c *jwt.UserClaims) { c.SetScoped(false) },
				"bearer":      func(c *jwt.UserClaims) { c.BearerToken = true },
			} {
				if in, err := connect(edit); err == nil {
					in.nc.Close()
					t.Errorf("connected with %s of its own", said)
				}
			}
		})
	}
}

func newAccount(t testing.TB) string {
	t.Helper()
	return must[string](t)(must[nkeys.KeyPair](t)(nkeys.CreateAccount()).PublicKey())
}

// impostor answers brokers in place of the callout of a space: it has the responder's user and curve key, and signs as its test says.
type impostor struct {
	w      *town
	rec    trust.AccountRecord
	answer atomic.Pointer[func(q *jwt.AuthorizationRequestClaims, a *jwt.AuthorizationResponseClaims)]
	asked  atomic.Int64
}

// newImpostor needs a town in which nobody else answers.
func newImpostor(t testing.TB, w *town) *impostor {
	t.Helper()
	m, s := w.authority().Mint(), w.Space()
	keys := must[*mint.Responder](t)(m.CalloutResponder(t.Context(), s))
	im := &impostor{w: w, rec: must[trust.AccountRecord](t)(m.Account(t.Context(), s))}
	in := intrude(t, w.Mesh, must[*trust.Credentials](t)(m.CalloutUser(t.Context(), s, 0)))
	must[*nats.Subscription](t)(in.nc.QueueSubscribe(wire.CalloutSubject, wire.CalloutQueue, func(msg *nats.Msg) {
		im.asked.Add(1)
		xkey := msg.Header.Get(wire.CalloutKeyHeader)
		plain, err := keys.Open(msg.Data, xkey)
		if err != nil {
			t.Error(err)
			return
		}
		q, err := jwt.DecodeAuthorizationRequestClaims(string(plain))
		if err != nil {
			t.Error(err)
			return
		}
		a := jwt.NewAuthorizationResponseClaims(q.UserNkey)
		a.Audience = q.Server.ID
		(*im.answer.Load())(q, a)
		token, err := keys.SignResponse(t.Context(), a)
		if err != nil {
			t.Error(err)
			return
		}
		sealed, err := keys.Seal([]byte(token), xkey)
		if err == nil {
			err = msg.Respond(sealed)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	if err := in.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return im
}

// place lets somebody knock, whom the impostor lets in with a user that is signed by a key of the store.
func (im *impostor) place(t testing.TB, key, account string, edit func(*jwt.UserClaims)) (*intruder, error) {
	t.Helper()
	return im.knock(t, func(q *jwt.AuthorizationRequestClaims, a *jwt.AuthorizationResponseClaims) {
		a.Jwt = im.w.forge(t, key, account, q.UserNkey, edit)
	})
}

func (im *impostor) knock(t testing.TB, answer func(*jwt.AuthorizationRequestClaims, *jwt.AuthorizationResponseClaims)) (*intruder, error) {
	t.Helper()
	im.answer.Store(&answer)
	before := im.asked.Load()
	sentinel := must[string](t)(im.w.authority().Mint().Sentinel(t.Context(), im.w.Space(), time.Hour))
	in, err := raw(t, func(more ...nats.Option) (*nats.Conn, error) {
		return rude{jwt: sentinel, token: "anything", name: "accomplice"}.connect(im.w.InProcess(), more...)
	})
	if im.asked.Load() == before {
		t.Errorf("the impostor was not asked, so nothing is proved")
	}
	return in, err
}

// elsewhere is a town in which nobody answers brokers.
func elsewhere(t testing.TB) *town {
	t.Helper()
	w := &town{dir: t.TempDir()}
	w.Mesh = cotaltest.New(t, &cotaltest.Options{
		StateDir: w.dir, Spaces: []string{"other"}, People: cotal.PeopleOptions{Provider: townPin(), Elsewhere: true},
	})
	return w
}

// TestRow1StolenCalloutPlacesWhomItHasKeysFor holds everything that answers brokers: the responder's user, its signing key and
// the curve key. Without a key of the account of the space it lets nobody into any space; with the agent key it lets in agents of
// that space. An admin takes the admin key.
func TestRow1StolenCalloutPlacesWhomItHasKeysFor(t *testing.T) {
	t.Parallel()
	w := elsewhere(t)
	m, s := w.authority().Mint(), w.Space()
	im := newImpostor(t, w)
	other := must[trust.AccountRecord](t)(m.Account(t.Context(), "other"))
	none := func(*jwt.UserClaims) {}
	responder, sentinel := trust.CalloutSigningKey(s, trust.CalloutResponder), trust.CalloutSigningKey(s, trust.CalloutSentinel)
	agent, data := trust.SigningKey(s, trust.Agent), im.rec.Public
	for _, c := range []struct{ said, key, account string }{
		{"by the responder key, in the space", responder, data},
		{"by the responder key, in the system account", responder, m.SystemPublic()},
		{"by the responder key, in another space", responder, other.Public},
		{"by the sentinel key, in the space", sentinel, data},
		{"by the agent key, in the callout account", agent, im.rec.Callout.Public},
		{"by the agent key, in the system account", agent, m.SystemPublic()},
		{"by the agent key, in another space", agent, other.Public},
		{"by the agent key of another space, in the space", trust.SigningKey("other", trust.Agent), data},
		{"by the agent key of another space, in that", trust.SigningKey("other", trust.Agent), other.Public},
		{"by a system key, in the system account", trust.SystemSigningKey(trust.SystemControl), m.SystemPublic()},
		{"by a system key, in the space", trust.SystemSigningKey(trust.SystemControl), data},
	} {
		if in, err := im.place(t, c.key, c.account, none); err == nil {
			in.nc.Close()
			t.Errorf("a user %s was let in", c.said)
		}
	}
	// In the account that it answers for it can place what it is already: one that hears questions, and one that may do nothing.
	for _, key := range []string{responder, sentinel} {
		in, err := im.place(t, key, im.rec.Callout.Public, none)
		if err != nil {
			continue // a broker that refuses this too would be welcome
		}
		for _, subject := range []string{
			must[string](t)(wire.ChannelSubject(s, local("mallory"), "general")), wire.RecordPrefix(wire.AuthorityBucket(s)) + "grant.local.mallory",
			"$JS.API.INFO", "$SYS.REQ.CLAIMS.UPDATE", wire.CalloutSubject, "$SYS._INBOX.x", "x",
		} {
			in.mustNotPublish(t, subject, nil) // a payload of its own would end the connection of a sentinel
		}
		for _, subject := range []string{">", "$SYS.>", wire.CalloutSubject, "cotal.>", "_INBOX.>", in.nc.NewInbox()} {
			in.mustNotSubscribe(t, subject)
		}
		in.nc.Close()
	}
	for said, edit := range map[string]func(*jwt.UserClaims){
		"permissions": func(c *jwt.UserClaims) { c.Pub.Allow, c.Sub.Allow = jwt.StringList{">"}, jwt.StringList{">"} },
		"no scope":    func(c *jwt.UserClaims) { c.SetScoped(false) },
	} {
		if in, err := im.place(t, agent, data, edit); err == nil {
			in.nc.Close()
			t.Errorf("a user with %s of its own was let in", said)
		}
	}
	for said, edit := range map[string]func(*jwt.UserClaims){
		"nothing of its own":      none,
		"the profile of an admin": func(c *jwt.UserClaims) { c.Tags.Add("profile:admin", "scope:admin", "cmd:delivery.trace") },
	} {
		in, err := im.place(t, agent, data, edit)
		if err != nil {
			t.Fatalf("with the agent key and %s: %v; what the thief can do is to be documented", said, err)
		}
		mustBeAnAgent(t, s, in)
	}
	in, err := im.place(t, trust.SigningKey(s, trust.Admin), data, none)
	if err != nil {
		t.Fatalf("with the admin key: %v", err)
	}
	in.nc.Close()
}

// TestN12AnswersForSomebodyElse: an answer for another server, about another connection or with a user of another key lets
// nobody in, also when it comes from who may answer.
func TestN12AnswersForSomebodyElse(t *testing.T) {
	t.Parallel()
	w := elsewhere(t)
	im := newImpostor(t, w)
	key, data := trust.SigningKey(w.Space(), trust.Agent), im.rec.Public
	server := must[string](t)(must[nkeys.KeyPair](t)(nkeys.CreateServer()).PublicKey())
	stranger := must[string](t)(must[nkeys.KeyPair](t)(nkeys.CreateUser()).PublicKey())
	none := func(*jwt.UserClaims) {}
	for said, edit := range map[string]func(q *jwt.AuthorizationRequestClaims, a *jwt.AuthorizationResponseClaims){
		"another server":     func(_ *jwt.AuthorizationRequestClaims, a *jwt.AuthorizationResponseClaims) { a.Audience = server },
		"another connection": func(_ *jwt.AuthorizationRequestClaims, a *jwt.AuthorizationResponseClaims) { a.Subject = stranger },
		"a user of another key": func(_ *jwt.AuthorizationRequestClaims, a *jwt.AuthorizationResponseClaims) {
			a.Jwt = w.forge(t, key, data, stranger, none)
		},
	} {
		in, err := im.knock(t, func(q *jwt.AuthorizationRequestClaims, a *jwt.AuthorizationResponseClaims) {
			a.Jwt = w.forge(t, key, data, q.UserNkey, none)
			edit(q, a)
		})
		if err == nil {
			in.nc.Close()
			t.Errorf("an answer for %s let somebody in", said)
		}
	}
	if _, err := im.place(t, key, data, none); err != nil {
		t.Errorf("an answer in order: %v", err)
	}
}
