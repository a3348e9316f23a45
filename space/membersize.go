package space

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"sync"

	"github.com/cotal-go/cotal/wire"
)

// memberRecord is the value of a key. At holds generation, join and leave of each span in eight bytes each, so closing a span
// makes no record longer. Version 1 had the spans as they are.
type memberRecord struct {
	V       int    `json:"v"`
	Pattern string `json:"pattern"`
	At      string `json:"at,omitempty"`
	Spans   []Span `json:"spans,omitempty"`
}

// spanBytes is what a span takes before it is made text.
const spanBytes = 24

func (m Membership) encode() ([]byte, error) {
	var at []byte
	for _, s := range m.Spans {
		for _, n := range []uint64{s.Generation, s.Join, s.Leave} {
			at = binary.BigEndian.AppendUint64(at, n)
		}
	}
	return json.Marshal(memberRecord{V: 2, Pattern: m.Pattern, At: base64.RawURLEncoding.EncodeToString(at)})
}

// unpack brings a record of either version to the form of the first.
func (r *memberRecord) unpack() error {
	if r.V == 1 && r.At == "" {
		return nil
	}
	at, err := base64.RawURLEncoding.DecodeString(r.At)
	if r.V != 2 || err != nil || len(r.Spans) != 0 || len(at)%spanBytes != 0 {
		return wire.Errorf(wire.CodeInternal, "version %d, or no spans in it", r.V)
	}
	for ; len(at) > 0; at = at[spanBytes:] {
		r.Spans = append(r.Spans, Span{
			Generation: binary.BigEndian.Uint64(at), Join: binary.BigEndian.Uint64(at[8:]), Leave: binary.BigEndian.Uint64(at[16:]),
		})
	}
	return nil
}

// brief shortens a pattern, so that what is said about it has room.
func brief(pattern string) string {
	if len(pattern) > 64 {
		return pattern[:64] + "…"
	}
	return pattern
}

// underway is what puts that have not ended yet add to the memberships of each life. Whoever weighs a life counts it first,
// so that many at once do not get in together.
type underway struct {
	mu sync.Mutex
	by map[wire.Lifecycle]load
}

// load is a number of memberships and what their records take.
type load struct{ records, bytes int }

// add adds o to what is under way of l and returns all of it.
func (u *underway) add(l wire.Lifecycle, o load) load {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := load{u.by[l].records + o.records, u.by[l].bytes + o.bytes}
	if u.by == nil {
		u.by = map[wire.Lifecycle]load{}
	}
	if u.by[l] = sum; sum == (load{}) {
		delete(u.by, l)
	}
	return sum
}

// admit refuses a record that there is no room for, in what its life may take or in the bucket. What does not grow needs
// none. The caller calls done after it wrote.
func (m *Members) admit(ctx context.Context, what string, ms Membership, body []byte, rev uint64) (done func(), err error) {
	key := memberKey(ms.Lifecycle, ms.Pattern)
	more := load{1, len(m.table.prefix) + len(key) + len(padded(body, 0)) + recordOverhead}
	if rev != 0 {
		old, err := m.table.get(ctx, key)
		if err != nil && !errors.Is(err, wire.ErrNotFound) {
			return nil, err
		}
		more = load{0, len(body) - len(bytes.TrimRight(old.Data, " "))}
	}
	if more.bytes <= 0 {
		return func() {}, nil
	}
	all := m.underway.add(ms.Lifecycle, more)
	done = func() { m.underway.add(ms.Lifecycle, load{-more.records, -more.bytes}) }
	stored, err := m.weigh(ctx, what, ms.Lifecycle, key, rev)
	if err == nil {
		err = within(what, load{stored.records + all.records, stored.bytes + all.bytes}, more)
	}
	if err == nil {
		err = m.room.take(ctx, what, int64(more.bytes), memberships)
	}
	if err != nil {
		done()
	}
	return done, err
}

// within refuses more of what a life may have once it would have all with it.
func within(what string, all, more load) error {
	var e *wire.Error
	used, allowed := all.records-more.records, wire.MaxMemberships
	switch {
	case more.records > 0 && all.records > allowed:
		e = wire.Errorf(wire.CodeResourceExhausted, "%s: there are %d memberships, at most %d; leave one first", what, used, allowed)
	case all.bytes > wire.MaxMembershipBytes:
		used, allowed = all.bytes-more.bytes, wire.MaxMembershipBytes
		e = wire.Errorf(wire.CodeResourceExhausted, "%s: the memberships take %d bytes, and this needs %d, of at most %d; leave one first, and handle or discard what waits in it",
			what, used, more.bytes, allowed)
	default:
		return nil
	}
	e.Details = map[string]any{"used": used, "allowed": allowed}
	return e
}

// weigh returns what the records of a life take. One under key, where the caller saw none, is a conflict.
func (m *Members) weigh(ctx context.Context, what string, l wire.Lifecycle, key string, rev uint64) (load, error) {
	var sum load
	r, err := newReader(m.table.js, m.table.stream, batchMessages)
	if err != nil {
		return sum, err
	}
	defer r.close()
	q := Query{Filter: m.table.prefix + l.String() + ".*", From: 1}
	q.Unreadable = func(size int) { sum.records, sum.bytes = sum.records+1, sum.bytes+size+recordOverhead }
	for {
		rest, err := r.read(ctx, q, func(s *Stored) error {
			if rev == 0 && s.Subject == m.table.prefix+key {
				return wire.Errorf(wire.CodeConflict, "%s: there is one already", what)
			}
			sum.records, sum.bytes = sum.records+1, sum.bytes+len(s.Subject)+len(s.Data)+recordOverhead
			return nil
		})
		if err != nil || rest.Pending == 0 {
			return sum, err
		}
		q.From = rest.Next
	}
}
