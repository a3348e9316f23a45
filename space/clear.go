package space

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// maxCleared bounds the marks of one channel; the oldest are taken together.
const maxCleared = 32

// clearing says that an operator removed the messages of a channel in a range of the channel stream.
type clearing struct {
	From  uint64 `json:"from"`
	To    uint64 `json:"to"`
	Count uint64 `json:"count"`
	At    int64  `json:"atMs"`
	// Open says that the removal was announced and may not have been finished.
	Open bool `json:"open,omitempty"`
}

// clearings is the record of one channel, the clearings in order.
type clearings struct {
	V       int        `json:"v"`
	Channel string     `json:"channel"`
	Cleared []clearing `json:"cleared"`
}

// ClearHistory removes what is stored of one channel, and nothing of the channels below it, and returns how many messages
// that were. Before it does it leaves a mark, so that members who had not read all of it are told; see [Cleared]. What
// is posted meanwhile stays. It cannot be undone; a call that was interrupted is finished by the next one.
//
// Errors: bad-request for what is no channel; conflict when somebody else clears it at this moment; failed-precondition
// when the space was not made.
func ClearHistory(ctx context.Context, js jetstream.JetStream, s wire.Space, channel string) (removed uint64, err error) {
	what := fmt.Sprintf("clear channel %q of space %q", channel, s)
	if err := wire.ValidateChannel(channel); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	filter, err := wire.ChannelFilter(s, channel)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	t := newTable(js, wire.CursorsBucket(s))
	rec, rev, err := readCleared(ctx, t, channel)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	st, err := State(ctx, js, wire.ChatStream(s))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	count, counted, err := countStored(ctx, js, s, filter, st)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if counted && count == 0 && !rec.open() {
		return 0, nil
	}
	rec.announce(clearing{From: max(st.FirstSeq, 1), To: st.LastSeq, Count: count, At: time.Now().UnixMilli(), Open: true})
	if rev, err = t.put(ctx, what, clearedKey(channel), rec, rev); err != nil {
		return 0, err
	}
	if removed, err = purge(ctx, js, wire.ChatStream(s), filter, st.LastSeq+1); err != nil {
		return 0, fmt.Errorf("%s: announced, run it again: %w", what, err)
	}
	rec.finish(removed)
	if _, err = t.put(ctx, what, clearedKey(channel), rec, rev); err != nil && !errors.Is(err, wire.ErrConflict) {
		return removed, fmt.Errorf("%s: done, its mark not finished: %w", what, err)
	}
	return removed, nil
}

// Cleared returns what operators cleared, after the given sequence of the channel stream, of the channels of a pattern,
// in order. It may not see what was cleared a moment ago.
func Cleared(ctx context.Context, js jetstream.JetStream, s wire.Space, pattern string, after uint64) ([]wire.Loss, error) {
	if err := wire.ValidatePattern(pattern); err != nil {
		return nil, err
	}
	t := newTable(js, wire.CursorsBucket(s))
	var out []wire.Loss
	err := Scan(ctx, js, t.stream, t.prefix+wire.ClearedKey+".*", func(m *Stored) error {
		var rec clearings
		if wire.Decode(m.Data, &rec, recordSize) != nil || !wire.PatternMatches(pattern, rec.Channel) {
			return nil
		}
		for _, c := range rec.Cleared {
			if c.To > after {
				out = append(out, wire.Loss{
					SequenceRange: wire.SequenceRange{From: max(c.From, after+1), To: c.To}, Reason: wire.LossCleared, Channel: rec.Channel, Count: c.Count,
				})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read what was cleared of %q: %w", pattern, err)
	}
	slices.SortFunc(out, func(a, b wire.Loss) int {
		return cmp.Or(cmp.Compare(a.To, b.To), strings.Compare(a.Channel, b.Channel))
	})
	return out, nil
}

func clearedKey(channel string) string { return wire.ClearedKey + "." + PatternKey(channel) }

func readCleared(ctx context.Context, t table, channel string) (clearings, uint64, error) {
	rec := clearings{V: 1, Channel: channel}
	r, err := t.get(ctx, clearedKey(channel))
	if errors.Is(err, wire.ErrNotFound) {
		return rec, 0, nil
	}
	if err != nil {
		return rec, 0, err
	}
	if err := wire.Decode(r.Data, &rec, recordSize); err != nil || rec.Channel != channel {
		return rec, 0, wire.Errorf(wire.CodeInternal, "record of what was cleared cannot be read")
	}
	return rec, r.Seq, nil
}

func (r *clearings) open() bool { return len(r.Cleared) > 0 && r.Cleared[len(r.Cleared)-1].Open }

// announce adds a clearing. One that was not finished is taken up again.
func (r *clearings) announce(c clearing) {
	r.Cleared = slices.Clone(r.Cleared)
	last := len(r.Cleared) - 1
	if r.open() {
		left := r.Cleared[last]
		c.From, c.Count = left.From, max(left.Count, c.Count)
		r.Cleared[last] = c
		return
	}
	if last >= 0 {
		c.From = max(c.From, r.Cleared[last].To+1)
	}
	if r.Cleared = append(r.Cleared, c); len(r.Cleared) > maxCleared {
		r.Cleared[1].From = r.Cleared[0].From
		r.Cleared[1].Count += r.Cleared[0].Count
		r.Cleared = r.Cleared[1:]
	}
}

// finish closes the last clearing. One that was taken up again keeps what was counted before, since the call before may
// have removed it.
func (r *clearings) finish(removed uint64) {
	r.Cleared = slices.Clone(r.Cleared)
	last := &r.Cleared[len(r.Cleared)-1]
	if last.Open, last.Count = false, max(last.Count, removed); last.Count == 0 {
		r.Cleared = r.Cleared[:len(r.Cleared)-1]
	}
}

// countStored counts the messages that match, unless there are so many subjects that it is not worth it.
func countStored(ctx context.Context, js jetstream.JetStream, s wire.Space, filter string, st jetstream.StreamState) (n uint64, counted bool, err error) {
	if st.NumSubjects > maxRoles {
		return 0, false, nil
	}
	subjects, err := Subjects(ctx, js, wire.ChatStream(s), filter, math.MaxUint64)
	for _, k := range subjects {
		n += k
	}
	return n, true, err
}

// purge removes the messages that match and come before a sequence, and returns how many.
func purge(ctx context.Context, js jetstream.JetStream, stream, filter string, before uint64) (uint64, error) {
	what := fmt.Sprintf("purge %q of stream %q", filter, stream)
	body, err := json.Marshal(struct {
		Filter string `json:"filter"`
		Seq    uint64 `json:"seq"`
	}{filter, before})
	if err != nil {
		return 0, wire.Errorf(wire.CodeInternal, "%s: %v", what, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	msg, err := js.Conn().RequestWithContext(ctx, apiSubject(js, "STREAM.PURGE."+stream), body)
	if err != nil {
		return 0, translate(what, err)
	}
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Success bool                `json:"success"`
		Purged  uint64              `json:"purged"`
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil || resp.Error == nil && !resp.Success {
		return 0, wire.Errorf(wire.CodeInternal, "%s: unreadable answer of the broker", what)
	}
	if resp.Error != nil {
		return 0, translate(what, resp.Error)
	}
	return resp.Purged, nil
}
