// Package message holds the commands that send and read: send msg, send dm, send ask, read, tail.
//
// A send reports what is known, that the broker stored the message under a sequence, and never that somebody got it.
// What peers wrote is printed so that it can neither move the cursor nor pass for a line of another sender.
package message
