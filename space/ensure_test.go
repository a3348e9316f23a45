package space_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

func TestEnsureMakesTheDocumentedStreams(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	ctx := ctxFor(t)
	if err := space.Ensure(ctx, js, lab, nil); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, c := range space.Plan(lab, nil) {
		info := must(js.Stream(ctx, c.Name))(t).CachedInfo()
		text.WriteString(space.Describe(info.Config))
	}
	golden(t, "streams.txt", text.String())
	if got := len(streamNames(t, js)); got != space.Streams {
		t.Errorf("streams in the account = %d, want %d", got, space.Streams)
	}
	cfg, _, err := space.NewChannels(js, lab).Get(ctx, wire.DefaultsKey)
	if err != nil || cfg.DeliveryClass != string(wire.ClassDurable) {
		t.Errorf("defaults = %+v, %v, want delivery class durable written out", cfg, err)
	}
	disk, memory := (*space.Options)(nil).Footprint()
	info := must(js.AccountInfo(ctx))(t)
	if info.ReservedStore != uint64(disk) || info.ReservedMemory != uint64(memory) {
		t.Errorf("reserved %d disk, %d memory; Footprint says %d, %d", info.ReservedStore, info.ReservedMemory, disk, memory)
	}
}

func TestEnsureIsIdempotent(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	ctx := ctxFor(t)
	snapshot := func() map[string]jetstream.StreamInfo {
		all := map[string]jetstream.StreamInfo{}
		for _, name := range streamNames(t, js) {
			info := *must(js.Stream(ctx, name))(t).CachedInfo()
			info.TimeStamp = time.Time{}
			all[name] = info
		}
		return all
	}
	if err := space.Ensure(ctx, js, lab, nil); err != nil {
		t.Fatal(err)
	}
	first := snapshot()
	for range 3 {
		if err := space.Ensure(ctx, js, lab, nil); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(first, snapshot()); diff != "" {
		t.Errorf("a second Ensure changed the space:\n%s", diff)
	}
	drifts, err := space.Verify(ctx, js, lab, nil)
	if err != nil || len(drifts) > 0 {
		t.Errorf("Verify = %v, %v, want nothing", drifts, err)
	}
}

func TestEnsureCompletesAfterACrashAtAnyPoint(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t)
	plan := space.Plan(lab, nil)
	for made := range len(plan) + 1 {
		// Each on a broker of its own: in one account a stream made again under a name just deleted can find records of
		// the old one, whose files the broker removes in the background. A space that is added again has a new account.
		js := connect(t, broker(t))
		for _, c := range plan[:made] {
			if _, err := js.CreateStream(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		drifts, err := space.Verify(ctx, js, lab, nil)
		// One line for each missing stream, and one for the defaults when only they are missing of their bucket.
		want := len(plan) - made
		if slices.ContainsFunc(plan[:made], func(c jetstream.StreamConfig) bool { return strings.HasPrefix(c.Name, "KV_cotal_channels") }) {
			want++
		}
		if err != nil || len(drifts) != want {
			t.Fatalf("crash after %d streams: Verify = %d drifts (%v), %v, want %d", made, len(drifts), drifts, err, want)
		}
		if err := space.Ensure(ctx, js, lab, nil); err != nil {
			t.Fatalf("crash after %d streams: %v", made, err)
		}
		if drifts, err := space.Verify(ctx, js, lab, nil); err != nil || len(drifts) > 0 {
			t.Fatalf("crash after %d streams: Verify after Ensure = %v, %v, want nothing", made, drifts, err)
		}
		// A removal that crashed after the same number of streams is completed too.
		for _, c := range plan[:made] {
			if err := js.DeleteStream(ctx, c.Name); err != nil {
				t.Fatal(err)
			}
		}
		if err := space.Remove(ctx, js, lab); err != nil {
			t.Fatalf("removal after a crash at %d: %v", made, err)
		}
		if left := streamNames(t, js); len(left) > 0 {
			t.Fatalf("removal after a crash at %d left %v", made, left)
		}
	}
}

func TestEnsureByManyAtOnce(t *testing.T) {
	t.Parallel()
	srv := broker(t)
	js := connect(t, srv)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := space.Ensure(ctxFor(t), js, lab, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if drifts, err := space.Verify(ctxFor(t), js, lab, nil); err != nil || len(drifts) > 0 {
		t.Errorf("Verify = %v, %v, want nothing", drifts, err)
	}
}

func TestEnsureReconcilesCapsAndAges(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	ctx := ctxFor(t)
	small := &space.Options{MaxAge: time.Hour, Sizes: space.Sizes{Chat: 8 << 20, Presence: 4 << 20}, DefaultClass: wire.ClassLive}
	if err := space.Ensure(ctx, js, lab, small); err != nil {
		t.Fatal(err)
	}
	subject := must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "general"))(t)
	must(js.Publish(ctx, subject, []byte("kept")))(t)
	if err := space.Ensure(ctx, js, lab, nil); err != nil {
		t.Fatal(err)
	}
	if drifts, err := space.Verify(ctx, js, lab, nil); err != nil || len(drifts) > 0 {
		t.Errorf("Verify = %v, %v, want nothing", drifts, err)
	}
	info := must(js.Stream(ctx, wire.ChatStream(lab)))(t).CachedInfo()
	if info.State.Msgs != 1 || info.Config.MaxAge != space.DefaultMaxAge || info.Config.MaxBytes != 1<<30 {
		t.Errorf("after reconciling: %d messages, age %s, %d bytes; want 1, %s, %d", info.State.Msgs, info.Config.MaxAge,
			info.Config.MaxBytes, space.DefaultMaxAge, 1<<30)
	}
	// The class was chosen at creation; other options do not change it.
	cfg, rev, err := space.NewChannels(js, lab).Get(ctx, wire.DefaultsKey)
	if err != nil || cfg.DeliveryClass != string(wire.ClassLive) || rev != 1 {
		t.Errorf("defaults = %+v revision %d, %v; want live, revision 1", cfg, rev, err)
	}
}

// Each case changes one stream in a way that would lose, leak or forge something.
var spoilt = []struct {
	name   string
	stream string
	change func(*jetstream.StreamConfig)
}{
	{"no_republish", "CHAT_lab", func(c *jetstream.StreamConfig) { c.RePublish = nil }},
	{"republish_elsewhere", "CHAT_lab", func(c *jetstream.StreamConfig) { c.RePublish.Destination = "leak.>" }},
	{"roll_up_allowed", "KV_cotal_presence_lab", func(c *jetstream.StreamConfig) { c.AllowRollup = true }},
	{"direct_get_of_grants", "KV_cotal_authority_lab", func(c *jetstream.StreamConfig) { c.AllowDirect = true }},
	{"wider_subjects", "DM_lab", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "extra.>") }},
	{"drop_old_work", "TASK_lab", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }},
	{"lifetime_header", "CHAT_lab", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }},
	{"newer_schema", "DLV_lab", func(c *jetstream.StreamConfig) { c.Metadata = map[string]string{"cotal.schema": "3"} }},
	{"not_acknowledged", "DM_lab", func(c *jetstream.StreamConfig) { c.NoAck = true }},
}

func TestEnsureRefusesDriftAndChangesNothing(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	ctx := ctxFor(t)
	var diffs strings.Builder
	for _, tc := range spoilt {
		for _, c := range space.Plan(lab, nil) {
			if c.Name == tc.stream {
				tc.change(&c)
				c.MaxBytes = 2 << 20 // a cap that would be reconciled
			}
			if c.Name == wire.MembersBucket(lab) || c.Name == space.BucketStream(wire.MembersBucket(lab)) {
				continue // missing, and to stay so
			}
			if _, err := js.CreateStream(ctx, c); err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
		}
		before := must(js.Stream(ctx, tc.stream))(t).CachedInfo().Config
		err := space.Ensure(ctx, js, lab, nil)
		if !errors.Is(err, space.ErrDrift) || !errors.Is(err, wire.ErrPrecondition) {
			t.Fatalf("%s: Ensure = %v, want ErrDrift", tc.name, err)
		}
		drift, _ := errors.AsType[*space.DriftError](err)
		fmt.Fprintf(&diffs, "%s\n%s\n", tc.name, drift.Diff())
		if after := must(js.Stream(ctx, tc.stream))(t).CachedInfo().Config; !cmp.Equal(before, after) {
			t.Errorf("%s: refused, but %s changed:\n%s", tc.name, tc.stream, cmp.Diff(before, after))
		}
		if got := len(streamNames(t, js)); got != space.Streams-1 {
			t.Errorf("%s: refused, but there are %d streams, want %d", tc.name, got, space.Streams-1)
		}
		if err := space.Remove(ctx, js, lab); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "drift.txt", diffs.String())
}

func TestEnsureRefusesDefaultsWithoutAClass(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	ctx := ctxFor(t)
	if err := space.Ensure(ctx, js, lab, nil); err != nil {
		t.Fatal(err)
	}
	must(js.Publish(ctx, wire.RecordPrefix(wire.ChannelsBucket(lab))+wire.DefaultsKey, []byte(`{"replay":true}`)))(t)
	err := space.Ensure(ctx, js, lab, nil)
	if !errors.Is(err, space.ErrDrift) || !strings.Contains(err.Error(), "deliveryClass: want live or durable, have none") {
		t.Errorf("Ensure = %v, want drift that names the class", err)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := broker(t)
	js := connect(t, srv)
	ctx := ctxFor(t)
	for _, s := range []wire.Space{lab, "lab2"} {
		if err := space.Ensure(ctx, js, s, nil); err != nil {
			t.Fatal(err)
		}
		if err := space.EnsureDurables(ctx, js, s, lifecycle("ada"), "reviewer"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time there is nothing to do
		if err := space.Remove(ctx, js, lab); err != nil {
			t.Fatal(err)
		}
	}
	left := streamNames(t, js)
	if len(left) != space.Streams || slices.ContainsFunc(left, func(n string) bool { return !strings.HasSuffix(n, "_lab2") }) {
		t.Errorf("left after removal: %v, want the other space's %d", left, space.Streams)
	}
	if drifts, err := space.Verify(ctx, js, "lab2", nil); err != nil || len(drifts) > 0 {
		t.Errorf("the other space = %v, %v, want untouched", drifts, err)
	}
	if err := space.Remove(ctx, js, "lab2"); err != nil {
		t.Fatal(err)
	}
	info := must(js.AccountInfo(ctx))(t)
	if info.Streams != 0 || info.Consumers != 0 || info.Store != 0 || info.Memory != 0 || info.ReservedStore != 0 || info.ReservedMemory != 0 {
		t.Errorf("account after removal = %+v, want nothing", info.Tier)
	}
}

// tenant is what an account may have.
type tenant struct{ store, memory, streams, consumers int64 }

// tenants is a broker with an account for each of the limits; it returns a context of each.
func tenants(t *testing.T, limits ...tenant) []jetstream.JetStream {
	t.Helper()
	name := func(i int) string { return fmt.Sprintf("T%d", i) }
	srv := broker(t, func(o *server.Options) {
		for i := range limits {
			acc := server.NewAccount(name(i))
			o.Accounts = append(o.Accounts, acc)
			o.Users = append(o.Users, &server.User{Username: name(i), Password: "p", Account: acc})
		}
	})
	var out []jetstream.JetStream
	for i, l := range limits {
		acc, err := srv.LookupAccount(name(i))
		if err != nil {
			t.Fatal(err)
		}
		err = acc.EnableJetStream(map[string]server.JetStreamAccountLimits{"": {
			MaxStore: l.store, MaxMemory: l.memory, MaxStreams: int(l.streams), MaxConsumers: int(l.consumers), MaxAckPending: -1,
			MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, connect(t, srv, nats.UserInfo(name(i), "p")))
	}
	return out
}

func TestCaseN28CreationAtALimitLeavesNothing(t *testing.T) {
	t.Parallel()
	disk, memory := (*space.Options)(nil).Footprint()
	for _, tc := range []struct {
		name          string
		store, memory int64
		streams       int
		resource      string
		used, allowed int64
	}{
		{"disk", disk - 1, memory, -1, "storage", disk - 64<<20, disk - 1},
		{"memory", disk, memory - 1, -1, "memory", 0, memory - 1},
		{"streams", disk, memory, space.Streams - 1, "streams", space.Streams - 1, space.Streams - 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			js := tenants(t, tenant{tc.store, tc.memory, int64(tc.streams), -1})[0]
			err := space.Ensure(ctxFor(t), js, lab, nil)
			if !errors.Is(err, wire.ErrExhausted) {
				t.Fatalf("Ensure = %v, want resource-exhausted", err)
			}
			e, _ := errors.AsType[*wire.Error](err)
			if e.Details["resource"] != tc.resource || fmt.Sprint(e.Details["used"]) != fmt.Sprint(tc.used) || fmt.Sprint(e.Details["allowed"]) != fmt.Sprint(tc.allowed) {
				t.Errorf("details = %v, want %s used %d allowed %d", e.Details, tc.resource, tc.used, tc.allowed)
			}
			for _, figure := range []int64{tc.used, tc.allowed} {
				if !strings.Contains(e.Error(), fmt.Sprint(figure)) {
					t.Errorf("message %q does not name %d", e, figure)
				}
			}
			if left := streamNames(t, js); len(left) > 0 {
				t.Errorf("left half-made: %v", left)
			}
		})
	}
	t.Run("spaces_until_full", func(t *testing.T) {
		t.Parallel()
		js := tenants(t, tenant{2*disk + disk/2, 3 * memory, -1, -1})[0]
		ctx := ctxFor(t)
		for _, s := range []wire.Space{"one", "two"} {
			if err := space.Ensure(ctx, js, s, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := space.Ensure(ctx, js, "three", nil); !errors.Is(err, wire.ErrExhausted) {
			t.Fatalf("third space = %v, want resource-exhausted", err)
		}
		if got := len(streamNames(t, js)); got != 2*space.Streams {
			t.Errorf("streams = %d, want those of two whole spaces, %d", got, 2*space.Streams)
		}
		// With room again the third one is made.
		if err := space.Remove(ctx, js, "one"); err != nil {
			t.Fatal(err)
		}
		if err := space.Ensure(ctx, js, "three", nil); err != nil {
			t.Errorf("third space with room = %v", err)
		}
	})
}

func TestEnsureRefusesOptionsOutOfBounds(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	for name, o := range map[string]*space.Options{
		"replicas": {Replicas: 6}, "age": {MaxAge: time.Second}, "size": {Sizes: space.Sizes{Chat: 1}}, "class": {DefaultClass: "maybe"},
	} {
		if err := space.Ensure(ctxFor(t), js, lab, o); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: Ensure = %v, want bad-request", name, err)
		}
	}
	if err := space.Ensure(ctxFor(t), js, "no space", nil); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("space name: Ensure = %v, want bad-request", err)
	}
	if left := streamNames(t, js); len(left) > 0 {
		t.Errorf("refused, but made %v", left)
	}
}

func TestPublishersCannotRollUpOrShortenLives(t *testing.T) {
	t.Parallel()
	js := connect(t, broker(t))
	ctx := ctxFor(t)
	if err := space.Ensure(ctx, js, lab, nil); err != nil {
		t.Fatal(err)
	}
	var subjects []string
	for _, actor := range []string{"ada", "bob"} {
		s := must(wire.PresenceSubject(lab, lifecycle(actor).Principal))(t)
		must(js.Publish(ctx, s, []byte("{}")))(t)
		subjects = append(subjects, s)
	}
	subjects = append(subjects, must(wire.ChannelSubject(lab, lifecycle("ada").Principal, "general"))(t))
	for _, subject := range subjects {
		for key, value := range map[string]string{"Nats-Rollup": "all", "Nats-TTL": "1s", "Nats-Schedule": "@at 2099-01-01T00:00:00Z", "Nats-Incr": "1"} {
			m := nats.NewMsg(subject)
			m.Header.Set(key, value)
			if _, err := js.PublishMsg(ctx, m); err == nil {
				t.Errorf("publish on %s with %s: %s was accepted", subject, key, value)
			}
		}
	}
	st := must(js.Stream(ctx, space.BucketStream(wire.PresenceBucket(lab))))(t)
	if st.CachedInfo().State.Msgs != 2 {
		t.Errorf("presence records = %d, want 2", st.CachedInfo().State.Msgs)
	}
}
