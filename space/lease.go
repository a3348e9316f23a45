package space

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// LeaseVersion is the version of the record of a lease that this build reads and writes.
	LeaseVersion = 1
	// LeaseMargin is how long after its end a lease is still left to its holder, because clocks differ. Were they to differ by
	// more, two might believe that they hold it; what they write under it has one order all the same, see [Lease.Guard].
	LeaseMargin = 5 * time.Second
	// MinLease is the shortest time that a lease may stand without being renewed.
	MinLease = time.Second
	// MaxLease is the longest.
	MaxLease = time.Hour
)

// ErrLeaseLost is what errors.Is finds in an error about a lease that is somebody else's by now, or was released. It is a
// wire.ErrConflict too. Whoever gets it stops what it does under the lease: nothing of it is stored any more.
var ErrLeaseLost = errors.New("lease was lost")

// Leases is the store of leases, in the authority bucket of a space: for jobs of the authority that must run once although
// several replicas of it run. A lease says who runs a job and until when; its fence, a number that grows with each change of
// hands and is never given twice, decides which writes count. Only the authority may write them.
type Leases struct{ table }

// NewLeases returns the leases of s. It asks the broker nothing.
func NewLeases(js jetstream.JetStream, s wire.Space) *Leases {
	return &Leases{newTable(js, wire.AuthorityBucket(s))}
}

// Lease is one lease as it was read or written last. It is a value: renewing makes another one, and one that is not up to
// date still guards writes as long as its holder did not change.
type Lease struct {
	Name string `json:"name"`
	// Holder is who holds it, empty when it was released.
	Holder string `json:"holder,omitempty"`
	Fence  uint64 `json:"fence"`
	// Since is when the holder got it, Until when it ends unless it is renewed, both by the clock of the holder.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`

	rev    uint64 // of its record
	prefix string // of the subjects of the bucket
}

// Held reports whether others must leave the lease alone at now, by their own clock: it is held, and not past its end by
// more than [LeaseMargin].
func (l Lease) Held(now time.Time) bool {
	return l.Holder != "" && now.Before(l.Until.Add(LeaseMargin))
}

// leaseRecord is the value of a lease key.
type leaseRecord struct {
	Ver    int       `json:"ver"`
	Holder string    `json:"holder,omitempty"`
	Fence  uint64    `json:"fence"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

var leaseName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// Get returns a lease, held or not. Whether it is held now, [Lease.Held] says.
//
// Errors: not-found when nobody ever held it; internal when the record cannot be read, and then it cannot be acquired either.
func (s *Leases) Get(ctx context.Context, name string) (Lease, error) {
	if !leaseName.MatchString(name) {
		return Lease{}, wire.Errorf(wire.CodeBadRequest, "read lease %.64q: its name is not [a-z0-9-]{1,64}", name)
	}
	r, err := s.get(ctx, "lease."+name)
	if errors.Is(err, wire.ErrNotFound) {
		return Lease{}, wire.Errorf(wire.CodeNotFound, "read lease %q: nobody ever held it", name)
	}
	if err != nil {
		return Lease{}, err
	}
	var rec leaseRecord
	if err := wire.Decode(r.Data, &rec, recordSize); err != nil || rec.Ver != LeaseVersion || rec.Fence == 0 {
		return Lease{}, wire.Errorf(wire.CodeInternal, "read lease %q: no record of version %d", name, LeaseVersion)
	}
	return Lease{Name: name, Holder: rec.Holder, Fence: rec.Fence, Since: rec.Since, Until: rec.Until, rev: r.Seq, prefix: s.prefix}, nil
}

// Acquire takes a lease for ttl, when nobody holds it. Holder names one replica of the authority, at most 128 characters: it
// takes over at once what it holds already, with a higher fence, as after a restart.
//
// Errors: failed-precondition while somebody else holds it, with the details "holder", "since" and "until"; bad-request for a
// name, holder or ttl out of bounds; unavailable; deadline-exceeded, after which it may be held: acquire it again.
func (s *Leases) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (Lease, error) {
	if holder == "" || !plainText(holder, wire.MaxName) || ttl < MinLease || ttl > MaxLease {
		return Lease{}, wire.Errorf(wire.CodeBadRequest,
			"acquire lease %.64q: a holder of at most %d characters is required, and a lifetime of %s to %s, not %s", name, wire.MaxName, MinLease, MaxLease, ttl)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for {
		have, err := s.Get(ctx, name)
		if err != nil && !errors.Is(err, wire.ErrNotFound) {
			return Lease{}, fmt.Errorf("acquire lease: %w", err)
		}
		now := time.Now().UTC()
		if have.Holder != holder && have.Held(now) {
			return Lease{}, have.refusal(holder)
		}
		next := Lease{Name: name, Holder: holder, Fence: have.Fence + 1, Since: now, Until: now.Add(ttl), rev: have.rev, prefix: s.prefix}
		if next, err = s.write(ctx, "acquire", next); !errors.Is(err, wire.ErrConflict) {
			return next, err
		}
	}
}

func (l Lease) refusal(holder string) error {
	since, until := l.Since.UTC().Format(time.RFC3339), l.Until.UTC().Format(time.RFC3339)
	e := wire.Errorf(wire.CodeFailedPrecondition,
		"acquire lease %q for %q: %q holds it since %s and until %s unless it renews it; it is free %s after that", l.Name, holder, l.Holder, since, until, LeaseMargin)
	e.Details = map[string]any{"holder": l.Holder, "since": since, "until": until}
	return e
}

// Renew makes a lease stand for ttl from now, also one that is past its end while nobody else took it. The fence stays.
//
// Errors: [ErrLeaseLost]; bad-request; unavailable; deadline-exceeded, after which it may be renewed.
func (s *Leases) Renew(ctx context.Context, l Lease, ttl time.Duration) (Lease, error) {
	if l.rev == 0 || ttl < MinLease || ttl > MaxLease {
		return l, wire.Errorf(wire.CodeBadRequest, "renew lease %q: a lease that was acquired is required, and a lifetime of %s to %s, not %s",
			l.Name, MinLease, MaxLease, ttl)
	}
	return s.change(ctx, "renew", l, func(l *Lease) { l.Until = time.Now().UTC().Add(ttl) })
}

// Release gives a lease back, so that others need not wait for its end. One that was lost is not an error.
func (s *Leases) Release(ctx context.Context, l Lease) error {
	_, err := s.change(ctx, "release", l, func(l *Lease) { l.Holder, l.Until = "", time.Now().UTC() })
	if errors.Is(err, ErrLeaseLost) {
		return nil
	}
	return err
}

// change rewrites the record of a lease while it is this holder's.
func (s *Leases) change(ctx context.Context, what string, l Lease, edit func(*Lease)) (Lease, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for {
		next := l
		edit(&next)
		next, err := s.write(ctx, what, next)
		if err == nil || !errors.Is(err, wire.ErrConflict) {
			return next, err
		}
		if l, err = s.still(ctx, what, l); err != nil {
			return l, err
		}
	}
}

// write puts the record of a lease in place of its last one.
func (s *Leases) write(ctx context.Context, what string, l Lease) (_ Lease, err error) {
	rec := leaseRecord{Ver: LeaseVersion, Holder: l.Holder, Fence: l.Fence, Since: l.Since, Until: l.Until}
	l.rev, err = s.put(ctx, fmt.Sprintf("%s lease %q", what, l.Name), "lease."+l.Name, rec, l.rev)
	return l, err
}

// still reads a lease again and returns it, if this holder has it under the same fence.
func (s *Leases) still(ctx context.Context, what string, l Lease) (Lease, error) {
	now, err := s.Get(ctx, l.Name)
	switch {
	case err != nil:
		return l, fmt.Errorf("%s: %w", what, err)
	case now.Fence == l.Fence && now.Holder == l.Holder:
		return now, nil
	case now.Holder == "":
		return l, wire.Errorf(wire.CodeConflict, "%s: %w: %q was released; acquire it again", what, ErrLeaseLost, l.Name)
	}
	return l, wire.Errorf(wire.CodeConflict, "%s: %w: %q has fence %d now and is held by %q", what, ErrLeaseLost, l.Name, now.Fence, now.Holder)
}

// Guard returns what a write must carry that counts only while the lease is held: the first message of one atomic batch to
// the stream of the authority bucket, with the write behind it. The broker takes all of the batch or nothing, and nothing
// when the record of the lease is not the one that l was read from. So between a takeover and the last write of the holder
// before there is one order, and whoever was paused does not write any more. It rests on no clock.
//
// The message notes the fence of the last guarded write. It does not change the lease: writes under one lease need not wait
// for each other. Each call makes a new message.
func (l Lease) Guard() *nats.Msg {
	m := nats.NewMsg(l.prefix + "fence." + l.Name)
	m.Data = []byte(`{"ver":1,"fence":` + strconv.FormatUint(l.Fence, 10) + `}`)
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(l.rev, 10))
	m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, l.prefix+"lease."+l.Name)
	return m
}

// guarded stores messages of the authority bucket while the lease is held, all or none, and returns the sequence of the last.
func (s *Leases) guarded(ctx context.Context, what string, l Lease, msgs ...*nats.Msg) (uint64, error) {
	if l.rev == 0 {
		return 0, wire.Errorf(wire.CodeBadRequest, "%s: no lease", what)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	for {
		ack, err := jetstreamext.PublishMsgBatch(ctx, s.js, append([]*nats.Msg{l.Guard()}, msgs...), jetstreamext.BatchFlowControl{})
		if err == nil {
			return ack.Sequence, nil
		}
		if err = translate(what, err); !errors.Is(err, wire.ErrConflict) {
			return 0, err
		}
		now, lerr := s.still(ctx, what, l)
		if lerr != nil {
			return 0, lerr
		}
		if now.rev == l.rev {
			return 0, err // it is the record that changed
		}
		l = now // only renewed
	}
}

// UpdateFenced is [Grants.Update] of a grant that stays with its life, under a lease: it is stored only while the lease is
// held. A managed grant that is retired lapses here too.
//
// Errors: [ErrLeaseLost]; conflict when the grant changed meanwhile, or its uid is not one that the principal had before.
func (g *Grants) UpdateFenced(ctx context.Context, grant trust.Grant, rev uint64, l Lease) (uint64, error) {
	what := fmt.Sprintf("update grant of %q", grant.Principal())
	if rev == 0 {
		return 0, wire.Errorf(wire.CodeBadRequest, "%s: no revision", what)
	}
	r, err := leaderGet(ctx, g.js, g.stream, leaderRequest{Last: g.uidSubject(grant.UID)})
	if err != nil && !errors.Is(err, wire.ErrNotFound) {
		return 0, err
	}
	var holder reservation
	if err != nil || wire.Decode(r.Data, &holder, recordSize) != nil || holder.Principal != grant.Principal().String() {
		return 0, wire.Errorf(wire.CodeConflict, "%s: uid %q is not reserved for it", what, grant.UID)
	}
	leases := NewLeases(g.js, g.space)
	return g.replace(ctx, grant, rev, func(msgs ...*nats.Msg) (uint64, error) { return leases.guarded(ctx, what, l, msgs...) })
}
