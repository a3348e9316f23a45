// Package delivery is the trusted reader of a space. Agents hold no verb that reads a stream or a bucket; what they
// need is served here, to what their grant allows at that moment: who is there, which channels there are, and what
// was said on the channels they may read.
//
// Start one for each space:
//
//	d := delivery.New(nc, "main", &delivery.Options{Logger: log})
//	go d.Run(ctx)
//	<-d.Ready()
//
// # Commands
//
// The endpoint is wire.DeliveryEndpoint; arguments and results are the types of package wire.
//
//   - roster: a page of who is there, and the position of the feed it was taken at.
//   - channels: the channels that are configured, and those that hold messages the caller may read; numbers of messages
//     only for the latter.
//   - channel-set: writes or removes a channel's settings. Nobody is checked here: the broker lets only operators, and
//     who was granted this command, publish the request.
//   - history: stored messages of one channel, by pages.
//   - join, leave: begin and end durable memberships; memberships lists them, for display.
//   - pull: what a member has not handled, by pages, and what of its interval can no longer be read; ack: the positions
//     that it reports. With mentions, the same of the messages that mention it.
//   - receipt: what became of a message that the caller sent, received or may read; trace, for operators: of any message.
//   - reach: who would get a message to a principal, role or channel now; inbox, for operators: what waits for a
//     principal, without the bodies.
//   - enrol: in open mode only.
//
// # Members
//
// Nothing is written per member and message. A membership is a record of intervals of the channel stream, a position is a
// record of what of them is handled, and both are compared and swapped, so that it does not matter which instance
// answers. A pull reads the stream from the position on. A life of a principal reaches its own records alone, and only
// with a grant that stands; each message is checked against the read list and the settings of its channel as they are at
// that moment. What is given out stays unhandled until the member says otherwise, so it may be given out again, and what
// the stream lost of an interval is said, with its range, until the position is beyond it.
//
// # Roster feed
//
// Presence records are followed by a plain subscription, and changes alone are published, numbered without holes; a
// heartbeat that says nothing new costs a watcher nothing. Nobody is called offline on silence alone: the broker must
// have answered after the silence, and the presence bucket, whose records live one liveness window, must not have the
// record. While the broker does not answer, snapshots say since when they are stale.
//
// With [Options.Broker], whose last connection ended is offline within the second: a notice of the broker triggers one listing
// of the connections, which decides (ADR 0015). Notices that were missed, or a listing that fails, call nobody offline.
//
// # Membership feed
//
// Who subscribes to what, read from the broker's connections, and who is a member of what, read from the records, is
// published as changes, numbered like the roster's; it is read only while somebody wants to know.
//
// # Mentions
//
// Every channel message is heard, by its live copy or else by reading it, in order and from where the instances together came
// last. Whom it names gets a pointer: the principal that a mention spells, or the only holder of an actor's name among the active
// grants as they are then, if it may read the channel and does not get the message as a durable member. A pointer that
// cannot be stored is tried again, and what comes after waits: health says so. Of one sender a bounded number of mentions counts
// in a minute, so that nobody holds up those of others. A message that names nobody costs nothing beyond hearing it.
//
// # Receipts
//
// Nothing is written per message here either: how far it came is read from the queue that it is in, from the broker's
// notes of dead letters, from the positions of members, and from the answers that name it. A receipt claims no more than
// those prove. Of direct messages that were settled out of order the broker tells only where all before were: until then
// they count as handed over. Role work leaves its queue when it is finished: then only an answer shows that it was, and
// without one it is gone. What an earlier life of a name sent and got is not for a later one. Whoever may not know of a
// message is told the same as about one that never was. A search for an id looks at a bounded number of messages, and
// says so when that was not all.
//
// A sender is also told when a message of its is dead, once and as it happens; what breaks the contract is not
// worth a notice.
//
// # What it promises
//
// A read returns only messages of the channel that was asked for, on a subject that names a sender the contract knows,
// whose body says the same sender; anything else that got into a stream is skipped. Whether the caller may read is
// decided by its grant, read from the leader for each request: an ended, narrowed or reissued grant counts at once. A
// grant that is missing, ended, expired or of another life of the name permits nothing. No request makes a consumer.
// Memory of a request is bounded by a page.
//
// # What it does not
//
// It keeps no state of its own: everything is in the broker, so several may serve one space, each with a feed of its
// own. It writes nothing but channel settings, memberships, positions and pointers to mentions.
//
// # Concurrency
//
// Commands run concurrently, bounded by package control. The roster is guarded by one mutex, next to it; one goroutine
// changes it and publishes.
package delivery
