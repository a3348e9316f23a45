package mesh

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/wire"
)

// roomless says in plain words that a start failed for want of room on a disk: the one that holds dir, unless err names another place. Other
// errors stay as they are.
func roomless(err error, dir string) error {
	if !fserr.Full(err) || errors.Is(err, wire.ErrExhausted) {
		return err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok && filepath.IsAbs(e.Path) {
		dir = filepath.Dir(e.Path)
	}
	e := wire.Errorf(wire.CodeResourceExhausted, "the disk that holds %q is full", dir)
	return command.Hint(e, "make room there and start it again: cotal up --detach", "what could not be done: "+err.Error())
}
