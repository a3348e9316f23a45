package attack_test

import (
	"testing"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// TestSystemCredentialReachesOneTenant holds the credential with which a delivery in a process of its own looks at the
// broker: it lists and follows the connections of its own account and reads its own answers. Everything else that lies
// in the system account, other tenants' connections and other credentials' answers among it, is refused by the broker.
func TestSystemCredentialReachesOneTenant(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	m := cotaltest.New(t, &cotaltest.Options{Store: store, Spaces: []string{"other"}})
	authority := must[*mint.Authority](t)(mint.Open(t.Context(), store, nil))
	account := func(s wire.Space) string {
		t.Helper()
		return must[trust.AccountRecord](t)(authority.Account(t.Context(), s)).Public
	}
	system := func(r mint.SystemRequest) *trust.Credentials {
		t.Helper()
		return must[*trust.Credentials](t)(authority.SystemUser(t.Context(), r))
	}
	own, foreign := account(m.Space()), account("other")
	victims := map[string]*trust.Credentials{
		"another tenant's watcher": system(mint.SystemRequest{Kind: trust.SystemWatcher, Account: foreign}),
		"a watcher of the same":    system(mint.SystemRequest{Kind: trust.SystemWatcher, Account: own}),
		"the control":              system(mint.SystemRequest{Kind: trust.SystemControl}),
		"an observer":              system(mint.SystemRequest{Kind: trust.SystemObserver}),
	}
	in := intrude(t, m, system(mint.SystemRequest{Kind: trust.SystemWatcher, Account: own}))

	for name, victim := range victims {
		inbox := wire.InboxPrefix(victim.Identity().Inbox)
		if inbox == wire.InboxPrefix(in.id.Inbox) {
			t.Errorf("%s has the inbox of the intruder", name)
		}
		in.mustNotSubscribe(t, inbox+".>")
		in.mustNotSubscribe(t, inbox+".*")
		in.mustNotPublish(t, inbox+".forged", []byte(`{}`))
	}
	for _, subject := range []string{
		">", "*.>", "_INBOX.>", "_INBOX_*.>", "_R_.>", "$SYS.>", "$SYS.REQ.>", "$SYS.ACCOUNT.>", "$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT",
		"$SYS.ACCOUNT." + foreign + ".CONNECT", "$SYS.ACCOUNT." + foreign + ".DISCONNECT", "$SYS.ACCOUNT." + foreign + ".>", "$SYS.ACCOUNT." + own + ".>",
		"$SYS.SERVER.>", "$SYS._INBOX.>", trust.NodeSubject("*"),
	} {
		in.mustNotSubscribe(t, subject)
	}
	id := must[string](t)(in.nc.ConnectedServerId(), nil)
	for subject, body := range map[string]string{
		"$SYS.REQ.ACCOUNT." + foreign + ".CONNZ": `{"auth":true}`,
		"$SYS.REQ.ACCOUNT.PING.CONNZ":            `{"auth":true}`,
		"$SYS.REQ.SERVER.PING.CONNZ":             `{"auth":true}`,
		"$SYS.REQ.SERVER." + id + ".CONNZ":       `{"auth":true}`,
		"$SYS.REQ.SERVER." + id + ".KICK":        `{"cid":1}`, // a number of any tenant
		"$SYS.REQ.SERVER." + id + ".LDM":         `{"cid":1}`,
		"$SYS.REQ.ACCOUNT." + own + ".SUBSZ":     `{}`,
		"$SYS.REQ.ACCOUNT." + own + ".JSZ":       `{}`,
		"$SYS.REQ.CLAIMS.UPDATE":                 ``,
		"$SYS.REQ.CLAIMS.LIST":                   ``,
		"$SYS.ACCOUNT." + own + ".DISCONNECT":    `{"client":{"id":1}}`, // a notice of its own making
		trust.NodeSubject("stop"):                `{"v":1}`,
	} {
		in.mustNotPublish(t, subject, []byte(body))
	}
}

// TestObserversShareNoInbox shows that whoever may read every channel of a space still reads nobody's answers, of its own
// tenant or another.
func TestObserversShareNoInbox(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, &cotaltest.Options{Spaces: []string{"other"}})
	observer := func(s wire.Space, name string) *trust.Credentials {
		t.Helper()
		return must[*trust.Credentials](t)(m.Node().Authority().Personal(t.Context(), s, trust.Observer, name, 0))
	}
	in := intrude(t, m, observer(m.Space(), "one"))
	for _, victim := range []*trust.Credentials{observer(m.Space(), "two"), observer("other", "three"), observer("other", "one")} {
		v := victim.Identity()
		if v.Inbox == in.id.Inbox {
			t.Errorf("%s of %s has the inbox of the intruder", v.Principal, v.Space)
		}
		in.mustNotSubscribe(t, wire.InboxPrefix(v.Inbox)+".>")
		in.mustNotSubscribe(t, must[string](t)(wire.ReplyFilter(v.Space, v.Lifecycle)))
		in.mustNotPublish(t, wire.InboxPrefix(v.Inbox)+".forged", nil)
	}
}
