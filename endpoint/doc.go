// Package endpoint is the client library: one [Endpoint] is one connected participant of a space.
//
// # Start
//
//	ep, err := endpoint.Connect(ctx, "nats://127.0.0.1:4222", endpoint.File("ada.creds"), nil)
//	if err != nil { … }
//	defer ep.Close()
//	m, err := ep.Join(ctx, "team.>", func(d *endpoint.Delivery) { fmt.Println(d.Sender, d.Message.Text()) }, nil)
//	receipt, err := ep.Post(ctx, "team.backend", endpoint.Text("hello"))
//
// Who speaks is what the credential says, never what the program says: a program that names another principal is
// refused before anything is published. Without a credential there is only open mode, which [Options.Open] asks for.
//
// # Promises
//
// A send returns a [Receipt] with the stream sequence the broker stored it under. A send that is refused fails at
// once with a [*wire.Error]; a send that got no answer in time says that its outcome is unknown, and sending again
// with the same Draft.ID stores nothing twice within two minutes.
//
// Messages of durable channels ([Endpoint.Join]) are at-least-once for as long as the membership lasts and the stream keeps
// them: live copies come as they are posted, and what was missed is read from what is stored and shown in stored order,
// before what comes after it. What can no longer be read is reported as an [EventLoss]. In one process none is shown twice;
// after a crash those of the last second may be. So are mentions ([Endpoint.HandleMentions]), joined or not. While delivery
// is away for more than 15 s, live copies are shown all the same, and what was missed after it is back: see [EventBackstop].
//
// Without a membership ([Endpoint.Listen]), and on live channels, messages are at-most-once and ordered per sender and
// channel; what was missed is reported as an [EventGap] with the range of sequences when the next one arrives, and
// [Endpoint.History] reads it. Direct and role messages ([Endpoint.HandleDirect], [Endpoint.HandleRole]) are at-least-once: they come again until they are
// acknowledged. A message that this endpoint settled is not shown again when the broker repeats it.
//
// Every received message has been checked: its subject parses and names this endpoint where it must, its payload is
// well formed and names the sender that the broker let publish it. What fails is dropped with an [EventDropped];
// nothing is believed because of the subscription it arrived on.
//
// The endpoint reconnects for ever, with growing pauses, also after the broker refused its credential, and never
// presents an expired one. At three quarters of a credential's life it fetches the next, proves it on a second
// connection, moves everything there and ends the first: no gap and no message twice. A refused renewal is an event,
// and tried again.
//
// # Not promised
//
// Without a membership, channel messages sent while an endpoint is away are not delivered later. With one, a live copy that a
// cluster of brokers loses without breaking the connection is found by the next message of the same sender there, or by a
// look at what is stored, which a member takes after a minute and then ever more rarely, down to every five; but what was
// reported as handled after it cannot be told from it: such a message is shown by this process or not at all. A handler that keeps a direct message
// for longer than the queue's ack wait (60 s, longer when it comes again) without [Delivery.InProgress] sees it again. One that
// it does not handle is not offered for ever: after Options.MaxAttempts refusals, or the broker's bound of 20 deliveries, it
// is a dead letter, which an operator can put back.
//
// # Concurrency
//
// All methods are safe for concurrent use. The handler of one subscription or queue runs one message at a time,
// different ones run at the same time. Handlers may call any method, but for their own
// Subscription's Leave and Membership's Leave and Stop, which wait for them. A handler that panics is recovered and reported as an [EventPanic].
//
// A membership that has caught up costs no goroutine but that of its subscription. While it is behind, it holds back at
// most 4,096 live messages or 4 MiB, besides Options.LiveBacklog, and two pages of at most 512 KiB.
//
// Lock order inside the package: a subscription's or queue's run, held over its handler; Endpoint.topo; puller.mu;
// queue.mu; backlog.mu. The mutexes of link, presence, events, the subject caches, shown, Endpoint.crowd and
// Membership.state are taken last and hold no other.
package endpoint
