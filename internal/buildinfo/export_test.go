package buildinfo

import "runtime/debug"

// Fill exposes fill to the tests.
func Fill(b *debug.BuildInfo) Info {
	var info Info
	info.fill(b)
	return info
}
