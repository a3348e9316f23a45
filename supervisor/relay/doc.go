// Package relay is the supervisor's side of sessions: viewers in the space look at the terminals of agents, and drive them.
//
// # Start
//
//	r := relay.New(nc, space, instance, nil)
//	go r.Run(ctx)
//	offer, err := r.Offer(ctx, caller, uid, terminal, request) // the answer to the command attach
//
// # What it promises
//
//   - An offer holds for ten seconds, once, for one life of its caller, one agent and one instance. The broker pins the caller's life in
//     the subject of the session, in both directions; the rest is checked here.
//   - There is a most of sessions and open offers, of one life, at one terminal and in all; one more is refused with how many there are.
//   - A session begins with a snapshot of the terminal. What follows is output in order. A viewer never has more than a window of it
//     under way, and one that is slower than the agent gets a snapshot that says so instead of a backlog.
//   - What is typed reaches the terminal once and in order, or the viewer is told that it did not. One that asks is told what was
//     written, where the terminal is a [Pacer].
//   - The terminal has the size of who drove last: by opening with a size, or by changing it. A viewer that only looks changes nothing,
//     and nothing changes when a driver leaves.
//   - A session ends with the agent, with the viewer's word or with its silence. Afterwards it says for a minute why it ended.
//   - Sessions live as long as the relay, over any number of connections: [Relay.AddConn] and [Relay.RemoveConn] move them to a renewed
//     one without a loss.
//
// # What it does not
//
// Who may attach is decided before Offer. Nothing is kept for viewers that are away, but the terminal itself, which the seat keeps.
//
// # Concurrency
//
// Everything is safe for concurrent use. Run owns every goroutine and waits for it. The mutex of a relay is taken before that of a
// session.
package relay
