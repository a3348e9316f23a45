// Package agent holds the commands that act on agents which run: `cotal stop`, `cotal restart` and `cotal input`.
//
// Each locates the supervisor that keeps the agent before it acts, and says "no such agent" only when every supervisor answered. They
// act as the person or, in the shell of an agent, as that agent, and reach as far as that may: operators every agent, people what is
// theirs, agents what they started.
package agent
