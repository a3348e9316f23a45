package command

import (
	"errors"
	"strconv"
)

// exit ends the program with a code and without a word.
type exit int

func (e exit) Error() string { return "exit " + strconv.Itoa(int(e)) }

// Exit is the error of a command that ended as it should and has an exit code of its own, such as one that stands for another
// program. [Report] says nothing about it. Exit of 0 is nil.
func Exit(code int) error {
	if code == 0 {
		return nil
	}
	return exit(code)
}

// exitOf is the code of an error of [Exit].
func exitOf(err error) (int, bool) {
	e, ok := errors.AsType[exit](err)
	return int(e), ok
}
