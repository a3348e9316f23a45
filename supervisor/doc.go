// Package supervisor starts agents, keeps them, and ends them. It owns the processes of one space on one host, and what each of them
// may do is the authority's to say.
//
// # Start
//
//	k, err := supervisor.NewKeeper("main", &supervisor.Options{Dir: dir, Program: cotal, Seats: seats, Server: server})
//	go k.Run(ctx)                                  // as long as the process
//	s := supervisor.New(nc, self, k, nil)          // once for each credential
//	go s.Run(ctx)
//	<-s.Ready()
//
// The [Keeper] has the agents and their state on disk; a [Service] is the endpoint wire.ManagerEndpoint over one connection. When its
// credential is renewed, a second service starts over the same keeper before the first one ends.
//
// # The life of an agent
//
// [Next] is all of it: a pure function from a [State] and an [Event] to a state and what to do. Every state is on disk before anything
// is done about it, in <dir>/<uid>/agent.json. Each start is a numbered run with a folder and a seat of its own, so that a run which
// may exist is looked for before another one begins.
//
// Two things are told apart everywhere: what the process does, which its seat says, and what the agent does in the space, which the
// roster says. An agent is ready when the roster has it; no clock calls a slow one failed.
//
// # What it promises
//
//   - Agents outlive the keeper. The next one adopts what runs, ends what a lost seat has left, and goes on with what was begun.
//   - No agent is started twice, and no process is signalled that is not of an agent.
//   - A spawn with the same request id is the same spawn, also when an answer was lost or the keeper began anew.
//   - An agent that was stopped has ended with everything that it started, but what it made a daemon of; then its grant is retired; its
//     name is free last. A step that fails is tried again until it is done, and the status says what is wrong meanwhile.
//   - No secret crosses the wire: the keys and secrets of agents are made here, and the authority sees public keys and hashes.
//   - An agent gets a listed part of the environment, and its secrets in files that are its user's alone.
//
// # What it does not
//
// It holds no key that signs, reads no stream and speaks for nobody. Which rights an agent gets, and that they lie within those of its
// parent, is decided by the authority. Several keepers in one space know of each other, and share nothing.
//
// # Concurrency
//
// Everything exported is safe for concurrent use. Each agent has one goroutine, which alone changes it; what takes time runs beside
// and comes back as an event. Keeper.spawnMu and Keeper.saving are taken before Keeper.mu, and that before agent.saving and agent.mu.
package supervisor
