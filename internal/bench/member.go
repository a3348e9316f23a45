package bench

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
)

// pipeline is how many posts wait for their acknowledgement at a time where the raw side waits for none.
const pipeline = 512

// missed is how many messages a member catches up on, and reads as history.
const missed = 10_000

// member connects an endpoint that is a durable member of a channel.
func (l *lab) member(ctx context.Context, c *closers, channel string, fn func(*endpoint.Delivery), opts *endpoint.JoinOptions) (*endpoint.Endpoint, error) {
	ep, err := l.peer(ctx, "")
	if err != nil {
		return nil, err
	}
	c.add(func() { _ = ep.Close() })
	return ep, join(ctx, ep, channel, fn, opts)
}

func join(ctx context.Context, ep *endpoint.Endpoint, channel string, fn func(*endpoint.Delivery), opts *endpoint.JoinOptions) error {
	m, err := ep.Join(ctx, channel, fn, opts)
	if err != nil {
		return err
	}
	if st := m.Status(); !st.Durable || !st.Established {
		return fmt.Errorf("joined %q: durable %t, established %t: %w", channel, st.Durable, st.Established, st.Err)
	}
	return nil
}

// fanOut measures deliveries of a durable channel to a number of members, beside raw core NATS, which stores nothing.
func fanOut(members int) pair {
	s := []series{{name: "deliveries", unit: "deliveries/s", ratioAtLeast: 0.8}}
	return pair{name: fmt.Sprintf("durable/%d", members), series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		var c closers
		fail := func(err error) (measure, measure, func(), error) {
			c.close()
			return nil, nil, nil, err
		}
		ours, raw := newTally(), newTally()
		channel := fmt.Sprintf("durable%d", members)
		sender, err := l.peer(ctx, "")
		if err != nil {
			return fail(err)
		}
		c.add(func() { _ = sender.Close() })
		for range members {
			if _, err := l.member(ctx, &c, channel, func(*endpoint.Delivery) { ours.hit() }, nil); err != nil {
				return fail(err)
			}
		}
		core, err := l.core(&c, members, raw)
		if err != nil {
			return fail(err)
		}
		n := l.count(2_000)
		return deliveries(ours, n, members, func(ctx context.Context) error {
			return blastFrom(ctx, pipeline, n, func(ctx context.Context) error {
				_, err := sender.Post(ctx, channel, draft())
				return err
			})
		}), deliveries(raw, n, members, core(n)), c.close, nil
	}}
}

// core makes listeners on a subject that nothing stores, and returns what publishes to them.
func (l *lab) core(c *closers, members int, t *tally) (func(n int) func(context.Context) error, error) {
	const subject = "raw.core"
	for range members {
		nc, err := nats.Connect(l.open.URL())
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		c.add(nc.Close)
		if err := (&rawPeer{nc: nc}).listen(subject, t); err != nil {
			return nil, err
		}
	}
	nc, err := nats.Connect(l.open.URL())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.add(nc.Close)
	return func(n int) func(context.Context) error {
		return func(context.Context) error {
			for range n {
				body, err := rawBody("raw.core", rawMessage{Channel: "core"})
				if err == nil {
					err = nc.Publish(subject, body)
				}
				if err != nil {
					return err
				}
			}
			return nc.Flush()
		}
	}, nil
}

// deliveries measures until all copies of n sends have arrived.
func deliveries(t *tally, n, each int, send func(context.Context) error) measure {
	return func(ctx context.Context) ([]float64, error) {
		t.expect(n * each)
		began := time.Now()
		if err := send(ctx); err != nil {
			return nil, err
		}
		if err := t.wait(ctx); err != nil {
			return nil, err
		}
		return []float64{float64(n*each) / time.Since(began).Seconds()}, nil
	}
}

// catchUp measures how fast a member that was away is given what it missed, and how much memory of the process that takes
// at most, beside direct gets of the same messages in batches, which no agent may do.
func catchUp() pair {
	s := []series{{name: "rate", unit: "messages/s", floor: 50_000}, {name: "memory", unit: "MB", smaller: true, limit: 64}}
	return pair{name: "catch-up", series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		var c closers
		fail := func(err error) (measure, measure, func(), error) {
			c.close()
			return nil, nil, nil, err
		}
		sender, err := l.peer(ctx, "")
		if err != nil {
			return fail(err)
		}
		c.add(func() { _ = sender.Close() })
		creds, err := l.creds(ctx, "")
		if err != nil {
			return fail(err)
		}
		n := l.count(missed)
		var round atomic.Int64
		js, err := l.trustedReader(ctx, &c)
		if err != nil {
			return fail(err)
		}
		ours := func(ctx context.Context) ([]float64, error) {
			return l.catchUpOnce(ctx, sender, creds, fmt.Sprintf("missed%d", round.Add(1)), n)
		}
		raw := func(ctx context.Context) ([]float64, error) {
			return batches(ctx, js, fmt.Sprintf("cotal.bench.chat.*.*.missed%d", round.Load()), n)
		}
		return ours, raw, c.close, nil
	}}
}

// catchUpOnce joins, goes away, misses n messages and comes back.
func (l *lab) catchUpOnce(ctx context.Context, sender *endpoint.Endpoint, creds *trust.Credentials, channel string, n int) ([]float64, error) {
	connect := func() (*endpoint.Endpoint, error) {
		return endpoint.Connect(ctx, l.node.URL(), endpoint.Static(creds), &endpoint.Options{Name: creds.Identity().Actor, Quiet: true})
	}
	ep, err := connect()
	if err != nil {
		return nil, err
	}
	if err := join(ctx, ep, channel, func(*endpoint.Delivery) {}, nil); err != nil {
		return nil, err
	}
	if err := ep.Close(); err != nil {
		return nil, err
	}
	if err := blast(ctx, n, func(ctx context.Context) error {
		_, err := sender.Post(ctx, channel, draft())
		return err
	}); err != nil {
		return nil, err
	}
	if ep, err = connect(); err != nil {
		return nil, err
	}
	defer func() { _ = ep.Close() }()
	t := newTally()
	t.expect(n)
	memory := watchMemory()
	began := time.Now()
	if err := join(ctx, ep, channel, func(*endpoint.Delivery) { t.hit() }, nil); err != nil {
		return nil, err
	}
	if err := t.wait(ctx); err != nil {
		return nil, err
	}
	took := time.Since(began)
	return []float64{float64(n) / took.Seconds(), memory()}, nil
}

// watchMemory returns a function that ends the watch and gives the growth in MB of what the process holds, at its highest:
// the live heap as the collector found it, since garbage says how often it runs and nothing about a bound.
func watchMemory() func() float64 {
	runtime.GC()
	start := liveHeap()
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		most := start
		for {
			select {
			case <-stop:
				done <- most
				return
			case <-tick.C:
				most = max(most, liveHeap())
			}
		}
	}()
	return func() float64 {
		close(stop)
		return float64(<-done-start) / 1e6
	}
}

// liveHeap is the heap that the last collection found in use, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// trustedReader connects with the rights of the delivery role, which may read the stream.
func (l *lab) trustedReader(ctx context.Context, c *closers) (jetstream.JetStream, error) {
	creds, err := l.node.Authority().ServiceCredential(ctx, benchSpace, trust.Delivery, time.Hour)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(l.node.URL(), rawOptions(creds)...)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.add(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	return js, nil
}

// batches reads the same messages as raw direct gets in batches, decoding each.
func batches(ctx context.Context, js jetstream.JetStream, filter string, n int) ([]float64, error) {
	memory := watchMemory()
	began := time.Now()
	if err := rawRead(ctx, js.Conn(), filter, n); err != nil {
		return nil, err
	}
	took := time.Since(began)
	return []float64{float64(n) / took.Seconds(), memory()}, nil
}

// rawRead asks the channel stream for batches, and decodes what comes.
func rawRead(ctx context.Context, nc *nats.Conn, filter string, n int) error {
	inbox := nc.NewInbox()
	answers := make(chan *nats.Msg, 2000)
	sub, err := nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for next, got := "1", 0; got < n; {
		body := fmt.Sprintf(`{"seq":%s,"next_by_subj":%q,"batch":1000,"max_bytes":1048576}`, next, filter)
		if err := nc.PublishRequest("$JS.API.DIRECT.GET.CHAT_bench", inbox, []byte(body)); err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		for end := false; !end; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case m := <-answers:
				switch seq := m.Header.Get("Nats-Sequence"); {
				case seq == "" && m.Header.Get("Status") != "204":
					return fmt.Errorf("read %q: the broker answered %q after %d", filter, m.Header.Get("Status"), got)
				case seq == "":
					end = true
				case !rawDecode(m.Data):
					return fmt.Errorf("read %q: not a message", filter)
				default:
					got++
					var last uint64
					if _, err := fmt.Sscan(seq, &last); err != nil {
						return err
					}
					next = fmt.Sprint(last + 1)
				}
			}
		}
	}
	return nil
}

// backlog measures a join that is given the history of a channel first.
func backlog() pair {
	s := []series{{name: "join", unit: "ms", smaller: true, limit: 500}}
	return pair{name: "backlog", series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		var c closers
		fail := func(err error) (measure, measure, func(), error) {
			c.close()
			return nil, nil, nil, err
		}
		sender, err := l.peer(ctx, "")
		if err != nil {
			return fail(err)
		}
		c.add(func() { _ = sender.Close() })
		n := l.count(missed)
		if err := blast(ctx, n, func(ctx context.Context) error {
			_, err := sender.Post(ctx, "history", draft())
			return err
		}); err != nil {
			return fail(err)
		}
		js, err := l.trustedReader(ctx, &c)
		if err != nil {
			return fail(err)
		}
		ours := func(ctx context.Context) ([]float64, error) {
			var c closers
			defer c.close()
			t := newTally()
			t.expect(n)
			ep, err := l.peer(ctx, "")
			if err != nil {
				return nil, err
			}
			c.add(func() { _ = ep.Close() })
			began := time.Now()
			if err := join(ctx, ep, "history", func(*endpoint.Delivery) { t.hit() }, &endpoint.JoinOptions{Replay: true}); err != nil {
				return nil, err
			}
			if err := t.wait(ctx); err != nil {
				return nil, err
			}
			return []float64{time.Since(began).Seconds() * 1e3}, nil
		}
		raw := func(ctx context.Context) ([]float64, error) {
			began := time.Now()
			if err := rawRead(ctx, js.Conn(), "cotal.bench.chat.*.*.history", n); err != nil {
				return nil, err
			}
			return []float64{time.Since(began).Seconds() * 1e3}, nil
		}
		return ours, raw, c.close, nil
	}}
}

// storedBytes measures how many bytes of the broker's store a post costs with a number of durable members who are away,
// beside one plain stored message.
func storedBytes(members int) pair {
	s := []series{{name: "bytes", unit: "bytes/post", smaller: true}}
	return pair{name: fmt.Sprintf("stored/%d", members), series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		var c closers
		fail := func(err error) (measure, measure, func(), error) {
			c.close()
			return nil, nil, nil, err
		}
		channel := fmt.Sprintf("stored%d", members)
		for range members {
			ep, err := l.peer(ctx, "")
			if err != nil {
				return fail(err)
			}
			if err := join(ctx, ep, channel, func(*endpoint.Delivery) {}, nil); err != nil {
				return fail(err)
			}
			if err := ep.Close(); err != nil {
				return fail(err)
			}
		}
		sender, err := l.peer(ctx, "")
		if err != nil {
			return fail(err)
		}
		c.add(func() { _ = sender.Close() })
		rawSender, err := l.rawPeer(ctx, "")
		if err != nil {
			return fail(err)
		}
		c.add(rawSender.nc.Close)
		n := l.count(1_000)
		subject := fmt.Sprintf("cotal.bench.chat.local.%s.rawstored", rawSender.creds.Identity().Actor)
		return l.grown(n, func(ctx context.Context) error {
				_, err := sender.Post(ctx, channel, draft())
				return err
			}), l.grown(n, func(ctx context.Context) error {
				return rawSender.send(ctx, subject, rawMessage{Channel: "rawstored"})
			}), c.close, nil
	}}
}

// grown measures how much all streams of the account grow by one send.
func (l *lab) grown(n int, send func(context.Context) error) measure {
	return func(ctx context.Context) ([]float64, error) {
		before, err := l.stored(ctx)
		if err != nil {
			return nil, err
		}
		if err := blast(ctx, n, send); err != nil {
			return nil, err
		}
		after, err := l.stored(ctx)
		return []float64{float64(after-before) / float64(n)}, err
	}
}

// stored sums the bytes of every stream of the space.
func (l *lab) stored(ctx context.Context) (uint64, error) {
	creds, err := l.node.Authority().ServiceCredential(ctx, benchSpace, trust.Provisioner, time.Minute)
	if err != nil {
		return 0, err
	}
	nc, err := nats.Connect(l.node.URL(), rawOptions(creds)...)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("open JetStream: %w", err)
	}
	var sum uint64
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		st, err := js.Stream(ctx, name)
		if err != nil {
			return 0, fmt.Errorf("read stream %q: %w", name, err)
		}
		sum += st.CachedInfo().State.Bytes
	}
	return sum, names.Err()
}
