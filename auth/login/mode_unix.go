//go:build !windows

package login

import "io/fs"

// shared says whether others than the owner may do anything with a file.
func shared(mode fs.FileMode) bool { return mode&0o077 != 0 }
