package delivery_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/delivery"
	"github.com/cotal-go/cotal/internal/header/headertest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/wire"
)

// An instance is cut off after it stored a pointer and before it recorded that: the next one stores nothing twice for as
// long as the broker remembers, and after that a pointer to the same message, which its reader knows.
func TestMentionsAfterACrash(t *testing.T) {
	for name, wait := range map[string]time.Duration{"soon": 0, "late": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, m *mesh) {
				way := &cutter{srv: m.srv}
				nc := dial(t, m.srv, nats.InProcessServer(way), nats.CustomReconnectDelay(func(int) time.Duration { return time.Hour }))
				stop, done := runIn(delivery.New(nc, lab, nil))
				ada, bob := lifecycle("ada"), lifecycle("bob")
				m.grant(t, ada, ">")
				m.grant(t, bob, ">")
				m.settle(t, ada)
				time.Sleep(time.Minute)
				m.settle(t, ada) // the position is recorded, and will not be within a second
				pointer := m.awaitPointer(t, bob)
				seq := m.mention(t, ada, "general", "bob")
				equal(t, "pointer", pointer(), seq)
				way.off()
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				time.Sleep(wait)
				stop2 := m.serve(t, nil)
				m.settle(t, ada)
				stop2()
				want := []uint64{seq}
				if wait > 0 {
					want = append(want, seq)
				}
				if got := m.pointed(t, bob); !slices.Equal(got, want) {
					t.Errorf("bob has pointers to %d, want %d", got, want)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// What is posted while the way to the broker is cut is served when it is back.
func TestMentionsAcrossAReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, m *mesh) {
		way := &cutter{srv: m.srv}
		m.serveOn(t, dial(t, m.srv, nats.InProcessServer(way), nats.ReconnectBufSize(-1)), nil)
		ada, bob := lifecycle("ada"), lifecycle("bob")
		m.grant(t, ada, ">")
		m.grant(t, bob, ">")
		wait := m.awaitPointer(t, bob)
		seq := m.mention(t, ada, "general", "bob")
		equal(t, "pointer", wait(), seq)
		for range 3 {
			way.off()
			seq = m.mention(t, ada, "general", "bob")
			m.post(t, ada.Principal, "general", "nobody")
			time.Sleep(20 * time.Second)
			way.on()
			equal(t, "pointer", wait(), seq) // nothing follows that would show the gap
		}
		time.Sleep(time.Minute)
	})
}

// When a pointer cannot be stored the mentions wait, in order, and health says so.
func TestMentionsWaitForTheirStream(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(t, nil)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.grant(t, ada, ">")
	m.grant(t, bob, ">")
	m.settle(t, ada)
	if err := m.js.DeleteStream(ctxFor(t), wire.MentionStream(lab)); err != nil {
		t.Fatal(err)
	}
	var want []uint64
	for range 3 {
		want = append(want, m.mention(t, ada, "general", "bob"))
	}
	c := m.caller(t, lifecycle("probe"))
	if !degraded(t, c, "mentions wait since") {
		t.Error("health does not say that mentions wait")
	}
	if err := space.Ensure(ctxFor(t), m.js, lab, nil); err != nil {
		t.Fatal(err)
	}
	m.settle(t, ada)
	if got := m.pointed(t, bob); !slices.Equal(got, want) {
		t.Errorf("bob has pointers to %d, want %d", got, want)
	}
}

// degraded asks for health until the check of mentions fails, ten seconds at most; each answer is up to a second old.
func degraded(t *testing.T, c *control.Caller, reason string) bool {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		h, err := c.Health(ctxFor(t), wire.DeliveryEndpoint, time.Second, 1)
		if err != nil || len(h) != 1 {
			t.Fatalf("health = %v, %v", h, err)
		}
		for _, check := range h[0].Checks {
			if check.Name == "mentions" && !check.OK && strings.Contains(check.Reason, reason) && !h[0].Ready {
				return true
			}
		}
	}
	return false
}

// Whatever the broker can be made to send to the live subjects, and whatever a publisher hides, mentions nobody and hides
// no other mention.
func TestMentionsAmongJunk(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	var log strings.Builder
	m.serve(t, &delivery.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.grant(t, ada, ">")
	m.grant(t, bob, ">")
	chat, err := wire.ChannelSubject(lab, ada.Principal, "general")
	live, err2 := wire.LiveSubject(lab, ada.Principal, "general")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	raw := headertest.Dial(t, m.srv, nil)
	body := func(space wire.Space, from wire.Principal, channel string) []byte {
		msg := message(from, channel, "@bob")
		msg.Space, msg.Mentions = space, []string{"bob"}
		return encode(t, msg)
	}
	good := body(lab, ada.Principal, "general")
	var want []uint64
	for range 5 {
		// The broker's acknowledgement, sent to a live subject.
		if err := m.nc.PublishRequest(chat, live, encode(t, message(ada.Principal, "general", "no mention"))); err != nil {
			t.Fatal(err)
		}
		// A message that never was stored.
		if err := m.nc.Publish(live, good); err != nil {
			t.Fatal(err)
		}
		// Stored messages that no receiver would show, one of them with a header block that hides where it is stored.
		for _, bad := range [][]byte{
			body("other", ada.Principal, "general"), body(lab, bob.Principal, "general"), body(lab, ada.Principal, "secret"),
			[]byte(`{"mentions":["bob"]}`), []byte(`"mentions"`),
		} {
			m.store(t, ada.Principal, "general", bad)
		}
		raw.Publish(t, chat, "NATS/1.0\r\nnocolon\r\n\r\n", good)
		want = append(want, m.mention(t, ada, "general", "bob"))
	}
	m.settle(t, ada)
	if got := m.pointed(t, bob); !slices.Equal(got, want) {
		t.Errorf("bob has pointers to %d, want %d", got, want)
	}
	if log.Len() > 0 {
		t.Errorf("errors were logged: %s", &log)
	}
}

// A message that mentions nobody costs the service nothing beyond hearing it: no request to the broker.
func TestMessagesWithoutMentionsAreFree(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	nc := dial(t, m.srv)
	m.serveOn(t, nc, nil)
	ada, bob := lifecycle("ada"), lifecycle("bob")
	m.grant(t, ada, ">")
	m.grant(t, bob, ">")
	m.settle(t, ada)
	body := encode(t, message(ada.Principal, "general", strings.Repeat("as usual ", 50)))
	subject, err := wire.ChannelSubject(lab, ada.Principal, "general")
	if err != nil {
		t.Fatal(err)
	}
	before, start := nc.Stats(), time.Now()
	for range 10_000 {
		if _, err := m.js.PublishAsync(subject, body, jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	<-m.js.PublishAsyncComplete()
	m.settle(t, ada)
	after, took := nc.Stats(), time.Since(start)
	// The fence takes a few requests; the feed, the position and the proofs of life take a few more a second.
	if sent, most := after.OutMsgs-before.OutMsgs, 20+20*uint64(took/time.Second+1); sent > most {
		t.Errorf("%d messages to the broker for 10,000 without mentions in %v, want at most %d", sent, took, most)
	}
	if heard := after.InMsgs - before.InMsgs; heard < 10_000 {
		t.Errorf("heard %d messages, want each", heard)
	}
}

// BenchmarkHearing is the cost of one live copy, which nats.go has parsed before.
func BenchmarkHearing(b *testing.B) {
	m := newMesh(b)
	d := delivery.New(m.nc, lab, nil)
	ada := lifecycle("ada")
	sub, err := m.nc.SubscribeSync(wire.StreamSubjects(lab, wire.KindLive))
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{256, 4096} {
		m.post(b, ada.Principal, "general", strings.Repeat("x", size))
		msg, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			b.Fatal(err)
		}
		hear := delivery.HearOf(d)
		b.Run(fmt.Sprintf("%d_bytes", size), func(b *testing.B) {
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				// The number has as many digits each time, so that the header block stays as long as it was received.
				msg.Header["Nats-Sequence"][0] = strconv.Itoa(1 + i%9)
				hear(msg)
			}
		})
	}
}
