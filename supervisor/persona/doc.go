// Package persona reads and writes agent files: who an agent is, in one file of text with a few keys above it.
//
// An agent file is .cotal/agents/<name>.md: a line ---, YAML with a closed set of keys, a line ---, and the text that the agent is
// told. [Parse] makes a [Persona] of one, [Render] writes one, and a [Store] is a folder of them. [Seed] writes the first few.
//
// Every error of a file names file, line and column, what is wrong and what to do; all that is wrong is told at once, see
// [ProblemsOf]. What a file leaves out has these defaults: the agent hears the channel general, may read what it hears, and may
// post nowhere and start nobody.
//
// Files are outside input. They are bounded, must be regular files that lie in the folder, and no input makes the parser panic. A peer
// that defines a persona through [Store.Define] never sets what it may do, its program or its environment, and what it makes allows no
// more than it holds itself. A Store keeps no state of its own and may be used by several goroutines and processes; the last whole
// file wins.
package persona
