package wire

// Commands of the delivery endpoint about membership of channels. They concern the caller alone: whom the request subject
// names is whose memberships, positions and rights count.
const (
	CommandJoin        = "join"
	CommandLeave       = "leave"
	CommandMemberships = "memberships"
	CommandPull        = "pull"
	CommandAck         = "ack"
)

// TopicMembership is the topic of the membership feed among delivery's events.
const TopicMembership = "membership"

// Bounds of one request about memberships.
const (
	// MaxMemberships is the most patterns one lifecycle is a durable member of at a time.
	MaxMemberships = 512
	// MaxMembershipBytes bounds what their records take together: the pattern of each and 32 bytes for each of its intervals,
	// and at most some 500 for names and the broker's own.
	MaxMembershipBytes = 256 << 10
	// MaxPullPage is the largest PullRequest.Limit and the default.
	MaxPullPage = 5000
	// MaxHandledRanges is the most ranges of AckRequest.Handled.
	MaxHandledRanges = 256
	// MaxMembershipsPage is the largest MembershipsRequest.Limit and the default.
	MaxMembershipsPage = 1000
)

// SequenceRange is the stream sequences From to To, both included.
type SequenceRange struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// JoinRequest makes the caller a durable member of the channels of a pattern, from now on, as far as their delivery class
// is durable. Joining again while the membership is open changes nothing and returns it.
//
// A client subscribes to the live copies first and joins then, so that nothing falls between. Errors: permission-denied
// when the caller's read list does not cover the pattern, with the details of HistoryRequest; resource-exhausted
// beyond MaxMemberships or MaxMembershipBytes, when something waits in 64 intervals of the membership that were left, and when
// the store of memberships or positions is full.
type JoinRequest struct {
	// Pattern is a channel or a pattern of channels.
	Pattern string `json:"pattern"`
}

// JoinReply is the membership as it stands.
type JoinReply struct {
	Pattern string `json:"pattern"`
	// Class is the delivery class of a concrete channel. For a pattern it is "durable" when the space's
	// default or any configured channel that it matches is, else "live".
	Class string `json:"class"`
	// Durable says that there is a membership record: what is posted after Joined to durable channels of the pattern
	// is kept for the caller until handled. False when the class is live.
	Durable bool `json:"durable"`
	// Resumed says that the membership was open already.
	Resumed bool `json:"resumed,omitempty"`
	// Generation numbers the joins of this lifecycle and pattern; 0 when not Durable.
	Generation uint64 `json:"generation,omitempty"`
	// Joined is the join cursor: the interval begins after this sequence of the channel stream.
	Joined uint64 `json:"joined"`
	// Frontier is the last sequence of the channel stream when the request was served.
	Frontier uint64 `json:"frontier"`
	// Floor and Handled are the caller's position: everything up to Floor is handled or none of its own, and of what
	// is above it the ranges of Handled. A Floor below Joined of a membership that is not Resumed means that something
	// of an earlier interval is waiting still.
	Floor   uint64          `json:"floor,omitempty"`
	Handled []SequenceRange `json:"handled,omitempty"`
	// Earlier are the parts above Floor of the intervals before this one, ascending: what is unhandled in them is pulled, so that
	// whoever reads the channel's history up to Joined leaves them out.
	Earlier []SequenceRange `json:"earlier,omitempty"`
}

// LeaveRequest ends a membership: its interval is closed at the present frontier. What is inside and was not handled is
// still given out, unless Discard is set.
//
// Errors: not-found when the caller is no member; conflict when Generation is given and is not the open one.
type LeaveRequest struct {
	Pattern string `json:"pattern"`
	// Generation, when not 0, must be that of the open membership: a late leave of an earlier process must not end
	// the membership of a later one.
	Generation uint64 `json:"generation,omitempty"`
	// Discard gives up what was not handled.
	Discard bool `json:"discard,omitempty"`
}

// LeaveReply is the closed interval.
type LeaveReply struct {
	Pattern string `json:"pattern"`
	// Left is the leave cursor: the interval ends with this sequence.
	Left uint64 `json:"left"`
}

// PullRequest asks for what the caller has not handled: of one membership, or with Mentions set of the messages that
// mention it. It moves nothing; AckRequest does.
//
// Errors: not-found when there is no membership of the pattern; permission-denied when the read list covers nothing of
// it any more.
type PullRequest struct {
	// Pattern is that of the membership; empty with Mentions.
	Pattern  string `json:"pattern,omitempty"`
	Mentions bool   `json:"mentions,omitempty"`
	// After skips what the caller has in hand already: only later messages are returned. It is PullReply.Next for
	// the next page. What lies at or below the recorded floor is never returned.
	After uint64 `json:"after,omitempty"`
	// Limit bounds the messages of the page; 0 means MaxPullPage. The page may be shorter, see MaxPage.
	Limit int `json:"limit,omitempty"`
}

// PullReply is one page of unhandled messages in stored order, at most MaxPage bytes of JSON. Every message was checked
// against the caller's read list and interval when the page was made. A page may be empty although there is a Next.
type PullReply struct {
	Pattern    string `json:"pattern,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	// Messages are unhandled ones. With Mentions their Sequence is that of the pointer.
	Messages []PulledMessage `json:"messages"`
	// Next is the After of the next page; 0 when this page reached the end.
	Next uint64 `json:"next,omitempty"`
	// Through says that the pages up to this one hold everything of the membership up to this sequence: once the
	// messages are handled the caller may report it as its floor.
	Through uint64 `json:"through"`
	// Remaining estimates how many stored messages followed this page.
	Remaining uint64 `json:"remaining,omitempty"`
	// Losses are the parts of the interval whose messages the stream no longer has. They are repeated until
	// the floor is beyond them.
	Losses []Loss `json:"losses,omitempty"`
	// Withheld counts messages that were left out because the read list no longer covers their channel, Skipped
	// those that do not keep to the contract.
	Withheld int `json:"withheld,omitempty"`
	Skipped  int `json:"skipped,omitempty"`
	// Ended says that the membership was left and Through reached its leave cursor.
	Ended bool `json:"ended,omitempty"`
}

// PulledMessage is one unhandled message.
type PulledMessage struct {
	HistoryMessage
	Channel string `json:"channel"`
	// Stored is the sequence of the message in the channel stream when Sequence is that of a pointer to it.
	Stored uint64 `json:"stored,omitempty"`
}

// Values of Loss.Reason.
const (
	// LossRetention: the stream dropped its oldest messages for age or room.
	LossRetention = "retention"
	// LossCleared: an operator cleared the channel.
	LossCleared = "cleared"
)

// Loss is a part of an interval that can no longer be read. With LossRetention the range bounds where messages may have
// been lost: other channels' messages share it. Of mentions it has Channel and Count when the messages are gone, with the range
// that they were in; without Channel the range is one of pointers.
type Loss struct {
	SequenceRange
	Reason string `json:"reason"`
	// Channel and Count are known for LossCleared. AtMost says that Count bounds how many were lost.
	Channel string `json:"channel,omitempty"`
	Count   uint64 `json:"count,omitempty"`
	AtMost  bool   `json:"atMost,omitempty"`
}

// AckRequest reports what the caller has handled, of one membership or of its mentions. Positions only move forward; what
// is reported twice counts once.
//
// Errors: not-found when there is no such membership; conflict when Generation is not one of it;
// failed-precondition for a position beyond the end of the stream; bad-request for ranges that are out of order,
// overlap, or lie at or below Floor.
type AckRequest struct {
	Pattern  string `json:"pattern,omitempty"`
	Mentions bool   `json:"mentions,omitempty"`
	// Generation is that of the join or pull the positions come from; ignored with Mentions.
	Generation uint64 `json:"generation,omitempty"`
	// Floor says that everything up to it is handled.
	Floor uint64 `json:"floor"`
	// Handled are ranges above Floor that are handled too, ascending, not overlapping; at most MaxHandledRanges.
	Handled []SequenceRange `json:"handled,omitempty"`
}

// AckReply is the recorded position.
type AckReply struct {
	Floor uint64 `json:"floor"`
	// Ended says that the membership was left and everything in it is handled: it exists no more.
	Ended bool `json:"ended,omitempty"`
}

// MembershipsRequest lists who is a member of what, of the patterns that the caller's read list covers, and all of its
// own. It is for display: live memberships are as the broker's connections showed them a moment ago.
type MembershipsRequest struct {
	// Principal (dot form) and Channel narrow the list; empty means all.
	Principal string `json:"principal,omitempty"`
	Channel   string `json:"channel,omitempty"`
	// After continues after this principal; empty starts. It is MembershipsReply.Next.
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
}

// MembershipsReply is one page, sorted by principal.
type MembershipsReply struct {
	Members []MemberInfo `json:"members"`
	Next    string       `json:"next,omitempty"`
	// LiveAt is when the live part was observed, epoch milliseconds; 0 when it is not known.
	LiveAt int64 `json:"liveAt,omitempty"`
}

// MemberInfo is what one life of a principal is a member of.
type MemberInfo struct {
	Principal string `json:"principal"`
	UID       UID    `json:"uid"`
	// Live are the patterns it subscribes to at the moment, as granted, wildcards kept.
	Live []string `json:"live,omitempty"`
	// Durable are its membership records.
	Durable []DurableMembership `json:"durable,omitempty"`
}

// DurableMembership is one membership record.
type DurableMembership struct {
	Pattern    string `json:"pattern"`
	Generation uint64 `json:"generation"`
	// Joined and Left are the cursors of the last interval; Left is 0 while it is open.
	Joined uint64 `json:"joined"`
	Left   uint64 `json:"left,omitempty"`
	// Floor is the member's recorded position.
	Floor uint64 `json:"floor,omitempty"`
}

// MembershipEvent is one message of the membership feed, with kinds and numbers as in RosterEvent. There is one record per
// principal, of its present life; a change carries all of it but the recorded positions. To follow, subscribe, then ask
// for the pages of MembershipsReply, then apply every change; after a hole in the numbers of one instance and epoch, ask again.
type MembershipEvent struct {
	Kind     string `json:"kind"`
	Sequence uint64 `json:"sequence"`
	// Member is set on RosterChange, Principal on RosterRemove.
	Member    *MemberInfo `json:"member,omitempty"`
	Principal string      `json:"principal,omitempty"`
	// StaleSince, on RosterAlive, is set when delivery could not see the memberships since then, epoch milliseconds.
	StaleSince int64 `json:"staleSince,omitempty"`
}
