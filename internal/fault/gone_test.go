package fault_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

const (
	roleAgent = "agent" // an agent that says what it does and takes direct messages

	childActivity = "COTAL_FAULT_ACTIVITY"
)

// agent takes part until it is killed. Its answer to a direct message is its activity.
func agent(dir string, out io.Writer) error {
	ctx, cancel := untilParentEnds()
	defer cancel()
	activity := os.Getenv(childActivity)
	ep, err := endpoint.Connect(ctx, os.Getenv(childURL), endpoint.File(credsFile(dir, os.Getenv(childName))), nil)
	if err != nil {
		return err
	}
	if err := ep.SetStatus(ctx, wire.StatusWorking, activity); err != nil {
		return err
	}
	err = ep.HandleDirect(ctx, func(d *endpoint.Delivery) {
		if _, err := ep.Direct(ctx, d.Sender, endpoint.Draft{Parts: []wire.Part{wire.Text(activity)}}); err != nil {
			panic(err)
		}
		if err := d.Ack(ctx); err != nil {
			panic(err)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "here")
	<-ctx.Done()
	return ep.Close()
}

// TestC10KilledAgentReadsGone kills an agent that shows "busy". What tells the others is the end of its connection, not the
// end of its lease; the old one reads gone, and its replacement is who its name means.
func TestC10KilledAgentReadsGone(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		name := "delivery_in_the_node"
		if elsewhere {
			name = "delivery_in_a_process_of_its_own"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newGoneCase(t, elsewhere)
			first := c.agent(t, "ada", "busy")
			c.await(t, "ada is busy", func(e wire.RosterEntry) bool {
				return e.Principal == "local.ada" && e.Presence.Activity == "busy" && e.Gone == ""
			})
			killed := time.Now()
			first.kill()
			gone := c.await(t, "ada is gone", func(e wire.RosterEntry) bool { return e.Principal == "local.ada" && e.Gone != "" })
			t.Logf("a killed agent read gone after %v", time.Since(killed).Round(time.Millisecond))
			if gone.Gone != wire.GoneDisconnected || gone.Presence.Status != wire.StatusOffline {
				t.Errorf("killed agent is %s, %q; want %s because its connection ended", gone.Presence.Status, gone.Gone, wire.StatusOffline)
			}
			if r := c.reach(t, "local.ada"); r.Tier != wire.ReachStored || r.Live != 0 {
				t.Errorf("reach of the killed agent = %+v, want that nobody is there", r)
			}

			// Under another name it is another; whoever asks for the first is told that it is not there.
			c.agent(t, "ada_2", "suffixed")
			c.await(t, "the one with a suffix", func(e wire.RosterEntry) bool { return e.Principal == "local.ada_2" && e.Gone == "" })
			if r := c.reach(t, "local.ada"); r.Live != 0 {
				t.Errorf("reach of the killed agent beside one with a suffix = %+v", r)
			}
			// Under its own name it is who the name means, at once.
			c.agent(t, "ada", "replacement")
			back := c.await(t, "the replacement", func(e wire.RosterEntry) bool { return e.Principal == "local.ada" && e.Gone == "" })
			if back.Presence.Activity == "busy" {
				t.Errorf("the replacement shows %q, which its predecessor did", back.Presence.Activity)
			}
			if r := c.reach(t, "local.ada"); r.Tier != wire.ReachLive || r.Live != 1 {
				t.Errorf("reach of the replacement = %+v, want one that is there", r)
			}
			if got := c.ask(t, "ada"); got != "replacement" {
				t.Errorf("%q answered a message to ada", got)
			}
		})
	}
}

// goneCase is a mesh over TCP and somebody who watches its roster.
type goneCase struct {
	dir, url string
	issue    func(t *testing.T, actor string)
	watcher  *endpoint.Endpoint
	entries  chan wire.RosterEntry
	answers  chan string
}

func newGoneCase(t *testing.T, elsewhere bool) *goneCase {
	t.Helper()
	c := &goneCase{dir: t.TempDir(), entries: make(chan wire.RosterEntry, 4096), answers: make(chan string, 64)}
	env := []string{childDir + "=" + c.dir}
	if elsewhere {
		env = append(env, childRole+"="+roleNode)
	}
	c.url = spawn(t, env...).url
	client := dialNode(t.Context(), t, c.url, c.dir)
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var wg sync.WaitGroup
	if elsewhere {
		ready := make(chan struct{})
		wg.Go(func() {
			if err := client.ServeDelivery(ctx, spaceName, func() { close(ready) }); err != nil {
				t.Errorf("ServeDelivery: %v", err)
			}
		})
		select {
		case <-ready:
		case <-time.After(30 * time.Second):
			t.Fatal("delivery does not serve")
		}
	}
	c.issue = func(t *testing.T, actor string) {
		t.Helper()
		req := auth.Request{Space: spaceName, Actor: actor}
		creds, err := client.Authority().Issue(t.Context(), req)
		if err != nil { // it is there: a replacement goes on with its life
			req.Renew = true
			creds, err = client.Authority().Issue(t.Context(), req)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(credsFile(c.dir, actor), creds.Reveal(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.issue(t, "watcher")
	var err error
	if c.watcher, err = endpoint.Connect(t.Context(), c.url, endpoint.File(credsFile(c.dir, "watcher")), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.watcher.Close() })
	if err := c.watcher.HandleDirect(t.Context(), func(d *endpoint.Delivery) {
		c.answers <- d.Message.Text()
		_ = d.Ack(ctx)
	}); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		if err := c.watcher.WatchRoster(ctx, func(u endpoint.RosterUpdate) {
			for _, e := range u.Entries {
				c.entries <- e
			}
		}); err != nil {
			t.Errorf("WatchRoster: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() }) // before the watcher closes
	return c
}

// agent starts an agent in a process of its own.
func (c *goneCase) agent(t *testing.T, actor, activity string) *child {
	t.Helper()
	c.issue(t, actor)
	return spawn(t, childDir+"="+c.dir, childRole+"="+roleAgent, childURL+"="+c.url, childName+"="+actor, childActivity+"="+activity)
}

// await is the next entry of the watched roster that ok accepts.
func (c *goneCase) await(t *testing.T, what string, ok func(wire.RosterEntry) bool) wire.RosterEntry {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case e := <-c.entries:
			if ok(e) {
				return e
			}
		case <-limit:
			t.Fatalf("the roster does not show: %s", what)
		}
	}
}

func (c *goneCase) reach(t *testing.T, to string) wire.ReachReply {
	t.Helper()
	r, err := c.watcher.Reach(t.Context(), wire.ReachRequest{To: to})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends a direct message and returns the answer.
func (c *goneCase) ask(t *testing.T, actor string) string {
	t.Helper()
	if _, err := c.watcher.Direct(t.Context(), wire.Principal{Owner: wire.LocalOwner, Actor: actor}, endpoint.Draft{Parts: []wire.Part{wire.Text("who is it?")}}); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-c.answers:
		return got
	case <-time.After(30 * time.Second):
		t.Fatalf("nobody answers a message to %q", actor)
		return ""
	}
}
