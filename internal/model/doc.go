// Package model holds the tests that compare a whole mesh with a simple model of it in memory: random joins, leaves, posts,
// narrowed rights, crashes and returns, and after each settling the same messages on both sides. It has no code of its
// own.
package model
