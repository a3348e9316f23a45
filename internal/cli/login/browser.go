package login

import (
	"os/exec"
	"runtime"

	"github.com/cotal-go/cotal/internal/cli/command"
)

// browse opens an address in the browser of the desktop, and reports whether one was asked to. The address is http or https, as
// package login of auth promises, so it is neither a file nor a flag.
func browse(e *command.Env, address string) bool {
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.Command("open", address)
	case "windows":
		cmd = exec.Command("rundll32", "url.dll,FileProtocolHandler", address)
	default:
		if e.Getenv("DISPLAY") == "" && e.Getenv("WAYLAND_DISPLAY") == "" {
			return false // the browser of a text terminal would take it away
		}
		cmd = exec.Command("xdg-open", address)
	}
	if cmd.Start() != nil {
		return false
	}
	_ = cmd.Process.Release()
	return true
}
