package supervisor

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// passed are the variables that every agent gets from the supervisor's environment; those that begin with a prefix too. Nothing else
// goes over by itself: not the agent of keys, no cloud credentials, no markers of a session that the supervisor was started from.
var (
	passed       = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "LANG", "TZ", "TMPDIR", "SystemRoot", "USERPROFILE"}
	passedPrefix = []string{"LC_", "XDG_"}
)

// defaultTerm is what a seat's terminal is when the supervisor has none.
const defaultTerm = "xterm-256color"

// environment is that of an agent: the allowed part of ours, the names in pass from ours, then set, later ones first.
func environment(ours, pass []string, set ...map[string]string) []string {
	env := map[string]string{"TERM": defaultTerm}
	for _, entry := range ours {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue
		}
		if slices.Contains(passed, name) || slices.Contains(pass, name) ||
			slices.ContainsFunc(passedPrefix, func(p string) bool { return strings.HasPrefix(name, p) }) {
			env[name] = value
		}
	}
	if env["TERM"] == "" || env["TERM"] == "dumb" {
		env["TERM"] = defaultTerm
	}
	for _, m := range set {
		maps.Copy(env, m)
	}
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// reaching is env with the folder of the program at the end of its path, so that the shell of an agent finds cotal.
func reaching(env []string, program string) []string {
	dir := filepath.Dir(program)
	if !filepath.IsAbs(dir) || slices.Contains(filepath.SplitList(lookup(env, "PATH")), dir) {
		return env
	}
	for i, entry := range env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok && path != "" {
			env[i] = entry + string(filepath.ListSeparator) + dir
			return env
		}
	}
	return append(env, "PATH="+dir)
}

// lookup reads a variable of an environment.
func lookup(env []string, name string) string {
	for _, entry := range env {
		if n, v, ok := strings.Cut(entry, "="); ok && n == name {
			return v
		}
	}
	return ""
}
