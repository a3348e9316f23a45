package seat

import (
	"os"
	"path/filepath"
)

// ownSocket is the path as it is: the system has no short one for clients of earlier builds.
func ownSocket(path string) string { return path }

// shortly calls use with a path of the folder that leaves room for the name of a socket in its address.
func shortly(dir string, use func(short string) error) error {
	if len(filepath.Join(dir, socketFile)) <= maxSocketPath {
		return use(dir)
	}
	tmp, err := os.MkdirTemp("", "cotal-") // private, and of no use to anybody after this
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	link := filepath.Join(tmp, "s")
	if err := os.Symlink(dir, link); err != nil {
		return err
	}
	return use(link)
}
