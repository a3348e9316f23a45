package field_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// C40: system credentials live for a minute and are used for an hour. Every verb of an operator goes on working, nothing is restarted, and who is
// connected notices nothing.
func TestC40SystemCredentialsEndWithoutARestart(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		var events journal[endpoint.Event]
		ada := m.Endpoint(t, "ada", &cotaltest.Peer{Options: endpoint.Options{OnEvent: events.add}})
		ctl := control(t, m, time.Minute)
		a := m.Node().Authority()
		for i := range 40 {
			time.Sleep(90 * time.Second)
			rec := must(a.Mint().Account(t.Context(), m.Space()))(t)
			if got := must(ctl.Connections(t.Context(), rec.Public))(t); len(got) < 2 {
				t.Fatalf("round %d: %d connections listed", i, len(got))
			}
			ok(t, "push an account", ctl.PutAccount(t.Context(), rec.Public, rec.JWT))
			must(ctl.Ping(t.Context()))(t)
			actor := fmt.Sprintf("round_%d", i)
			victim := m.Endpoint(t, actor, nil)
			must(a.Revoke(t.Context(), m.Space(), victim.Principal()))(t)
			ok(t, "add a space", m.Node().AddSpace(t.Context(), "guest"))
			ok(t, "remove a space", m.Node().RemoveSpace(t.Context(), "guest"))
			if st := must(m.Node().Status(t.Context()))(t); !st.Healthy() {
				t.Fatalf("round %d: %+v", i, st)
			}
			must(ada.Post(t.Context(), "general", endpoint.Text("still here")))(t)
		}
		for _, e := range events.take() {
			t.Errorf("who was connected was told %T %v", e, e)
		}
	})
}

// C40: a client of a node that is kept, as a program of an operator keeps it, outlives its system credential: what the broker refuses of it is replaced.
func TestC40AKeptClientOutlivesItsCredential(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	m := cotaltest.New(t, &cotaltest.Options{Listen: true, Store: store})
	c := must(cotal.DialNode(t.Context(), m.URL(), store, nil))(t)
	defer func() { ok(t, "close", c.Close()) }()
	must(c.Status(t.Context()))(t)
	ok(t, "rotate", m.Node().Authority().RotateSystem(t.Context()))
	ok(t, "retire", m.Node().Authority().RetireSystem(t.Context())) // what both sides have is refused from here on, as if it had ended
	limit, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for served := false; !served; { // the node has replaced its own
		fresh := must(cotal.DialNode(limit, m.URL(), store, nil))(t)
		_, err := fresh.Status(limit)
		served = err == nil
		ok(t, "close", fresh.Close())
	}
	if _, err := c.Status(limit); err != nil && wire.CodeOf(err) != wire.CodeUnavailable { // a call under way may be lost with its connection
		t.Errorf("status: %v", err)
	}
	if _, err := c.Status(limit); err != nil {
		t.Errorf("status once more: %v", err)
	}
	if err := c.AddSpace(limit, "guest"); err != nil {
		t.Errorf("add a space: %v", err)
	}
	for {
		n, err := c.Deliveries(limit, cotaltest.SpaceName)
		if err == nil && n == 1 {
			break
		}
		if wire.CodeOf(err) != wire.CodeUnavailable || limit.Err() != nil { // its control is on its way back
			t.Fatalf("count deliveries: %d, %v", n, err)
		}
	}
}

// C42: an observer's watch of the roster is begun anew ten times. No consumer is left at the broker, nothing it does is a violation; and it may
// delete nobody's consumer, not even the name of its own.
func TestC42WatchesLeaveNothing(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		creds := must(m.Node().Authority().Personal(t.Context(), m.Space(), trust.Observer, "watcher", time.Hour))(t)
		var events journal[endpoint.Event]
		ep := m.Connect(t, creds, &cotaltest.Peer{Options: endpoint.Options{OnEvent: events.add}})
		m.Endpoint(t, "ada", nil)
		consumers := func() (all map[string]int) {
			js := must(jetstream.New(rawService(t, m, trust.Provisioner)))(t)
			all = map[string]int{}
			for _, name := range streamsOf(m.Space()) {
				stream := must(js.Stream(t.Context(), name))(t)
				all[name] = must(stream.Info(t.Context()))(t).State.Consumers
			}
			return all
		}
		ctx, cancel := context.WithCancel(t.Context())
		var seen journal[endpoint.RosterUpdate]
		done := make(chan error, 1)
		go func() { done <- ep.WatchRoster(ctx, seen.add) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		before := consumers()
		ctl := control(t, m, 0)
		rec := must(m.Node().Authority().Mint().Account(t.Context(), m.Space()))(t)
		for range 10 {
			if n := must(ctl.EvictTagged(t.Context(), rec.Public, "uid:"+string(creds.Identity().UID)))(t); n != 1 {
				t.Fatalf("%d connections ended", n)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
		}
		if after := consumers(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("consumers after ten new watches %v, before %v", after, before)
		}
		if len(seen.take()) == 0 {
			t.Error("the watch saw nothing, so nothing is proved")
		}
		told := events.take()
		if n := count[endpoint.EventDenied](told); n != 0 {
			t.Errorf("%d violations", n)
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) && wire.CodeOf(err) != wire.CodeCancelled {
			t.Errorf("the watch ended with %v", err)
		}

		denied := make(chan string, 256)
		nc := must(dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: "raw", OnError: func(_ *nats.Conn, err error) { denied <- err.Error() }}))(t)
		defer nc.Close()
		tried := 0
		js := must(jetstream.New(rawService(t, m, trust.Authority)))(t)
		for _, name := range []string{wire.DirectStream(m.Space()), wire.RoleStream(m.Space())} {
			names := must(js.Stream(t.Context(), name))(t).ConsumerNames(t.Context())
			for consumer := range names.Name() {
				tried++
				ok(t, "publish", nc.Publish("$JS.API.CONSUMER.DELETE."+name+"."+consumer, nil))
			}
		}
		ok(t, "publish", nc.Publish("$JS.API.CONSUMER.DELETE."+wire.DirectStream(m.Space())+".mine", nil))
		ok(t, "flush", nc.Flush())
		synctest.Wait()
		if got := len(denied); tried == 0 || got != tried+1 {
			t.Errorf("%d of %d deletions were refused", got, tried+1)
		}
	})
}

// rawService is a connection of a service of the space.
func rawService(t testing.TB, m *cotaltest.Mesh, p trust.Profile) *nats.Conn {
	t.Helper()
	creds := must(m.Node().Authority().ServiceCredential(t.Context(), m.Space(), p, 0))(t)
	nc := must(dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: string(p)}))(t)
	t.Cleanup(nc.Close)
	return nc
}

func streamsOf(s wire.Space) []string {
	out := []string{wire.ChatStream(s), wire.DirectStream(s), wire.RoleStream(s), wire.MentionStream(s), wire.DeadStream(s)}
	for _, b := range []string{wire.ChannelsBucket(s), wire.MembersBucket(s), wire.CursorsBucket(s), wire.AuthorityBucket(s), wire.PresenceBucket(s)} {
		out = append(out, "KV_"+b)
	}
	return out
}

// held is what a credential may do: its own tags in the template of the key that signed it, as the account says.
type held struct{ pub, sub, subDeny, pubDeny []string }

// decode opens a credential as a broker does.
func decode(t testing.TB, token, account string) held {
	t.Helper()
	user := must(jwt.DecodeUserClaims(token))(t)
	if !user.HasEmptyPermissions() {
		t.Errorf("the credential %q has permissions of its own", user.Name)
	}
	claims := must(jwt.DecodeAccountClaims(account))(t)
	scope, known := claims.SigningKeys.GetScope(user.Issuer)
	key, scoped := scope.(*jwt.UserScope)
	if !known || !scoped {
		t.Fatalf("the key of %q is not a scoped one of the account", user.Name)
	}
	tags := map[string][]string{}
	for _, tag := range user.Tags {
		k, v, _ := strings.Cut(tag, ":")
		tags[k] = append(tags[k], v)
	}
	fill := func(lines jwt.StringList) (out []string) {
		for _, line := range lines {
			out = append(out, expand(line, tags)...)
		}
		return out
	}
	p := key.Template.Permissions
	return held{fill(p.Pub.Allow), fill(p.Sub.Allow), fill(p.Sub.Deny), fill(p.Pub.Deny)}
}

// expand fills the tags into a line of a template; a line with a tag that is not there goes away.
func expand(line string, tags map[string][]string) []string {
	_, rest, found := strings.Cut(line, "{{tag(")
	if !found {
		return []string{line}
	}
	name, _, _ := strings.Cut(rest, ")}}")
	var out []string
	for _, v := range tags[name] {
		out = append(out, expand(strings.Replace(line, "{{tag("+name+")}}", v, 1), tags)...)
	}
	return out
}

func (h held) may(verb, subject string) bool {
	allow, deny := h.pub, h.pubDeny
	if verb == "sub" {
		allow, deny = h.sub, h.subDeny
	}
	hits := func(lines []string) bool {
		return slices.ContainsFunc(lines, func(line string) bool {
			pattern, _, _ := strings.Cut(line, " ") // a queue group
			return covers(pattern, subject)
		})
	}
	return hits(allow) && !hits(deny)
}

// covers reports whether a pattern takes in a subject, which may be a pattern.
func covers(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, tok := range p {
		switch {
		case tok == ">":
			return len(s) > i
		case i >= len(s), s[i] == ">", tok != "*" && tok != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

// right is one line of the table of C43: who must have it, of all profiles, and nobody else may.
type right struct {
	verb, subject string
	who           []trust.Profile
}

func rights(t testing.TB, s wire.Space, me wire.Lifecycle) []right {
	t.Helper()
	all := func(more ...trust.Profile) []trust.Profile { return more }
	req := func(command string) string {
		return must(wire.RequestSubject{Space: s, Rail: wire.RailOne, Endpoint: wire.DeliveryEndpoint, Command: command, Caller: me, Nonce: "abcdefghijklmnopqrstuv"}.Subject())(t)
	}
	chat := must(wire.ChannelSubject(s, me.Principal, "general"))(t)
	direct := must(wire.DirectSubject(s, wire.Principal{Owner: wire.LocalOwner, Actor: "bob"}, me.Principal))(t)
	api := "$JS.API."
	kv := func(bucket string) string { return wire.RecordPrefix(bucket) }
	return []right{
		{"pub", chat, all(trust.Agent, trust.Operator)},
		{"pub", direct, all(trust.Agent, trust.Operator, trust.Undertaker)},
		{"sub", must(wire.LiveFilter(s, "general"))(t), all(trust.Agent, trust.Observer, trust.Admin, trust.Delivery)},
		{"sub", wire.InboxPrefix(string(me.UID)) + ".>", all(trust.Profiles()...)},
		{"pub", req(wire.CommandHistory), all(trust.Agent, trust.Observer, trust.Admin, trust.Operator, trust.ChannelWriter)},
		{"pub", req(wire.CommandChannelSet), all(trust.Operator, trust.ChannelWriter)},
		{"pub", req(wire.CommandTrace), all(trust.Admin, trust.Operator)},
		{"pub", req(wire.CommandInbox), all(trust.Admin, trust.Operator)},
		{"pub", kv(wire.AuthorityBucket(s)) + "grant.local.ada", all(trust.Authority)},
		{"pub", api + "STREAM.MSG.GET.KV_" + wire.AuthorityBucket(s), all(trust.Authority, trust.Delivery)},
		{"pub", api + "STREAM.CREATE." + wire.ChatStream(s), all(trust.Provisioner)},
		{"pub", api + "STREAM.UPDATE.KV_" + wire.PresenceBucket(s), all(trust.Provisioner)},
		{"pub", api + "STREAM.DELETE." + wire.ChatStream(s), all(trust.Teardown, trust.Provisioner)},
		{"pub", api + "STREAM.DELETE.KV_" + wire.AuthorityBucket(s), all(trust.Teardown, trust.Provisioner)},
		{"pub", api + "STREAM.PURGE." + wire.ChatStream(s), all(trust.Purger)},
		{"pub", api + "STREAM.PURGE." + wire.DirectStream(s), all(trust.Purger)},
		{"pub", api + "CONSUMER.DURABLE.CREATE." + wire.DirectStream(s) + "." + wire.DirectDurable(me), all(trust.Authority)},
		{"pub", "$SYS.REQ.CLAIMS.UPDATE", all()},
		{"pub", api + "STREAM.RESTORE." + wire.ChatStream(s), all()},
		{"sub", ">", all()},
		{"sub", "$SYS.>", all()},
		{"sub", "_INBOX.>", all()},
		{"sub", wire.CalloutSubject, all(trust.Callout)},
		{"sub", must(wire.DirectFilter(s, me.Principal))(t), all()},
	}
}

// C43: a credential of every profile is minted by the mesh and decoded with the account as the broker holds it. Each line of the table is held by those
// whom it names and by nobody else, so that a right that is missing shows although nothing used it, and one too many as well.
func TestC43EveryProfileHoldsWhatItNeeds(t *testing.T) {
	t.Parallel()
	v := newVillage(t, nil)
	m, s := v.authority().Mint(), v.space
	rec := must(m.Account(t.Context(), s))(t)
	ctl := control(t, v.Mesh, 0)
	me := wire.Lifecycle{Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}, UID: wire.NewUID()}
	account := must(ctl.Lookup(t.Context(), rec.Public))(t)
	creds := map[trust.Profile]held{}
	for _, p := range trust.Profiles() {
		req := mint.UserRequest{Space: s, Profile: p, Principal: me.Principal, UID: me.UID}
		if p.Lists() {
			req.Subscribe, req.Publish = []string{"general"}, []string{"general"}
		}
		creds[p] = decode(t, must(m.User(t.Context(), req))(t).JWT(), account)
	}
	creds[trust.Callout] = decode(t, must(m.CalloutUser(t.Context(), s, 0))(t).JWT(), must(ctl.Lookup(t.Context(), rec.Callout.Public))(t))
	sentinel := decode(t, must(m.Sentinel(t.Context(), s, 0))(t), must(ctl.Lookup(t.Context(), rec.Callout.Public))(t))
	for _, r := range rights(t, s, me) {
		for p, h := range creds {
			if got, want := h.may(r.verb, r.subject), slices.Contains(r.who, p); got != want {
				t.Errorf("profile %s may %s %s: %t, want %t", p, r.verb, r.subject, got, want)
			}
		}
		if sentinel.may(r.verb, r.subject) {
			t.Errorf("the sentinel may %s %s", r.verb, r.subject)
		}
	}
	// What people are given is the same as what files hold: a view has the rights of its profile, a person those of an agent.
	g := v.grant(t, "ada", "ada", func(r *auth.GrantRequest) { r.Subscribe, r.Publish = []string{"general"}, []string{"general"} })
	token := must(m.ConnectionJWT(t.Context(), s, mint.ConnectionRequest{
		UserRequest: mint.UserRequest{Profile: trust.Agent, Principal: g.Principal(), UID: g.UID, Subscribe: g.AllowSubscribe, Publish: g.AllowPublish},
		UserKey:     someUser(t), Expires: time.Now().Add(time.Minute),
	}))(t)
	for _, r := range rights(t, s, g.Lifecycle()) {
		if got, want := decode(t, token, account).may(r.verb, r.subject), slices.Contains(r.who, trust.Agent); got != want {
			t.Errorf("a person may %s %s: %t, want %t", r.verb, r.subject, got, want)
		}
	}
}

// N24: rights on subjects that begin with a dollar arrive at the broker as they were written: what it holds of each profile is the
// template of this build, to the letter.
func TestN24DollarSubjectsArrive(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	ctl := control(t, m, 0)
	rec := must(m.Node().Authority().Mint().Account(t.Context(), m.Space()))(t)
	claims := must(jwt.DecodeAccountClaims(must(ctl.Lookup(t.Context(), rec.Public))(t)))(t)
	dollars := 0
	for _, p := range trust.Profiles() {
		want := must(trust.Template(p, m.Space()))(t)
		keys := rec.KeysOf(p)
		if len(keys) == 0 {
			t.Errorf("profile %s has no key", p)
		}
		for _, key := range keys {
			scope, _ := claims.SigningKeys.GetScope(key)
			have, is := scope.(*jwt.UserScope)
			if !is {
				t.Errorf("profile %s: its key has no scope", p)
				continue
			}
			for verb, lists := range map[string][2]jwt.StringList{
				"publish": {want.Pub.Allow, have.Template.Pub.Allow}, "subscribe": {want.Sub.Allow, have.Template.Sub.Allow},
				"not publish": {want.Pub.Deny, have.Template.Pub.Deny}, "not subscribe": {want.Sub.Deny, have.Template.Sub.Deny},
			} {
				if !slices.Equal(slices.Sorted(slices.Values(lists[0])), slices.Sorted(slices.Values(lists[1]))) {
					t.Errorf("profile %s may %s %q at the broker, want %q", p, verb, lists[1], lists[0])
				}
				for _, line := range lists[1] {
					if strings.HasPrefix(line, "$JS.") || strings.HasPrefix(line, "$KV.") {
						dollars++
					}
				}
			}
		}
	}
	if dollars < 50 {
		t.Errorf("%d rights on $JS and $KV subjects, too few to prove anything", dollars)
	}
}

// N23: the key of the operator's identity is kept away. The signing key that is there makes a new space of people that works, also after a
// restart.
func TestN23TheRootKeyIsAway(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		store := memstore.New()
		v := newVillage(t, &cotaltest.Options{Store: store})
		if err := store.Delete(t.Context(), trust.OperatorKey); err != nil {
			t.Fatal(err)
		}
		v.stop()
		v.Restart(t)
		v.answer(t)
		ok(t, "add a space", v.Node().AddSpace(t.Context(), "fresh"))
		ok(t, "sign people in", v.Node().SignIn(t.Context(), "fresh", *villagePin()))
		w := v.beside(t, "fresh")
		w.grant(t, "ada", "ada")
		ada := w.join(t, w.person(t, "ada", "ada"), nil)
		must(ada.Post(t.Context(), "general", endpoint.Text("hello")))(t)
		must(w.authority().Revoke(t.Context(), "fresh", ada.Principal()))(t)
		if _, err := store.Get(t.Context(), trust.OperatorKey); err == nil {
			t.Error("the root key is back")
		}
	})
}
