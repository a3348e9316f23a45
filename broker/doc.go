// Package broker runs a nats-server inside the process, and administers that one or any other.
//
// # Start
//
// [Start] takes the public side of the trust chain (operator, system account, accounts; no seed) and returns when the
// broker accepts connections:
//
//	s, err := broker.Start(ctx, t, &broker.Options{StoreDir: dir, Transport: broker.Plaintext()})
//	defer s.Shutdown()
//	nc, err := nats.Connect(s.ClientURL(), creds)
//
// Nothing is open by accident: without a [Transport] it does not start, plaintext and open mode bind loopback
// addresses only, a certificate that clients could not trust is refused, and so is a store directory that is in use, holds
// something else or belongs to another operator. Each refusal is one sentence. The records given to Start are the
// truth: the accounts the broker kept are made equal to them. That never deletes a stream; [Server.PruneAccount]
// does, for an account the broker no longer knows.
//
// [Server.InProcess] connects without a socket. Such connections, with NoListen set, also work inside a testing/synctest
// bubble, so that expiry and redelivery can be tested on fake time.
//
// # Control
//
// A [Control] adds, changes and removes accounts, lists connections and drops them, over the system account of any
// broker, embedded ([Server.Control]) or external ([Dial]); package brokertest holds the one suite that both pass. Every
// server of a cluster is asked and has to answer: what may be partial is [ErrIncomplete], never a short list. A pushed
// account is read back and compared. An eviction is proved by listing again. The credential is renewed at
// 75 % of its life, so a Control may live as long as the process.
//
// # What it does not promise
//
// The broker accepts older claims as readily as newer ones: there must be one writer of accounts. A kick is not a
// ban: revoke first. Control does not form clusters, and an external broker's configuration comes from
// trust/brokerconf.
//
// A Server and a Control are safe for concurrent use. The order of locks: in a Server life before mu, in a Control putting
// before mu; no lock of one is held while the other is called.
package broker
