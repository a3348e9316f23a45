package brokertest

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func pingTellsWhoServes(t *testing.T, b *bench) {
	servers, err := b.Control.Ping(b.ctx())
	if err != nil {
		t.Fatalf("Ping: %v", err)
	}
	if len(servers) != 1 || servers[0].ID == "" || servers[0].Name == "" || !servers[0].JetStream || servers[0].MemoryBytes == 0 || servers[0].Start.IsZero() {
		t.Errorf("Ping = %+v, want one server with JetStream", servers)
	}
	if v := servers[0].Version; strings.Compare(v, broker.MinVersion) < 0 {
		t.Errorf("version %q, want at least %q", v, broker.MinVersion)
	}
}

func accountIsUsableAtOnce(t *testing.T, b *bench) {
	rec := b.space("late", nil)
	if held, err := b.Control.Lookup(b.ctx(), rec.Public); err != nil || held != rec.JWT {
		t.Errorf("Lookup differs from what was put (%v)", err)
	}
	if err := b.stream(b.connect(b.user("late", trust.Provisioner, "setup")), "late"); err != nil {
		t.Fatalf("create a stream in the new account: %v", err)
	}
	ada := b.connect(b.user("late", trust.Agent, "ada"))
	for want := uint64(1); want <= 3; want++ {
		if got := b.post(ada, "late"); got != want {
			t.Errorf("stored sequence = %d, want %d", got, want)
		}
	}
	b.put(rec) // the same again is no harm
	b.untouched(ada)
}

func limitsChangeLive(t *testing.T, b *bench) {
	b.space("team", &mint.Limits{Connections: 10})
	setup := b.connect(b.user("team", trust.Provisioner, "setup"))
	agents := []*client{b.connect(b.user("team", trust.Agent, "a")), b.connect(b.user("team", trust.Agent, "b"))}

	b.space("team", &mint.Limits{Connections: 1, Disk: 1 << 19})
	if err := b.stream(setup, "team"); err == nil {
		t.Error("a stream over the lowered limit was created")
	} else if apiErr, ok := errors.AsType[*jetstream.APIError](err); !ok || apiErr.Code == 404 {
		t.Logf("create a stream over the lowered limit: %v", err)
	}
	refused := 0
	for _, c := range append(agents, setup) {
		select {
		case <-c.lost:
			refused++
		default:
		}
	}
	if _, err := b.dial(b.user("team", trust.Agent, "c")); err == nil {
		t.Errorf("a connection over the lowered limit was accepted; %d of 3 were dropped", refused)
	}

	b.space("team", &mint.Limits{Connections: 10})
	fresh := b.connect(b.user("team", trust.Provisioner, "again"))
	if err := b.stream(fresh, "team"); err != nil {
		t.Errorf("create a stream after the limit was raised: %v", err)
	}
}

func spacesDoNotMeet(t *testing.T, b *bench) {
	one, two := b.space("one", nil), b.space("two", nil)
	here, there := b.connect(b.user("one", trust.Observer, "here")), b.connect(b.user("two", trust.Agent, "there"))
	live, err := wire.LiveFilter("one", ">")
	if err != nil {
		t.Fatal(err)
	}
	sub, err := here.SubscribeSync(live)
	if err != nil {
		t.Fatal(err)
	}
	if err := here.Flush(); err != nil {
		t.Fatal(err)
	}
	subject, err := wire.LiveSubject("one", there.creds.Identity().Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Publish(subject, []byte("across")); err != nil {
		t.Fatal(err)
	}
	if err := there.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := here.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := sub.Pending(); n != 0 || err != nil {
		t.Errorf("%d messages crossed from one space into the other (%v)", n, err)
	}
	if got := b.connected(one.Public); !slices.Equal(got, []string{"here"}) {
		t.Errorf("connected to one = %q", got)
	}
	if got := b.connected(two.Public); !slices.Equal(got, []string{"there"}) {
		t.Errorf("connected to two = %q", got)
	}
}

func revocationDropsAndHolds(t *testing.T, b *bench) {
	b.space("team", nil)
	bad, good := b.user("team", trust.Agent, "mallory"), b.user("team", trust.Agent, "ada")
	mallory, again, ada := b.connect(bad), b.connect(bad), b.connect(good)

	rec, err := b.authority.Revoke(b.ctx(), "team", mint.Revocation{UserKey: bad.Identity().UserKey})
	if err != nil {
		t.Fatalf("Revoke: %v", err)
	}
	b.put(rec)
	b.dropped(rec.Public, mallory, again)
	if err := <-mallory.reasons; !errors.Is(err, nats.ErrAuthRevoked) {
		t.Errorf("reason of the drop = %v, want %v", err, nats.ErrAuthRevoked)
	}
	b.refused(bad)
	b.untouched(ada)
	if got := b.connected(rec.Public); !slices.Equal(got, []string{"ada"}) {
		t.Errorf("connected after the revocation = %q, want ada alone", got)
	}
	// A connection that a busy machine lost and regained before the revocation is none of its business.
	before := len(mallory.returned) + len(again.returned)

	b.Restart(t)
	b.refused(bad)
	select {
	case <-ada.returned:
	case <-b.ctx().Done():
		t.Error("the sibling did not come back after the restart")
	}
	b.connect(good)
	if len(mallory.returned)+len(again.returned) > before {
		t.Error("the revoked client came back")
	}
}

// fullRevocationListFits pushes as many revocations as an account may hold, and checks that the last of them works.
func fullRevocationListFits(t *testing.T, b *bench) {
	b.space("team", nil)
	bad, good := b.user("team", trust.Agent, "mallory"), b.user("team", trust.Agent, "ada")
	mallory, ada := b.connect(bad), b.connect(good)
	revs := make([]mint.Revocation, 0, trust.MaxRevocations)
	for i := range trust.MaxRevocations - 1 {
		raw := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
		key, err := nkeys.Encode(nkeys.PrefixByteUser, raw[:])
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, mint.Revocation{UserKey: string(key)})
	}
	revs = append(revs, mint.Revocation{UserKey: bad.Identity().UserKey})
	rec, err := b.authority.Revoke(b.ctx(), "team", revs...)
	if err != nil {
		t.Fatalf("Revoke: %v", err)
	}
	began := time.Now()
	b.put(rec)
	t.Logf("a claim of %d bytes with %d revocations was put in %v", len(rec.JWT), len(revs), time.Since(began))
	b.dropped(rec.Public, mallory)
	b.refused(bad)
	b.untouched(ada)
}

func removalDropsAndHolds(t *testing.T, b *bench) {
	gone, kept := b.space("gone", nil), b.space("kept", nil)
	creds := b.user("gone", trust.Agent, "ada")
	ada, bob := b.connect(creds), b.connect(b.user("kept", trust.Agent, "bob"))
	token, err := b.authority.DeleteToken(b.ctx(), "gone")
	if err != nil {
		t.Fatalf("DeleteToken: %v", err)
	}

	if err := b.Control.RemoveAccount(b.ctx(), gone.Public, token); err != nil {
		t.Fatalf("RemoveAccount: %v", err)
	}
	b.dropped(gone.Public, ada)
	b.refused(creds)
	b.untouched(bob)
	if _, err := b.Control.Lookup(b.ctx(), gone.Public); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Lookup of the removed account = %v, want not-found", err)
	}
	if err := b.Control.RemoveAccount(b.ctx(), gone.Public, token); err != nil {
		t.Errorf("RemoveAccount again: %v", err)
	}
	if err := b.authority.RemoveSpace(b.ctx(), "gone"); err != nil {
		t.Fatalf("RemoveSpace: %v", err)
	}

	b.Restart(t)
	b.refused(creds)
	if _, err := b.Control.Lookup(b.ctx(), gone.Public); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Lookup after the restart = %v, want not-found", err)
	}
	if held, err := b.Control.Lookup(b.ctx(), kept.Public); err != nil || held != kept.JWT {
		t.Errorf("the other account did not survive the restart (%v)", err)
	}
	if len(ada.returned) > 0 {
		t.Error("the client of the removed account came back")
	}

	// A space of the same name begins anew, with another account.
	if rec := b.space("gone", nil); rec.Public == gone.Public {
		t.Error("the new space has the account of the old one")
	}
	b.refused(creds)
	b.connect(b.user("gone", trust.Agent, "ada"))
}

func listingNamesEverybody(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	creds := b.user("team", trust.Agent, "Ada")
	id := creds.Identity()
	ada := b.connect(creds)
	b.connect(b.user("team", trust.Observer, "watcher"))
	reply, err := wire.ReplyFilter("team", id.Lifecycle)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ada.SubscribeSync(reply); err != nil {
		t.Fatal(err)
	}
	if err := ada.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := b.connected(rec.Public); !slices.Equal(got, []string{"Ada", "watcher"}) {
		t.Errorf("connected = %q", got)
	}

	all, err := b.Control.Connections(b.ctx(), rec.Public, broker.OfUser(id.UserKey), broker.WithSubscriptions())
	if err != nil || len(all) != 1 {
		t.Fatalf("Connections of one user = %+v, %v; want one", all, err)
	}
	got := all[0]
	if got.UserKey != id.UserKey || got.Account != rec.Public || got.User != id.Principal.String() || got.ServerID == "" || got.CID == 0 || got.Start.IsZero() {
		t.Errorf("connection = %+v", got)
	}
	if !got.Expires.Equal(id.Expires) || !got.IssuedAt.Equal(id.IssuedAt) {
		t.Errorf("lifetime = %v to %v, want %v to %v", got.IssuedAt, got.Expires, id.IssuedAt, id.Expires)
	}
	if !slices.Equal(got.Subscriptions, []string{reply}) {
		t.Errorf("subscriptions = %q, want %q", got.Subscriptions, reply)
	}
	if !got.HasTags(id.Tags()...) {
		t.Errorf("tags = %q, want all of %q in the same spelling", got.Tags, id.Tags())
	}
	if _, err := b.Control.Connections(b.ctx(), "everybody"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("Connections of no account = %v, want bad-request", err)
	}
}

func kickIsNotABan(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	ada, bob := b.connect(b.user("team", trust.Agent, "ada")), b.connect(b.user("team", trust.Agent, "bob"))
	all, err := b.Control.Connections(b.ctx(), rec.Public, broker.OfUser(ada.creds.Identity().UserKey))
	if err != nil || len(all) != 1 {
		t.Fatalf("Connections of ada = %d, %v; want 1", len(all), err)
	}
	if err := b.Control.Kick(b.ctx(), all[0]); err != nil {
		t.Fatalf("Kick: %v", err)
	}
	b.dropped(rec.Public, ada)
	select {
	case <-ada.returned:
	case <-b.ctx().Done():
		t.Error("a kicked client with a good credential did not come back")
	}
	b.untouched(bob)
	if err := b.Control.Kick(b.ctx(), all[0]); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Kick of a connection that is gone = %v, want not-found", err)
	}
}

func evictionIsProved(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	ada, bob := b.user("team", trust.Agent, "ada"), b.connect(b.user("team", trust.Agent, "bob"))
	life := ada.Identity()
	// Two credentials of one life, three connections; what is evicted is the life.
	renewed, err := b.authority.User(b.ctx(), mint.UserRequest{Space: "team", Profile: trust.Agent, Principal: life.Principal, UID: life.UID})
	if err != nil {
		t.Fatal(err)
	}
	held := []*client{b.connect(ada, nats.NoReconnect()), b.connect(ada, nats.NoReconnect()), b.connect(renewed, nats.NoReconnect())}
	tags := []string{"owner:" + life.Owner, "actor:" + life.Actor, "uid:" + string(life.UID)}

	if n, err := b.Control.EvictKeys(b.ctx(), rec.Public, renewed.Identity().UserKey); err != nil || n != 1 {
		t.Errorf("EvictKeys = %d, %v; want 1", n, err)
	}
	b.dropped(rec.Public, held[2])
	held = held[:2]
	n, err := b.Control.EvictTagged(b.ctx(), rec.Public, tags...)
	if err != nil || n != len(held) {
		t.Errorf("EvictTagged = %d, %v; want %d", n, err, len(held))
	}
	b.dropped(rec.Public, held...)
	b.untouched(bob)
	if got := b.connected(rec.Public); !slices.Equal(got, []string{"bob"}) {
		t.Errorf("connected after the eviction = %q, want bob alone", got)
	}
	if n, err := b.Control.EvictTagged(b.ctx(), rec.Public, tags...); n != 0 || err != nil {
		t.Errorf("EvictTagged of nobody = %d, %v; want 0", n, err)
	}
}

func evictionSaysWhenItFails(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	b.connect(b.user("team", trust.Agent, "ada"))
	// This client is quick to return, so a listing right after the kick may or may not have it: what must never happen is
	// success while it is there.
	n, err := b.Control.Evict(b.ctx(), rec.Public, func(c broker.Connection) bool { return true })
	switch {
	case n == 0:
		t.Errorf("Evict = %d, %v; want at least one connection dropped", n, err)
	case err != nil && !errors.Is(err, wire.ErrConflict):
		t.Errorf("Evict of a client that comes back = %v, want conflict", err)
	}
}

func observerChangesNothing(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	creds, err := b.authority.SystemUser(b.ctx(), mint.SystemRequest{Kind: trust.SystemObserver})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := broker.Dial(b.ctx(), b.URL, broker.Static(creds), nil)
	if err != nil {
		t.Fatalf("Dial as observer: %v", err)
	}
	defer func() { _ = watcher.Close() }()
	ada := b.connect(b.user("team", trust.Agent, "ada"))
	all, err := watcher.Connections(b.ctx(), rec.Public)
	if err != nil || len(all) != 1 {
		t.Fatalf("Connections as observer = %d, %v; want 1", len(all), err)
	}
	token, err := b.authority.DeleteToken(b.ctx(), "team")
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"PutAccount":    watcher.PutAccount(b.ctx(), rec.Public, rec.JWT),
		"RemoveAccount": watcher.RemoveAccount(b.ctx(), rec.Public, token),
		"Kick":          watcher.Kick(b.ctx(), all[0]),
	} {
		if !errors.Is(err, wire.ErrPermissionDenied) {
			t.Errorf("%s as observer = %v, want permission-denied", name, err)
		}
	}
	b.untouched(ada)
}

func olderClaimsAreReadBack(t *testing.T, b *bench) {
	older := b.space("team", nil)
	newer := b.space("team", &mint.Limits{Connections: 7})
	if newer.JWT == older.JWT || newer.Version <= older.Version {
		t.Fatalf("the record did not change: version %d, then %d", older.Version, newer.Version)
	}
	if held, err := b.Control.Lookup(b.ctx(), older.Public); err != nil || held != newer.JWT {
		t.Errorf("the broker does not hold the newer claim (%v)", err)
	}
	pub, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := pub.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Control.Lookup(b.ctx(), unknown); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("Lookup of an unknown account = %v, want not-found", err)
	}
}

// largestCredentialFits connects with the largest credential that can be minted.
func largestCredentialFits(t *testing.T, b *bench) {
	b.space("team", nil)
	creds, err := largest(b.ctx(), b.authority, "team")
	if err != nil {
		t.Fatal(err)
	}
	var measured int
	c, err := b.dial(creds, nats.SetCustomDialer(&connectMeter{size: &measured}))
	if err != nil {
		t.Fatalf("connect with a credential of %d bytes: %v", len(creds.JWT()), err)
	}
	t.Logf("largest credential: %d byte JWT, %d byte CONNECT of %d allowed", len(creds.JWT()), measured, trust.MaxControlLine)
	if measured == 0 || measured > trust.MaxControlLine {
		t.Errorf("CONNECT takes %d bytes, limit %d", measured, trust.MaxControlLine)
	}
	for i, pattern := range c.creds.Identity().Subscribe {
		live, err := wire.LiveFilter("team", pattern)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.SubscribeSync(live); err != nil {
			t.Fatalf("subscribe %d: %v", i, err)
		}
	}
	if err := c.FlushWithContext(b.ctx()); err != nil {
		t.Error(err)
	}
	if n := len(c.reasons); n > 0 {
		t.Errorf("%d subscriptions were refused, the first: %v", n, <-c.reasons)
	}
}

func controlSurvivesARestart(t *testing.T, b *bench) {
	rec := b.space("team", nil)
	if err := b.stream(b.connect(b.user("team", trust.Provisioner, "setup")), "team"); err != nil {
		t.Fatal(err)
	}
	ada := b.connect(b.user("team", trust.Agent, "ada"))
	first := b.post(ada, "team")
	before, err := b.Control.Ping(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	b.Restart(t)
	after, err := b.Control.Ping(b.ctx())
	if err != nil {
		t.Fatalf("Ping after the restart: %v", err)
	}
	if before[0].ID == after[0].ID {
		t.Error("the broker was not restarted")
	}
	select {
	case <-ada.returned:
	case <-b.ctx().Done():
		t.Fatal("the client did not come back")
	}
	if got := b.post(ada, "team"); got != first+1 {
		t.Errorf("sequence after the restart = %d, want %d: what was stored before is gone", got, first+1)
	}
	rec2 := b.space("team", &mint.Limits{Connections: 9})
	if rec2.Public != rec.Public {
		t.Errorf("the account changed from %q to %q", rec.Public, rec2.Public)
	}
	if got := fmt.Sprint(b.connected(rec.Public)); !strings.Contains(got, "ada") {
		t.Errorf("connected after the restart = %v", got)
	}
}
