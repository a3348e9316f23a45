package login

import "io/fs"

// shared leaves access to the file's access control list: Windows has no mode bits to look at.
func shared(fs.FileMode) bool { return false }
