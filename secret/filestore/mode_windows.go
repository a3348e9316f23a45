package filestore

import "io/fs"

// checkShared leaves access to the folder's access control list: Windows has no mode bits to look at.
func checkShared(fs.FileInfo, fs.FileMode) error { return nil }

// syncDir does nothing: Windows cannot sync a folder.
func (*Store) syncDir(string) error { return nil }
