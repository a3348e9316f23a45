package space

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// ErrDrift is what errors.Is finds in an error about broker objects that differ from the plan in a way that is
// not reconciled. The error is a [*DriftError].
var ErrDrift = errors.New("broker objects differ from the plan")

// Drift is one difference between the plan and the broker.
type Drift struct {
	// Object is what differs: "stream CHAT_main", "consumer dm_… of DM_main", "record =defaults".
	Object string `json:"object"`
	// Field is the setting that differs, or empty when the object is missing.
	Field string `json:"field,omitempty"`
	// Want and Have are its values as text.
	Want string `json:"want"`
	Have string `json:"have"`
	// Reconcilable says that [Ensure] repairs it: a missing object, a cap, an age.
	Reconcilable bool `json:"reconcilable"`
}

// String is one line that a person can act on.
func (d Drift) String() string {
	if d.Field == "" {
		return fmt.Sprintf("%s: want %s, have %s", d.Object, d.Want, d.Have)
	}
	return fmt.Sprintf("%s: %s: want %s, have %s", d.Object, d.Field, d.Want, d.Have)
}

// DriftError lists the differences that stopped a call. Nothing was changed. It is [ErrDrift] and
// wire.ErrPrecondition.
type DriftError struct {
	Space  wire.Space
	Drifts []Drift
}

// Error names the space and every difference on one line.
func (e *DriftError) Error() string {
	lines := make([]string, len(e.Drifts))
	for i, d := range e.Drifts {
		lines[i] = d.String()
	}
	return fmt.Sprintf("verify space %q: %d settings differ and nothing was changed: %s", e.Space, len(lines), strings.Join(lines, "; "))
}

// Diff is the list of differences, one a line.
func (e *DriftError) Diff() string {
	var b strings.Builder
	for _, d := range e.Drifts {
		b.WriteString(d.String() + "\n")
	}
	return b.String()
}

// Unwrap makes the error both [ErrDrift] and a failed precondition of the wire.
func (e *DriftError) Unwrap() []error { return []error{ErrDrift, wire.ErrPrecondition} }

// blocking are the drifts that Ensure refuses.
func blocking(drifts []Drift) []Drift {
	return slices.DeleteFunc(slices.Clone(drifts), func(d Drift) bool { return d.Reconcilable })
}

// streamFields are the settings that are compared. Left out on purpose, because they change no promise: the
// description, compression, placement and the server's own metadata.
var streamFields = []struct {
	name         string
	reconcilable bool
	text         func(c jetstream.StreamConfig) string
}{
	{"subjects", false, func(c jetstream.StreamConfig) string { return list(c.Subjects) }},
	{"retention", false, func(c jetstream.StreamConfig) string { return strings.ToLower(c.Retention.String()) }},
	{"storage", false, func(c jetstream.StreamConfig) string { return strings.ToLower(c.Storage.String()) }},
	{"replicas", false, func(c jetstream.StreamConfig) string { return strconv.Itoa(max(c.Replicas, 1)) }},
	{"discard", false, func(c jetstream.StreamConfig) string {
		return strings.TrimPrefix(strings.ToLower(c.Discard.String()), "discard")
	}},
	{"discard_new_per_subject", false, func(c jetstream.StreamConfig) string { return onOff(c.DiscardNewPerSubject) }},
	{"max_age", true, func(c jetstream.StreamConfig) string { return age(c.MaxAge) }},
	{"max_bytes", true, func(c jetstream.StreamConfig) string { return limit(c.MaxBytes) }},
	{"max_msgs", true, func(c jetstream.StreamConfig) string { return limit(c.MaxMsgs) }},
	{"max_msgs_per_subject", true, func(c jetstream.StreamConfig) string { return limit(c.MaxMsgsPerSubject) }},
	{"max_msg_size", true, func(c jetstream.StreamConfig) string { return limit(int64(c.MaxMsgSize)) }},
	{"max_consumers", false, func(c jetstream.StreamConfig) string { return limit(int64(c.MaxConsumers)) }},
	{"duplicate_window", true, func(c jetstream.StreamConfig) string { return age(c.Duplicates) }},
	{"republish", false, func(c jetstream.StreamConfig) string { return republish(c.RePublish) }},
	{"subject_transform", false, func(c jetstream.StreamConfig) string { return transform(c.SubjectTransform) }},
	{"mirror", false, func(c jetstream.StreamConfig) string { return source(c.Mirror) }},
	{"sources", false, func(c jetstream.StreamConfig) string { return sources(c.Sources) }},
	{"no_ack", false, func(c jetstream.StreamConfig) string { return onOff(c.NoAck) }},
	{"sealed", false, func(c jetstream.StreamConfig) string { return onOff(c.Sealed) }},
	{"deny_delete", false, func(c jetstream.StreamConfig) string { return onOff(c.DenyDelete) }},
	{"deny_purge", false, func(c jetstream.StreamConfig) string { return onOff(c.DenyPurge) }},
	{"allow_rollup", false, func(c jetstream.StreamConfig) string { return onOff(c.AllowRollup) }},
	{"allow_direct", false, func(c jetstream.StreamConfig) string { return onOff(c.AllowDirect) }},
	{"allow_msg_ttl", false, func(c jetstream.StreamConfig) string { return onOff(c.AllowMsgTTL) }},
	{"subject_delete_marker_ttl", false, func(c jetstream.StreamConfig) string { return age(c.SubjectDeleteMarkerTTL) }},
	{"allow_msg_counter", false, func(c jetstream.StreamConfig) string { return onOff(c.AllowMsgCounter) }},
	{"allow_msg_schedules", false, func(c jetstream.StreamConfig) string { return onOff(c.AllowMsgSchedules) }},
	{"allow_atomic", false, func(c jetstream.StreamConfig) string { return onOff(c.AllowAtomicPublish) }},
	{"allow_batched", false, func(c jetstream.StreamConfig) string { return onOff(c.AllowBatchPublish) }},
	{"persist_mode", false, func(c jetstream.StreamConfig) string { return persist(c.PersistMode) }},
	{"schema", false, func(c jetstream.StreamConfig) string { return orNone(c.Metadata[schemaKey]) }},
}

func compareStream(want, have jetstream.StreamConfig) []Drift {
	var out []Drift
	for _, f := range streamFields {
		if w, h := f.text(want), f.text(have); w != h {
			out = append(out, Drift{Object: "stream " + want.Name, Field: f.name, Want: w, Have: h, Reconcilable: f.reconcilable})
		}
	}
	return out
}

// consumerFields are the settings of durables that are compared. The start of a direct queue is its own (the cut
// at which the lifecycle began), so only the policy is.
var consumerFields = []struct {
	name string
	text func(c jetstream.ConsumerConfig) string
}{
	{"filter", func(c jetstream.ConsumerConfig) string { return list(filters(c)) }},
	{"deliver_policy", func(c jetstream.ConsumerConfig) string { return c.DeliverPolicy.String() }},
	{"deliver_subject", func(c jetstream.ConsumerConfig) string { return orNone(c.DeliverSubject) }},
	{"ack_policy", func(c jetstream.ConsumerConfig) string { return c.AckPolicy.String() }},
	{"ack_wait", func(c jetstream.ConsumerConfig) string { return age(c.AckWait) }},
	{"max_deliver", func(c jetstream.ConsumerConfig) string { return limit(int64(c.MaxDeliver)) }},
	{"max_ack_pending", func(c jetstream.ConsumerConfig) string { return limit(int64(c.MaxAckPending)) }},
	{"max_waiting", func(c jetstream.ConsumerConfig) string { return limit(int64(c.MaxWaiting)) }},
	{"max_batch", func(c jetstream.ConsumerConfig) string { return limit(int64(c.MaxRequestBatch)) }},
	{"max_expires", func(c jetstream.ConsumerConfig) string { return c.MaxRequestExpires.String() }},
	{"inactive_threshold", func(c jetstream.ConsumerConfig) string { return age(c.InactiveThreshold) }},
	{"headers_only", func(c jetstream.ConsumerConfig) string { return onOff(c.HeadersOnly) }},
	{"mem_storage", func(c jetstream.ConsumerConfig) string { return onOff(c.MemoryStorage) }},
	{"backoff", func(c jetstream.ConsumerConfig) string { return orNone(strings.Trim(fmt.Sprint(c.BackOff), "[]")) }},
}

func compareConsumer(stream string, want, have jetstream.ConsumerConfig) []Drift {
	var out []Drift
	for _, f := range consumerFields {
		if w, h := f.text(want), f.text(have); w != h {
			out = append(out, Drift{Object: fmt.Sprintf("consumer %s of %s", want.Durable, stream), Field: f.name, Want: w, Have: h})
		}
	}
	return out
}

func filters(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return c.FilterSubjects
}

func list(v []string) string { return orNone(strings.Join(slices.Sorted(slices.Values(v)), " ")) }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func limit(n int64) string {
	if n <= 0 {
		return "no limit"
	}
	return strconv.FormatInt(n, 10)
}

func age(d time.Duration) string {
	if d <= 0 {
		return "none"
	}
	return d.String()
}

func republish(r *jetstream.RePublish) string {
	if r == nil {
		return "none"
	}
	text := r.Source + " to " + r.Destination
	if r.HeadersOnly {
		text += " (headers only)"
	}
	return text
}

func transform(t *jetstream.SubjectTransformConfig) string {
	if t == nil {
		return "none"
	}
	return t.Source + " to " + t.Destination
}

func source(s *jetstream.StreamSource) string {
	if s == nil {
		return "none"
	}
	return s.Name
}

func sources(all []*jetstream.StreamSource) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	return list(names)
}

func persist(m jetstream.PersistModeType) string { return strings.ToLower(m.String()) }
