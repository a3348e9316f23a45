package trust_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/cotaltest"
	spaces "github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
)

// TestSubscribeListIsTheReadBoundary posts to channels and looks at what reaches a holder that subscribes as widely as the
// broker lets it. NATS admits a subscription to "x.>" where "x.*" is permitted.
func TestSubscribeListIsTheReadBoundary(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		provision(t, r)
		channels := []string{"general", "team", "team.a", "team.b", "team.a.b", "team.a.b.c", "top", "log.x.y", "log.x.z.y"}
		for _, c := range []struct {
			list, reads []string
		}{
			{[]string{"general"}, []string{"general"}},
			{[]string{"team.*"}, []string{"team.a", "team.b"}},
			{[]string{"team.>"}, []string{"team.a", "team.b", "team.a.b", "team.a.b.c"}},
			{[]string{"*"}, []string{"general", "team", "top"}},
			{[]string{"*", "team.*"}, nil},
			{[]string{"team.*", "team.>"}, []string{"team.a", "team.b", "team.a.b", "team.a.b.c"}},
			{[]string{"team.*", "general"}, []string{"general", "team.a", "team.b"}},
			{[]string{"log.*.y"}, []string{"log.x.y"}},
			{[]string{"*.*"}, []string{"team.a", "team.b"}},
			{[]string{">"}, channels},
			{nil, []string{}},
		} {
			creds, err := r.mint.User(t.Context(), mint.UserRequest{Space: space, Profile: trust.Agent, Principal: ada, Subscribe: c.list})
			if c.reads == nil {
				if err == nil {
					t.Errorf("list %q was minted, but the broker cannot hold it", c.list)
				}
				continue
			}
			if err != nil {
				t.Fatalf("list %q: %v", c.list, err)
			}
			if got := readable(t, r, creds, channels); !slices.Equal(got, c.reads) {
				t.Errorf("list %q reads %q, want %q", c.list, got, c.reads)
			}
		}
	})
}

// readable subscribes to everything that could match and returns the channels of which a copy arrived.
func readable(t *testing.T, r *realm, h holder, channels []string) []string {
	t.Helper()
	nc, errs, err := r.connect(h)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for { // refusals are expected
			select {
			case <-errs:
			case <-t.Context().Done():
				return
			}
		}
	}()
	var subs []*nats.Subscription
	for _, subject := range []string{">", "*.*.>", "*.*.*", "*.*.*.>", "*.*.*.*", "*.*.*.*.>", "*.*.*.*.*", "*.*.general", "*.*.team", "*.*.team.>",
		"*.*.team.*", "*.*.team.*.>", "*.*.log.>", "*.*.log.*.y", "*.*.log.*.>", "local.bob.team.>", "local.bob.>"} {
		sub, err := nc.SubscribeSync("cotal.main.live." + subject)
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	postAll(t, r, channels)
	if err := nc.Flush(); err != nil { // what the broker routed before its answer is here
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, sub := range subs {
		for n, _, _ := sub.Pending(); n > 0; n-- {
			m, err := sub.NextMsg(time.Second)
			if err != nil {
				t.Fatal(err)
			}
			seen[strings.TrimPrefix(m.Subject, "cotal.main.live.local.bob.")] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(channels), func(c string) bool { return !seen[c] })
}

// postAll posts to every channel and waits until an observer has seen the copy of a last post: the broker routes the copies
// one after the other.
func postAll(t *testing.T, r *realm, channels []string) {
	t.Helper()
	eye, _, err := r.connect(r.user(t, trust.Observer))
	if err != nil {
		t.Fatal(err)
	}
	defer eye.Close()
	last, err := eye.SubscribeSync("cotal.main.live.*.*.last")
	if err == nil {
		err = eye.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	creds, err := r.mint.User(t.Context(), mint.UserRequest{Space: space, Profile: trust.Operator, Principal: bob, UID: bobUID})
	if err != nil {
		t.Fatal(err)
	}
	poster, _, err := r.connect(creds)
	if err != nil {
		t.Fatal(err)
	}
	defer poster.Close()
	for _, ch := range append(slices.Clone(channels), "last") {
		if err := poster.Publish("cotal.main.chat.local.bob."+ch, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := poster.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := last.NextMsg(5 * time.Second); err != nil {
		t.Fatalf("the last copy never came: %v", err)
	}
}

// provision makes the chat stream of the space, as the provisioner.
func provision(t *testing.T, r *realm) {
	t.Helper()
	creds, err := r.mint.User(t.Context(), mint.UserRequest{Space: space, Profile: trust.Provisioner, Principal: ada})
	if err != nil {
		t.Fatal(err)
	}
	nc, _, err := r.connect(creds)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := spaces.Ensure(t.Context(), js, space, nil); err != nil {
		t.Fatal(err)
	}
}
