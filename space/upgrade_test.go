package space_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// earlier makes the streams of a space as the build before made them, by the calls that it made.
func earlier(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	for _, c := range space.Plan(lab, nil) {
		if c.Name == "DEAD_lab" || c.Name == "AUDIT_lab" {
			continue
		}
		c.Metadata = map[string]string{"cotal.schema": "1"}
		if c.Name == "DLV_lab" {
			c.Subjects, c.RePublish, c.AllowDirect, c.MaxMsgSize = []string{"cotal.lab.dlv.>"}, nil, false, 270336
		}
		must(js.CreateStream(t.Context(), c))(t)
	}
	must(js.Publish(t.Context(), "$JS.EVENT.cotal_channels_lab.=defaults", []byte(`{"deliveryClass":"live"}`)))(t)
}

// earlierQueue makes a queue as the build before made it.
func earlierQueue(t testing.TB, js jetstream.JetStream, stream, name, filter string, change ...func(*jetstream.ConsumerConfig)) {
	t.Helper()
	c := jetstream.ConsumerConfig{
		Durable: name, FilterSubject: filter, DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: time.Minute, MaxDeliver: -1, MaxAckPending: 1000, MaxWaiting: 64, MaxRequestBatch: 256, MaxRequestExpires: time.Minute,
	}
	for _, fn := range change {
		fn(&c)
	}
	must(js.CreateConsumer(t.Context(), stream, c))(t)
}

func fromSequence(seq uint64) func(*jetstream.ConsumerConfig) {
	return func(c *jetstream.ConsumerConfig) {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, seq
	}
}

func shared(c *jetstream.ConsumerConfig) {
	c.MaxAckPending, c.MaxWaiting, c.MaxRequestBatch = 10_000, 4096, 32
}

// inUse is a space of the build before in the middle of work: of six direct messages to ada, the first two are before
// her life, the third and fifth are handled and the fourth is handed over; of four jobs the second is done and the
// first is handed over.
func inUse(t testing.TB, js jetstream.JetStream) (ada wire.Lifecycle) {
	t.Helper()
	earlier(t, js)
	ada = lifecycle("ada")
	for i := range 6 {
		send(t, js, fmt.Sprintf("m%d", i+1), &ada, "")
	}
	for i := range 4 {
		send(t, js, fmt.Sprintf("j%d", i+1), nil, "reviewer")
	}
	earlierQueue(t, js, "DM_lab", wire.DirectDurable(ada), "cotal.lab.inst.local.ada.>", fromSequence(3))
	earlierQueue(t, js, "TASK_lab", "svc_reviewer", "cotal.lab.svc.reviewer.>", shared)
	earlierQueue(t, js, "DLV_lab", "dlv_"+ada.Name(), "cotal.lab.dlv.local.ada."+string(ada.UID))
	must(js.Publish(t.Context(), "cotal.lab.dlv.local.ada."+string(ada.UID), []byte("noise")))(t)
	for queue, handle := range map[[2]string][]bool{{"DM_lab", wire.DirectDurable(ada)}: {true, false, true}, {"TASK_lab", "svc_reviewer"}: {false, true}} {
		batch := must(must(js.Consumer(t.Context(), queue[0], queue[1]))(t).Fetch(len(handle)))(t)
		for m := range batch.Messages() {
			if handle[0] {
				if err := m.DoubleAck(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			handle = handle[1:]
		}
	}
	return ada
}

// rest reads everything that a queue still offers, handles it, and returns it in order of ids with the attempt.
func rest(t *testing.T, js jetstream.JetStream, stream, name string) []string {
	t.Helper()
	var got []string
	for {
		m, attempt, _ := next(t, js, stream, name)
		if m == nil {
			slices.Sort(got)
			return got
		}
		id := must(wire.DecodeMessage(m.Data()))(t).ID
		got = append(got, fmt.Sprintf("%s/%d", id, attempt))
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASpaceOfTheBuildBeforeLosesNothing(t *testing.T) {
	for stage := range len(space.Plan(lab, nil)) + 1 { // how many streams a first try had upgraded when it ended
		bareBubble(t, func(t *testing.T, js jetstream.JetStream) {
			ctx := t.Context()
			ada := inUse(t, js)
			for _, c := range space.Plan(lab, nil)[:stage] {
				must(js.CreateOrUpdateStream(ctx, c))(t)
			}
			want := []space.Queues{{Lifecycle: ada, Role: "reviewer", Cut: 2}}
			for range 2 { // the second time there is nothing to do
				if err := space.Ensure(ctx, js, lab, nil); err != nil {
					t.Fatal(err)
				}
				if n, err := space.RestoreQueues(ctx, js, lab, want); err != nil || n != 0 {
					t.Fatalf("RestoreQueues = %d, %v, want none made again", n, err)
				}
			}
			if drifts, err := space.Verify(ctx, js, lab, nil); err != nil || len(drifts) > 0 {
				t.Errorf("Verify = %v, %v, want nothing", drifts, err)
			}
			if err := space.EnsureQueues(ctx, js, lab, want[0]); err != nil {
				t.Errorf("the queues are not as this build makes them: %v", err)
			}
			if cfg, _, err := space.NewChannels(js, lab).Get(ctx, wire.DefaultsKey); err != nil || cfg.DeliveryClass != "live" {
				t.Errorf("defaults = %+v, %v, want the class that was chosen", cfg, err)
			}
			if got := must(js.AccountInfo(ctx))(t).Consumers; got != 2 {
				t.Errorf("%d queues, want 2: none of mention pointers", got)
			}
			if got, want := rest(t, js, "DM_lab", wire.DirectDurable(ada)), []string{"m4/2", "m6/1"}; !slices.Equal(got, want) {
				t.Errorf("direct messages left = %v, want %v", got, want)
			}
			if got, want := rest(t, js, "TASK_lab", "svc_reviewer"), []string{"j1/2", "j3/1", "j4/1"}; !slices.Equal(got, want) {
				t.Errorf("jobs left = %v, want %v", got, want)
			}
			send(t, js, "m7", &ada, "")
			terminate(t, js, "DM_lab", wire.DirectDurable(ada), "no")
			if all, _, err := space.DeadLetters(ctx, js, lab, 0, 0); err != nil || len(all) != 1 || all[0].MessageID != "m7" {
				t.Errorf("dead letters = %+v, %v, want m7", all, err)
			}
		})
	}
}

// A queue that nobody restored is brought along when its holder is issued for again.
func TestAnIssueUpgradesAQueue(t *testing.T) {
	bareBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ada := inUse(t, js)
		if err := space.Ensure(t.Context(), js, lab, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := space.EnsureQueues(t.Context(), js, lab, space.Queues{Lifecycle: ada, Role: "reviewer", Cut: 2}); err != nil {
				t.Fatal(err)
			}
		}
		for stream, name := range map[string]string{"DM_lab": wire.DirectDurable(ada), "TASK_lab": "svc_reviewer"} {
			c := must(js.Consumer(t.Context(), stream, name))(t).CachedInfo().Config
			if c.MaxDeliver != wire.MaxDeliveries || !slices.Equal(c.BackOff, wire.RedeliveryWaits()) {
				t.Errorf("%s hands over %d times after %v", name, c.MaxDeliver, c.BackOff)
			}
		}
	})
}

// A message that was handed over more often than the bound when the bound came is a dead letter, not lost.
func TestAnUpgradeLosesNothingThatWasHandedOverOften(t *testing.T) {
	bareBubble(t, func(t *testing.T, js jetstream.JetStream) {
		ctx := t.Context()
		earlier(t, js)
		ada := lifecycle("ada")
		earlierQueue(t, js, "DM_lab", wire.DirectDurable(ada), "cotal.lab.inst.local.ada.>", fromSequence(1))
		send(t, js, "m1", &ada, "")
		for range wire.MaxDeliveries + 5 {
			if err := must(must(js.Consumer(ctx, "DM_lab", wire.DirectDurable(ada)))(t).Next())(t).Nak(); err != nil {
				t.Fatal(err)
			}
		}
		if err := space.Ensure(ctx, js, lab, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := space.RestoreQueues(ctx, js, lab, nil); err != nil {
			t.Fatal(err)
		}
		if got := rest(t, js, "DM_lab", wire.DirectDurable(ada)); len(got) != 0 {
			t.Errorf("handed over again: %v", got)
		}
		all, _, err := space.DeadLetters(ctx, js, lab, 0, 0)
		if err != nil || len(all) != 1 {
			t.Fatalf("dead letters = %+v, %v, want one", all, err)
		}
		if _, err := space.Requeue(ctx, js, lab, all[0].ID); err != nil {
			t.Fatal(err)
		}
		if got, want := rest(t, js, "DM_lab", wire.DirectDurable(ada)), []string{"m1/1"}; !slices.Equal(got, want) {
			t.Errorf("put back = %v, want %v", got, want)
		}
	})
}

// Only what the build before made is upgraded; anything else is drift as before, and nothing is changed.
func TestAnUpgradeRefusesDrift(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"DLV_lab": func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: "leak.>"}
		},
		"CHAT_lab": func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"TASK_lab": func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"DM_lab":   func(c *jetstream.StreamConfig) { c.Metadata["cotal.schema"] = "0" },
	} {
		js := connect(t, broker(t))
		earlier(t, js)
		c := must(js.Stream(t.Context(), name))(t).CachedInfo().Config
		change(&c)
		must(js.UpdateStream(t.Context(), c))(t)
		if err := space.Ensure(t.Context(), js, lab, nil); !errors.Is(err, space.ErrDrift) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: Ensure = %v, want drift", name, err)
		}
		if names := streamNames(t, js); len(names) != space.Streams-2 {
			t.Errorf("%s: refused, but there are %v", name, names)
		}
	}
	js := newSpace(t)
	ada := lifecycle("ada")
	earlierQueue(t, js, "DM_lab", wire.DirectDurable(ada), "cotal.lab.inst.local.ada.>", fromSequence(1), func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 })
	if err := space.EnsureQueues(t.Context(), js, lab, space.Queues{Lifecycle: ada}); !errors.Is(err, space.ErrDrift) {
		t.Errorf("a queue of another shape: EnsureQueues = %v, want drift", err)
	}
}
