// Package person holds `cotal join`: a person takes part in a space from a terminal, or a script does so through
// standard input.
//
// A line is a message to the current channel unless it begins with a slash. What arrives is printed above the line
// being typed. Without a terminal lines are read from standard input until it ends, and nothing is edited or drawn.
package person
