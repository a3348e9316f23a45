//go:build !windows

package mcpserver

// unixModes says that permissions of files say who may open them.
const unixModes = true
