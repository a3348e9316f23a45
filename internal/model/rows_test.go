package model_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// totals is what the streams of the space hold.
type totals struct {
	bytes     uint64
	consumers int
}

func measure(t *testing.T, m *cotaltest.Mesh) (sum totals) {
	t.Helper()
	creds, err := m.Node().Authority().ServiceCredential(t.Context(), m.Space(), trust.Provisioner, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := m.Node().Dial(t.Context(), creds)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		st, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		sum.bytes += st.CachedInfo().State.Bytes
		sum.consumers += st.CachedInfo().State.Consumers
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}

func join(t *testing.T, ep *endpoint.Endpoint, pattern string, fn func(*endpoint.Delivery)) *endpoint.Membership {
	t.Helper()
	m, err := ep.Join(t.Context(), pattern, fn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if st := m.Status(); !st.Established || !st.Durable {
		t.Fatalf("joined %q: %+v", pattern, st)
	}
	return m
}

func nothing(*endpoint.Delivery) {}

// burst posts n messages from several goroutines and returns the ids by sequence.
func burst(t *testing.T, ep *endpoint.Endpoint, channel string, n int) map[uint64]string {
	t.Helper()
	const workers = 32
	out := make(map[uint64]string, n)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				r, err := ep.Post(t.Context(), channel, endpoint.Text(fmt.Sprintf("message %06d", i)))
				if err != nil {
					t.Errorf("post: %v", err)
					return
				}
				mu.Lock()
				out[r.Sequence] = r.ID
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return out
}

// TestRow16StoredBytesDoNotGrowWithMembers posts to channels with 1, 10 and 100 members who are away, and compares what the
// whole space stores.
func TestRow16StoredBytesDoNotGrowWithMembers(t *testing.T) {
	t.Parallel()
	const posts = 200
	m := cotaltest.New(t, nil)
	sender := m.Endpoint(t, "sender", &cotaltest.Peer{Options: endpoint.Options{Quiet: true}})
	each := map[int]uint64{}
	for _, members := range []int{1, 10, 100} {
		channel := fmt.Sprintf("room%03d", members)
		for i := range members {
			ep := m.Endpoint(t, fmt.Sprintf("m%d_%d", members, i), &cotaltest.Peer{Options: endpoint.Options{Quiet: true}})
			join(t, ep, channel, nothing)
			if err := ep.Close(); err != nil {
				t.Fatal(err)
			}
		}
		before := measure(t, m)
		burst(t, sender, channel, posts)
		after := measure(t, m)
		each[members] = (after.bytes - before.bytes) / posts
		t.Logf("%3d members: %d bytes a post", members, each[members])
	}
	// A record of the service's own position may be written in between; a copy per member would be many times that.
	if each[100] > each[1]+20 || each[10] > each[1]+20 {
		t.Errorf("bytes a post with 1, 10, 100 members = %d, %d, %d, want the same", each[1], each[10], each[100])
	}
}

// TestRow25ABurstReachesEveryMember posts 5,000 messages as fast as it can to a member who is there and one who is away.
func TestRow25ABurstReachesEveryMember(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	sender := m.Endpoint(t, "sender", nil)
	online, awayCreds := newLog(), m.Credentials(t, "away", nil)
	join(t, m.Endpoint(t, "online", nil), "room", online.show)
	ep := m.Connect(t, awayCreds, nil)
	join(t, ep, "room", nothing)
	if err := ep.Close(); err != nil {
		t.Fatal(err)
	}
	sent := burst(t, sender, "room", 5000)
	away := newLog()
	join(t, m.Connect(t, awayCreds, nil), "room", away.show)
	for name, l := range map[string]*log{"online": online, "away": away} {
		l.wait(t, len(sent))
		l.hold(t, name, sent)
	}
}

// TestRow26NoConsumerPerMessage posts 100,000 messages to durable members and counts consumers before and after.
func TestRow26NoConsumerPerMessage(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	sender := m.Endpoint(t, "sender", nil)
	l := newLog()
	join(t, m.Endpoint(t, "member", nil), "room", l.show)
	before := measure(t, m)
	sent := burst(t, sender, "room", 100_000)
	l.wait(t, len(sent))
	if after := measure(t, m); after.consumers != before.consumers {
		t.Errorf("consumers = %d after 100,000 posts, want %d as before", after.consumers, before.consumers)
	}
	l.hold(t, "member", sent)
}

// log is what one member was shown.
type log struct {
	mu      sync.Mutex
	changed chan struct{}
	order   []uint64
	ids     map[uint64]string
	twice   []string
}

func newLog() *log { return &log{changed: make(chan struct{}), ids: map[uint64]string{}} }

func (l *log) show(d *endpoint.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.ids[d.Sequence]; ok {
		l.twice = append(l.twice, d.Message.ID)
	}
	l.ids[d.Sequence] = d.Message.ID
	l.order = append(l.order, d.Sequence)
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait waits until n different messages were shown.
func (l *log) wait(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		l.mu.Lock()
		have, changed := len(l.ids), l.changed
		l.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("shown %d of %d messages", have, n)
		}
	}
}

// hold compares with what was sent: each once, in order.
func (l *log) hold(t *testing.T, name string, sent map[uint64]string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.twice) > 0 {
		t.Errorf("%s was shown %d messages twice: %.3q", name, len(l.twice), l.twice)
	}
	if len(l.ids) != len(sent) {
		t.Errorf("%s was shown %d messages, want %d", name, len(l.ids), len(sent))
	}
	for i, seq := range l.order {
		if sent[seq] != l.ids[seq] {
			t.Fatalf("%s was shown %q as sequence %d, want %q", name, l.ids[seq], seq, sent[seq])
		}
		if i > 0 && seq <= l.order[i-1] {
			t.Fatalf("%s was shown sequence %d after %d", name, seq, l.order[i-1])
		}
	}
}

// TestRow17ThreeDays lives through three days of fake time: credentials of four hours are renewed all the while, a member's
// process is killed and comes back, the node is restarted twice a day, and every message of the interval is shown.
func TestRow17ThreeDays(t *testing.T) {
	dir := t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: dir})
		ada := longLived(t, m, "ada", m.InProcess())
		l := newLog()
		process := &wires{via: m.InProcess()}
		bob := longLived(t, m, "bob", process)
		ms := join(t, bob, "room", l.show)
		interval := ms.Status().Joined
		sent := map[uint64]string{}
		for hour := range 72 {
			killed := hour%3 == 1
			if killed {
				process.cut()
				_ = bob.Close() // its connections are gone: it can tell nobody
			}
			for range 3 {
				r, err := ada.Post(t.Context(), "room", endpoint.Text("hello"))
				if err != nil {
					t.Fatalf("hour %d: %v", hour, err)
				}
				sent[r.Sequence] = r.ID
			}
			if hour%12 == 7 {
				m.Restart(t)
			}
			time.Sleep(time.Hour)
			if killed {
				process = &wires{via: m.InProcess()}
				bob = longLived(t, m, "bob", process)
				if st := join(t, bob, "room", l.show).Status(); st.Joined != interval {
					t.Fatalf("hour %d: came back joined at %d, want %d", hour, st.Joined, interval)
				}
			}
		}
		l.wait(t, len(sent))
		if len(l.twice) > 0 { // an hour passes before each kill, so that everything shown was reported
			t.Errorf("shown again: %q", l.twice)
		}
		for _, ep := range []*endpoint.Endpoint{ada, bob} {
			if err := ep.Close(); err != nil {
				t.Error(err)
			}
		}
		l.hold(t, "bob", sent)
	})
}

// longLived connects an actor whose credential of four hours is renewed for as long as it runs.
func longLived(t *testing.T, m *cotaltest.Mesh, actor string, via nats.InProcessConnProvider) *endpoint.Endpoint {
	t.Helper()
	source := endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
		req := auth.Request{Space: m.Space(), Actor: actor, Subscribe: []string{"room"}, Publish: []string{"room"}, TTL: 4 * time.Hour}
		creds, err := m.Node().Authority().Issue(ctx, req)
		if wire.CodeOf(err) == wire.CodeAlreadyExists {
			req.Renew = true
			creds, err = m.Node().Authority().Issue(ctx, req)
		}
		return creds, err
	})
	ep, err := endpoint.Connect(t.Context(), "", source, &endpoint.Options{Name: actor, InProcess: via, CloseTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return ep
}
