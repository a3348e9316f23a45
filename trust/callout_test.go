package trust_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// TestCalloutDecides: who shows a sentinel and a bearer gets what the callout says and no more, under the template of the
// profile, and comes back with the same bearer.
func TestCalloutDecides(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		creds := r.bearer(t, space, "the.bearer")
		questions := make(chan question, 8)
		r.answers(t, space, func(q question) []byte {
			questions <- q
			return q.answer(t, q.user(t, nil), nil)
		})
		nc, err := r.knock(t, creds)
		if err != nil {
			t.Fatal(err)
		}
		q := <-questions
		switch o := q.asked.ConnectOptions; {
		case o.Token != "the.bearer", o.JWT != creds.JWT(), o.Name != "local.ada":
			t.Errorf("the callout was shown %+v", o)
		case !q.proved(t, creds.Identity().UserKey):
			t.Error("the key of the client did not sign the nonce")
		case q.asked.UserNkey == creds.Identity().UserKey:
			t.Error("the key of the connection is the client's")
		}
		for subject, want := range map[string]bool{
			"cotal.main.chat.local.ada.general": true, "cotal.main.chat.local.bob.general": false, "cotal.main.chat.local.ada.secret": false,
			"$JS.API.STREAM.MSG.GET.CHAT_main": false, wire.CalloutSubject: false,
		} {
			if got := r.try(t, creds, []probe{{"pub", subject}})[probe{"pub", subject}]; got != want {
				t.Errorf("publish to %s passed: %v, want %v", subject, got, want)
			}
		}
		again := make(chan struct{}, 8)
		nc.SetReconnectHandler(func(*nats.Conn) { again <- struct{}{} })
		for len(questions) > 0 {
			<-questions
		}
		account, err := r.mint.Account(t.Context(), space)
		if err != nil {
			t.Fatal(err)
		}
		ctl, err := r.srv.Control(t.Context(), func(ctx context.Context) (*trust.Credentials, error) {
			return r.mint.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ctl.Close() }()
		if n, err := ctl.EvictTagged(t.Context(), account.Public, "uid:"+string(adaUID)); err != nil || n != 1 {
			t.Fatalf("EvictTagged = %d, %v, want the one connection", n, err)
		}
		<-again
		if q := <-questions; q.asked.ConnectOptions.Token != "the.bearer" || !q.proved(t, creds.Identity().UserKey) {
			t.Errorf("a reconnect shows %+v", q.asked.ConnectOptions)
		}
	})
}

// TestStaticConnectsWithoutResponder: nobody answers, and only those about whom nobody is asked come in.
func TestStaticConnectsWithoutResponder(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		began := time.Now()
		knocked := make(chan error, 1)
		go func() {
			nc, err := r.knock(t, r.bearer(t, space, "token"))
			if err == nil {
				nc.Close()
			}
			knocked <- err
		}()
		for range 3 {
			for _, p := range []trust.Profile{trust.Agent, trust.Admin, trust.Delivery} {
				nc, _, err := r.connect(r.user(t, p))
				if err != nil {
					t.Fatalf("profile %s: %v", p, err)
				}
				nc.Close()
			}
			for _, k := range trust.SystemKinds() {
				creds, err := r.mint.SystemUser(t.Context(), systemRequest(k))
				if err != nil {
					t.Fatal(err)
				}
				nc, _, err := r.connect(creds)
				if err != nil {
					t.Fatalf("kind %s: %v", k, err)
				}
				nc.Close()
			}
		}
		if err := <-knocked; !errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("a knock that nobody answers = %v", err)
		}
		if took := time.Since(began); took != trust.AuthTimeout {
			t.Errorf("a knock that nobody answers ended after %s, want %s", took, trust.AuthTimeout)
		}
	})
}

// TestCalloutsKeepApart: two spaces, each with its own callout. Each lets into its own account alone, whatever its responder signs
// with.
func TestCalloutsKeepApart(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		other, err := r.mint.Account(t.Context(), otherSpace)
		if err != nil {
			t.Fatal(err)
		}
		var evil atomic.Pointer[func(q question) string] // what the responder of the first space signs, when it is not loyal
		for _, s := range []wire.Space{space, otherSpace} {
			r.answers(t, s, func(q question) []byte {
				if sign := evil.Load(); s == space && sign != nil {
					return q.answer(t, (*sign)(q), nil)
				}
				return q.answer(t, q.user(t, nil), nil)
			})
		}
		for _, s := range []wire.Space{space, otherSpace} {
			creds := r.bearer(t, s, "token")
			for _, target := range []wire.Space{space, otherSpace} {
				p := probe{"pub", "cotal." + string(target) + ".chat.local.ada.general"}
				if got := r.try(t, creds, []probe{p})[p]; got != (s == target) {
					t.Errorf("signed in at %s: publish to %s passed: %v", s, p.subject, got)
				}
			}
		}
		for name, sign := range map[string]func(q question) string{
			"with the agent key of the other space": func(q question) string {
				return question{r: r, space: otherSpace, asked: q.asked}.user(t, nil)
			},
			"naming the other space": func(q question) string {
				return q.user(t, func(c *jwt.UserClaims) { c.IssuerAccount = other.Public })
			},
			"naming the other callout account": func(q question) string {
				return q.user(t, func(c *jwt.UserClaims) { c.IssuerAccount = other.Callout.Public })
			},
			"naming the system account": func(q question) string {
				return q.user(t, func(c *jwt.UserClaims) { c.IssuerAccount = r.mint.SystemPublic() })
			},
			"with a key of the system account": func(q question) string {
				c := userClaims(q, r.mint.SystemPublic())
				return r.signWith(t, trust.SystemSigningKey(trust.SystemControl), c)
			},
		} {
			evil.Store(&sign)
			r.turnedAway(t, name, space)
		}
		evil.Store(nil)
		if _, err := r.knock(t, r.bearer(t, space, "token")); err != nil {
			t.Errorf("after all of it the space still works: %v", err)
		}
	})
}

func userClaims(q question, account string) *jwt.UserClaims {
	c := jwt.NewUserClaims(q.asked.UserNkey)
	c.SetScoped(true)
	c.IssuerAccount, c.Expires = account, time.Now().Add(time.Minute).Unix()
	c.Tags = trustTags("local", "ada", string(adaUID))
	return c
}

// TestAnswersAreRefused: what a broker does not take from a callout.
func TestAnswersAreRefused(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		var answer atomic.Pointer[func(q question) []byte]
		r.answers(t, space, func(q question) []byte { return (*answer.Load())(q) })
		server, err := nkeys.CreateServer()
		if err != nil {
			t.Fatal(err)
		}
		foreignServer, _ := server.PublicKey()
		stranger, err := signer.Generate(signer.User)
		if err != nil {
			t.Fatal(err)
		}
		account, err := nkeys.CreateAccount()
		if err != nil {
			t.Fatal(err)
		}
		plainly := func(q question, key string) []byte {
			c := jwt.NewAuthorizationResponseClaims(q.asked.UserNkey)
			c.Audience, c.Jwt = q.asked.Server.ID, q.user(t, nil)
			return []byte(r.signWith(t, key, c))
		}
		first := struct{ nkey, jwt string }{}
		for _, c := range []struct {
			name   string
			in     bool
			answer func(q question) []byte
		}{
			{"in order", true, func(q question) []byte {
				first.nkey, first.jwt = q.asked.UserNkey, q.user(t, nil)
				return q.answer(t, first.jwt, nil)
			}},
			{"a refusal", false, func(q question) []byte {
				return q.answer(t, "", func(c *jwt.AuthorizationResponseClaims) { c.Error = "no" })
			}},
			{"nothing", false, func(question) []byte { return []byte{} }},
			{"another server", false, func(q question) []byte {
				return q.answer(t, q.user(t, nil), func(c *jwt.AuthorizationResponseClaims) { c.Audience = foreignServer })
			}},
			{"an answer about another connection", false, func(q question) []byte {
				return q.answer(t, q.user(t, nil), func(c *jwt.AuthorizationResponseClaims) { c.Subject = stranger.Public() })
			}},
			{"a user of another key", false, func(q question) []byte {
				return q.answer(t, q.user(t, func(c *jwt.UserClaims) { c.Subject = stranger.Public() }), nil)
			}},
			{"the user of an earlier connection", false, func(q question) []byte { return q.answer(t, first.jwt, nil) }},
			{"an earlier answer", false, func(q question) []byte {
				return q.answer(t, first.jwt, func(c *jwt.AuthorizationResponseClaims) { c.Subject = first.nkey })
			}},
			{"a user that ended", false, func(q question) []byte {
				return q.answer(t, q.user(t, func(c *jwt.UserClaims) { c.Expires = time.Now().Add(-time.Minute).Unix() }), nil)
			}},
			{"a user with permissions of its own", false, func(q question) []byte {
				return q.answer(t, q.user(t, func(c *jwt.UserClaims) { c.Pub.Allow = jwt.StringList{">"} }), nil)
			}},
			{"a user with limits of its own", false, func(q question) []byte {
				return q.answer(t, q.user(t, func(c *jwt.UserClaims) { c.Limits.Payload = 1 << 30 }), nil)
			}},
			{"a user without the tags of its template", false, func(q question) []byte {
				return q.answer(t, q.user(t, func(c *jwt.UserClaims) { c.Tags = nil }), nil)
			}},
			{"a user of a key that nobody lists", false, func(q question) []byte {
				rec, err := r.mint.Account(t.Context(), space)
				if err != nil {
					t.Error(err)
				}
				token, err := userClaims(q, rec.Public).Encode(account)
				if err != nil {
					t.Error(err)
				}
				return q.answer(t, token, nil)
			}},
			{"signed by the callout of another space, not sealed", false, func(q question) []byte {
				return plainly(q, trust.CalloutSigningKey(otherSpace, trust.CalloutResponder))
			}},
			{"signed by the agent key, not sealed", false, func(q question) []byte { return plainly(q, trust.SigningKey(space, trust.Agent)) }},
			{"sealed by another", false, func(q question) []byte {
				other, err := r.mint.CalloutResponder(t.Context(), otherSpace)
				if err != nil {
					t.Error(err)
				}
				q.keys = other
				return q.answer(t, q.user(t, nil), nil)
			}},
			// What the broker does take. The seal vouches for an answer as much as the signature: it asks for one of the two.
			{"signed and not sealed", true, func(q question) []byte { return plainly(q, trust.CalloutSigningKey(space, trust.CalloutResponder)) }},
			{"sealed and signed by another", true, func(q question) []byte {
				return q.seal(t, string(plainly(q, trust.CalloutSigningKey(otherSpace, trust.CalloutResponder))))
			}},
		} {
			answer.Store(&c.answer)
			if !c.in {
				r.turnedAway(t, c.name, space)
				continue
			}
			nc, err := r.knock(t, r.bearer(t, space, "token"))
			if err != nil {
				t.Errorf("%s: %v, want a connection", c.name, err)
				continue
			}
			nc.Close()
		}
	})
}

// TestResponderPermissions tries everything as a responder: it hears the questions, as one of its group, and says nothing.
func TestResponderPermissions(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		creds, err := r.mint.CalloutUser(t.Context(), space, 0)
		if err != nil {
			t.Fatal(err)
		}
		for p := range r.try(t, creds, append(universe(), pubs("$SYS.", "_INBOX.x.y", "REQ.USER.AUTH")...)) {
			t.Errorf("a responder may %s %s", p.verb, p.subject)
		}
		for _, c := range []struct {
			subject, queue string
			want           bool
		}{
			{wire.CalloutSubject, wire.CalloutQueue, true}, {wire.CalloutSubject, "", false}, {wire.CalloutSubject, "other", false},
			{"$SYS.REQ.USER.*", wire.CalloutQueue, false}, {"$SYS.REQ.>", wire.CalloutQueue, false}, {">", wire.CalloutQueue, false},
			{"cotal.main.chat.>", wire.CalloutQueue, false}, {"$SYS._INBOX.>", wire.CalloutQueue, false},
			{wire.InboxPrefix(creds.Identity().Inbox) + ".x", "", false},
		} {
			nc, errs, err := r.connect(creds)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := nc.QueueSubscribeSync(c.subject, c.queue); err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			nc.Close()
			refused := false
			select {
			case err := <-errs:
				refused = errors.Is(err, nats.ErrPermissionViolation)
			default:
				refused = errors.Is(nc.LastError(), nats.ErrPermissionViolation)
			}
			if refused == c.want {
				t.Errorf("subscribe %s as %q allowed: %v, want %v", c.subject, c.queue, !refused, c.want)
			}
		}
	})
}

// TestResponderAnswersOnce: an answer goes to who asked, once.
func TestResponderAnswersOnce(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newPeopleRealm(t)
		refusals := make(chan error, 8)
		keys, err := r.mint.CalloutUser(t.Context(), space, 0)
		if err != nil {
			t.Fatal(err)
		}
		nc, errs, err := r.connect(keys)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, err = nc.QueueSubscribe(wire.CalloutSubject, wire.CalloutQueue, func(m *nats.Msg) {
			_ = m.Respond([]byte("x"))
			_ = m.Respond([]byte("y"))
			_ = nc.Publish(m.Reply+".x", nil)
			_ = nc.Flush()
			for range 2 {
				refusals <- <-errs
			}
		})
		if err == nil {
			err = nc.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		r.turnedAway(t, "an answer that is none", space)
		for range 2 {
			if err := <-refusals; !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "$SYS._INBOX.") {
				t.Errorf("%v, want the second answer, and one to somebody else, refused", err)
			}
		}
	})
}

// TestMintedTemplates writes down the permissions that stand in the account JWTs, as a broker decodes them: nothing may be lost or
// added between the template and the JWT, least of all the subjects that begin with a dollar.
func TestMintedTemplates(t *testing.T) {
	t.Parallel()
	a := newMint(t)
	rec, err := a.EnsureCallout(t.Context(), space)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := a.Broker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# The scoped signing keys of the accounts of space main and of the system account, as they stand in the JWTs. Written by\n" +
		"# go test ./trust -run TestMintedTemplates -update; read every change.\n")
	dollars := 0
	for _, account := range append(rec.Accounts(), trust.SignedAccount{Public: broker.System.Public, JWT: broker.System.JWT}) {
		claims, err := jwt.DecodeAccountClaims(account.JWT)
		if err != nil {
			t.Fatal(err)
		}
		roles := map[string]jwt.UserPermissionLimits{}
		var order []string
		for _, scope := range claims.SigningKeys {
			us, ok := scope.(*jwt.UserScope)
			if !ok {
				t.Fatalf("account %s has a key without a scope", claims.Name)
			}
			roles[us.Role] = us.Template
			order = append(order, us.Role)
		}
		for _, role := range slices.Sorted(slices.Values(order)) {
			dollars += writeTemplate(&b, claims.Name, role, roles[role])
		}
	}
	for _, want := range []string{"$KV.cotal_presence_main.", "$JS.API.CONSUMER.MSG.NEXT.", "$JS.ACK.", "$JS.API.DIRECT.GET.", "$SYS.REQ.USER.AUTH callout"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no template names %s", want)
		}
	}
	if dollars < 50 {
		t.Errorf("%d subjects begin with a dollar, which cannot be all", dollars)
	}
	compareFile(t, "templates.txt", b.String())
}

func writeTemplate(b *strings.Builder, account, role string, l jwt.UserPermissionLimits) (dollars int) {
	fmt.Fprintf(b, "\n%s: %s, %d subscriptions, payload %d, connections %s", account, role, l.Subs, l.Payload, strings.Join(l.AllowedConnectionTypes, " "))
	if l.BearerToken {
		b.WriteString(", bearer")
	}
	if l.Resp != nil {
		fmt.Fprintf(b, ", answers %d in %s", l.Resp.MaxMsgs, l.Resp.Expires)
	}
	b.WriteString("\n")
	for _, list := range []struct {
		name  string
		lines jwt.StringList
	}{{"pub", l.Pub.Allow}, {"pub not", l.Pub.Deny}, {"sub", l.Sub.Allow}, {"sub not", l.Sub.Deny}} {
		for _, line := range list.lines {
			fmt.Fprintf(b, "  %s %s\n", list.name, line)
			if strings.HasPrefix(line, "$") {
				dollars++
			}
		}
	}
	return dollars
}
