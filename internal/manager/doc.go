// Package manager asks the supervisors of a space for agents: it is the client side of endpoint "manager".
//
// Start with [New] on an endpoint that has joined the space. [Client.Census] asks all supervisors, [Client.Find] locates one agent, and
// what acts on an agent goes to the supervisor that keeps it: [Client.Stop], [Client.Restart], [Client.Input], [Client.Await],
// [Client.Attach]. [Client.Spawn] picks a supervisor and stays with it.
//
// It promises three things. "Not found" is said only when every supervisor that is known has answered; else the error says how many
// did and when the others were last heard. A spawn whose reply is lost is asked again with the same request id at the same
// supervisor, so that it never makes two agents. How far a caller reaches follows from its credential: an operator reaches every
// agent, a person who deploys those of its owner, everybody else itself and what was started under it; the broker pins that.
//
// It keeps no connection and starts no goroutine. Everything is safe for concurrent use.
package manager
