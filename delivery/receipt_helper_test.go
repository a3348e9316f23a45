package delivery_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// body is one running process of a principal that can be killed: its connections break and none come back.
type body struct {
	*endpoint.Endpoint
	mesh *cotaltest.Mesh

	mu    sync.Mutex // guards the two below
	dead  bool
	conns []net.Conn
}

// start runs a process with a credential. take, when not nil, receives its direct messages.
func start(t testing.TB, m *cotaltest.Mesh, creds *trust.Credentials, opts endpoint.Options, take func(*endpoint.Delivery)) *body {
	t.Helper()
	b := &body{mesh: m}
	opts.InProcess, opts.Name, opts.CloseTimeout = b, creds.Identity().Actor, time.Second
	var err error
	if b.Endpoint, err = endpoint.Connect(t.Context(), "", endpoint.Static(creds), &opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	if take != nil {
		if err := b.HandleDirect(t.Context(), take); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *body) InProcessConn() (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return nil, errors.New("the process is dead")
	}
	conn, err := b.mesh.InProcess().InProcessConn()
	if err == nil {
		b.conns = append(b.conns, conn)
	}
	return conn, err
}

// kill ends it as kill -9 does: nothing is sent any more.
func (b *body) kill() {
	b.mu.Lock()
	b.dead = true
	for _, conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
	b.mu.Unlock()
	_ = b.Close() // only frees what it holds in this process
}

// ended waits until the roster has noticed who is gone.
func ended() {
	time.Sleep(wire.LivenessWindow + 2*time.Second)
	synctest.Wait()
}

// soon lets the mesh settle.
func soon() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func issue(t testing.TB, m *cotaltest.Mesh, actor string, req auth.Request) *trust.Credentials {
	t.Helper()
	return m.Credentials(t, actor, &cotaltest.Peer{Request: &req})
}

// agent issues a credential of an agent that may read and post everything.
func agent(t testing.TB, m *cotaltest.Mesh, actor, role string) *trust.Credentials {
	t.Helper()
	return issue(t, m, actor, auth.Request{Role: role, Subscribe: []string{">"}, Publish: []string{">"}, TTL: 7 * 24 * time.Hour})
}

// asker is an endpoint that only asks, and is not in the roster.
func asker(t testing.TB, m *cotaltest.Mesh, creds *trust.Credentials) *endpoint.Endpoint {
	t.Helper()
	return m.Connect(t, creds, &cotaltest.Peer{Options: endpoint.Options{Quiet: true}})
}

// wantFate asks all who may know for a receipt and compares what they hear, and asks who may not.
func wantFate(t testing.TB, what string, req wire.ReceiptRequest, want wire.RecipientReceipt, may []*endpoint.Endpoint, stranger *endpoint.Endpoint) wire.ReceiptReply {
	t.Helper()
	var got wire.ReceiptReply
	for _, e := range may {
		var err error
		if got, err = e.Receipt(t.Context(), req); err != nil {
			t.Fatalf("%s: receipt for %s: %v", what, e.Principal(), err)
		}
		if got.ID != req.ID || got.Stage != want.Stage || len(got.Recipients) != 1 || got.Recipients[0] != want {
			t.Errorf("%s: receipt for %s = %s %+v, want %+v", what, e.Principal(), got.Stage, got.Recipients, want)
		}
	}
	if stranger != nil {
		if r, err := stranger.Receipt(t.Context(), req); !errors.Is(err, wire.ErrNotFound) {
			t.Errorf("%s: receipt for the stranger %s = %+v, %v, want not-found", what, stranger.Principal(), r, err)
		}
	}
	return got
}
