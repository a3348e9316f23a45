//go:build !linux

package still

// Release does nothing: only on linux the sampler reads a file.
func Release() {}
