// Package space holds the commands that change which spaces a mesh has: space add, space list, space rm.
//
// Each works on the running mesh and leaves the other spaces alone. Removing a space says what goes with it and does
// nothing until --force confirms that.
package space
