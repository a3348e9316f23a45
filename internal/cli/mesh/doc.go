// Package mesh holds the commands that bring a project's mesh up, look at it and take it down: up, status, down.
//
// What is true is asked of the running node over the system account; the record of the run only says where to ask.
// One lock per project, given back by the system when its holder dies, decides who runs the mesh, so two starts at
// the same time cannot both win and a killed one leaves nothing to repair by hand. No process is ever signalled
// under a number alone.
package mesh
