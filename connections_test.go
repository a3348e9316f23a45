package cotal_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// watch collects what a followed roster says of a principal: how it is gone, "" for there.
func watch(t *testing.T, ep *endpoint.Endpoint, principal string) (states func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- ep.WatchRoster(ctx, func(u endpoint.RosterUpdate) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range u.Entries {
				if e.Principal == principal {
					seen = append(seen, e.Gone)
				}
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch roster: %v", err)
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Compact(slices.Clone(seen))
	}
}

// An endpoint that renews its credential has two connections for a moment, and the node's own control and delivery renew
// theirs: nobody is called offline by any of it. Then it closes without a word, and is offline within the second.
func TestRenewalsDoNotFlap(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		states := watch(t, m.Endpoint(t, "watcher", &cotaltest.Peer{Options: endpoint.Options{Quiet: true}}), "local.ada")
		first, renewals := true, atomic.Int64{}
		source := endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
			req := auth.Request{Space: m.Space(), Actor: "ada", Subscribe: []string{">"}, TTL: 10 * time.Minute, Renew: !first}
			first = false
			renewals.Add(1)
			return m.Node().Authority().Issue(ctx, req)
		})
		ada, err := endpoint.Connect(t.Context(), "", source, &endpoint.Options{InProcess: m.InProcess()})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Hour)
		n := renewals.Load()
		if got := states(); n < 40 || len(got) != 1 || got[0] != "" {
			t.Errorf("states of an endpoint that renewed %d times = %q, want that it is there all the time", n, got)
		}
		if err := ada.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := states(); got[len(got)-1] != wire.GoneLeft {
			t.Errorf("states after it closed = %q, want that it left", got)
		}
	})
}

// Whose connection ends without a word is offline within the second; who comes back is there at once.
func TestWhoIsCutOffIsOffline(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		states := watch(t, m.Endpoint(t, "watcher", nil), "local.ada")
		creds := m.Credentials(t, "ada", nil)
		id := creds.Identity()
		// A connection of ada's own making: an endpoint says goodbye and comes back by itself.
		connect := func() *nats.Conn {
			nc, err := m.Node().Dial(t.Context(), creds)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			subject, err := wire.PresenceSubject(m.Space(), id.Principal)
			if err != nil {
				t.Fatal(err)
			}
			rec := wire.Presence{
				Card:   wire.Card{ID: id.Principal.String(), Name: "ada", Kind: wire.CardAgent, ProtocolVersion: wire.ProtocolVersion},
				Status: wire.StatusWorking, Activity: "busy", LifecycleUID: id.UID, TS: time.Now().UnixMilli(),
			}
			data, err := json.Marshal(rec)
			if err != nil {
				t.Fatal(err)
			}
			if err := nc.Publish(subject, data); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := nc.FlushWithContext(ctx); err != nil {
				t.Fatal(err)
			}
			return nc
		}
		want := []string{""}
		nc := connect()
		for range 5 {
			time.Sleep(3 * time.Second)
			nc.Close()
			time.Sleep(500 * time.Millisecond)
			if want = append(want, wire.GoneDisconnected); !slices.Equal(states(), want) {
				t.Fatalf("states = %q, want %q", states(), want)
			}
			nc = connect()
			time.Sleep(300 * time.Millisecond)
			if want = append(want, ""); !slices.Equal(states(), want) {
				t.Fatalf("states = %q, want %q", states(), want)
			}
		}
	})
}

// Memberships as the broker's connections show them, and their feed, over the real broker.
func TestLiveMembershipsAreSeen(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, nil)
		ada := m.Endpoint(t, "ada", nil)
		for _, pattern := range []string{"general", "team.>"} {
			if _, err := ada.Listen(t.Context(), pattern, func(*endpoint.Delivery) {}); err != nil {
				t.Fatal(err)
			}
		}
		creds, err := m.Node().Authority().Personal(t.Context(), m.Space(), trust.Observer, "watcher", 0)
		if err != nil {
			t.Fatal(err)
		}
		nc, err := m.Node().Dial(t.Context(), creds)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		filter, err := wire.EventFilter(m.Space(), wire.DeliveryEndpoint, wire.TopicMembership)
		if err != nil {
			t.Fatal(err)
		}
		events := make(chan *nats.Msg, 256)
		if _, err := nc.ChanSubscribe(filter, events); err != nil {
			t.Fatal(err)
		}
		reply, err := ada.Memberships(t.Context(), wire.MembershipsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(reply.Members) != 1 || !slices.Equal(reply.Members[0].Live, []string{"general", "team.>"}) || reply.LiveAt == 0 {
			t.Errorf("memberships = %+v, want ada live on two patterns", reply)
		}
		bob := m.Endpoint(t, "bob", nil)
		if _, err := bob.Listen(t.Context(), "general", func(*endpoint.Delivery) {}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := bob.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		var got []string
		for range len(events) {
			var e wire.MembershipEvent
			if err := json.Unmarshal((<-events).Data, &e); err != nil {
				t.Fatal(err)
			}
			switch {
			case e.Member != nil:
				got = append(got, e.Member.Principal)
				if !slices.Equal(e.Member.Live, []string{"general"}) {
					t.Errorf("event = %+v, want bob live on general", e.Member)
				}
			case e.Kind == wire.RosterRemove:
				got = append(got, "-"+e.Principal)
			}
		}
		if !slices.Equal(got, []string{"local.bob", "-local.bob"}) {
			t.Errorf("changes = %q, want that bob came and went", got)
		}
	})
}
