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
}

// NewGrants returns the grants of s. It asks the broker nothing.
func NewGrants(js jetstream.JetStream, s wire.Space) *Grants {
	bucket := wire.AuthorityBucket(s)
	return &Grants{js: js, space: s, stream: BucketStream(bucket), prefix: wire.RecordPrefix(bucket)}
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

// Create writes the first grant of a principal and reserves its uid for ever, both or neither, and returns the
// grant's revision.
//
// Errors: already-exists when the principal has a grant, in any state; conflict when the uid was used before.
func (g *Grants) Create(ctx context.Context, grant trust.Grant) (uint64, error) {
	rev, err := g.reserveAndPut(ctx, grant, 0)
	if !errors.Is(err, wire.ErrConflict) {
		return rev, err
	}
	if _, _, gerr := g.Get(ctx, grant.Principal()); gerr == nil {
		return 0, wire.Errorf(wire.CodeAlreadyExists, "create grant of %q: it has one in space %q", grant.Principal(), g.space)
	}
	return 0, wire.Errorf(wire.CodeConflict, "create grant of %q: uid %q was used before", grant.Principal(), grant.UID)
}

// Update replaces the grant that has the given revision and returns the new one. A uid that the principal did not
// have before is reserved in the same step.
//
// Errors: conflict when the grant changed meanwhile, or the uid belongs to another principal.
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
	body, err := grant.Encode()
	if err != nil {
		return 0, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	ack, err := g.js.PublishMsg(ctx, &nats.Msg{Subject: g.grantSubject(grant.Principal()), Data: body},
		jetstream.WithExpectLastSequencePerSubject(rev), jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, translate(fmt.Sprintf("update grant of %q", grant.Principal()), err)
	}
	return ack.Sequence, nil
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

// reservation is the value of a uid key.
type reservation struct {
	Principal string    `json:"principal"`
	CreatedAt time.Time `json:"createdAt"`
}

// reserveAndPut writes the uid's reservation and the grant as one atomic batch.
func (g *Grants) reserveAndPut(ctx context.Context, grant trust.Grant, rev uint64) (uint64, error) {
	body, err := grant.Encode()
	if err != nil {
		return 0, err
	}
	mark, err := json.Marshal(reservation{Principal: grant.Principal().String(), CreatedAt: grant.CreatedAt})
	if err != nil {
		return 0, wire.Errorf(wire.CodeInternal, "encode reservation: %v", err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	ack, err := jetstreamext.PublishMsgBatch(ctx, g.js, []*nats.Msg{
		expecting(g.uidSubject(grant.UID), mark, 0),
		expecting(g.grantSubject(grant.Principal()), body, rev),
	}, jetstreamext.BatchFlowControl{})
	if err != nil {
		return 0, translate(fmt.Sprintf("write grant of %q", grant.Principal()), err)
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
