// Package seat holds one agent: a small detached process that owns the agent's terminal and its tree of processes, and outlives
// whoever started it.
//
// [Start] makes a folder's seat and returns a [Client]; a supervisor that starts later adopts it with [Open]. The seat process runs
// [Main], which the program's hidden command `cotal seat <dir>` calls. The folder holds what is known of the seat without asking it,
// see [Read]: spec.json, what it was told; seat.json, the processes with their start times; exit.json, what the agent ended with.
//
// It promises: a signal reaches a process of the agent's tree or nobody, because a process is named by pid and start time and held
// by a descriptor while it is signalled; the agent's output is never held up by who looks at it; when [Client.Stop] returns without an
// error nothing of the tree is left but what [Exit.Left] names. ADR 0024 has the rules.
//
// It works on linux and darwin. Elsewhere every function says unimplemented. All exported types are safe for concurrent use.
// In this package the mutex of a seat is taken before that of its screen.
package seat
