package space

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Grants is the store of grants and of the issuance log, the authority bucket of a space. Reads go to the leader,
// so they see every write that was acknowledged; writes are compare-and-swap. Only the authority may write; who
// may read learns every grant.
type Grants struct {
	js     jetstream.JetStream
	space  wire.Space
	stream string
	prefix string // of the subjects of records
	room   room   // for the issuance log and the records of agents; the rest is that of the other grants
}

// NewGrants returns the grants of s. It asks the broker nothing.
func NewGrants(js jetstream.JetStream, s wire.Space) *Grants {
	bucket := wire.AuthorityBucket(s)
	return &Grants{
		js: js, space: s, stream: BucketStream(bucket), prefix: wire.RecordPrefix(bucket),
		room: room{table: newTable(js, bucket)},
	}
}

// Get returns the grant of p and its revision.
//
// Errors: not-found; failed-precondition when the space was not made; internal for a record that cannot be read,
// which permits nothing.
func (g *Grants) Get(ctx context.Context, p wire.Principal) (trust.Grant, uint64, error) {
	if err := p.Validate(); err != nil {
		return trust.Grant{}, 0, err
	}
	r, err := leaderGet(ctx, g.js, g.stream, leaderRequest{Last: g.grantSubject(p)})
	if errors.Is(err, wire.ErrNotFound) {
		return trust.Grant{}, 0, wire.Errorf(wire.CodeNotFound, "read grant of %q: no grant in space %q", p, g.space)
	}
	if err != nil {
		return trust.Grant{}, 0, err
	}
	grant, err := decodeGrant(r.Data, p)
	return grant, r.Seq, err
}

// Written returns when the grant of p was last written, by the clock of the broker, which also stamps the issuance log.
//
// Errors: those of Get.
func (g *Grants) Written(ctx context.Context, p wire.Principal) (time.Time, error) {
	if err := p.Validate(); err != nil {
		return time.Time{}, err
	}
	r, err := leaderGet(ctx, g.js, g.stream, leaderRequest{Last: g.grantSubject(p)})
	return r.Time, err
}

// ErrUnstored is of a grant that the broker refused to store though nothing stands in its way.
var ErrUnstored = errors.New("the broker refused to store it")

// Create writes the first grant of a principal and reserves its uid, both or neither, and returns the grant's revision. The uid stays
// reserved for ever, and that of a managed agent until its records go, see [KeepRetired].
//
// Errors: already-exists when the principal has a grant, in any state; conflict when the uid was used before; resource-exhausted for a
// managed agent when those have used up their share of the bucket; [ErrUnstored], unavailable, when the broker cannot store, which on a
// full disk it calls a conflict.
func (g *Grants) Create(ctx context.Context, grant trust.Grant) (uint64, error) {
	rev, err := g.reserveAndPut(ctx, grant, 0)
	if !errors.Is(err, wire.ErrConflict) {
		return rev, err
	}
	if _, _, gerr := g.Get(ctx, grant.Principal()); gerr == nil {
		return 0, wire.Errorf(wire.CodeAlreadyExists, "create grant of %q: it has one in space %q", grant.Principal(), g.space)
	}
	if _, uerr := leaderGet(ctx, g.js, g.stream, leaderRequest{Last: g.uidSubject(grant.UID)}); errors.Is(uerr, wire.ErrNotFound) {
		e := wire.Errorf(wire.CodeUnavailable, "create grant of %q: %w, and nothing stands in its way; its disk may be full: %v",
			grant.Principal(), ErrUnstored, err)
		e.Outcome = wire.OutcomeNotExecuted
		return 0, e
	}
	return 0, wire.Errorf(wire.CodeConflict, "create grant of %q: uid %q was used before", grant.Principal(), grant.UID)
}

// Update replaces the grant that has the given revision and returns the new one. A uid that the principal did not
// have before is reserved in the same step, as by [Grants.Create]. A managed grant that is retired lapses, see [KeepRetired].
//
// Errors: conflict when the grant changed meanwhile, or the uid belongs to another principal; those of [Grants.Create] for a new uid.
func (g *Grants) Update(ctx context.Context, grant trust.Grant, rev uint64) (uint64, error) {
	if rev == 0 {
		return 0, wire.Errorf(wire.CodeBadRequest, "update grant of %q: no revision", grant.Principal())
	}
	r, err := leaderGet(ctx, g.js, g.stream, leaderRequest{Last: g.uidSubject(grant.UID)})
	if errors.Is(err, wire.ErrNotFound) {
		return g.reserveAndPut(ctx, grant, rev)
	}
	if err != nil {
		return 0, err
	}
	var holder reservation
	if err := wire.Decode(r.Data, &holder, recordSize); err != nil {
		return 0, wire.Errorf(wire.CodeInternal, "read reservation of uid %q: %w", grant.UID, err)
	}
	if holder.Principal != grant.Principal().String() {
		return 0, wire.Errorf(wire.CodeConflict, "update grant of %q: uid %q belongs to another principal", grant.Principal(), grant.UID)
	}
	what := fmt.Sprintf("update grant of %q", grant.Principal())
	return g.replace(ctx, grant, rev, func(msgs ...*nats.Msg) (uint64, error) { return g.publish(ctx, what, msgs) })
}

// replace stores a grant in place of the one that has the given revision; one that lapses with all its records, if there is room for that.
func (g *Grants) replace(ctx context.Context, grant trust.Grant, rev uint64, store func(...*nats.Msg) (uint64, error)) (uint64, error) {
	if lapses(grant) {
		msgs, err := g.lapsing(ctx, grant, rev)
		if err != nil {
			return 0, err
		}
		seq, err := store(msgs...)
		if err == nil || errors.Is(err, wire.ErrConflict) {
			return seq, err
		}
		// A batch needs room beside what it replaces. That somebody is revoked is written all the same.
	}
	body, err := grant.Encode()
	if err != nil {
		return 0, err
	}
	return store(expecting(g.grantSubject(grant.Principal()), body, rev))
}

// List returns every grant, sorted by the time it was last written. It reads one record per request.
func (g *Grants) List(ctx context.Context) ([]trust.Grant, error) {
	var out []trust.Grant
	err := leaderScan(ctx, g.js, g.stream, g.prefix+"grant.>", func(r record) error {
		p, err := wire.ParsePrincipal(strings.TrimPrefix(r.Subject, g.prefix+"grant."))
		if err != nil {
			return wire.Errorf(wire.CodeInternal, "list grants of space %q: %w", g.space, err)
		}
		grant, err := decodeGrant(r.Data, p)
		out = append(out, grant)
		return err
	})
	return out, err
}

// OfOwner returns the grants of one owner, as List does for all.
func (g *Grants) OfOwner(ctx context.Context, owner string) ([]trust.Grant, error) {
	if err := (wire.Principal{Owner: owner, Actor: "any"}).Validate(); err != nil {
		return nil, err
	}
	var out []trust.Grant
	prefix := g.prefix + "grant."
	err := leaderScan(ctx, g.js, g.stream, prefix+owner+".*", func(r record) error {
		p, err := wire.ParsePrincipal(strings.TrimPrefix(r.Subject, prefix))
		if err != nil {
			return wire.Errorf(wire.CodeInternal, "list grants of owner %q: %w", owner, err)
		}
		grant, err := decodeGrant(r.Data, p)
		out = append(out, grant)
		return err
	})
	return out, err
}

// Children returns the grants that are held directly under a life, whatever their state, in the order in which their lives
// began. It reads nothing of others.
func (g *Grants) Children(ctx context.Context, of wire.Lifecycle) ([]trust.Grant, error) {
	if err := of.Validate(); err != nil {
		return nil, err
	}
	var names []wire.Principal
	err := leaderScan(ctx, g.js, g.stream, g.prefix+"child."+string(of.UID)+".*", func(r record) error {
		var child reservation
		err := wire.Decode(r.Data, &child, recordSize)
		p, perr := wire.ParsePrincipal(child.Principal)
		if err = errors.Join(err, perr); err != nil {
			return wire.Errorf(wire.CodeInternal, "list what is held under %q: %w", of, err)
		}
		names = append(names, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []trust.Grant
	seen := map[wire.Principal]bool{}
	for _, p := range names {
		grant, _, err := g.Get(ctx, p)
		switch {
		case seen[p], errors.Is(err, wire.ErrNotFound):
		case err != nil:
			return nil, err
		case grant.ParentUID == of.UID && grant.Parent == of.Principal.String():
			out = append(out, grant)
		}
		seen[p] = true
	}
	return out, nil
}

// reservation is the value of a uid key, and of the key that lists a life under the one above it.
type reservation struct {
	Principal string    `json:"principal"`
	CreatedAt time.Time `json:"createdAt"`
}

// reserveAndPut writes the uid's reservation, its place under the life above it and the grant as one atomic batch. Those of an agent
// take room first.
func (g *Grants) reserveAndPut(ctx context.Context, grant trust.Grant, rev uint64) (uint64, error) {
	body, err := grant.Encode()
	if err != nil {
		return 0, err
	}
	mark, err := json.Marshal(reservation{Principal: grant.Principal().String(), CreatedAt: grant.CreatedAt})
	if err != nil {
		return 0, wire.Errorf(wire.CodeInternal, "encode reservation: %v", err)
	}
	what := fmt.Sprintf("write grant of %q", grant.Principal())
	batch := []*nats.Msg{expecting(g.uidSubject(grant.UID), mark, 0)}
	if grant.Parent != "" {
		batch = append(batch, expecting(g.childSubject(grant), mark, 0))
	}
	batch = append(batch, expecting(g.grantSubject(grant.Principal()), body, rev))
	if grant.Kind == trust.KindManaged && grant.State == trust.GrantActive {
		var size int64
		for _, m := range batch {
			size += int64(len(m.Subject) + len(m.Data) + batchOverhead)
		}
		if err := g.room.take(ctx, what, size, agents); err != nil {
			return 0, err
		}
	}
	return g.publish(ctx, what, batch)
}

// publish stores messages, all or none, and returns the sequence of the last. One alone is no batch: then it fits in place of what it
// replaces, also in a full bucket.
func (g *Grants) publish(ctx context.Context, what string, batch []*nats.Msg) (uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if len(batch) == 1 {
		ack, err := g.js.PublishMsg(ctx, batch[0], jetstream.WithRetryAttempts(0))
		if err != nil {
			return 0, translate(what, err)
		}
		return ack.Sequence, nil
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, g.js, batch, jetstreamext.BatchFlowControl{})
	if err != nil {
		return 0, translate(what, err)
	}
	return ack.Sequence, nil
}

// expecting is a message that the stream takes only while the last one on its subject has sequence rev.
func expecting(subject string, body []byte, rev uint64) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = body
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, fmt.Sprint(rev))
	return m
}

func (g *Grants) grantSubject(p wire.Principal) string { return g.prefix + "grant." + p.String() }

func (g *Grants) uidSubject(uid wire.UID) string { return g.prefix + "uid." + string(uid) }

func (g *Grants) childSubject(grant trust.Grant) string {
	return g.prefix + "child." + string(grant.ParentUID) + "." + string(grant.UID)
}

// decodeGrant reads a record and refuses one that names another principal than its key.
func decodeGrant(data []byte, p wire.Principal) (trust.Grant, error) {
	grant, err := trust.DecodeGrant(data)
	if err != nil {
		return trust.Grant{}, wire.Errorf(wire.CodeInternal, "read grant of %q: %w", p, err)
	}
	if grant.Principal() != p {
		return trust.Grant{}, wire.Errorf(wire.CodeInternal, "read grant of %q: the record is of %q", p, grant.Principal())
	}
	return grant, nil
}
