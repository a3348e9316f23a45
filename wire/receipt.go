package wire

// Commands of the delivery endpoint about the fate of messages.
const (
	CommandReceipt = "receipt"
	CommandReach   = "reach"
	CommandInbox   = "inbox"
	CommandTrace   = "trace"
)

// TopicReceipt is the topic of notices to a sender, followed by its owner and actor, among delivery's events.
const TopicReceipt = "receipt"

// MaxInboxPage is the largest InboxRequest.Limit and the default.
const MaxInboxPage = 500

// Stage is how far a message has come on its way to one recipient.
type Stage string

// The stages, in order. A message that cannot be handled ends in StageDead instead.
const (
	// StageAccepted: the sender's own client has it, the broker has not confirmed it. Only a client says so.
	StageAccepted Stage = "accepted"
	// StageStored: the broker has it.
	StageStored Stage = "stored"
	// StageHanded: it was handed to the recipient's client, which has not said that it is handled.
	StageHanded Stage = "handed-over"
	// StageHandled: the recipient's client said that it is handled.
	StageHandled Stage = "handled"
	// StageAnswered: a message that names it in replyTo came back.
	StageAnswered Stage = "answered"
	// StageDead: it is not handed over any more; an operator can requeue or drop it.
	StageDead Stage = "dead"
	// StageGone: nothing more than what is said can be known, and nothing more happens to it: a job that was done or dropped, a
	// message beyond retention, or one to a life that was revoked, of which the broker forgets what it had handled.
	StageGone Stage = "gone"
)

// ReceiptRequest asks what became of a message that the caller sent or received. For everybody else, and for what never
// existed, it is not-found. TraceRequest is the same for operators, of any message.
type ReceiptRequest struct {
	// ID is the message's id.
	ID string `json:"id"`
	// Kind is "channel", "direct" or "role", and Sequence its place in that stream, when they are known: without them
	// the caller's messages around the time that the id names are searched.
	Kind     string `json:"kind,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	// Since is the earliest time to search, epoch milliseconds, for an id that names no time.
	Since int64 `json:"since,omitempty"`
	// Role is the role that the message was sent to. Finished work is no longer stored, and only the answer of one who
	// holds that role counts as its answer.
	Role string `json:"role,omitempty"`
}

// TraceRequest is a ReceiptRequest without regard to sender and recipient.
type TraceRequest = ReceiptRequest

// ReceiptReply is the fate of one message.
type ReceiptReply struct {
	ID string `json:"id"`
	// Kind is "channel", "direct" or "role"; one of Channel, To and Role is set.
	Kind     string `json:"kind"`
	Sender   string `json:"sender"`
	Channel  string `json:"channel,omitempty"`
	To       string `json:"to,omitempty"`
	Role     string `json:"role,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	StoredMS int64  `json:"storedMs,omitempty"`
	// Size is that of the message's body in bytes.
	Size int `json:"size,omitempty"`
	// Stage is the least advanced one of the recipients, StageStored when there is none.
	Stage Stage `json:"stage"`
	// Recipients are the addressee, the role, or the channel's durable members and the mentioned, without the sender. Members whose
	// membership the caller may not see are counted in Hidden, and so is everybody beyond 500.
	Recipients []RecipientReceipt `json:"recipients"`
	Hidden     int                `json:"hidden,omitempty"`
}

// RecipientReceipt is how far a message has come with one recipient.
type RecipientReceipt struct {
	// Principal (dot form), or for role work the role in Role.
	Principal string `json:"principal,omitempty"`
	Role      string `json:"role,omitempty"`
	Stage     Stage  `json:"stage"`
	// Reason says why a message is dead, gone or waits: "left", "expired", "offline", "nobody holds the role", or what
	// the recipient's client said.
	Reason string `json:"reason,omitempty"`
	// Attempts is how often it was handed over, when known.
	Attempts int `json:"attempts,omitempty"`
	// Answer is the id of the first answer.
	Answer string `json:"answer,omitempty"`
}

// ReceiptEvent tells a sender, without being asked, that a message of its is dead.
type ReceiptEvent struct {
	ID        string           `json:"id"`
	Kind      string           `json:"kind"`
	Sequence  uint64           `json:"sequence"`
	Recipient RecipientReceipt `json:"recipient"`
}

// ReachRequest asks what would become of a message to one of To, Role and Channel, before or after it is sent.
type ReachRequest struct {
	// To is a principal in dot form.
	To      string `json:"to,omitempty"`
	Role    string `json:"role,omitempty"`
	Channel string `json:"channel,omitempty"`
	// Mentions are names as a message to Channel would carry them, at most [MaxMentioned].
	Mentions []string `json:"mentions,omitempty"`
}

// Values of ReachReply.Tier and MentionReach.Tier.
const (
	// ReachLive: somebody is there and is given it at once.
	ReachLive = "live"
	// ReachStored: it is kept, and read when the recipient comes back.
	ReachStored = "stored"
	// ReachNobody: there is no such recipient; a message would wait for nobody.
	ReachNobody = "nobody"
)

// ReachReply says who would get a message now.
type ReachReply struct {
	Tier string `json:"tier"`
	// Reason is for people: why it is not live.
	Reason string `json:"reason,omitempty"`
	// Live counts who is there: of a principal 0 or 1, the holders of a role, the connected members of a channel.
	Live int `json:"live"`
	// Stored counts who gets it later: of a channel its durable members that are away.
	Stored int `json:"stored,omitempty"`
	// Waiting is how many messages wait for that principal or role already.
	Waiting uint64 `json:"waiting,omitempty"`
	// StaleSince is as in RosterReply.
	StaleSince int64 `json:"staleSince,omitempty"`
	// Mentions are the names that were asked about, in that order.
	Mentions []MentionReach `json:"mentions,omitempty"`
}

// Values of MentionReach.Reason. The first four go with ReachNobody, the others with ReachStored.
const (
	// MentionUnknown: nobody is called so.
	MentionUnknown = "unknown"
	// MentionAmbiguous: several are called so, and none is meant. A principal in dot form means one.
	MentionAmbiguous = "ambiguous"
	// MentionUnread: it may not read the channel.
	MentionUnread = "may not read"
	// MentionSelf: it is who asked. Nobody is told of its own mention.
	MentionSelf = "self"
	// MentionOffline: it is not there, and is told when it comes back.
	MentionOffline = "offline"
	// MentionUnsure: whether it is there is not known at the moment.
	MentionUnsure = "unsure"
)

// MentionReach says whom a mention means and whether it is told.
type MentionReach struct {
	Name string `json:"name"`
	// Principal (dot form) is set when the name means one.
	Principal string `json:"principal,omitempty"`
	Tier      string `json:"tier"`
	// Reason says why it is not live.
	Reason string `json:"reason,omitempty"`
}

// InboxRequest lists the direct messages that wait for a principal. Operators only; a participant reads its own queue.
type InboxRequest struct {
	Principal string `json:"principal"`
	After     uint64 `json:"after,omitempty"`
	Limit     int    `json:"limit,omitempty"`
}

// InboxReply is one page of a principal's waiting messages, without their bodies.
type InboxReply struct {
	Principal string `json:"principal"`
	UID       UID    `json:"uid"`
	// Waiting counts the messages that were not handed over, Held those that were and are not handled.
	Waiting  uint64         `json:"waiting"`
	Held     uint64         `json:"held"`
	Messages []InboxMessage `json:"messages"`
	Next     uint64         `json:"next,omitempty"`
}

// InboxMessage is one waiting message.
type InboxMessage struct {
	Sequence uint64 `json:"sequence"`
	ID       string `json:"id"`
	Sender   string `json:"sender"`
	Size     int    `json:"size"`
	TimeMS   int64  `json:"timeMs"`
	Stage    Stage  `json:"stage"`
}

// HeaderRequeued is set on a message that an operator put back into its queue; its value is the sequence that it had. A
// receiver shows such a message although it has shown the id before.
const HeaderRequeued = "Cotal-Requeued"
