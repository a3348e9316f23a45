package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/windows"
)

// startTime is the creation time that the system keeps with the process handle.
func startTime(pid int) (string, error) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return "", ErrGone
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	const stillActive = 259
	var code uint32
	if err := windows.GetExitCodeProcess(h, &code); err != nil {
		return "", err
	}
	if code != stillActive {
		return "", ErrGone
	}
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d", created.Nanoseconds()), nil
}
