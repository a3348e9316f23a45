// Package login holds the commands of a person who signs in at a mesh: login, logout, whoami.
//
// Signing in is the device flow of the mesh's identity provider. The session is kept sealed on this machine and is all that later
// commands need; what the person may do is for the grants of the mesh to say, each time anew.
package login
