package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// watched is how long a watcher is watched: several heartbeats of everybody, and signs of life of the feed.
const watched = 12 * time.Second

// watch is how long that is in this run.
func (l *lab) watch() time.Duration {
	return max(watched/4, time.Duration(float64(watched)*min(1, l.opts.Scale)))
}

// rosterTraffic measures what a watcher of the roster is sent while a number of members only live, beside a watcher of
// the presence records themselves.
func rosterTraffic(members int) pair {
	s := []series{{name: "traffic", unit: "bytes/s", smaller: true}}
	return pair{name: fmt.Sprintf("roster/%d", members), rounds: 1, series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		var c closers
		fail := func(err error) (measure, measure, func(), error) {
			c.close()
			return nil, nil, nil, err
		}
		for range members {
			creds, err := l.creds(ctx, "")
			if err != nil {
				return fail(err)
			}
			ep, err := endpoint.Connect(ctx, l.node.URL(), endpoint.Static(creds), &endpoint.Options{Name: creds.Identity().Actor})
			if err != nil {
				return fail(err)
			}
			c.add(func() { _ = ep.Close() })
		}
		feed, err := wire.EventFilter(benchSpace, wire.DeliveryEndpoint, wire.TopicRoster)
		if err != nil {
			return fail(err)
		}
		records, err := wire.PresenceFilter(benchSpace)
		if err != nil {
			return fail(err)
		}
		agent, err := l.creds(ctx, "")
		if err != nil {
			return fail(err)
		}
		reader, err := l.node.Authority().ServiceCredential(ctx, benchSpace, trust.Delivery, time.Hour)
		if err != nil {
			return fail(err)
		}
		if err := rest(ctx); err != nil { // until all of them are listed
			return fail(err)
		}
		return l.traffic(agent, feed), l.traffic(reader, records), c.close, nil
	}}
}

// traffic measures the bytes a second that a subscription is sent.
func (l *lab) traffic(creds *trust.Credentials, subject string) measure {
	return func(ctx context.Context) ([]float64, error) {
		nc, err := nats.Connect(l.node.URL(), rawOptions(creds)...)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		defer nc.Close()
		if _, err := nc.Subscribe(subject, func(*nats.Msg) {}); err != nil {
			return nil, fmt.Errorf("subscribe: %w", err)
		}
		if err := nc.Flush(); err != nil {
			return nil, fmt.Errorf("flush: %w", err)
		}
		before := nc.Stats().InBytes
		t := time.NewTimer(l.watch())
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return []float64{float64(nc.Stats().InBytes-before) / l.watch().Seconds()}, nil
	}
}
