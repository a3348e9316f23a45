package fault_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// ledger is what the broker acknowledged: ids of direct messages and names of grants.
type ledger struct {
	mu     sync.Mutex
	direct map[string]bool
	names  map[string]bool
}

func newLedger() *ledger { return &ledger{direct: map[string]bool{}, names: map[string]bool{}} }

func (l *ledger) sent(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.direct[id] = true
}

func (l *ledger) granted(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names[name] = true
}

func (l *ledger) copy() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &ledger{direct: maps.Clone(l.direct), names: maps.Clone(l.names)}
}

func (l *ledger) counts() (direct, names int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.direct), len(l.names)
}

// traffic keeps about rate direct messages a second and a stream of new grants going until ctx ends, and writes what was
// acknowledged to the ledger. It closes begun when it is connected.
func traffic(ctx context.Context, t *testing.T, url, dir string, sender *trust.Credentials, to wire.Principal, round, rate int, l *ledger, begun chan<- struct{}) {
	t.Helper()
	begin := sync.OnceFunc(func() { close(begun) })
	defer begin()
	ep, err := endpoint.Connect(ctx, url, endpoint.Static(sender), &endpoint.Options{Name: "sender"})
	if err != nil {
		t.Fatalf("round %d: connect sender: %v", round, err)
	}
	client := dialNode(ctx, t, url, dir)
	begin()
	const workers = 8
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			tick := time.NewTicker(time.Second * workers / time.Duration(rate))
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				draft := endpoint.Draft{ID: fmt.Sprintf("r%dw%di%d", round, w, i), Parts: []wire.Part{wire.Text("x")}}
				if r, err := ep.Direct(ctx, to, draft); err == nil {
					l.sent(r.ID)
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("agent_%d_%d", round, i)
			if _, err := client.Authority().Issue(ctx, auth.Request{Space: spaceName, Actor: name}); err == nil {
				l.granted(name)
			}
		}
	})
	wg.Wait()
	_ = ep.Close()
	_ = client.Close()
}

// waitNode dials a node until it answers: the broker may just be starting.
func waitNode(ctx context.Context, url string, store secret.Store) (*cotal.NodeClient, error) {
	for {
		client, err := cotal.DialNode(ctx, url, store, nil)
		if err == nil || ctx.Err() != nil {
			return client, err
		}
		pause(20 * time.Millisecond)
	}
}

func dialNode(ctx context.Context, t *testing.T, url, dir string) *cotal.NodeClient {
	t.Helper()
	store, err := records(dir)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cotal.DialNode(ctx, url, store, nil)
	if err != nil {
		t.Fatalf("dial node: %v", err)
	}
	return client
}

// TestKillUnderTraffic kills the whole process with signal 9 while a thousand direct messages a second and grants are
// being acknowledged, twenty times, and then finds every acknowledged one of both.
func TestKillUnderTraffic(t *testing.T) {
	dir := t.TempDir()
	c := start(t, dir, false)
	client := dialNode(t.Context(), t, c.url, dir)
	issue := func(name string) *trust.Credentials {
		creds, err := client.Authority().Issue(t.Context(), auth.Request{Space: spaceName, Actor: name})
		if err != nil {
			t.Fatal(err)
		}
		return creds
	}
	sender, receiver := issue("sender"), issue("receiver")
	_ = client.Close()
	l := newLedger()
	for round := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		begun := make(chan struct{})
		wg.Go(func() {
			traffic(ctx, t, c.url, dir, sender, receiver.Identity().Principal, round, 1000, l, begun)
		})
		<-begun
		pause(300*time.Millisecond + time.Duration(rand.IntN(200))*time.Millisecond) // real time: the point of the kill must be random
		c.kill()
		cancel()
		wg.Wait()
		c = start(t, dir, false)
	}
	direct, names := l.counts()
	t.Logf("acknowledged before 20 kills: %d direct messages, %d grants", direct, names)
	if direct < 20*100 || names < 20 {
		t.Fatalf("acknowledged %d messages and %d grants, too few to prove anything", direct, names)
	}
	if lost := missing(t, c.url, dir, receiver, l); len(lost) > 0 {
		t.Errorf("lost %d acknowledged entries: %.20q", len(lost), lost)
	}
}

// missing reads everything that the receiver was sent and every grant, and returns what the ledger has beyond.
func missing(t *testing.T, url, dir string, receiver *trust.Credentials, l *ledger) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	ep, err := endpoint.Connect(ctx, url, endpoint.Static(receiver), &endpoint.Options{Name: "receiver"})
	if err != nil {
		t.Fatalf("connect receiver: %v", err)
	}
	defer func() { _ = ep.Close() }()
	left := make(map[string]bool, len(l.direct))
	for id := range l.direct {
		left[id] = true
	}
	var mu sync.Mutex
	last, done := time.Now(), make(chan struct{})
	err = ep.HandleDirect(ctx, func(d *endpoint.Delivery) {
		if err := d.Ack(ctx); err != nil {
			t.Errorf("ack: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		last = time.Now()
		if delete(left, d.Message.ID); len(left) == 0 {
			select {
			case <-done:
			default:
				close(done)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	quiet := time.NewTicker(100 * time.Millisecond)
	defer quiet.Stop()
wait:
	for {
		select {
		case <-done:
			break wait
		case <-quiet.C:
			mu.Lock()
			idle := time.Since(last)
			mu.Unlock()
			if idle > 5*time.Second { // nothing more comes: what is left is lost
				break wait
			}
		}
	}
	client := dialNode(ctx, t, url, dir)
	defer func() { _ = client.Close() }()
	grants, err := client.Authority().List(ctx, spaceName)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range grants {
		delete(l.names, g.Actor)
	}
	mu.Lock()
	defer mu.Unlock()
	var lost []string
	for id := range left {
		lost = append(lost, id)
	}
	for name := range l.names {
		lost = append(lost, name)
	}
	return lost
}
