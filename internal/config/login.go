package config

import (
	"os/user"
	"strings"
)

// maxName is the longest actor name, see wire.
const maxName = 64

// sourceLogin is the source of a name that nobody set.
const sourceLogin Source = "login name"

// login is the name under which the person is logged in at the operating system, made fit for a principal, or "".
func login() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return Sanitise(u.Username)
}

// Sanitise makes a login name fit for the actor of a principal: the domain of a Windows account goes, every character
// outside [A-Za-z0-9_] becomes an underscore, and what is longer than 64 characters is cut. It returns "" when
// nothing of the name is left.
func Sanitise(name string) string {
	if i := strings.LastIndexByte(name, '\\'); i >= 0 {
		name = name[i+1:]
	}
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			return r
		}
		return '_'
	}, name)
	if strings.Trim(name, "_") == "" {
		return ""
	}
	return name[:min(len(name), maxName)]
}
