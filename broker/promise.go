package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

const listSubject = "$SYS.REQ.CLAIMS.LIST"

// promise is what accounts may keep in streams, by their claims. A single nats-server counts promises, not use, against
// its own limits. When they do not fit it serves the account without any stream and tells nobody, so it is checked here.
type promise struct{ memory, disk int64 }

// promiseOf is what one claim promises; an unlimited account promises nothing.
func promiseOf(claim *jwt.AccountClaims) promise {
	return promise{max(claim.Limits.MemoryStorage, 0), max(claim.Limits.DiskStorage, 0)}
}

func (p promise) plus(o promise) promise { return promise{p.memory + o.memory, p.disk + o.disk} }

// within reports whether p asks for no more than o.
func (p promise) within(o promise) bool { return p.memory <= o.memory && p.disk <= o.disk }

// fits compares all promises with what there is.
func (p promise) fits(memory, disk int64) error {
	for _, r := range []struct {
		what          string
		used, allowed int64
	}{{"memory", p.memory, memory}, {"disk", p.disk, disk}} {
		if r.used <= r.allowed {
			continue
		}
		e := wire.Errorf(wire.CodeResourceExhausted, "the accounts are promised %s of %s together and the broker has %s: lower the limits of a space or raise the limit of the broker",
			mib(r.used), r.what, mib(r.allowed))
		e.Details = map[string]any{"resource": r.what, "used": r.used, "allowed": r.allowed}
		return e
	}
	return nil
}

func mib(n int64) string { return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20)) }

// promised is the sum over all accounts. The claims have been checked.
func (t Trust) promised() promise {
	var sum promise
	for _, token := range t.Accounts {
		if claim, err := jwt.DecodeAccountClaims(token); err == nil {
			sum = sum.plus(promiseOf(claim))
		}
	}
	return sum
}

// checkPromise refuses a claim that asks for more streams than the broker has left. A claim that asks for no more than the one
// it replaces passes at once; servers of a cluster do not count promises.
func (c *Control) checkPromise(ctx context.Context, public, token string) error {
	claim, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "read claim of account %q: %v", public, err)
	}
	servers, err := c.servers(ctx)
	if err != nil {
		return err
	}
	if len(servers) != 1 {
		return nil
	}
	want := promiseOf(claim)
	held, err := c.promiseHeld(ctx, public)
	if err != nil || want.within(held) {
		return err
	}
	others, err := c.accounts(ctx)
	if err != nil {
		return err
	}
	for _, other := range others {
		if other == public {
			continue
		}
		p, err := c.promiseHeld(ctx, other)
		if err != nil {
			return err
		}
		want = want.plus(p)
	}
	return want.fits(servers[0].maxMemory, servers[0].maxStore)
}

// promiseHeld is what the claim that the only server holds promises; nothing when it holds none.
func (c *Control) promiseHeld(ctx context.Context, public string) (promise, error) {
	msgs, err := c.gather(ctx, lookupSubject(public), nil, one)
	if err != nil || len(msgs[0].Data) == 0 {
		return promise{}, err
	}
	claim, err := jwt.DecodeAccountClaims(string(msgs[0].Data))
	if err != nil {
		return promise{}, nil // a claim that cannot be read serves nobody
	}
	return promiseOf(claim), nil
}

// accounts lists every account that the only server knows.
func (c *Control) accounts(ctx context.Context) ([]string, error) {
	msgs, err := c.gather(ctx, listSubject, nil, one)
	if err != nil {
		return nil, err
	}
	a, err := decodeAnswer[[]string](msgs[0], listSubject)
	if err == nil && a.Error != nil {
		err = errors.New(a.Error.Description)
	}
	return a.Data, err
}

// one is enough when the answer is a single server's.
func one(got []*nats.Msg) bool { return len(got) > 0 }
