// Package view shows messages and what happens to a stream of them, the same way in every command that reads.
//
// Content is a peer's claim and hostile until shown otherwise: for a person it is printed so that it can neither move
// the cursor nor pass for the line of another sender; for a program it is one JSON object a line, in which the fields
// outside "message" are vouched for by the broker. All values are plain data.
package view
