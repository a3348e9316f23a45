package bench

import (
	"context"
	"path/filepath"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/wire"
)

// stores measures direct messages stored one after the other, each acknowledged before the next: by default, and in
// strict mode, where the disk has each before its acknowledgement. The two figures beside each other are the price.
func stores(strict bool) pair {
	name, n := "store/window", 5000
	if strict {
		name, n = "store/strict", 500
	}
	return pair{name: name, series: []series{{name: "rate", unit: "messages/s"}}, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		at := l
		if strict {
			node, err := l.boot(ctx, cotal.New(memstore.New(), &cotal.Options{
				StateDir: filepath.Join(l.dir, "strict"), Port: broker.RandomPort, Transport: broker.Plaintext(), Spaces: []string{string(benchSpace)}, Strict: true,
			}))
			if err != nil {
				return nil, nil, nil, err
			}
			at = &lab{opts: l.opts, dir: l.dir, node: node}
		}
		return at.oneByOne(ctx, l.count(n))
	}}
}

func (l *lab) oneByOne(ctx context.Context, n int) (measure, measure, func(), error) {
	var c closers
	ep, err := l.peer(ctx, "")
	if err != nil {
		return nil, nil, nil, err
	}
	c.add(func() { _ = ep.Close() })
	raw, err := l.rawPeer(ctx, "")
	if err != nil {
		c.close()
		return nil, nil, nil, err
	}
	c.add(raw.nc.Close)
	rate := func(send func(context.Context) error) measure {
		return func(ctx context.Context) ([]float64, error) {
			began := time.Now()
			for range n {
				if err := send(ctx); err != nil {
					return nil, err
				}
			}
			return []float64{float64(n) / time.Since(began).Seconds()}, nil
		}
	}
	id := raw.creds.Identity()
	subject, err := wire.DirectSubject(benchSpace, id.Principal, id.Principal)
	if err != nil {
		c.close()
		return nil, nil, nil, err
	}
	return rate(func(ctx context.Context) error {
			_, err := ep.Direct(ctx, ep.Principal(), draft())
			return err
		}), rate(func(ctx context.Context) error {
			return raw.send(ctx, subject, rawMessage{To: id.Principal.String()})
		}), c.close, nil
}
