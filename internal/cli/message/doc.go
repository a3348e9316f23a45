// Package message holds the commands that send and read: send msg, send dm, send ask, receipt, inbox, history, history clear,
// read, tail.
//
// A send reports what is known: that the broker stored the message under a sequence, and who was there to read it; receipt
// says later what became of it. What peers wrote is printed so that it can neither move the cursor nor pass for a line of
// another sender.
package message
