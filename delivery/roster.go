package delivery

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Timing and bounds of the roster.
const (
	// spacing is the least time between two changes of one principal: one that flaps costs its watchers five events
	// a second, and its last state is always told.
	spacing = 200 * time.Millisecond
	// keepGone is how long an offline principal stays listed.
	keepGone = 15 * time.Minute
	// maxMembers bounds the principals that are listed.
	maxMembers = 100_000
)

// roster is who is there, as values: it does no input or output and reads no clock. Changes wait in it until due
// hands them out as events.
type roster struct {
	members  map[wire.Principal]*member
	order    []*member // sorted by name
	sequence uint64
	waiting  []*member // have a change that is not told
	refused  int       // records of principals beyond maxMembers
}

// member is one principal.
type member struct {
	name   string           // principal in dot form
	entry  wire.RosterEntry // as last told
	size   int              // of entry as JSON
	told   time.Time        // when
	now    wire.Presence    // as last heard
	face   []byte           // now without its times, to see whether anything changed
	gone   string
	goneAt time.Time
	seen   time.Time // last proof of life
	waits  bool
	held   *wire.Presence // after GoneDisconnected: a record that may be from before the end
	back   bool           // after GoneDisconnected: a connection began
}

func newRoster() *roster { return &roster{members: map[wire.Principal]*member{}} }

// heard takes a presence record as it was published at a time.
func (r *roster) heard(p wire.Principal, rec *wire.Presence, at time.Time) { r.take(p, rec, at) }

// stored takes a presence record that was found stored. A replica that lags may give an older one than was heard.
func (r *roster) stored(p wire.Principal, rec *wire.Presence, at time.Time) {
	m := r.members[p]
	if m != nil && rec.LifecycleUID == m.now.LifecycleUID && rec.TS < m.now.TS {
		rec = &m.now // older, but a proof of life
	}
	r.take(p, rec, at)
}

func (r *roster) take(p wire.Principal, rec *wire.Presence, at time.Time) {
	m := r.members[p]
	if m == nil {
		if m = r.admit(p); m == nil {
			return
		}
	}
	if r.fromBefore(m, rec, at) {
		return
	}
	if at.After(m.seen) {
		m.seen = at
	}
	face := faceOf(rec)
	gone := ""
	if rec.Status == wire.StatusOffline {
		gone = wire.GoneLeft
	}
	same := bytes.Equal(face, m.face) && gone == m.gone
	m.now, m.face = *rec, face
	if !same {
		r.change(m, gone, at)
	}
}

// fromBefore reports whether a record says nothing about a life whose last connection ended: it is no newer than what was
// known then, or came so soon after that it may have been under way. The latter is kept for when the life is back.
func (r *roster) fromBefore(m *member, rec *wire.Presence, at time.Time) bool {
	if m.gone != wire.GoneDisconnected || rec.LifecycleUID != m.now.LifecycleUID || rec.Status == wire.StatusOffline {
		return false
	}
	if rec.TS <= m.now.TS {
		return true
	}
	if !m.back && at.Sub(m.goneAt) < inFlight {
		m.held = rec
		return true
	}
	return false
}

// came takes that a life has a new connection.
func (r *roster) came(l wire.Lifecycle, at time.Time) {
	m := r.members[l.Principal]
	if m == nil || m.gone != wire.GoneDisconnected || m.now.LifecycleUID != l.UID {
		return
	}
	m.back = true
	if m.held != nil {
		r.take(l.Principal, m.held, at)
	}
}

// present reports whether a life is there as far as known.
func (r *roster) present(l wire.Lifecycle) bool {
	m := r.members[l.Principal]
	return m != nil && m.gone == "" && m.now.LifecycleUID == l.UID
}

// disconnected takes that the last connection of a life ended at a time.
func (r *roster) disconnected(l wire.Lifecycle, at time.Time) {
	if r.present(l) {
		m := r.members[l.Principal]
		m.held, m.back = nil, false
		r.change(m, wire.GoneDisconnected, at)
	}
}

// left takes the removal of a principal's record.
func (r *roster) left(p wire.Principal, at time.Time) {
	if m := r.members[p]; m != nil && m.gone == "" {
		r.change(m, wire.GoneLeft, at)
	}
}

// silent takes that a principal's record is gone although nobody removed it.
func (r *roster) silent(p wire.Principal, at time.Time) {
	if m := r.members[p]; m != nil && m.gone == "" {
		r.change(m, wire.GoneSilent, at)
	}
}

// suspects are the principals without a proof of life since the deadline.
func (r *roster) suspects(deadline time.Time) []wire.Principal {
	var out []wire.Principal
	for p, m := range r.members {
		if m.gone == "" && m.seen.Before(deadline) {
			out = append(out, p)
		}
	}
	return out
}

func (r *roster) admit(p wire.Principal) *member {
	if len(r.members) >= maxMembers {
		r.refused++
		return nil
	}
	m := &member{name: p.String()}
	r.members[p] = m
	i, _ := r.find(m.name)
	r.order = slices.Insert(r.order, i, m)
	return m
}

func (r *roster) find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.order, name, func(m *member, name string) int { return strings.Compare(m.name, name) })
}

func (r *roster) change(m *member, gone string, at time.Time) {
	m.gone, m.goneAt = gone, at
	if !m.waits {
		m.waits = true
		r.waiting = append(r.waiting, m)
	}
}

// due hands out the changes that may be told at a time, and says when to ask again; zero when nothing waits.
func (r *roster) due(now time.Time) (events []wire.RosterEvent, again time.Time) {
	rest := r.waiting[:0]
	for _, m := range r.waiting {
		if at := m.told.Add(spacing); !m.told.IsZero() && now.Before(at) {
			rest = append(rest, m)
			if again.IsZero() || at.Before(again) {
				again = at
			}
			continue
		}
		m.waits = false
		r.sequence++
		r.tell(m, now)
		entry := m.entry
		events = append(events, wire.RosterEvent{Kind: wire.RosterChange, Sequence: r.sequence, Entry: &entry})
	}
	clear(r.waiting[len(rest):])
	r.waiting = rest
	return events, again
}

// settle makes what was heard so far the state at the start of the feed, without events.
func (r *roster) settle(now time.Time) {
	for _, m := range r.waiting {
		m.waits = false
		r.tell(m, now)
	}
	r.waiting = nil
}

// tell makes the last state the told one.
func (r *roster) tell(m *member, now time.Time) {
	m.told, m.entry = now, m.state(r.sequence)
	m.size = len(encode(m.entry)) + 1
}

// forget removes who has been gone for long, and hands out that it did.
func (r *roster) forget(now time.Time) []wire.RosterEvent {
	var events []wire.RosterEvent
	for p, m := range r.members {
		if m.gone == "" || m.waits || now.Sub(m.goneAt) < keepGone {
			continue
		}
		delete(r.members, p)
		if i, ok := r.find(m.name); ok {
			r.order = slices.Delete(r.order, i, i+1)
		}
		r.sequence++
		events = append(events, wire.RosterEvent{Kind: wire.RosterRemove, Sequence: r.sequence, Principal: m.name})
	}
	return events
}

// page lists the last state after a principal. A state that waits to be told is shown under the number of the one
// before it, so that the event that tells it still applies.
func (r *roster) page(after string, limit int) *wire.RosterReply {
	reply := &wire.RosterReply{Sequence: r.sequence, Total: len(r.order), Entries: []wire.RosterEntry{}}
	start, found := r.find(after)
	if found {
		start++
	}
	size := 0
	for _, m := range r.order[start:] {
		entry, bytes := m.entry, m.size
		if m.waits {
			entry = m.state(m.entry.Sequence)
			bytes = len(encode(entry)) + 1
		}
		if size += bytes; len(reply.Entries) == limit || size > pageRoom && len(reply.Entries) > 0 {
			reply.Next = reply.Entries[len(reply.Entries)-1].Principal
			break
		}
		entry.SeenMS = m.seen.UnixMilli()
		reply.Entries = append(reply.Entries, entry)
	}
	return reply
}

// state is the entry of what was last heard.
func (m *member) state(sequence uint64) wire.RosterEntry {
	e := wire.RosterEntry{Principal: m.name, Presence: m.now, Gone: m.gone, SeenMS: m.seen.UnixMilli(), Sequence: sequence}
	if m.gone != "" {
		e.Presence.Status, e.GoneMS = wire.StatusOffline, m.goneAt.UnixMilli()
	}
	return e
}

// faceOf is a record without what every heartbeat changes.
func faceOf(rec *wire.Presence) []byte {
	plain := *rec
	plain.TS = 0
	return encode(plain)
}

// encode is for values of package wire, which always encode.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("delivery: encode " + err.Error())
	}
	return data
}
