package space

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// MaxAuditPage is the most records of one [Audit.Read]; DefaultAuditPage is how many it gives when it is not told.
const (
	MaxAuditPage     = 1000
	DefaultAuditPage = 100
)

// Audit is the audit stream of a space. Records are appended, and kept for 90 days as far as the stream's cap of bytes
// reaches; nobody can change or take out one. Only the authority may write or read it. Reads go to the leader, one request a
// record, so they see every record that was acknowledged.
type Audit struct {
	js    jetstream.JetStream
	space wire.Space
}

// NewAudit returns the audit stream of s. It asks the broker nothing.
func NewAudit(js jetstream.JetStream, s wire.Space) *Audit { return &Audit{js: js, space: s} }

// Append writes a record. Ver, ID and At are filled in where they are zero, a Detail that is too long or holds control
// characters is made fit: whoever is denied must not decide whether that is written down. It may be called again with the
// same ID when it is not known whether the record was written, within two minutes.
//
// Errors: bad-request for a record that is not of the schema; unavailable when the stream is not there or the broker does
// not answer; deadline-exceeded, after which the record may be there.
func (a *Audit) Append(ctx context.Context, e AuditEvent) error {
	if e.Ver == 0 {
		e.Ver = AuditVersion
	}
	if e.ID == "" {
		e.ID = wire.NewID()
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.At, e.Detail = e.At.UTC(), clipText(e.Detail, MaxAuditDetail)
	body, err := e.Encode()
	if err != nil {
		return err
	}
	target, err := e.target()
	if err != nil {
		return err
	}
	subject, err := wire.AuditSubject(a.space, target, e.Action, e.Outcome)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err = a.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: body}, jetstream.WithMsgID(e.ID), jetstream.WithRetryAttempts(0))
	return translate(fmt.Sprintf("write audit record of %s in space %q", e.Action, a.space), err)
}

// AuditQuery selects audit records. The zero value is the oldest [DefaultAuditPage].
type AuditQuery struct {
	// After is the sequence to go on from, as Read returned it; 0 is the beginning.
	After uint64
	// Since is the earliest time at which the broker stored a record. The zero time is the beginning.
	Since time.Time
	// Principal is the target of the records; the zero principal takes in all, also those about nobody.
	Principal wire.Principal
	// Action and Outcome, when they are set, are of the records.
	Action, Outcome string
	// Limit is the most records, up to [MaxAuditPage]. Default [DefaultAuditPage].
	Limit int
	// Newest takes the last Limit of the records instead of the first. They still come oldest first.
	Newest bool
}

// AuditEntry is one stored record.
type AuditEntry struct {
	// Seq is its place in the stream, Stored when the broker stored it.
	Seq    uint64    `json:"seq"`
	Stored time.Time `json:"stored"`
	AuditEvent
	// Unreadable says why the record cannot be read, such as one of a later version. Then the fields of the event are zero.
	Unreadable string `json:"unreadable,omitempty"`
}

// Read returns the records of the query in stored order, and the After of a query that goes on from there, which also waits
// for what is yet to come: it is the query's own when nothing was found. There was more when Limit records came. A record
// that this build cannot read is listed as unreadable.
//
// The newest and those since a time are found without reading what is before them.
//
// Errors: bad-request for a query out of bounds; failed-precondition when the space has no audit stream; unavailable;
// deadline-exceeded.
func (a *Audit) Read(ctx context.Context, q AuditQuery) ([]AuditEntry, uint64, error) {
	if q.Limit < 0 || q.Limit > MaxAuditPage {
		return nil, q.After, wire.Errorf(wire.CodeBadRequest, "read audit records of space %q: limit %d outside 0 to %d", a.space, q.Limit, MaxAuditPage)
	}
	setDefault(&q.Limit, DefaultAuditPage)
	filter, err := wire.AuditFilter(a.space, q.Principal, q.Action, q.Outcome)
	if err != nil {
		return nil, q.After, err
	}
	r := auditReader{Audit: a, filter: filter, limit: q.Limit}
	entries, err := r.read(ctx, q)
	if err != nil {
		return nil, q.After, fmt.Errorf("read audit records of space %q: %w", a.space, err)
	}
	if n := len(entries); n > 0 {
		return entries, entries[n-1].Seq, nil
	}
	return nil, q.After, nil
}

// auditReader is one query on its way.
type auditReader struct {
	*Audit
	filter string
	limit  int
}

func (r auditReader) read(ctx context.Context, q AuditQuery) ([]AuditEntry, error) {
	from := q.After + 1
	if !q.Since.IsZero() {
		since := q.Since.UTC()
		first, err := r.get(ctx, leaderRequest{Since: &since, Next: r.filter})
		if first == nil || err != nil {
			return nil, err
		}
		from = max(from, first.Seq)
	}
	last, err := r.get(ctx, leaderRequest{Last: r.filter})
	if last == nil || err != nil || last.Seq < from {
		return nil, err
	}
	if q.Newest {
		return r.newest(ctx, from, last.Seq)
	}
	entries, _, err := r.window(ctx, from, last.Seq)
	return entries, err
}

// newest reads backwards, window by window. Where the window before held nothing it is made larger, and where it holds more
// than a page, smaller: so what is read is little more than what is asked for, however it is spread.
func (r auditReader) newest(ctx context.Context, from, to uint64) ([]AuditEntry, error) {
	var out []AuditEntry
	for size := uint64(r.limit); to >= from && len(out) < r.limit; {
		lo := from
		if to-from >= size {
			lo = to - size + 1
		}
		page, more, err := r.window(ctx, lo, to)
		if err != nil {
			return nil, err
		}
		if more { // of more records than limit there are as many sequences, so this ends
			size = (to - lo + 1) / 2
			continue
		}
		out = append(page, out...)
		if lo == from {
			break
		}
		to, size = lo-1, 2*size
	}
	return out[max(0, len(out)-r.limit):], nil
}

// window reads the first records with sequences of from to to, at most a page, and says whether there are more.
func (r auditReader) window(ctx context.Context, from, to uint64) (entries []AuditEntry, more bool, err error) {
	for from <= to {
		rec, err := r.get(ctx, leaderRequest{Seq: from, Next: r.filter})
		if err != nil {
			return nil, false, err
		}
		if rec == nil || rec.Seq > to {
			break
		}
		if len(entries) == r.limit {
			return entries, true, nil
		}
		entries = append(entries, r.entry(*rec))
		from = rec.Seq + 1
	}
	return entries, false, nil
}

// get returns nil when there is no such record.
func (r auditReader) get(ctx context.Context, req leaderRequest) (*record, error) {
	rec, err := leaderGet(ctx, r.js, wire.AuditStream(r.space), req)
	if errors.Is(err, wire.ErrNotFound) {
		return nil, nil
	}
	return &rec, err
}

// entry reads one record. Its subject must say what the record says, since it is what records are found by.
func (a *Audit) entry(rec record) AuditEntry {
	out := AuditEntry{Seq: rec.Seq, Stored: rec.Time}
	e, err := DecodeAudit(rec.Data)
	if err != nil {
		out.Unreadable = err.Error()
		return out
	}
	target, _ := e.target()
	if subject, err := wire.AuditSubject(a.space, target, e.Action, e.Outcome); err != nil || subject != rec.Subject {
		out.Unreadable = "read audit record: it says something else than its subject"
		return out
	}
	out.AuditEvent = e
	return out
}
