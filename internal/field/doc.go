// Package field holds tests of whole meshes, one for each case that was met in the field: a booted node, endpoints, the
// delivery role, and a story that went wrong elsewhere once. A test carries the number of its case in its name. It has no
// code of its own.
package field
