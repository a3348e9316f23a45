package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// following is a Follow under way.
type following struct {
	changes chan broker.ConnectionChange
	stop    func() error
}

// follow starts to follow an account and returns once notices are told.
func (b *bench) follow(ctl *broker.Control, account string) *following {
	b.t.Helper()
	f := &following{changes: make(chan broker.ConnectionChange, 4096)}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- ctl.Follow(ctx, account, func(c broker.ConnectionChange) { f.changes <- c }) }()
	f.stop = sync.OnceValue(func() error { cancel(); return <-done })
	b.t.Cleanup(func() { _ = f.stop() })
	select {
	case c := <-f.changes:
		if !c.Missed {
			b.t.Fatalf("first call of Follow = %+v, want one that says that notices are told from now on", c)
		}
	case err := <-done:
		b.t.Fatalf("Follow: %v", err)
	case <-b.ctx().Done():
		b.t.Fatal("Follow does not begin")
	}
	return f
}

// next is the next change that ok accepts.
func (f *following) next(b *bench, what string, ok func(broker.ConnectionChange) bool) broker.ConnectionChange {
	b.t.Helper()
	for {
		select {
		case c := <-f.changes:
			if ok(c) {
				return c
			}
		case <-b.ctx().Done():
			b.t.Fatalf("nobody told: %s", what)
		}
	}
}

func came(name string) func(broker.ConnectionChange) bool {
	return func(c broker.ConnectionChange) bool { return !c.Missed && c.Connected && c.Connection.Name == name }
}

func went(name string) func(broker.ConnectionChange) bool {
	return func(c broker.ConnectionChange) bool { return !c.Missed && !c.Connected && c.Connection.Name == name }
}

func noticesTellWhoCameAndWent(t *testing.T, b *bench) {
	rec, other := b.space("team", nil), b.space("other", nil)
	f := b.follow(b.Control, rec.Public)
	creds := b.user("team", trust.Agent, "ada")
	stranger := b.connect(b.user("other", trust.Agent, "stranger"))
	began := time.Now()
	ada := b.connect(creds, nats.NoReconnect())
	first := f.next(b, "ada came", came("ada"))
	id := creds.Identity()
	all, err := b.Control.Connections(b.ctx(), rec.Public)
	if err != nil || len(all) != 1 {
		t.Fatalf("Connections = %d, %v; want 1", len(all), err)
	}
	for what, got := range map[string]broker.Connection{"notice": first.Connection, "listing": all[0]} {
		if !got.HasTags(id.Tags()...) || got.UserKey != id.UserKey || got.Account != rec.Public || got.User != id.Principal.String() || !got.Expires.Equal(id.Expires) {
			t.Errorf("%s = %+v, want the connection of %v with its tags", what, got, creds)
		}
	}
	if first.Connection.CID != all[0].CID || first.Connection.ServerID != all[0].ServerID {
		t.Errorf("notice names connection %d of %q, the listing %d of %q", first.Connection.CID, first.Connection.ServerID, all[0].CID, all[0].ServerID)
	}
	ada.Close()
	last := f.next(b, "ada went", went("ada"))
	if last.Connection.CID != first.Connection.CID || last.Reason == "" || last.At.Before(began.Add(-time.Minute)) || !last.Connection.HasTags(id.Tags()...) {
		t.Errorf("the end of connection %d = %+v", first.Connection.CID, last)
	}
	stranger.Close()
	b.connect(b.user("team", trust.Agent, "fence"))
	f.next(b, "the fence came", func(c broker.ConnectionChange) bool {
		if c.Connection.Account != "" && c.Connection.Account != rec.Public || c.Connection.Name == "stranger" || c.Missed {
			t.Errorf("told of %+v in account %q while following %q", c, other.Public, rec.Public)
		}
		return came("fence")(c)
	})
	if err := f.stop(); err != nil {
		t.Errorf("Follow after its context ended = %v, want nil", err)
	}
	if err := b.Control.Follow(b.ctx(), "everybody", func(broker.ConnectionChange) {}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("Follow of no account = %v, want bad-request", err)
	}
}

// noticesSurviveARenewal has clients come and go while the control's credential is renewed over and over: nothing is missed.
func noticesSurviveARenewal(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	f := b.follow(b.Control, rec.Public)
	creds := b.user("team", trust.Agent, "ada")
	var renewals atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := b.Control.Renew(b.ctx()); err != nil {
				t.Errorf("Renew: %v", err)
				return
			}
			renewals.Add(1)
		}
	}()
	const clients = 40
	want := map[string]bool{}
	for i := range clients {
		name := fmt.Sprintf("c%02d", i)
		b.connect(creds, nats.NoReconnect(), nats.Name(name)).Close()
		want["+"+name], want["-"+name] = true, true
	}
	close(stop)
	<-stopped
	f.next(b, "everybody came and went", func(c broker.ConnectionChange) bool {
		if c.Missed {
			t.Error("a renewal missed notices")
		}
		sign := "-"
		if c.Connected {
			sign = "+"
		}
		delete(want, sign+c.Connection.Name)
		return len(want) == 0
	})
	t.Logf("%d renewals while %d clients came and went", renewals.Load(), clients)
	if renewals.Load() == 0 {
		t.Error("nothing was renewed")
	}
}

func missedNoticesAreTold(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	f := b.follow(b.Control, rec.Public)
	b.Restart(t)
	f.next(b, "notices were missed", func(c broker.ConnectionChange) bool { return c.Missed })
	// Who came between two such calls may not be told; who comes after the last one is.
	creds := b.user("team", trust.Agent, "ada")
	b.connect(creds)
	f.next(b, "ada came after the restart", func(c broker.ConnectionChange) bool {
		if c.Missed {
			b.connect(creds)
		}
		return came("ada")(c)
	})
}

// watcherSeesOneAccount holds a watcher's credential to its account: listing and following, and nothing else.
func watcherSeesOneAccount(t *testing.T, b *bench) {
	rec, other := b.space("team", nil), b.space("other", nil)
	watcher, err := broker.Dial(b.ctx(), b.URL, func(ctx context.Context) (*trust.Credentials, error) {
		return b.authority.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemWatcher, Account: rec.Public})
	}, nil)
	if err != nil {
		t.Fatalf("Dial as watcher: %v", err)
	}
	defer func() { _ = watcher.Close() }()
	f := b.follow(watcher, rec.Public)
	ada, bob := b.connect(b.user("team", trust.Agent, "ada")), b.connect(b.user("other", trust.Agent, "bob"))
	f.next(b, "ada came", came("ada"))
	all, err := watcher.Connections(b.ctx(), rec.Public, broker.WithSubscriptions())
	if err != nil || len(all) != 1 || all[0].Name != "ada" {
		t.Fatalf("Connections as watcher = %+v, %v; want ada", all, err)
	}
	if err := watcher.Renew(b.ctx()); err != nil {
		t.Errorf("Renew as watcher: %v", err)
	}
	token, err := b.authority.DeleteToken(b.ctx(), "team")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := b.Control.Connections(b.ctx(), other.Public)
	if err != nil || len(foreign) != 1 {
		t.Fatalf("Connections of the other account = %d, %v; want 1", len(foreign), err)
	}
	for name, err := range map[string]error{
		"Connections of another account": second(watcher.Connections(b.ctx(), other.Public)),
		"Follow of another account":      watcher.Follow(b.ctx(), other.Public, func(broker.ConnectionChange) {}),
		"PutAccount":                     watcher.PutAccount(b.ctx(), rec.Public, rec.JWT),
		"RemoveAccount":                  watcher.RemoveAccount(b.ctx(), rec.Public, token),
		"Lookup":                         second(watcher.Lookup(b.ctx(), rec.Public)),
		"Kick of its own":                watcher.Kick(b.ctx(), all[0]),
		"Kick of another's":              watcher.Kick(b.ctx(), foreign[0]),
	} {
		if !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("%s as watcher = %v, want permission-denied", name, err)
		}
	}
	b.untouched(ada)
	b.untouched(bob)
}

func second[T any](_ T, err error) error { return err }

// evictionIsCompleteOrFails evicts a client that has a new connection before the old one is dropped, as one that comes back
// at once would: while its credential is good the eviction must fail, whatever it dropped; once it is refused, the
// eviction succeeds and a listing has nobody.
func evictionIsCompleteOrFails(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	creds, bob := b.user("team", trust.Agent, "mallory"), b.connect(b.user("team", trust.Agent, "bob"))
	id := creds.Identity()
	tags := []string{"owner:" + id.Owner, "actor:" + id.Actor, "uid:" + string(id.UID)}
	came, refused := 0, 0
	hers := func(c broker.Connection) bool {
		if !c.HasTags(tags...) {
			return false
		}
		if _, err := b.dial(creds, nats.NoReconnect()); err == nil {
			came++
		} else {
			refused++
		}
		return true
	}
	b.connect(creds, nats.NoReconnect())
	n, err := b.Control.Evict(b.ctx(), rec.Public, hers)
	if n == 0 || !errors.Is(err, wire.ErrConflict) {
		t.Errorf("Evict of a client that comes back = %d, %v; want conflict after some were dropped", n, err)
	}
	if came == 0 || !slices.Contains(b.connected(rec.Public), "mallory") {
		t.Fatalf("the client came back %d times and is not there: this proves nothing", came)
	}

	revoked, err := b.authority.Revoke(b.ctx(), "team", mint.Revocation{UserKey: id.UserKey})
	if err != nil {
		t.Fatal(err)
	}
	// The broker's own part of a revocation drops who is there; what is left to prove is that nobody is.
	b.put(revoked)
	came = 0
	b.refused(creds)
	if n, err := b.Control.Evict(b.ctx(), rec.Public, hers); err != nil || came > 0 {
		t.Errorf("Evict of a refused client = %d, %v, and it came back %d times; want it proved", n, err, came)
	}
	if got := b.connected(rec.Public); !slices.Equal(got, []string{"bob"}) {
		t.Errorf("connected after a proved eviction = %q, want bob alone", got)
	}
	b.untouched(bob)
}
