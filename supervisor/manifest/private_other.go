//go:build !unix

package manifest

import "io/fs"

// private leaves access to the file's access control list: there are no mode bits to look at.
func private(fs.FileInfo) error { return nil }
