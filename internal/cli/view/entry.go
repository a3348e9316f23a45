package view

import (
	"strings"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

// Kinds of an entry.
const (
	KindChannel = "channel"
	KindDirect  = "direct"
	KindRole    = "role"
)

// Claim is a received message as JSON: unlike a message that is to be sent, it may lack an id.
type Claim wire.Message

// Entry is one message as the commands print it with --json: who sent it and where it is stored is vouched for by the
// broker, everything in Message is the sender's claim.
type Entry struct {
	command.V
	Kind     string    `json:"kind"` // channel, direct, role
	Sender   string    `json:"sender"`
	Channel  string    `json:"channel,omitempty"`
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
	Message  *Claim    `json:"message"`
	// Missed says that it was posted while its reader was away; Mentioned that it is shown because it names its reader.
	Missed    bool `json:"missed,omitempty"`
	Mentioned bool `json:"mentioned,omitempty"`
}

// Text writes the entry for a person: one line, and the further lines of its text indented under it, so that no
// content can look like the line of another sender.
func (en Entry) Text(p *command.Printer) {
	where := "#" + en.Channel
	switch en.Kind {
	case KindDirect:
		where = "(direct)"
	case KindRole:
		where = "(role " + command.Safe(en.Message.ToService) + ")"
	}
	if en.Missed {
		where = "missed " + where
	}
	p.Line("%s %s %s: %s", p.Dim(stamp(en.Time, time.Now())), where, p.Bold(command.Safe(Speaker(en.Sender, en.Message))), command.SafeBody(Content(en.Message), "  │ "))
}

// stamp is a time as a person reads it: with its date unless it is today's.
func stamp(at, now time.Time) string {
	at, now = at.Local(), now.Local()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}

// Speaker is the sender as the broker vouches for it; a display name that differs is added as a claim.
func Speaker(sender string, m *Claim) string {
	actor := sender[strings.LastIndexByte(sender, '.')+1:]
	if m.From.Name != "" && m.From.Name != actor {
		return sender + " (" + m.From.Name + ")"
	}
	return sender
}

// Content is the text of a message, with a note for each part that is not text.
func Content(m *Claim) string {
	var lines []string
	for _, part := range m.Parts {
		switch {
		case part.Kind == wire.PartText:
			lines = append(lines, part.Text)
		case part.Kind == wire.PartData:
			lines = append(lines, "[data] "+string(part.Data))
		case part.Artifact != nil:
			lines = append(lines, "[artifact] "+part.Artifact.Name+" "+part.Artifact.MediaType+" "+part.Artifact.Digest)
		default:
			lines = append(lines, "["+part.Kind+"]")
		}
	}
	return strings.Join(lines, "\n")
}

// EntryOf describes a received message.
func EntryOf(d *endpoint.Delivery) Entry {
	en := Entry{V: command.V1, Kind: KindChannel, Sender: d.Sender.String(), Channel: d.Channel, Sequence: d.Sequence,
		Time: d.Time.UTC().Truncate(time.Millisecond), Message: (*Claim)(d.Message), Mentioned: d.Mentioned}
	switch d.Kind {
	case wire.KindDirect:
		en.Kind = KindDirect
	case wire.KindRole:
		en.Kind = KindRole
	}
	return en
}
