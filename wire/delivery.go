package wire

import "encoding/json"

// DeliveryEndpoint is the reserved name of the endpoint that reads a space's streams for everyone
// else: agents hold no verb that reads a stream, they ask here.
const DeliveryEndpoint = "delivery"

// Commands of the delivery endpoint. All of them are called with ModeNone on the "one" rail: the
// caller named by the request subject is the one whose rights count.
const (
	CommandRoster     = "roster"
	CommandChannels   = "channels"
	CommandChannelSet = "channel-set"
	CommandHistory    = "history"
	CommandEnrol      = "enrol"
)

// TopicRoster is the topic of the roster feed among delivery's events.
const TopicRoster = "roster"

// Bounds of one delivery request. A request above one of them is a bad-request that names it.
const (
	// MaxRosterPage is the largest RosterRequest.Limit and the default.
	MaxRosterPage = 1000
	// MaxChannelsPage is the largest ChannelsRequest.Limit and the default.
	MaxChannelsPage = 1000
	// MaxHistoryPage is the largest HistoryRequest.Limit and the default.
	MaxHistoryPage = 5000
	// MaxHistoryLast is the largest HistoryRequest.Last.
	MaxHistoryLast = 1_000_000
)

// Values of RosterEntry.Gone.
const (
	// GoneLeft: the principal published its own offline record.
	GoneLeft = "left"
	// GoneSilent: no heartbeat was stored for longer than LivenessWindow.
	GoneSilent = "silent"
	// GoneDisconnected: the broker said that its last connection ended.
	GoneDisconnected = "disconnected"
)

// Values of RosterEvent.Kind.
const (
	// RosterChange carries the full new state of one principal.
	RosterChange = "change"
	// RosterRemove says that a principal that was offline for long is no longer listed.
	RosterRemove = "remove"
	// RosterAlive changes nothing: it comes every few seconds, however many members there are, so that
	// a watcher that hears nothing for longer than LivenessWindow knows its view is stale, and one that
	// lost the last event before a quiet time sees it from Sequence.
	RosterAlive = "alive"
	// RosterEnd is the last event of an instance that stops: ask again at once, another one answers.
	RosterEnd = "end"
)

// RosterRequest asks for one page of the roster.
type RosterRequest struct {
	// After continues after this principal (dot form); empty starts. It is RosterReply.Next.
	After string `json:"after,omitempty"`
	// Limit bounds the entries of the page; 0 means MaxRosterPage. The page may be shorter, see MaxPage.
	Limit int `json:"limit,omitempty"`
}

// RosterReply is one page of the roster and the position of the feed at which it was taken.
//
// To follow the roster without a gap: subscribe to the feed, then ask for the pages, then apply each
// event of the same Instance and Epoch whose Sequence is greater than that of the entry it names (for
// a principal without an entry: greater than the Sequence of the first page). The sequence of changes
// has no holes; after a hole, after an event of another Epoch of that Instance, or after LivenessWindow
// without any event, ask again.
type RosterReply struct {
	// Instance and Epoch name the feed the Sequence belongs to; they are tokens of the event subject.
	Instance string `json:"instance"`
	Epoch    string `json:"epoch"`
	// Sequence is the number of the last change in this page's state.
	Sequence uint64 `json:"sequence"`
	// StaleSince, in epoch milliseconds, is set when delivery itself has not heard the broker for longer
	// than LivenessWindow: the entries are as of then and nobody was called offline since.
	StaleSince int64 `json:"staleSince,omitempty"`
	// Entries are sorted by principal.
	Entries []RosterEntry `json:"entries"`
	// Next is the value of After for the next page; empty on the last one.
	Next string `json:"next,omitempty"`
	// Total counts the entries of all pages when this one was taken.
	Total int `json:"total"`
}

// RosterEntry is the last known state of one principal.
type RosterEntry struct {
	// Principal, in dot form, is vouched for by the broker: only its holder may write its presence.
	Principal string `json:"principal"`
	// Presence is the principal's own claim, but for Status, which is offline once Gone is set. Its TS
	// is that of the record that brought the last change, not that of the last heartbeat.
	Presence Presence `json:"presence"`
	// Gone says why an offline principal is: GoneLeft, GoneSilent or GoneDisconnected; empty otherwise.
	Gone string `json:"gone,omitempty"`
	// GoneMS is when delivery learned that it went, epoch milliseconds by delivery's clock; set with Gone.
	GoneMS int64 `json:"goneMs,omitempty"`
	// SeenMS is when delivery last heard a heartbeat, epoch milliseconds by delivery's clock. In an event
	// it is the time of the heartbeat that caused it.
	SeenMS int64 `json:"seenMs"`
	// Sequence is the number of the change that made this state.
	Sequence uint64 `json:"sequence"`
}

// RosterEvent is one message of the roster feed. Heartbeats that change nothing cause none.
type RosterEvent struct {
	// Kind is RosterChange, RosterRemove, RosterAlive or RosterEnd; ignore others.
	Kind string `json:"kind"`
	// Sequence numbers changes and removals from 1 without holes within one Instance and Epoch (both in
	// the event's subject). On RosterAlive and RosterEnd it is the number of the last one.
	Sequence uint64 `json:"sequence"`
	// Entry is set on RosterChange.
	Entry *RosterEntry `json:"entry,omitempty"`
	// Principal is set on RosterRemove.
	Principal string `json:"principal,omitempty"`
	// StaleSince is as in RosterReply; it appears on RosterAlive.
	StaleSince int64 `json:"staleSince,omitempty"`
}

// ChannelsRequest asks for one page of the channel list.
type ChannelsRequest struct {
	// After continues after this channel; empty starts. It is ChannelsReply.Next.
	After string `json:"after,omitempty"`
	// Limit bounds the channels of the page; 0 means MaxChannelsPage.
	Limit int `json:"limit,omitempty"`
}

// ChannelsReply lists the channels that are configured, and those that hold messages and lie within
// the caller's read list, sorted by name.
type ChannelsReply struct {
	// Defaults are the space's settings for channels that do not say otherwise.
	Defaults ChannelConfig `json:"defaults"`
	Channels []ChannelInfo `json:"channels"`
	// Next is the value of After for the next page; empty on the last one.
	Next string `json:"next,omitempty"`
	// Partial says that more channels hold messages than are worth listing, so that only configured ones are here.
	Partial bool `json:"partial,omitempty"`
}

// ChannelInfo is one channel with its settings as written and as resolved.
type ChannelInfo struct {
	Channel string `json:"channel"`
	// Config is the channel's own record; absent when it has none.
	Config *ChannelConfig `json:"config,omitempty"`
	// Revision is the record's revision, for ChannelSetRequest.Revision; 0 when there is none.
	Revision uint64 `json:"revision"`
	// Replay, ReplayWindowMS (0: no bound) and DeliveryClass are what applies: record, else defaults, else
	// the contract's own.
	Replay         bool   `json:"replay"`
	ReplayWindowMS int64  `json:"replayWindowMs,omitempty"`
	DeliveryClass  string `json:"deliveryClass"`
	// Readable and Writable say what the caller's grant allows now.
	Readable bool `json:"readable"`
	Writable bool `json:"writable"`
	// Messages is the number of stored messages; absent on a channel the caller may not read.
	Messages *uint64 `json:"messages,omitempty"`
}

// ChannelSetRequest writes or removes a channel's record. It takes the operator profile or a grant of
// this command.
type ChannelSetRequest struct {
	// Channel is a concrete channel, or DefaultsKey for the space's defaults.
	Channel string `json:"channel"`
	// Config replaces the record; absent removes it. The defaults cannot be removed, and theirs must name
	// a delivery class.
	Config *ChannelConfig `json:"config,omitempty"`
	// Revision, when present, must be the record's current revision (0: there is none), else conflict.
	Revision *uint64 `json:"revision,omitempty"`
}

// ChannelSetReply is the record after the change.
type ChannelSetReply struct {
	Channel string `json:"channel"`
	// Revision is the record's new revision; 0 after a removal.
	Revision uint64 `json:"revision"`
	// Replay, ReplayWindowMS and DeliveryClass are what applies from now on, as in ChannelInfo.
	Replay         bool   `json:"replay"`
	ReplayWindowMS int64  `json:"replayWindowMs,omitempty"`
	DeliveryClass  string `json:"deliveryClass"`
}

// HistoryRequest asks for stored messages of one channel in stored order. At most one of From, Since
// and Last is set; none means from the oldest one kept. The channel must lie within the read list the
// caller's grant has at that moment; otherwise permission-denied with the details "subject",
// "principal", "missing" (the grant) and "ask" (how to get it).
type HistoryRequest struct {
	// Channel is concrete; patterns are refused.
	Channel string `json:"channel"`
	// From is the first stream sequence to return.
	From uint64 `json:"from,omitempty"`
	// Since is the earliest stored time to return, epoch milliseconds by the broker's clock.
	Since int64 `json:"since,omitempty"`
	// Last starts this many stored messages before the end.
	Last int `json:"last,omitempty"`
	// Until is the last stream sequence to return; 0 means no bound.
	Until uint64 `json:"until,omitempty"`
	// Limit bounds the messages of one page; 0 means MaxHistoryPage. The page may be shorter, see MaxPage.
	Limit int `json:"limit,omitempty"`
	// Replay marks the read as the backlog of a join, to which the channel's replay settings apply:
	// nothing when replay is off, nothing older than the replay window. Those are noise control; a plain
	// read ignores them.
	Replay bool `json:"replay,omitempty"`
}

// HistoryReply is one page of history, at most MaxPage bytes of JSON. A page may be empty although there is a Next.
type HistoryReply struct {
	Channel  string           `json:"channel"`
	Messages []HistoryMessage `json:"messages"`
	// Next is the value of From for the next page; 0 when this page reached the end (or Until).
	Next uint64 `json:"next,omitempty"`
	// Remaining is how many stored messages of the channel, Until not considered, followed this page when
	// it was read.
	Remaining uint64 `json:"remaining"`
	// Skipped counts stored messages left out of this page because they do not keep to the contract.
	Skipped int `json:"skipped,omitempty"`
}

// HistoryMessage is one stored message.
type HistoryMessage struct {
	// Sequence is its stream sequence, the same that its live copy carried.
	Sequence uint64 `json:"sequence"`
	// TimeMS is when the broker stored it, epoch milliseconds by the broker's clock.
	TimeMS int64 `json:"timeMs"`
	// Sender is the principal (dot form) the broker let publish it; delivery checked that the message's
	// from.id says the same.
	Sender string `json:"sender"`
	// Message is the message as it was sent: decode it with DecodeMessage.
	Message json.RawMessage `json:"message"`
}

// EnrolRequest asks an open space for what the authority provides in others: the caller's durable
// queues and a grant that allows every channel. Elsewhere the command is unimplemented.
type EnrolRequest struct {
	// Role is the caller's role; empty for none.
	Role string `json:"role,omitempty"`
}

// EnrolReply confirms an enrolment. Asking again with the same lifecycle changes nothing.
type EnrolReply struct {
	Principal string `json:"principal"`
	UID       UID    `json:"uid"`
	// Queues names the durables that now exist for the caller: its direct messages and, with a role, the
	// role's.
	Queues []string `json:"queues"`
}

// BrokerHeader returns the value that the broker gave a header of a stored or republished message, "" when it gave
// none. The broker appends its headers (Nats-Subject, Nats-Sequence, Nats-Last-Sequence and their like) after those of
// the publisher without removing any, so of several values only the last is the broker's: the first, which a plain Get
// returns, is whatever the publisher wrote. That holds of a header block that was read to its end: a publisher can end it
// early and so hide what the broker appended.
func BrokerHeader(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}
