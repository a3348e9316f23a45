// Package term keeps the screen of a terminal that nobody has to look at: it takes what a program writes, keeps the grid, the
// cursor and the modes, and can repaint all of it on another terminal at any moment.
//
// A [Screen] understands what full-screen programs use of xterm: colours, wide and combining characters (counted as wcwidth
// counts them, one code point at a time), the alternate screen, scroll regions, tab stops, character sets, mouse, paste and key
// modes, hyperlinks and the title. What it does not understand it drops, and [Screen.Feed] hands on only the rest: what a viewer
// gets never asks its terminal for an answer, never reads or sets its clipboard, and never does anything that a repaint could not
// undo. Questions of the program are answered by the screen itself, see [Screen.Replies].
//
// Memory is bounded: two grids of 48 bytes a cell, the second made when the alternate screen is first used, and the text of lines
// that left the top, of at most the history that [New] states. A Screen is safe for concurrent use.
package term
