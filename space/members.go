package space

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// MaxSpans bounds the intervals of one membership in which something waits: a record takes some six KiB with the longest
// pattern.
const MaxSpans = 64

// Span is one interval of a membership: the messages of the channel stream after Join, up to and with Leave.
type Span struct {
	// Generation numbers the joins. It grows with each join of a space, so that none is ever met again.
	Generation uint64 `json:"gen,omitempty"`
	Join       uint64 `json:"join"`
	// Leave is 0 while the span is open.
	Leave uint64 `json:"leave,omitempty"`
}

// Contains reports whether the message with this sequence is in the span.
func (s Span) Contains(seq uint64) bool { return seq > s.Join && (s.Leave == 0 || seq <= s.Leave) }

// Membership says which messages of the channels of a pattern one life of a principal is a member for.
type Membership struct {
	Lifecycle wire.Lifecycle
	Pattern   string
	// Spans are in order and do not overlap; only the last one may be open. There is at least one.
	Spans []Span
}

// Open returns the span that is open.
func (m Membership) Open() (Span, bool) {
	last := m.Last()
	return last, len(m.Spans) > 0 && last.Leave == 0
}

// Last returns the last span.
func (m Membership) Last() Span {
	if len(m.Spans) == 0 {
		return Span{}
	}
	return m.Spans[len(m.Spans)-1]
}

// Contains reports whether the message with this sequence is in the membership.
func (m Membership) Contains(seq uint64) bool {
	return slices.ContainsFunc(m.Spans, func(s Span) bool { return s.Contains(seq) })
}

// Knows reports whether a span has this generation.
func (m Membership) Knows(generation uint64) bool {
	return slices.ContainsFunc(m.Spans, func(s Span) bool { return s.Generation == generation })
}

// Joined returns m with a new open span after sequence at. Its generation is known once it is put. It must not be open.
// Spans that hold nothing are dropped: with the next join nobody reports about them any more.
func (m Membership) Joined(at uint64) Membership {
	m.Spans = slices.DeleteFunc(slices.Clone(m.Spans), func(s Span) bool { return s.Leave == s.Join })
	m.Spans = append(m.Spans, Span{Join: at})
	return m
}

// Left returns m with its open span closed at sequence at. The span of a stream that never held a message is dropped, so
// that no span may be left.
func (m Membership) Left(at uint64) Membership {
	m.Spans = slices.Clone(m.Spans)
	if i := len(m.Spans) - 1; i >= 0 && m.Spans[i].Leave == 0 {
		if m.Spans[i].Leave = max(at, m.Spans[i].Join); m.Spans[i].Leave == 0 {
			m.Spans = m.Spans[:i]
		}
	}
	return m
}

// Waiting returns m without the spans that are closed and handled as a whole.
func (m Membership) Waiting(c Cursor) Membership {
	m.Spans = slices.DeleteFunc(slices.Clone(m.Spans), func(s Span) bool { return s.Leave != 0 && c.Past(s.Join+1) > s.Leave })
	return m
}

// check reports whether spans are as [Membership] says.
func (m Membership) check() error {
	if err := wire.ValidatePattern(m.Pattern); err != nil {
		return err
	}
	switch n := len(m.Spans); {
	case n == 0:
		return wire.Errorf(wire.CodeInternal, "membership of %q in %q has no interval", m.Lifecycle.Principal, brief(m.Pattern))
	case n > MaxSpans:
		e := wire.Errorf(wire.CodeResourceExhausted, "membership of %q in %q: in %d intervals something waits, at most %d; handle it, or leave and discard it",
			m.Lifecycle.Principal, brief(m.Pattern), n-1, MaxSpans)
		e.Details = map[string]any{"used": n - 1, "allowed": MaxSpans}
		return e
	}
	end := uint64(0)
	for i, s := range m.Spans {
		if s.Join < end || s.Leave != 0 && s.Leave < s.Join || s.Leave == 0 && i < len(m.Spans)-1 {
			return wire.Errorf(wire.CodeInternal, "membership of %q in %q has intervals out of order", m.Lifecycle.Principal, brief(m.Pattern))
		}
		end = s.Leave
	}
	return nil
}

// PatternKey is the last token of the key of a membership and its cursor.
func PatternKey(pattern string) string {
	sum := sha256.Sum256([]byte(pattern))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26])
}

// Members is the store of durable memberships of a space. Reads of one go to the leader, so they see every write
// that was acknowledged; writes are compare-and-swap.
type Members struct {
	table    table
	room     room
	underway underway
}

// NewMembers returns the memberships of s. It asks the broker nothing.
func NewMembers(js jetstream.JetStream, s wire.Space) *Members {
	t := newTable(js, wire.MembersBucket(s))
	return &Members{table: t, room: room{table: t}}
}

// Get returns the membership of l in pattern and its revision.
//
// Errors: not-found; internal for a record that cannot be read.
func (m *Members) Get(ctx context.Context, l wire.Lifecycle, pattern string) (Membership, uint64, error) {
	if err := errors.Join(l.Validate(), wire.ValidatePattern(pattern)); err != nil {
		return Membership{}, 0, err
	}
	r, err := m.table.get(ctx, memberKey(l, pattern))
	if errors.Is(err, wire.ErrNotFound) {
		return Membership{}, 0, wire.Errorf(wire.CodeNotFound, "read membership of %q in %q: there is none", l.Principal, brief(pattern))
	}
	if err != nil {
		return Membership{}, 0, err
	}
	out, err := m.decode(r.Subject, r.Seq, r.Data)
	return out, r.Seq, err
}

// Put replaces the membership that has revision rev, 0 for none, and returns the new revision, which is also the
// generation of a span that had none. In a full bucket what takes no more than before is still written, as each leave does.
//
// Errors: conflict when the record changed meanwhile; resource-exhausted for more than MaxSpans spans, for a join beyond
// wire.MaxMemberships or wire.MaxMembershipBytes of the life, and for one in a full bucket.
func (m *Members) Put(ctx context.Context, ms Membership, rev uint64) (uint64, error) {
	if err := ms.Lifecycle.Validate(); err != nil {
		return 0, err
	}
	if err := ms.check(); err != nil {
		return 0, err
	}
	what := fmt.Sprintf("write membership of %q in %q", ms.Lifecycle.Principal, brief(ms.Pattern))
	body, err := ms.encode()
	if err != nil {
		return 0, wire.Errorf(wire.CodeInternal, "%s: %v", what, err)
	}
	if _, joins := ms.Open(); joins || rev == 0 {
		done, err := m.admit(ctx, what, ms, body, rev)
		if err != nil {
			return 0, err
		}
		defer done()
	}
	return m.table.putBody(ctx, what, memberKey(ms.Lifecycle, ms.Pattern), padded(body, rev), rev)
}

// Remove removes the membership that has revision rev.
//
// Errors: conflict when it changed meanwhile or is gone.
func (m *Members) Remove(ctx context.Context, l wire.Lifecycle, pattern string, rev uint64) error {
	return m.table.remove(ctx, fmt.Sprintf("remove membership of %q in %q", l.Principal, brief(pattern)), rev)
}

// Of returns the memberships of one life of a principal, sorted by pattern. Like [Members.All] it need not see what
// was written a moment ago, and leaves out what cannot be read.
func (m *Members) Of(ctx context.Context, l wire.Lifecycle) ([]Membership, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return m.some(ctx, l.String()+".*")
}

// OfPrincipal is [Members.Of] for all lives of a principal, those that ended included while their records are there.
func (m *Members) OfPrincipal(ctx context.Context, p wire.Principal) ([]Membership, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return m.some(ctx, p.String()+".*.*")
}

func (m *Members) some(ctx context.Context, keys string) ([]Membership, error) {
	var out []Membership
	err := m.scan(ctx, keys, func(ms Membership) error {
		out = append(out, ms)
		return nil
	})
	slices.SortFunc(out, func(a, b Membership) int { return strings.Compare(a.Pattern, b.Pattern) })
	return out, err
}

// Count returns how many memberships one life of a principal has.
func (m *Members) Count(ctx context.Context, l wire.Lifecycle) (int, error) {
	if err := l.Validate(); err != nil {
		return 0, err
	}
	return m.table.total(ctx, l.String()+".*")
}

// Total returns how many memberships the space has, those included that cannot be read.
func (m *Members) Total(ctx context.Context) (int, error) { return m.table.total(ctx, fourTokens) }

// Changes calls fn with every membership that was written after a sequence of the bucket, in the order of writing and
// with the key of its record, and returns the sequence to go on from. One that cannot be read is given as nil. Removals are
// not told; whoever follows sees by [Members.Total] that there were some.
func (m *Members) Changes(ctx context.Context, after uint64, fn func(key string, ms *Membership)) (uint64, error) {
	return m.table.changes(ctx, fourTokens, after, func(r *Stored) {
		key := strings.TrimPrefix(r.Subject, m.table.prefix)
		if ms, err := m.decode(r.Subject, r.Sequence, r.Data); err == nil {
			fn(key, &ms)
		} else {
			fn(key, nil)
		}
	})
}

// All calls fn with every membership of the space, in no particular order, read by batches.
func (m *Members) All(ctx context.Context, fn func(Membership) error) error {
	return m.scan(ctx, fourTokens, fn)
}

// fourTokens matches the keys of memberships and positions.
const fourTokens = "*.*.*.*"

func (m *Members) scan(ctx context.Context, keys string, fn func(Membership) error) error {
	return Scan(ctx, m.table.js, m.table.stream, m.table.prefix+keys, func(r *Stored) error {
		ms, err := m.decode(r.Subject, r.Sequence, r.Data)
		if err != nil {
			return nil
		}
		return fn(ms)
	})
}

// RemoveAll removes every membership of a life that has ended.
func (m *Members) RemoveAll(ctx context.Context, l wire.Lifecycle) error {
	if err := l.Validate(); err != nil {
		return err
	}
	return m.table.removeAll(ctx, fmt.Sprintf("remove memberships of %q", l.Principal), l.String()+".*")
}

// decode reads a record and refuses one whose key is not its own.
func (m *Members) decode(subject string, rev uint64, data []byte) (Membership, error) {
	key := strings.TrimPrefix(subject, m.table.prefix)
	l, hash, err := parseMemberKey(key)
	var rec memberRecord
	if err == nil {
		err = wire.Decode(data, &rec, recordSize)
	}
	if err == nil {
		err = rec.unpack()
	}
	out := Membership{Lifecycle: l, Pattern: rec.Pattern, Spans: rec.Spans}
	if err == nil {
		err = out.check()
	}
	if err == nil && PatternKey(rec.Pattern) != hash {
		err = wire.Errorf(wire.CodeInternal, "pattern %q", rec.Pattern)
	}
	if err != nil {
		return Membership{}, wire.Errorf(wire.CodeInternal, "read membership %q: %v", key, err)
	}
	if i := len(out.Spans) - 1; out.Spans[i].Generation == 0 {
		out.Spans[i].Generation = rev
	}
	return out, nil
}

func memberKey(l wire.Lifecycle, pattern string) string {
	return l.String() + "." + PatternKey(pattern)
}

// parseMemberKey reads owner, actor, uid and one more token.
func parseMemberKey(key string) (l wire.Lifecycle, last string, err error) {
	t := strings.Split(key, ".")
	if len(t) != 4 {
		return l, "", wire.Errorf(wire.CodeBadRequest, "read key %q: not owner, actor, uid and pattern", key)
	}
	l = wire.Lifecycle{Principal: wire.Principal{Owner: t[0], Actor: t[1]}, UID: wire.UID(t[2])}
	return l, t[3], l.Validate()
}
