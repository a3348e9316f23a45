// Package command is what every command of the program shares: the surroundings it runs in ([Env]), how results and
// failures are printed, and how a struct of flags becomes a command of the tree ([Tree.Add]).
//
// A command is a [Runner]: a struct of flags with one method that knows nothing of parsing. It writes its result
// through [Env.Print] or [Env.Each], which render JSON or text as --json says; everything else goes to standard
// error through [Env.Note] and [Env.Progress]. It returns an error and never exits; [Report] turns the error into
// the sentence, the hints and the exit code.
//
// Text that came from a peer is untrusted: it is printed through [Safe], which leaves no way to move the cursor,
// recolour the terminal or forge a line. An Env is used by one command at a time, from one goroutine unless a
// method says otherwise.
package command
