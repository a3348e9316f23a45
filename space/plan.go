package space

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// Defaults of [Options] and bounds that are not options.
const (
	// DefaultMaxAge is how long channel and direct messages and mention pointers are kept. Role work stays until
	// it is done.
	DefaultMaxAge = 30 * 24 * time.Hour
	// mentionPerSubject bounds the pointers that wait for one lifecycle.
	mentionPerSubject = 1000
	// deadPerSubject bounds the notices of one sort about one queue, deadSize one notice with what a receiver may give as
	// its reason. The default cap has room for those of 40 queues, so that what is noted of others is not pushed out by a
	// few that fill theirs.
	deadPerSubject = 1000
	deadSize       = 2 << 10
	// auditAge is how long audit records are kept, whatever the age of messages.
	auditAge = 90 * 24 * time.Hour
	// headerRoom is what a stored message may have beside its body: headers and subject.
	headerRoom = 8 << 10
	// recordSize bounds one bucket record.
	recordSize = 64<<10 + headerRoom
	// duplicateWindow is how long a stream remembers message ids.
	duplicateWindow = 2 * time.Minute

	schemaKey = "cotal.schema"
)

// Schema is the version of the shape of a space that this build makes. Every stream says which one it has. History: 1,
// first edition; 2, mention pointers out of reach of replies, dead letters, a bound on redelivery. The audit stream came
// later and changed nothing of what was there: a space without it is completed as one whose creation was interrupted.
const Schema = "2"

// Sizes are byte caps. Each is reserved in the account's and the broker's store when the stream is created, so the
// sum must fit the account's limits; see [Options.Footprint]. Zero means the default.
type Sizes struct {
	Chat      int64 // channel messages; the oldest go first. Default 1 GiB.
	Direct    int64 // direct messages; when full, new ones are refused. Default 512 MiB.
	Role      int64 // role work; when full, new work is refused. Default 256 MiB.
	Mention   int64 // mention pointers; the oldest go first. Default 64 MiB.
	Dead      int64 // notices about dead letters; the oldest go first. Default 128 MiB.
	Presence  int64 // memory; when full, new principals are refused. Default 64 MiB.
	Channels  int64 // channel settings; when full, refused. Default 16 MiB.
	Members   int64 // memberships; when full, refused. Default 64 MiB.
	Cursors   int64 // cursors; when full, refused. Default 64 MiB.
	Authority int64 // grants and issuance log; when full, refused: agents at three quarters, issuances at seven eighths. Default 64 MiB.
	Audit     int64 // audit records; the oldest go first. Default 64 MiB.
}

// Options shapes a space. Nil and the zero value mean the defaults.
type Options struct {
	// Replicas of every stream. Default 1; 3 on a cluster.
	Replicas int
	// MaxAge of channel and direct messages and mention pointers. Default [DefaultMaxAge].
	MaxAge time.Duration
	// Sizes are the byte caps.
	Sizes Sizes
	// DefaultClass is the delivery class written to the space's defaults when they do not exist yet. Default
	// durable. It is never changed afterwards and never inferred.
	DefaultClass wire.DeliveryClass
}

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	setDefault(&out.Replicas, 1)
	setDefault(&out.MaxAge, DefaultMaxAge)
	setDefault(&out.DefaultClass, wire.ClassDurable)
	z := &out.Sizes
	setDefault(&z.Chat, 1<<30)
	setDefault(&z.Direct, 512<<20)
	setDefault(&z.Role, 256<<20)
	for _, size := range []*int64{&z.Mention, &z.Presence, &z.Members, &z.Cursors, &z.Authority, &z.Audit} {
		setDefault(size, 64<<20)
	}
	setDefault(&z.Channels, 16<<20)
	setDefault(&z.Dead, 128<<20)
	return out, out.validate()
}

func (o Options) validate() error {
	if o.Replicas < 1 || o.Replicas > 5 {
		return wire.Errorf(wire.CodeBadRequest, "shape space: replicas %d outside 1 to 5", o.Replicas)
	}
	if o.MaxAge < duplicateWindow {
		return wire.Errorf(wire.CodeBadRequest, "shape space: max age %s below %s", o.MaxAge, duplicateWindow)
	}
	z := o.Sizes
	for _, size := range []int64{z.Chat, z.Direct, z.Role, z.Mention, z.Dead, z.Presence, z.Channels, z.Members, z.Cursors, z.Authority, z.Audit} {
		if size < 1<<20 {
			return wire.Errorf(wire.CodeBadRequest, "shape space: size cap of %d bytes below %d", size, 1<<20)
		}
	}
	if o.DefaultClass != wire.ClassLive && o.DefaultClass != wire.ClassDurable {
		return wire.Errorf(wire.CodeBadRequest, "shape space: unknown delivery class %q", o.DefaultClass)
	}
	return nil
}

// Footprint is the number of bytes of disk and of memory that one replica of a space with these options reserves.
// Account limits below it make [Ensure] fail.
func (o *Options) Footprint() (disk, memory int64) {
	opts, _ := o.withDefaults()
	z := opts.Sizes
	return z.Chat + z.Direct + z.Role + z.Mention + z.Dead + z.Channels + z.Members + z.Cursors + z.Authority + z.Audit, z.Presence
}

// Streams counts the streams of a space, buckets included.
const Streams = 11

// plan returns the streams of a space in the order they are created: those that others rely on first.
func plan(s wire.Space, o Options) ([]jetstream.StreamConfig, error) {
	if _, err := wire.ParseSpace(string(s)); err != nil {
		return nil, err
	}
	messages := []struct {
		name     string
		subjects []string
		shape    func(*jetstream.StreamConfig)
		maximum  int64
	}{
		{wire.ChatStream(s), []string{wire.StreamSubjects(s, wire.KindChannel)}, o.chat(s), o.Sizes.Chat},
		{wire.DirectStream(s), []string{wire.StreamSubjects(s, wire.KindDirect)}, direct, o.Sizes.Direct},
		{wire.RoleStream(s), []string{wire.StreamSubjects(s, wire.KindRole)}, role, o.Sizes.Role},
		{wire.MentionStream(s), []string{wire.MentionRecords(s) + ">"}, mention(s), o.Sizes.Mention},
		{wire.DeadStream(s), append(wire.DeadSubjects(s), wire.DeadMarks(s)+"*"), dead, o.Sizes.Dead},
		{wire.AuditStream(s), []string{wire.AuditRecords(s) + "*.*.*.*"}, audit, o.Sizes.Audit},
	}
	buckets := []struct {
		name    string
		shape   func(*jetstream.StreamConfig)
		maximum int64
	}{
		{wire.AuthorityBucket(s), authority, o.Sizes.Authority},
		{wire.ChannelsBucket(s), nil, o.Sizes.Channels},
		{wire.MembersBucket(s), nil, o.Sizes.Members},
		{wire.CursorsBucket(s), nil, o.Sizes.Cursors},
		{wire.PresenceBucket(s), presence, o.Sizes.Presence},
	}
	var out []jetstream.StreamConfig
	for _, m := range messages {
		c := base(o, m.name, m.subjects, m.maximum)
		c.MaxAge, c.MaxMsgSize, c.Discard = o.MaxAge, wire.MaxMessage+headerRoom, jetstream.DiscardOld
		m.shape(&c)
		out = append(out, c)
	}
	for _, b := range buckets {
		c := base(o, BucketStream(b.name), []string{wire.RecordPrefix(b.name) + ">"}, b.maximum)
		c.MaxMsgsPerSubject, c.MaxMsgSize, c.Discard, c.AllowDirect = 1, recordSize, jetstream.DiscardNew, true
		if b.shape != nil {
			b.shape(&c)
		}
		out = append(out, c)
	}
	return out, nil
}

func base(o Options, name string, subjects []string, maximum int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: subjects, Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage,
		Replicas: o.Replicas, MaxBytes: maximum, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1,
		Duplicates: duplicateWindow, Metadata: map[string]string{schemaKey: Schema},
	}
}

// chat republishes what it stored: members listen to the copies, which carry the stored sequence and no reply.
func (o Options) chat(s wire.Space) func(*jetstream.StreamConfig) {
	return func(c *jetstream.StreamConfig) {
		c.AllowDirect = true
		c.RePublish = &jetstream.RePublish{Source: c.Subjects[0], Destination: wire.StreamSubjects(s, wire.KindLive)}
	}
}

// direct messages that were accepted leave by age alone: when there is no room the sender of the next one is told. Were
// the oldest to go, or were there a bound per subject, any member could push out what others have not read yet, by its
// own messages or by the broker's answers to them (ADR 0006).
func direct(c *jetstream.StreamConfig) { c.AllowDirect, c.Discard = true, jetstream.DiscardNew }

// role work that was accepted is never dropped, not for room and not for age: the sender of the next job is told
// instead.
func role(c *jetstream.StreamConfig) {
	c.AllowDirect, c.Retention, c.Discard, c.MaxAge = true, jetstream.WorkQueuePolicy, jetstream.DiscardNew, 0
}

// mention pointers are stored where no reply reaches, and what is stored is republished to the mentioned.
func mention(s wire.Space) func(*jetstream.StreamConfig) {
	return func(c *jetstream.StreamConfig) {
		c.AllowDirect, c.MaxMsgsPerSubject, c.MaxMsgSize = true, mentionPerSubject, recordSize
		c.RePublish = &jetstream.RePublish{Source: c.Subjects[0], Destination: wire.MentionCopies(s)}
	}
}

// dead letters are noted by the broker itself, so no role has to run at the moment that a message dies.
func dead(c *jetstream.StreamConfig) {
	c.AllowDirect, c.MaxMsgsPerSubject, c.MaxMsgSize = true, deadPerSubject, deadSize
}

// audit records are leader reads only, and nobody can take one out.
func audit(c *jetstream.StreamConfig) {
	c.DenyDelete, c.DenyPurge, c.MaxAge, c.MaxMsgSize = true, true, auditAge, MaxAudit+headerRoom
}

// authority records decide who is who: leader reads only, no message can be deleted, and the issuance log and the records of
// agents that ended expire by per-message lifetimes.
func authority(c *jetstream.StreamConfig) {
	c.AllowDirect, c.DenyDelete, c.DenyPurge, c.AllowMsgTTL, c.AllowAtomicPublish = false, true, true, true, true
}

func presence(c *jetstream.StreamConfig) {
	c.Storage, c.MaxAge, c.Duplicates = jetstream.MemoryStorage, wire.LivenessWindow, wire.LivenessWindow
	c.MaxMsgSize = wire.MaxPresence + headerRoom
}

// BucketStream names the stream behind a bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
