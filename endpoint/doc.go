// Package endpoint is the client library: one [Endpoint] is one connected participant of a space.
//
// # Start
//
//	ep, err := endpoint.Connect(ctx, "nats://127.0.0.1:4222", endpoint.File("ada.creds"), nil)
//	if err != nil { … }
//	defer ep.Close()
//	sub, err := ep.Listen(ctx, "team.>", func(d *endpoint.Delivery) { fmt.Println(d.Sender, d.Message.Text()) })
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
// Channel messages ([Endpoint.Listen]) are at-most-once and ordered per sender and channel; what was missed is reported
// as an [EventGap] with the range of sequences when the next one arrives, and [Endpoint.History] reads it. Direct and
// role messages ([Endpoint.HandleDirect], [Endpoint.HandleRole]) are at-least-once: they come again until they are
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
// Channel messages sent while an endpoint is away are not delivered later. A handler that keeps a direct message
// for longer than the queue's ack wait (60 s, longer when it comes again) without [Delivery.InProgress] sees it again. One that
// it does not handle is not offered for ever: after Options.MaxAttempts refusals, or the broker's bound of 20 deliveries, it
// is a dead letter, which an operator can put back.
//
// # Concurrency
//
// All methods are safe for concurrent use. The handler of one subscription or queue runs one message at a time,
// different ones run at the same time. Handlers may call any method, but for their own
// Subscription's Leave, which waits for them. A handler that panics is recovered and reported as an [EventPanic].
//
// Lock order inside the package: a subscription's or queue's run, held over its handler; Endpoint.topo; puller.mu;
// queue.mu. The mutexes of link, presence, events and the subject caches are taken last and hold no other.
package endpoint
