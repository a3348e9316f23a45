package wire

import "strings"

// The names of a space's streams. None of these functions validates its argument: give them what ParseSpace, ParseUID and
// ValidateRole accepted.

// ChatStream names the stream of channel messages.
func ChatStream(s Space) string { return "CHAT_" + string(s) }

// DirectStream names the stream of direct messages.
func DirectStream(s Space) string { return "DM_" + string(s) }

// RoleStream names the work queue of role messages.
func RoleStream(s Space) string { return "TASK_" + string(s) }

// MentionStream names the stream of mention pointers.
func MentionStream(s Space) string { return "DLV_" + string(s) }

// DeadStream names the stream in which the broker itself notes the messages that it gave up to deliver.
func DeadStream(s Space) string { return "DEAD_" + string(s) }

// AuditStream names the stream of audit records, written and read by the authority alone.
func AuditStream(s Space) string { return "AUDIT_" + string(s) }

const presenceBucket = "cotal_presence_"

// PresenceBucket names the key-value bucket of presence records.
func PresenceBucket(s Space) string { return presenceBucket + string(s) }

// ChannelsBucket names the bucket of channel configurations.
func ChannelsBucket(s Space) string { return "cotal_channels_" + string(s) }

// MembersBucket names the bucket of durable channel memberships.
func MembersBucket(s Space) string { return "cotal_members_" + string(s) }

// CursorsBucket names the bucket of handled positions.
func CursorsBucket(s Space) string { return "cotal_cursors_" + string(s) }

// AuthorityBucket names the bucket of grants, written by the authority alone.
func AuthorityBucket(s Space) string { return "cotal_authority_" + string(s) }

// DirectDurable names the consumer of one lifecycle's direct messages.
func DirectDurable(l Lifecycle) string { return "dm_" + l.Name() }

// RoleDurable names the consumer all holders of a role share.
func RoleDurable(role string) string { return "svc_" + role }

// StreamSubjects returns the subjects a stream of a space stores, by kind of message: channel, direct, role or mention.
// It returns "" for other kinds, and for KindLive the destination of the broker's republishing. It does not validate s.
func StreamSubjects(s Space, k Kind) string {
	switch k {
	case KindChannel:
		return join(s, "chat", ">")
	case KindLive:
		return join(s, "live", ">")
	case KindDirect:
		return join(s, "inst", ">")
	case KindRole:
		return join(s, "svc", ">")
	case KindMention:
		return join(s, "dlv", ">")
	}
	return ""
}

const (
	kvPrefix = "$KV."
	// recordPrefix is inside the one part of "$JS." that a stream may store.
	recordPrefix = "$JS.EVENT."
)

// RecordPrefix returns the prefix, with its final dot, of the subjects under which the stream behind a bucket keeps its
// records. Only presence, which participants write, is under "$KV.". The broker answers a publish or a request of
// anybody on whatever reply subject it names, so its acknowledgement can overwrite every record that a client can name
// as a reply; it refuses replies that begin with "$JS.", and the records that services alone write are there (ADR 0010).
// It does not validate bucket.
func RecordPrefix(bucket string) string {
	if strings.HasPrefix(bucket, presenceBucket) {
		return kvPrefix + bucket + "."
	}
	return recordPrefix + bucket + "."
}

// PresenceSubject returns the subject that writes a principal's presence key. Errors have code bad-request.
func PresenceSubject(s Space, p Principal) (string, error) {
	if err := firstError(s.Validate(), p.checkSpeaker()); err != nil {
		return "", err
	}
	return kvPrefix + PresenceBucket(s) + "." + p.String(), nil
}

// PresenceFilter returns the filter for every presence key of a space. Errors have code bad-request.
func PresenceFilter(s Space) (string, error) {
	if err := s.Validate(); err != nil {
		return "", err
	}
	return kvPrefix + PresenceBucket(s) + ".*.*", nil
}

// ParsePresenceSubject reads the subject of a presence key. The broker vouches for it: a participant may write its own key
// only. Its error has code bad-request and ReasonSubject.
func ParsePresenceSubject(subject string) (Space, Principal, error) {
	rest, ok := strings.CutPrefix(subject, kvPrefix+presenceBucket)
	space, key, dot := strings.Cut(rest, ".")
	s, spaceErr := ParseSpace(space)
	p, keyErr := ParsePrincipal(key)
	if !ok || !dot || spaceErr != nil || keyErr != nil || !p.OwnerKnown() {
		return "", Principal{}, malformed(ReasonSubject, "parse presence subject %q: not a presence key", clip(subject))
	}
	return s, p, nil
}

// InboxPrefix returns the inbox prefix of a credential with this inbox tag, as a client sets it on its connection.
func InboxPrefix(inbox string) string { return "_INBOX_" + inbox }
