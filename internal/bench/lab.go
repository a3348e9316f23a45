package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	benchSpace = wire.Space("bench")
	// workers is how many senders wait for their acknowledgement at a time.
	workers = 64
	text    = "The quick brown fox jumps over the lazy dog; 128 bytes of text, as a short message of one agent to another one usually is in use."
)

// lab is an authenticated broker on loopback, and an open one for the control rails, where a service of any name may
// run.
type lab struct {
	opts  Options
	dir   string
	node  *cotal.Node
	open  *cotal.Node
	stops []func()
	names atomic.Int64
}

func newLab(ctx context.Context, o Options) (*lab, error) {
	dir, err := os.MkdirTemp("", "cotal-bench-")
	if err != nil {
		return nil, fmt.Errorf("create folder: %w", err)
	}
	l := &lab{opts: o, dir: dir}
	l.node, err = l.boot(ctx, cotal.New(memstore.New(), &cotal.Options{
		StateDir: filepath.Join(dir, "static"), Port: broker.RandomPort, Transport: broker.Plaintext(), Spaces: []string{string(benchSpace)},
	}))
	if err == nil {
		l.open, err = l.boot(ctx, cotal.New(nil, &cotal.Options{
			StateDir: filepath.Join(dir, "open"), Port: broker.RandomPort, Transport: broker.Plaintext(), Spaces: []string{string(benchSpace)}, Open: true,
		}))
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) boot(ctx context.Context, n *cotal.Node) (*cotal.Node, error) {
	run, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- n.Run(run) }()
	l.stops = append(l.stops, func() {
		cancel()
		<-done
	})
	select {
	case <-n.Ready():
		return n, nil
	case err := <-done:
		done <- err
		return nil, err
	}
}

func (l *lab) close() {
	for _, stop := range l.stops {
		stop()
	}
	_ = os.RemoveAll(l.dir)
}

// count is n operations, scaled.
func (l *lab) count(n int) int { return max(workers, int(float64(n)*l.opts.Scale)) }

// singles is how many messages are timed one by one.
func (l *lab) singles() int { return max(20, int(500*min(1, l.opts.Scale*10))) }

func (l *lab) creds(ctx context.Context, role string) (*trust.Credentials, error) {
	return l.node.Authority().Issue(ctx, auth.Request{
		Space: benchSpace, Actor: fmt.Sprintf("peer_%d", l.names.Add(1)), Role: role, Subscribe: []string{">"}, Publish: []string{">"},
	})
}

// peer connects one of ours; quiet, since the raw side keeps no presence either.
func (l *lab) peer(ctx context.Context, role string) (*endpoint.Endpoint, error) {
	creds, err := l.creds(ctx, role)
	if err != nil {
		return nil, err
	}
	return endpoint.Connect(ctx, l.node.URL(), endpoint.Static(creds), &endpoint.Options{Name: creds.Identity().Actor, Quiet: true})
}

// closers ends what a setup opened, last first.
type closers []func()

func (c *closers) add(f func()) { *c = append(*c, f) }

func (c *closers) close() {
	for i := len(*c) - 1; i >= 0; i-- {
		(*c)[i]()
	}
}

// blast calls send n times from the workers and returns the first error.
func blast(ctx context.Context, n int, send func(ctx context.Context) error) error {
	return blastFrom(ctx, workers, n, send)
}

// blastFrom is blast with a number of senders.
func blastFrom(ctx context.Context, workers, n int, send func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				if err := send(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return nil
}

// tally counts deliveries and tells when a number is reached.
type tally struct {
	n    atomic.Int64
	want atomic.Int64
	done chan struct{}
}

func newTally() *tally { return &tally{done: make(chan struct{}, 1)} }

func (t *tally) expect(n int) {
	t.n.Store(0)
	t.want.Store(int64(n))
}

func (t *tally) hit() {
	if t.n.Add(1) == t.want.Load() {
		t.done <- struct{}{}
	}
}

func (t *tally) wait(ctx context.Context) error {
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case <-t.done:
		return nil
	case <-limit.C:
		return fmt.Errorf("%d of %d deliveries after a minute", t.n.Load(), t.want.Load())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// throughput measures n sends until all their deliveries are in, then the latency of single ones, sent to received.
func throughput(t *tally, n, each, singles int, send func(context.Context) error) measure {
	return func(ctx context.Context) ([]float64, error) {
		t.expect(n * each)
		began := time.Now()
		if err := errors.Join(blast(ctx, n, send), t.wait(ctx)); err != nil {
			return nil, err
		}
		rate := float64(n) / time.Since(began).Seconds()
		took := make([]time.Duration, singles)
		for i := range took {
			t.expect(each)
			began := time.Now()
			if err := send(ctx); err != nil {
				return nil, err
			}
			if err := t.wait(ctx); err != nil {
				return nil, err
			}
			took[i] = time.Since(began)
		}
		return []float64{rate, quantile(took, 0.5), quantile(took, 0.99)}, nil
	}
}

func messageSeries(rate string) []series {
	return []series{
		{name: "rate", unit: rate, ratioAtLeast: 0.85},
		{name: "p50", unit: "µs", smaller: true},
		{name: "p99", unit: "µs", smaller: true},
	}
}

func rawOptions(creds *trust.Credentials) []nats.Option {
	id := creds.Identity()
	return []nats.Option{
		nats.UserJWT(func() (string, error) { return creds.JWT(), nil }, creds.Sign),
		nats.CustomInboxPrefix("_INBOX_" + id.Inbox), nats.MaxReconnects(-1),
	}
}
