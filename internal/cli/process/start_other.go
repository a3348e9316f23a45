//go:build !linux && !darwin && !windows

package process

import "errors"

// startTime refuses: without a start time a number proves nothing.
func startTime(int) (string, error) { return "", errors.ErrUnsupported }
