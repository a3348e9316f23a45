// Package yamldoc reads the small part of YAML that our files are written in, so that whatever is wrong can be told with its
// place: file, line and column, what it is and what to do.
//
// Start with [Parse], which makes a [Node] of a document, and read it with the methods of Node. All of them put what they do not
// like into a [Report] and go on, so that one look at a file tells everything that is wrong with it; [Report.Err] is the error.
//
// It promises that no input makes it panic or work for long: documents are bounded in bytes, depth and brackets. Anchors,
// aliases, merges, tags and several documents in one file are refused: with them a text means something else than it shows.
// A node is plain data; nothing here is safe for concurrent use while it is read.
package yamldoc
