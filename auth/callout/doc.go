// Package callout answers the broker's question of who may come in: it is the auth callout (NATS ADR-26) of one space.
//
// A person or agent connects with the sentinel, a public credential that permits nothing, and passes a bearer of the space as
// its token. The sentinel is of the callout account, so the broker asks that account. A [Service] listens there, checks the
// bearer and the key behind it, lets the authority decide by the records as they are at that moment, and answers with a user
// JWT of the data account, or a refusal:
//
//	svc, err := callout.New(nc, callout.Options{Space: "main", Responder: r, Validator: v, Authority: a, Servers: ids})
//	err = svc.Run(ctx) // returns after everything that was taken has been answered
//
// # What it promises
//
//   - Only a broker on the list of [Options.Servers] is answered with a credential, and only if it sealed the question to the
//     callout account and signed it. Anything else is dropped and counted.
//   - A credential that leaves is for the key that the broker made for this connection, and sealed to that broker. Nobody else
//     can open it, and for a question that is sent again there is none: [Authority] refuses a key that it has seen.
//   - A bearer that names a key ("cnf") is of no use without it: the signature over the nonce of the connection must be by
//     that key.
//   - A refusal says a [trust.Reason] and nothing else, in the broker's log. The client is told nothing but that it was refused.
//   - What decides is asked last. Before it stand, in the order of what they cost: size, header, encryption, form, the server,
//     form and end of the bearer, then the signatures. Only a bearer that verifies reaches the authority.
//
// # Load
//
// An answer without content refuses a connection at once and costs neither a signature nor encryption, so that is the answer
// when there is no room, and to junk from an address that sends much of it. (Not to answer would cost the client the two seconds
// that the broker waits, and would keep the connection open meanwhile.) The reason then stands in the [Decision] alone. All
// other refusals of strangers are signed by one goroutine; what it cannot keep up with is refused without content as well.
//
// Messages pass two bounded queues: in front of the cheap checks, and in front of the workers, which verify and decide. Junk
// ends at the cheap checks and never occupies a worker. What looks good but comes from an address of late known for
// bad tokens waits in a lane of its own behind everybody else; it is never refused for that, since many people may share an
// address.
//
// # What it does not do
//
// It keeps no record of who is connected, ends no connection, and writes no audit record: [Options.OnDecision] is told. It
// serves one space; another one has its own account and its own service. Any number of services, in any number of processes,
// may answer for a space side by side: they share a queue group.
//
// A Service is safe for concurrent use. Run starts goroutines and returns when all have ended.
package callout
