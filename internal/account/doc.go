// Package account holds the tests that count processes: whatever of a stack is killed, whenever, each agent runs once, nothing runs
// that nobody knows, and nobody else's process is told to end. It has no code of its own. The stack, its supervisors, seats and agents
// are processes of the real program, in a home of their own, by which all of them are found.
package account
