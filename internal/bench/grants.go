package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// revocations measures from the revocation of one of many people who are connected, 1,000 connections in all, until a connection of
// theirs is closed, beside the broker ending one connection that it is named.
func revocations() pair {
	s := []series{{name: "p50", unit: "ms", smaller: true}, {name: "p99", unit: "ms", limit: 500, smaller: true}}
	return pair{name: "revoke", rounds: 1, series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		t, err := l.newTown(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		creds, err := t.credentials(ctx, persons)
		if err != nil {
			return nil, nil, t.close, err
		}
		var c closers
		c.add(t.close)
		ended := map[string]chan time.Time{}
		for i := range max(persons, min(1000, l.count(1000))) {
			cr := creds[i%len(creds)]
			owner := cr.Identity().Owner
			gone := ended[owner]
			if gone == nil {
				gone = make(chan time.Time, 8)
				ended[owner] = gone
			}
			nc, err := nats.Connect(t.node.URL(), append(rawOptions(cr), nats.Token(cr.Token()), nats.NoReconnect(),
				nats.ClosedHandler(func(*nats.Conn) { gone <- time.Now() }))...)
			if err != nil {
				return nil, nil, c.close, fmt.Errorf("connect: %w", err)
			}
			c.add(nc.Close)
		}
		ours := func(ctx context.Context) ([]float64, error) {
			var took []time.Duration
			for _, owner := range t.owners[:min(persons, l.count(100))] {
				began := time.Now()
				if _, err := t.node.Authority().Revoke(ctx, benchSpace, wire.Principal{Owner: owner, Actor: "me"}); err != nil {
					return nil, err
				}
				select {
				case at := <-ended[owner]:
					took = append(took, at.Sub(began))
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return []float64{quantile(took, 0.5) / 1000, quantile(took, 0.99) / 1000}, nil
		}
		return ours, t.kicks(l.singles() / 5), c.close, nil
	}}
}

// kicks measures how long the broker takes to end one connection that it is named, until the client has noticed.
func (t *town) kicks(n int) measure {
	return func(ctx context.Context) ([]float64, error) {
		m, err := mint.Open(ctx, t.store, nil)
		if err != nil {
			return nil, err
		}
		ctl, err := broker.Dial(ctx, t.node.URL(), func(ctx context.Context) (*trust.Credentials, error) {
			return m.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemControl})
		}, nil)
		if err != nil {
			return nil, err
		}
		defer func() { _ = ctl.Close() }()
		rec, err := m.Account(ctx, benchSpace)
		if err != nil {
			return nil, err
		}
		reader, err := t.node.Authority().ServiceCredential(ctx, benchSpace, trust.Probe, 0)
		if err != nil {
			return nil, err
		}
		var took []time.Duration
		for range n {
			gone := make(chan time.Time, 1)
			nc, err := nats.Connect(t.node.URL(), append(rawOptions(reader), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { gone <- time.Now() }))...)
			if err != nil {
				return nil, fmt.Errorf("connect: %w", err)
			}
			all, err := ctl.Connections(ctx, rec.Public)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(all, func(c broker.Connection) bool { return c.UserKey == reader.Identity().UserKey })
			if i < 0 {
				return nil, errors.New("the broker does not list a connection")
			}
			began := time.Now()
			if err := ctl.Kick(ctx, all[i]); err != nil {
				return nil, err
			}
			took = append(took, (<-gone).Sub(began))
			nc.Close()
		}
		return []float64{quantile(took, 0.5) / 1000, quantile(took, 0.99) / 1000}, nil
	}
}

// grantees measures connections in a space where 100,000 are granted something, beside one where few are.
func grantees() pair {
	s := []series{{name: "p50", unit: "µs", smaller: true, ratioAtLeast: 0.85}, {name: "p99", unit: "µs", smaller: true}}
	return pair{name: "grants/100000", rounds: 3, series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		var c closers
		body := func(extra int) (measure, error) {
			t, err := l.newTown(ctx)
			if err != nil {
				return nil, err
			}
			c.add(t.close)
			if err := t.fill(ctx, extra); err != nil {
				return nil, err
			}
			creds, err := t.credentials(ctx, 100)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) ([]float64, error) { return t.latency(ctx, creds, nil) }, nil
		}
		few, err := body(0)
		if err != nil {
			return nil, nil, c.close, err
		}
		many, err := body(l.count(100_000))
		return many, few, c.close, err
	}}
}

// fill writes n grants as the authority would store them, without asking it: one by one it would take some minutes.
func (t *town) fill(ctx context.Context, n int) error {
	creds, err := t.node.Authority().ServiceCredential(ctx, benchSpace, trust.Authority, time.Hour)
	if err != nil {
		return err
	}
	nc, err := t.node.Dial(ctx, creds)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	prefix := wire.RecordPrefix(wire.AuthorityBucket(benchSpace))
	for i := range n {
		g := trust.Grant{
			Ver: trust.GrantVersion, Owner: t.owners[i%len(t.owners)], Actor: fmt.Sprintf("other_%d", i), UID: wire.NewUID(), Epoch: 1,
			Kind: trust.KindInteractive, State: trust.GrantActive, AllowSubscribe: []string{"general"}, CreatedAt: time.Now(), By: "bench",
		}
		body, err := g.Encode()
		if err != nil {
			return err
		}
		mark, err := json.Marshal(map[string]any{"principal": g.Principal().String(), "createdAt": g.CreatedAt})
		if err != nil {
			return fmt.Errorf("encode reservation: %w", err)
		}
		for subject, data := range map[string][]byte{"uid." + string(g.UID): mark, "grant." + g.Principal().String(): body} {
			if _, err := js.PublishAsync(prefix+subject, data); err != nil {
				return fmt.Errorf("write grant: %w", err)
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	info, err := js.Stream(ctx, "KV_"+wire.AuthorityBucket(benchSpace))
	if err != nil {
		return fmt.Errorf("look at the bucket: %w", err)
	}
	if have := info.CachedInfo().State.Msgs; have < uint64(2*n) {
		return fmt.Errorf("%d records are stored, want %d more", have, 2*n)
	}
	return nil
}
