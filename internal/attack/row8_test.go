package attack_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/signer"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestRow8TakeOverAnInbox: a person with a bearer of their own tries to read the answers that go to somebody else: by subscribing to
// their inbox, by calling the connection after them, by asking the exchange for their inbox, by a bearer that was changed to name
// it, and by reading reply subjects off what others publish.
func TestRow8TakeOverAnInbox(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	s := w.Space()
	victim := w.grant(t, "ada", "ada", nil)
	w.grant(t, "bob", "mallory", nil)
	b := w.signIn(t, "bob", "mallory")
	mine := must[*trust.Credentials](t)(b.Credentials())
	inbox := wire.InboxPrefix(string(victim.UID))

	in := intrude(t, w.Mesh, mine)
	for _, subject := range []string{
		inbox + ".>", inbox + ".*", inbox + ".x.y", inbox, "_INBOX.>", "_INBOX_*.>", ">", must[string](t)(wire.ReplyFilter(s, victim.Lifecycle())),
	} {
		in.mustNotSubscribe(t, subject)
	}
	in.mustNotPublish(t, inbox+".forged.answer", []byte(`{}`))

	// What a client says of itself changes nothing: the inbox is that of the life that the bearer names.
	for _, name := range []string{victim.Principal().String(), string(victim.UID), inbox} {
		as, err := raw(t, func(more ...nats.Option) (*nats.Conn, error) {
			more = append(more, nats.CustomInboxPrefix(inbox), nats.UserJWT(func() (string, error) { return mine.JWT(), nil }, mine.Sign))
			return rude{jwt: mine.JWT(), token: b.Reveal(), name: name}.connect(w.InProcess(), more...)
		})
		if err != nil {
			t.Fatal(err)
		}
		as.mustNotSubscribe(t, inbox+".>")
		as.mustNotPublish(t, must[string](t)(wire.ChannelSubject(s, victim.Principal(), "general")), []byte(`{}`))
		own := must[*nats.Subscription](t)(as.nc.SubscribeSync(wire.InboxPrefix(mine.Identity().Inbox) + ".>"))
		if err := as.nc.Flush(); err != nil || as.refused(own.Subject) {
			t.Errorf("its own inbox: %v, so nothing is proved", err)
		}
	}

	// The exchange gives nobody's inbox to somebody else, and a bearer that says so is not signed.
	x := w.exchange(t, s)
	if got := must[login.Bearer](t)(x.Human(t.Context(), ask("bob", "mallory"))).Identity().Inbox; got == string(victim.UID) {
		t.Errorf("the exchange gave the inbox of the victim")
	}
	for name, edit := range map[string]func(act map[string]any){
		"inbox": func(act map[string]any) { act["inbox"] = string(victim.UID) },
		"life":  func(act map[string]any) { act["inbox"], act["uid"] = string(victim.UID), string(victim.UID) },
		"all": func(act map[string]any) {
			act["inbox"], act["uid"], act["owner"], act["actor"] = string(victim.UID), string(victim.UID), victim.Owner, victim.Actor
		},
	} {
		if err := w.present(t, mine, edited(t, b.Reveal(), name == "all", edit)); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("a bearer that was changed to name the %s of the victim: %v, want a refusal", name, err)
		}
	}

	// Nothing that is published shows where its answer goes.
	boss := must[*endpoint.Endpoint](t)(endpoint.Connect(t.Context(), "", endpoint.Static(w.credentials(t, "ada", "ada")), &endpoint.Options{InProcess: w.InProcess()}))
	t.Cleanup(func() { _ = boss.Close() })
	live := must[*nats.Subscription](t)(in.nc.SubscribeSync(must[string](t)(wire.LiveFilter(s, "general"))))
	if err := in.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	say(t, boss, "general", "hello")
	msg := must[*nats.Msg](t)(live.NextMsgWithContext(t.Context()))
	raw := strings.Join([]string{msg.Subject, msg.Reply, string(msg.Data), string(must[[]byte](t)(json.Marshal(msg.Header)))}, " ")
	if msg.Reply != "" || strings.Contains(raw, "_INBOX") || strings.Contains(raw, string(victim.UID)) {
		t.Errorf("the live rail shows %s", raw)
	}
	if got := boss.Lifecycle(); got != victim.Lifecycle() {
		t.Errorf("the victim connected as %v, want %v", got, victim.Lifecycle())
	}
}

// present connects with a token in place of the one of creds, proving its key; the twin of every attack on a bearer is the token
// as it was.
func (w *town) present(t testing.TB, creds *trust.Credentials, token string) error {
	t.Helper()
	nc, err := rude{jwt: creds.JWT(), token: token, name: "presented", sign: creds.Sign}.connect(w.InProcess())
	if err == nil {
		nc.Close()
	}
	return err
}

// edited changes the act of a bearer, and its subject with that, and keeps its signature.
func edited(t testing.TB, token string, subject bool, edit func(act map[string]any)) string {
	t.Helper()
	return rewrite(t, token, func(_, claims map[string]any) {
		act, ok := claims["act"].(map[string]any)
		if !ok {
			t.Fatalf("a bearer without an act: %v", claims)
		}
		edit(act)
		if subject {
			claims["sub"] = act["owner"]
		}
	}, nil)
}

// newKey is a user key of the thief.
func newKey(t testing.TB) *signer.Local {
	t.Helper()
	return must[*signer.Local](t)(signer.Generate(signer.User))
}
