// Package target connects a command to the mesh, space and identity that it means.
//
// Start with [Open], which resolves the configuration, and end with [Target.Close]. [Target.Node] speaks with the
// node over the system account; [Target.Endpoint] joins the space as the person who runs the command, with a
// credential file when one was named and otherwise with a short credential that it mints from the project's trust
// records. In a mesh without authentication it joins by name. Where people sign in, [Target.People], it joins as who signed in and
// never under anything that it minted. In the shell of an agent it joins as that agent, and does nothing as anybody else.
//
// It promises that a command speaks as the person, never as the program: the sender is the person's login name or
// the name given with --name, or what the named credential says. What cannot be reached or minted is one sentence
// with a hint. A Target belongs to one command and one goroutine.
package target
