package connector

// Hook returns the shell command of a hook.
func Hook(program, connector, event string) string {
	return Request{Program: program}.hook(connector, event)
}
