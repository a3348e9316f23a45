package space

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// KeepRetired is how long the records of a managed agent outlive it: its grant and the reservation of its uid. Agents come and go in
// numbers, and nothing can be deleted from the bucket, so what stayed for ever would fill it. It is much longer than any credential of
// such an agent lives, which is a day, so that nothing comes of a uid that is free again; and long enough that who asks what became of an
// agent is told that it was revoked. The audit stream keeps its history for longer.
//
// Everybody else's records stay: people are few, and an operator granted each of them.
const KeepRetired = 7 * 24 * time.Hour

// keepPlace is how long its place under the life above it outlives a managed agent. Nothing is left to be ended below it, and whoever
// ends the life above reads all places first: those of agents that came and went would put that off.
const keepPlace = time.Minute

// lapses reports whether the records of a grant go by themselves.
func lapses(g trust.Grant) bool { return g.Kind == trust.KindManaged && g.State == trust.GrantRetired }

// lapsing are the messages that write all the records of a grant in place of what is there, to go after [KeepRetired], its place under
// the life above it after [keepPlace]; the grant is the last. A later life of the same name replaces the grant by one that stays.
func (g *Grants) lapsing(ctx context.Context, grant trust.Grant, rev uint64) ([]*nats.Msg, error) {
	body, err := grant.Encode()
	if err != nil {
		return nil, err
	}
	marks := []string{g.uidSubject(grant.UID)}
	if grant.Parent != "" {
		marks = append(marks, g.childSubject(grant))
	}
	var out []*nats.Msg
	for _, subject := range marks {
		mark, err := leaderGet(ctx, g.js, g.stream, leaderRequest{Last: subject})
		switch {
		case err == nil:
			out = append(out, expecting(subject, mark.Data, mark.Seq))
		case !errors.Is(err, wire.ErrNotFound):
			return nil, err
		}
	}
	out = append(out, expecting(g.grantSubject(grant.Principal()), body, rev))
	for _, m := range out {
		keep := KeepRetired
		if grant.Parent != "" && m.Subject == g.childSubject(grant) {
			keep = keepPlace
		}
		m.Header.Set(jetstream.MsgTTLHeader, strconv.Itoa(int(keep/time.Second)))
	}
	return out, nil
}

// Lasting returns who was retired as a managed agent and whose records stay for ever all the same: an earlier version wrote them, or the
// bucket was full. It reads one record per request.
func (g *Grants) Lasting(ctx context.Context) ([]wire.Principal, error) {
	var out []wire.Principal
	prefix := g.prefix + "grant."
	err := leaderScan(ctx, g.js, g.stream, prefix+">", func(r record) error {
		p, err := wire.ParsePrincipal(strings.TrimPrefix(r.Subject, prefix))
		if err != nil {
			return nil // the key of nobody
		}
		if grant, err := decodeGrant(r.Data, p); err == nil && lapses(grant) && !r.lapses() {
			out = append(out, p)
		}
		return nil
	})
	return out, err
}

// lapses reports whether a record goes by itself.
func (r record) lapses() bool {
	h, err := nats.DecodeHeadersMsg(r.Header)
	return err == nil && h.Get(jetstream.MsgTTLHeader) != ""
}

// Lapse makes the records of a managed agent that was retired go by themselves, [KeepRetired] from now. Nothing else about them changes,
// so it needs no lease. Of one that has begun another life, or is gone, nothing is written.
//
// Errors: resource-exhausted when the bucket has no room for the grant beside what it replaces: the others are written then, and make a
// little.
func (g *Grants) Lapse(ctx context.Context, p wire.Principal) error {
	grant, rev, err := g.Get(ctx, p)
	if errors.Is(err, wire.ErrNotFound) || err == nil && !lapses(grant) {
		return nil
	}
	if err != nil {
		return err
	}
	what := fmt.Sprintf("write retired grant of %q", p)
	msgs, err := g.lapsing(ctx, grant, rev)
	if err != nil {
		return err
	}
	if _, err = g.publish(ctx, what, msgs); errors.Is(err, wire.ErrExhausted) {
		err = g.lapseEach(ctx, what, grant, rev)
	}
	if errors.Is(err, wire.ErrConflict) {
		return nil // it has begun another life, or somebody did the same
	}
	return err
}

// lapseEach writes the records one by one. A batch needs room for all of it beside what it replaces; one record needs none where it is
// no longer than the one before, and those that were written in a batch are longer.
func (g *Grants) lapseEach(ctx context.Context, what string, grant trust.Grant, rev uint64) error {
	msgs, err := g.lapsing(ctx, grant, rev) // those that were tried carry the headers of their batch
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if _, err := g.publish(ctx, what, []*nats.Msg{m}); err != nil {
			return err
		}
	}
	return nil
}
