// Package space keeps the broker objects of a space: its streams, its buckets and the durable consumers of its
// members, the records that live in buckets and are read by several services (grants, channel settings, memberships and
// positions), and the dead letters of its queues.
//
// Make sure of a space with [Ensure]; ask what differs with [Verify]; end it with [Remove]:
//
//	if err := space.Ensure(ctx, js, "main", nil); err != nil { … }
//
// Ensure promises: run again after a crash at any point it completes the same space; caps and ages are brought to
// what the options say; any other difference is refused as [ErrDrift] with the difference spelled out and nothing
// changed, because a stream with other retention or without its republish would lose or leak messages quietly.
// A creation that meets a limit of the account or the broker is a resource-exhausted error that names what is used
// and allowed, and takes back what the same call created.
//
// A space that the build before made is brought to the present [Schema] in place, its queues by [RestoreQueues] or when their
// holder is issued for again; no message and no position is touched. [Requeue], [DropDeadLetter] and [ClearHistory] are
// finished by the next call when one is interrupted.
//
// What it does not do: it does not set account limits (that is trust), does not choose when the broker syncs to
// disk (that is a broker setting), and does not decide who may read what.
//
// Streams allow no roll-up and, but for the authority bucket, no per-message lifetime: both are headers that any
// publisher could set, and a roll-up header on one's own presence key would purge everybody's.
//
// Everything is safe for concurrent use. The caller's credential bounds what works: provisioning needs the stream
// verbs of these streams, reading needs direct get, grants need leader reads (STREAM.MSG.GET) of the authority bucket.
package space
