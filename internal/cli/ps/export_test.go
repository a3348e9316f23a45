package ps

import (
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/manager"
)

// Render writes a census as the command does.
func Render(e *command.Env, c manager.Census, wide bool) error {
	r := &ps{wide: wide}
	return e.Print(nil, func(p *command.Printer) { r.human(p, c) })
}

// Narrow leaves what is of one supervisor.
func Narrow(c manager.Census, on string) (manager.Census, error) {
	err := (&ps{on: on}).narrow(&c)
	return c, err
}
