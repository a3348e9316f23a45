package wire

import "strings"

// MentionPointer is what is stored for a mentioned peer: where the message is. It carries nothing of the message, so
// that who may read it is decided when it is read.
type MentionPointer struct {
	V int `json:"v"`
	// Channel and Sequence are where the message is stored, Sender (dot form) is who the broker let post it. A channel with a
	// long name is left out: the message names it, and a sender must not make what is stored for others large.
	Channel  string `json:"channel,omitempty"`
	Sequence uint64 `json:"sequence"`
	Sender   string `json:"sender"`
}

// maxPointerChannel is the longest name of a channel that a pointer carries.
const maxPointerChannel = 128

// NewMentionPointer returns the pointer to a message.
func NewMentionPointer(channel string, sequence uint64, sender Principal) MentionPointer {
	if len(channel) > maxPointerChannel {
		channel = ""
	}
	return MentionPointer{V: 1, Channel: channel, Sequence: sequence, Sender: sender.String()}
}

// To reports whether p may be a pointer to the message with a sequence in a channel.
func (p *MentionPointer) To(channel string, sequence uint64) bool {
	return p.Sequence == sequence && (p.Channel == "" || p.Channel == channel)
}

// MaxMentionsPerMinute is how many mentions of one sender count in a minute, by the time at which its messages were stored.
const MaxMentionsPerMinute = 1000

// MaxMentioned is how many mentions of one message count: the names after the first so many have no effect.
const MaxMentioned = 32

// MentionRecords returns the prefix, with its final dot, of the subjects under which pointers are stored, followed by
// owner, actor and uid of the mentioned. It is out of reach of the broker's replies, see RecordPrefix; the broker
// republishes what is stored there to the "dlv" subjects. It does not validate s.
func MentionRecords(s Space) string { return recordPrefix + MentionStream(s) + "." }

// MentionRecord returns the subject that stores a pointer for one lifecycle. Errors have code bad-request.
func MentionRecord(s Space, to Lifecycle) (string, error) {
	subject, err := MentionSubject(s, to)
	if err != nil {
		return "", err
	}
	return MentionRecords(s) + strings.TrimPrefix(subject, join(s, "dlv")+"."), nil
}

// MentionCopies returns the subjects that the broker republishes pointers to. It does not
// validate s.
func MentionCopies(s Space) string { return join(s, "dlv", ">") }

// DecodeMentionPointer reads a pointer. Errors have code bad-request.
func DecodeMentionPointer(data []byte) (*MentionPointer, error) {
	var p MentionPointer
	if err := Decode(data, &p, 16<<10); err != nil {
		return nil, err
	}
	if p.V != 1 || p.Sequence == 0 {
		return nil, Errorf(CodeBadRequest, "decode mention pointer: version %d, sequence %d", p.V, p.Sequence)
	}
	if p.Channel != "" {
		if err := ValidateChannel(p.Channel); err != nil {
			return nil, err
		}
	}
	if _, err := ParsePrincipal(p.Sender); err != nil {
		return nil, err
	}
	return &p, nil
}
