package space_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// agentOf is the grant of a managed agent under a life.
func agentOf(actor string, parent wire.Lifecycle) trust.Grant {
	g := grantOf(lifecycle(actor), "team.a")
	g.Kind, g.Parent, g.ParentUID = trust.KindManaged, parent.Principal.String(), parent.UID
	g.TokenHash = strings.Repeat("0", 64)
	return g
}

// retired is a grant as it is when nothing is left of its life.
func retired(g trust.Grant) trust.Grant {
	g.State, g.TokenHash = trust.GrantRetired, ""
	return g
}

// long are the lists of a grant that fills a bucket soon.
func long() []string {
	out := make([]string, 60)
	for i := range out {
		out[i] = fmt.Sprintf("team.%s.%d", strings.Repeat("a", 60), i)
	}
	return out
}

// passing is a broker in a bubble. While it waits it does not run, which makes long times short.
type passing struct {
	t   *testing.T
	dir string
	srv *server.Server
	js  jetstream.JetStream
}

func newPassing(t *testing.T) *passing {
	t.Helper()
	p := &passing{t: t, dir: t.TempDir()}
	p.start()
	return p
}

func (p *passing) start() {
	p.t.Helper()
	p.srv = broker(p.t, func(o *server.Options) { o.StoreDir = p.dir })
	p.js = connect(p.t, p.srv)
}

func (p *passing) stop() {
	p.js.Conn().Close()
	p.srv.Shutdown()
	p.srv.WaitForShutdown()
	time.Sleep(time.Second) // what flushes its files ends by the clock, after it
}

func (p *passing) wait(d time.Duration) {
	p.t.Helper()
	p.stop()
	time.Sleep(d)
	p.start()
}

func authorityBytes(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	return must(space.State(t.Context(), js, space.BucketStream(wire.AuthorityBucket(lab))))(t).Bytes
}

// TestRecordsOfEndedAgentsGo: in a week, and not those of a later life of the same name, also when the broker was restarted in between.
func TestRecordsOfEndedAgentsGo(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		p, ctx := newPassing(t), t.Context()
		defer func() { p.stop() }()
		if err := space.Ensure(ctx, p.js, lab, nil); err != nil {
			t.Fatal(err)
		}
		grants, leases := space.NewGrants(p.js, lab), space.NewLeases(p.js, lab)
		lead := grantOf(lifecycle("lead"))
		must(grants.Create(ctx, lead))(t)
		before := authorityBytes(t, p.js)
		plain, fenced, again := agentOf("plain", lead.Lifecycle()), agentOf("fenced", lead.Lifecycle()), agentOf("again", lead.Lifecycle())
		person := grantOf(lifecycle("person"))
		person.Kind = trust.KindInteractive
		lease := must(leases.Acquire(ctx, "primary", "test", time.Minute))(t)
		for _, g := range []trust.Grant{plain, fenced, again, person} {
			rev := must(grants.Create(ctx, g))(t)
			if g.Actor == "fenced" {
				must(grants.UpdateFenced(ctx, retired(g), rev, lease))(t)
			} else {
				must(grants.Update(ctx, retired(g), rev))(t)
			}
		}
		// The name has its next life while the records of the one before are there.
		_, rev, err := grants.Get(ctx, again.Principal())
		if err != nil {
			t.Fatal(err)
		}
		next := agentOf("again", lead.Lifecycle())
		next.Epoch = 2
		must(grants.Update(ctx, next, rev))(t)
		taken := agentOf("thief", lead.Lifecycle())
		taken.UID = plain.UID
		if _, err := grants.Create(ctx, taken); !errors.Is(err, wire.ErrConflict) {
			t.Errorf("the uid of an agent that ended just now = %v, want conflict", err)
		}

		want := func(when string, names ...string) {
			t.Helper()
			var got []string
			for _, g := range must(space.NewGrants(p.js, lab).List(ctx))(t) {
				got = append(got, g.Actor)
			}
			if slices.Sort(got); !slices.Equal(got, names) {
				t.Errorf("%s: grants of %v, want %v", when, got, names)
			}
		}
		p.wait(space.KeepRetired - 10*time.Minute)
		time.Sleep(time.Minute) // the broker looks for what has ended a moment after it started
		want("after nearly a week and a restart", "again", "fenced", "lead", "person", "plain")
		time.Sleep(20 * time.Minute)
		want("after a week", "again", "lead", "person")
		p.wait(2 * space.KeepRetired)
		grants = space.NewGrants(p.js, lab)
		want("after three weeks and another restart", "again", "lead", "person")
		if below := must(grants.Children(ctx, lead.Lifecycle()))(t); len(below) != 1 || below[0].UID != next.UID {
			t.Errorf("held under the lead = %+v, want the life that goes on", below)
		}
		if kept := authorityBytes(t, p.js) - before; kept > 3000 {
			t.Errorf("%d bytes are left of three lives that ended, want those of one that goes on, a person and a lease", kept)
		}
		must(grants.Create(ctx, agentOf("plain", lead.Lifecycle())))(t)
	})
}

// TestRecordsOfAnEarlierVersionAreMadeToGo: those that were written without an end get one.
func TestRecordsOfAnEarlierVersionAreMadeToGo(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		p, ctx := newPassing(t), t.Context()
		defer func() { p.stop() }()
		if err := space.Ensure(ctx, p.js, lab, nil); err != nil {
			t.Fatal(err)
		}
		grants := space.NewGrants(p.js, lab)
		lead := grantOf(lifecycle("lead"))
		must(grants.Create(ctx, lead))(t)
		before := authorityBytes(t, p.js)
		old, stands, new := agentOf("old", lead.Lifecycle()), agentOf("stands", lead.Lifecycle()), agentOf("new", lead.Lifecycle())
		revs := map[string]uint64{}
		for _, g := range []trust.Grant{old, stands, new} {
			revs[g.Actor] = must(grants.Create(ctx, g))(t)
		}
		subject := wire.RecordPrefix(wire.AuthorityBucket(lab)) + "grant." + old.Principal().String()
		must(p.js.Publish(ctx, subject, must(retired(old).Encode())(t)))(t)
		must(grants.Update(ctx, retired(new), revs["new"]))(t)
		lasting := must(grants.Lasting(ctx))(t)
		if !slices.Equal(lasting, []wire.Principal{old.Principal()}) {
			t.Fatalf("lasting = %v, want %q", lasting, old.Principal())
		}
		for _, who := range []wire.Principal{old.Principal(), stands.Principal(), lead.Principal(), lifecycle("nobody").Principal} {
			if err := grants.Lapse(ctx, who); err != nil {
				t.Errorf("let %q go: %v", who, err)
			}
		}
		if lasting = must(grants.Lasting(ctx))(t); len(lasting) != 0 {
			t.Errorf("lasting after that = %v", lasting)
		}
		if got, _, err := grants.Get(ctx, old.Principal()); err != nil || got.State != trust.GrantRetired || got.UID != old.UID {
			t.Errorf("the record meanwhile = %+v, %v", got, err)
		}
		p.wait(space.KeepRetired - time.Minute)
		time.Sleep(2 * time.Minute)
		if all := must(space.NewGrants(p.js, lab).List(ctx))(t); len(all) != 2 {
			t.Errorf("grants = %+v, want those of the lead and of the agent that stands", all)
		}
		if kept := authorityBytes(t, p.js) - before; kept > 1500 {
			t.Errorf("%d bytes are left, want those of one agent", kept)
		}
	})
}

// smallAuthority makes a space whose bucket of grants is full soon.
func smallAuthority(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	if err := space.Ensure(t.Context(), js, lab, &space.Options{Sizes: space.Sizes{Authority: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
}

// TestAgentsCannotFillTheBucketOfGrants: agents that come and go are refused at three quarters, so that credentials are still logged, and
// people granted and revoked; and there is room again when the sentence says.
func TestAgentsCannotFillTheBucketOfGrants(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		p, ctx := newPassing(t), t.Context()
		defer func() { p.stop() }()
		smallAuthority(t, p.js)
		grants := space.NewGrants(p.js, lab)
		lead := grantOf(lifecycle("lead"))
		must(grants.Create(ctx, lead))(t)
		stands := agentOf("stands", lead.Lifecycle())
		standsRev := must(grants.Create(ctx, stands))(t)
		var full error
		lives := 0
		for full == nil && lives < 4000 {
			g := agentOf(fmt.Sprintf("agent%d", lives), lead.Lifecycle())
			g.AllowSubscribe = long()
			rev, err := grants.Create(ctx, g)
			if full = err; err == nil {
				must(grants.Update(ctx, retired(g), rev))(t)
				lives++
			}
		}
		bytes := authorityBytes(t, p.js)
		t.Logf("%d lives keep %d bytes each", lives, bytes/uint64(lives))
		if wire.CodeOf(full) != wire.CodeResourceExhausted || !strings.Contains(full.Error(), "records of agents are full") ||
			!strings.Contains(full.Error(), "7 days after the end of each") || bytes > 3<<18 || bytes < 5<<17 {
			t.Fatalf("after %d lives and %d bytes: %v, want that the share of agents is full", lives, bytes, full)
		}
		for range 100 {
			if err := grants.LogMint(ctx, lead.UID, space.Mint{UserKey: string(wire.NewUID()), Expires: time.Now().Add(time.Hour)}); err != nil {
				t.Fatalf("a credential when the share of agents is full: %v", err)
			}
		}
		for full = nil; full == nil; { // nor does the issuance log take what is left
			full = grants.LogMint(ctx, lead.UID, space.Mint{UserKey: string(wire.NewUID()), Expires: time.Now().Add(time.Hour)})
		}
		if wire.CodeOf(full) != wire.CodeResourceExhausted || !strings.Contains(full.Error(), "issuance log is full") {
			t.Fatalf("the issuance log: %v, want that it is full", full)
		}
		if err := grants.MintRoom(ctx); wire.CodeOf(err) != wire.CodeResourceExhausted {
			t.Errorf("room for a credential = %v", err)
		}
		for i := range 20 {
			g := grantOf(lifecycle(fmt.Sprintf("person%d", i)), "general")
			rev := must(grants.Create(ctx, g))(t)
			must(grants.Update(ctx, retired(g), rev))(t)
		}
		must(grants.Update(ctx, retired(stands), standsRev))(t)
		if lasting := must(grants.Lasting(ctx))(t); len(lasting) != 0 {
			t.Errorf("the records of %v stay for ever", lasting)
		}
		again := agentOf("agent0", lead.Lifecycle()) // the next life of a name is new records too
		_, rev, err := grants.Get(ctx, again.Principal())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := grants.Update(ctx, again, rev); wire.CodeOf(err) != wire.CodeResourceExhausted {
			t.Errorf("the next life of an agent = %v, want resource-exhausted", err)
		}
		p.wait(space.KeepRetired - time.Minute)
		time.Sleep(2 * time.Minute)
		must(space.NewGrants(p.js, lab).Create(ctx, again))(t)
	})
}

// TestAnAgentIsRetiredInAFullBucket: its record is replaced where there is no room for anything beside it.
func TestAnAgentIsRetiredInAFullBucket(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	smallAuthority(t, js)
	ctx := t.Context()
	grants, lead := space.NewGrants(js, lab), lifecycle("lead")
	plain := agentOf("plain", lead)
	plainRev := must(grants.Create(ctx, plain))(t)
	subject := wire.RecordPrefix(wire.AuthorityBucket(lab)) + "grant."
	for i := range 20 { // of an earlier version
		old := agentOf(fmt.Sprintf("old%d", i), lead)
		must(grants.Create(ctx, old))(t)
		must(js.Publish(ctx, subject+old.Principal().String(), must(retired(old).Encode())(t)))(t)
	}
	var full error
	for _, channels := range [][]string{long(), nil} {
		for full = nil; full == nil; {
			_, full = grants.Create(ctx, grantOf(lifecycle("person"+string(wire.NewUID())), channels...))
		}
	}
	if wire.CodeOf(full) != wire.CodeResourceExhausted {
		t.Fatal(full)
	}
	must(grants.Update(ctx, retired(plain), plainRev))(t)
	if g, _, err := grants.Get(ctx, plain.Principal()); err != nil || g.State != trust.GrantRetired {
		t.Errorf("grant = %+v, %v, want retired", g, err)
	}
	lasting := must(grants.Lasting(ctx))(t)
	if len(lasting) != 21 || !slices.Contains(lasting, plain.Principal()) {
		t.Errorf("lasting = %v, want %q and those of before", lasting, plain.Principal())
	}
	for range 2 {
		for _, p := range lasting {
			if err := grants.Lapse(ctx, p); err != nil && wire.CodeOf(err) != wire.CodeResourceExhausted {
				t.Error(err)
			}
		}
	}
	if lasting = must(grants.Lasting(ctx))(t); len(lasting) != 0 {
		t.Errorf("lasting after two rounds = %v", lasting)
	}
}
