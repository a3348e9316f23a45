package field_test

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/wire"
)

// guestOf is a person who is connected to a village, and posted.
type guestOf struct {
	ep   *endpoint.Endpoint
	gone chan struct{} // told of each loss of the connection
}

func newGuest(t testing.TB, v *village, who string) *guestOf {
	t.Helper()
	v.grant(t, who, who)
	g := &guestOf{gone: make(chan struct{}, 64)}
	g.ep = v.join(t, v.person(t, who, who), func(e endpoint.Event) {
		if _, is := e.(endpoint.EventDisconnected); is {
			g.gone <- struct{}{}
		}
	})
	must(g.ep.Post(t.Context(), "general", endpoint.Text(strings.Repeat("x", 1<<12))))(t)
	return g
}

// N19: a space of people is removed while three of them are connected, with its streams, buckets and messages. They are dropped and do not come
// back, its disk is free, its accounts and what its people were known by are gone from the broker and from the records, the log says
// so, and the space beside it notices nothing. A space of the same name knows nobody.
func TestN19ASpaceOfPeopleIsRemoved(t *testing.T) {
	t.Parallel()
	var log paper
	dir, store := t.TempDir(), memstore.New()
	m := cotaltest.New(t, &cotaltest.Options{StateDir: dir, Store: store, Logger: log.logger(), Spaces: []string{"guest"}, People: cotal.PeopleOptions{
		Provider: villagePin(), Identity: func(string) exchange.Identity { return new(village) },
	}})
	const guest wire.Space = "guest"
	stays := &village{Mesh: m, space: m.Space()}
	goes := &village{Mesh: m, space: guest}
	for _, v := range []*village{stays, goes} {
		v.x = v.openDesk(t, v.space)
		v.proof.Store(int64(1 << 40))
	}
	var calm journal[endpoint.Event]
	stays.grant(t, "ada", "ada")
	ada := stays.join(t, stays.person(t, "ada", "ada"), calm.add)
	guests := []*guestOf{newGuest(t, goes, "one"), newGuest(t, goes, "two"), newGuest(t, goes, "three")}
	creds := must(goes.person(t, "one", "one").Credentials(t.Context()))(t)
	rec := must(m.Node().Authority().Mint().Account(t.Context(), guest))(t)
	disk := filepath.Join(dir, "jetstream", rec.Public)
	if _, err := os.Stat(disk); err != nil {
		t.Fatalf("the space has no disk: %v", err)
	}

	if err := m.Node().RemoveSpace(t.Context(), string(guest)); err != nil {
		t.Fatal(err)
	}
	for _, g := range guests {
		<-g.gone
		if g.ep.Connected() {
			t.Errorf("%s is connected", g.ep.Principal())
		}
	}
	if err := goes.knock(t, creds); !errors.Is(err, wire.ErrUnauthenticated) && !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("a bearer of the space that was removed: %v, want a refusal", err)
	}
	if _, err := os.Stat(disk); !os.IsNotExist(err) {
		t.Errorf("its disk is left: %v", err)
	}
	for _, a := range rec.Accounts() {
		if _, err := os.Stat(filepath.Join(dir, "accounts", a.Public+".jwt")); !os.IsNotExist(err) {
			t.Errorf("account %s is left at the broker: %v", a.Public, err)
		}
	}
	for _, key := range must(store.List(t.Context(), ""))(t) {
		if strings.Contains(key, hex.EncodeToString([]byte(guest))) {
			t.Errorf("record %s is left", key)
		}
	}
	if _, err := os.Stat(cotal.CapabilityFile(dir, string(guest))); !os.IsNotExist(err) {
		t.Errorf("its capability file is left: %v", err)
	}
	if said := log.text(); !strings.Contains(said, "space removed") || !strings.Contains(said, "space=guest") {
		t.Error("the log does not say that it was removed")
	}
	must(ada.Post(t.Context(), "general", endpoint.Text("still here")))(t)
	for _, e := range calm.take() {
		t.Errorf("the space beside it was told %T %v", e, e)
	}
	if st := must(m.Node().Status(t.Context()))(t); !st.Healthy() || len(st.Spaces) != 1 {
		t.Errorf("status afterwards: %+v", st)
	}

	if err := m.Node().AddSpace(t.Context(), string(guest)); err != nil {
		t.Fatal(err)
	}
	if all := must(m.Node().Authority().List(t.Context(), guest))(t); len(all) != 0 {
		t.Errorf("a space of the same name knows %+v", all)
	}
	if err := goes.knock(t, creds); err == nil || errors.Is(err, nats.ErrTimeout) {
		t.Errorf("a bearer of before at a space of the same name: %v, want a refusal", err)
	}
}
