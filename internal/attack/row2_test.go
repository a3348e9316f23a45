package attack_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// control looks at the connections of the town.
func (w *town) control(t testing.TB) *broker.Control {
	t.Helper()
	return operate(t, w.Mesh)
}

// operate looks at the connections of a mesh as its operator does.
func operate(t testing.TB, w *cotaltest.Mesh) *broker.Control {
	t.Helper()
	m := w.Node().Authority().Mint()
	ctl, err := broker.Dial(t.Context(), "", func(ctx context.Context) (*trust.Credentials, error) {
		return m.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
	}, &broker.DialOptions{InProcess: w.InProcess()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ctl.Close() })
	return ctl
}

// connections counts those of a life.
func (w *town) connections(t testing.TB, ctl *broker.Control, uid wire.UID) int {
	t.Helper()
	rec := must[trust.AccountRecord](t)(w.authority().Mint().Account(t.Context(), w.Space()))
	n := 0
	for _, c := range must[[]broker.Connection](t)(ctl.Connections(t.Context(), rec.Public)) {
		if c.HasTags("uid:" + string(uid)) {
			n++
		}
	}
	return n
}

// alive counts the connections that the keys of credentials have on a mesh.
func alive(t testing.TB, m *cotaltest.Mesh, ctl *broker.Control, creds ...*trust.Credentials) int {
	t.Helper()
	rec := must[trust.AccountRecord](t)(m.Node().Authority().Mint().Account(t.Context(), m.Space()))
	n := 0
	for _, c := range must[[]broker.Connection](t)(ctl.Connections(t.Context(), rec.Public)) {
		if slices.ContainsFunc(creds, func(cr *trust.Credentials) bool { return cr.Identity().UserKey == c.UserKey }) {
			n++
		}
	}
	return n
}

// watched counts what happens to a connection.
type watched struct {
	*intruder
	lost, back atomic.Int64
	gone       chan struct{} // told of each loss
}

func (w *town) watch(t testing.TB, creds *trust.Credentials) *watched {
	t.Helper()
	x := &watched{intruder: intrude(t, w.Mesh, creds), gone: make(chan struct{}, 64)}
	x.nc.SetDisconnectErrHandler(func(*nats.Conn, error) { x.lost.Add(1); x.gone <- struct{}{} })
	x.nc.SetReconnectHandler(func(*nats.Conn) { x.back.Add(1) })
	return x
}

// TestRow2ARevokedAgentIsGoneAtOnce revokes one agent, of a space of credential files and of one of people: its connections are
// closed before Revoke returns, within a second, none comes back, also after a restart of the broker and its node, and
// nothing at all happens to its siblings.
func TestRow2ARevokedAgentIsGoneAtOnce(t *testing.T) {
	t.Parallel()
	files := &town{Mesh: cotaltest.New(t, nil)}
	people := newTown(t, nil)
	for _, c := range []struct {
		name  string
		w     *town
		creds func(actor string) *trust.Credentials
		gone  func(t *testing.T) // what else must be refused
	}{
		{"credential_files", files, func(actor string) *trust.Credentials {
			return must[*trust.Credentials](t)(files.authority().Issue(t.Context(), auth.Request{Space: files.Space(), Actor: actor, Subscribe: []string{"general"}, Publish: []string{"general"}}))
		}, func(*testing.T) {}},
		{"people", people, func(actor string) *trust.Credentials {
			people.grant(t, "ada", actor, nil)
			return people.credentials(t, "ada", actor)
		}, func(t *testing.T) {
			if _, err := people.exchange(t, people.Space()).Human(t.Context(), ask("ada", "mallory")); trust.ReasonOf(err) != trust.ReasonRevoked {
				t.Errorf("a new bearer for who was revoked: %v, want grant-revoked", err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := c.w
			ctl := w.control(t)
			creds, sibling := c.creds("mallory"), c.creds("sibling")
			id := creds.Identity()
			in := []*watched{w.watch(t, creds), w.watch(t, creds)}
			calm := []*watched{w.watch(t, sibling), w.watch(t, sibling)}
			if n := w.connections(t, ctl, id.UID); n != len(in) {
				t.Fatalf("%d connections, want %d", n, len(in))
			}
			began := time.Now()
			if _, err := w.authority().Revoke(t.Context(), w.Space(), id.Principal); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if n := w.connections(t, ctl, id.UID); n != 0 {
				t.Errorf("%d connections after Revoke returned", n)
			}
			for _, x := range in {
				<-x.gone
			}
			t.Logf("revoked and proved after %s", took)
			refused := func(when string) {
				t.Helper()
				if err := w.knock(t, creds); !errors.Is(err, wire.ErrUnauthenticated) {
					t.Errorf("%s: connect = %v, want unauthenticated", when, err)
				}
				c.gone(t)
				for _, x := range in {
					if x.back.Load() != 0 || x.nc.IsConnected() {
						t.Errorf("%s: a connection of before is back", when)
					}
				}
			}
			refused("live")
			for _, x := range calm {
				x.barrier(t)
				if x.lost.Load() != 0 {
					t.Errorf("a sibling was disconnected")
				}
			}
			w.Restart(t)
			refused("after a restart")
			if err := w.knock(t, sibling); err != nil {
				t.Errorf("the sibling after a restart: %v", err)
			}
		})
	}
}

// TestRow2ALifeOfBeforeIsOver: a bearer of an earlier epoch of the grant, and one of a life that is over, connect nobody, also when the name
// has been granted again.
func TestRow2ALifeOfBeforeIsOver(t *testing.T) {
	t.Parallel()
	w := newTown(t, nil)
	first := w.grant(t, "ada", "ada", nil)
	before := w.credentials(t, "ada", "ada")
	if err := w.knock(t, before); err != nil {
		t.Fatal(err)
	}
	wider := w.grant(t, "ada", "ada", func(r *auth.GrantRequest) { r.Publish = []string{">"} })
	if wider.UID != first.UID || wider.Epoch <= first.Epoch {
		t.Fatalf("widened grant %+v", wider)
	}
	if err := w.knock(t, before); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("a bearer of an earlier epoch: %v, want unauthenticated", err)
	}
	after := w.credentials(t, "ada", "ada")
	if err := w.knock(t, after); err != nil {
		t.Errorf("a bearer of the epoch of now: %v", err)
	}
	if _, err := w.authority().Revoke(t.Context(), w.Space(), first.Principal()); err != nil {
		t.Fatal(err)
	}
	next := w.grant(t, "ada", "ada", nil)
	if next.UID == first.UID {
		t.Fatal("a life came back")
	}
	for name, creds := range map[string]*trust.Credentials{"first": before, "second": after} {
		if err := w.knock(t, creds); !errors.Is(err, wire.ErrUnauthenticated) {
			t.Errorf("the %s bearer of a life that is over: %v, want unauthenticated", name, err)
		}
	}
	if err := w.knock(t, w.credentials(t, "ada", "ada")); err != nil {
		t.Errorf("the life of now: %v", err)
	}
}
