package fserr

import (
	"errors"
	"slices"
	"strings"
)

// Full reports whether err is of a disk that has no room left, or none for this user. The text counts too: packages that keep the cause of
// an error to themselves keep its words.
func Full(err error) bool {
	return err != nil && slices.ContainsFunc(full, func(f error) bool { return errors.Is(err, f) || strings.Contains(err.Error(), f.Error()) })
}
