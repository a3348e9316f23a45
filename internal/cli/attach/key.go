package attach

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
)

// defaultKey is the key that detaches.
const defaultKey = "ctrl-]"

// detachKey is a key with ctrl that leaves.
type detachKey struct {
	name string
	code byte // what a terminal sends for it
	base byte // the key without ctrl, as terminals that tell keys apart name it
}

// reserved are what agents cannot do without, or terminals send for other keys.
const reserved = "[chijm"

// parseKey reads a key such as ctrl-].
func parseKey(s string) (detachKey, error) {
	base, ok := strings.CutPrefix(strings.ToLower(s), "ctrl-")
	switch {
	case !ok || len(base) != 1 || !strings.Contains("abcdefghijklmnopqrstuvwxyz[\\]^_@", base):
		return detachKey{}, command.Usagef("detach key %.20q: want ctrl- and one of a to z, \\, ], ^, _ or @, such as %s", s, defaultKey)
	case strings.Contains(reserved, base):
		return detachKey{}, command.Usagef("detach key %q: agents need that key, or it is Escape, Tab, Enter or Backspace; take another, such as %s", s, defaultKey)
	}
	return detachKey{name: "ctrl-" + base, code: base[0] & 0x1f, base: base[0]}, nil
}

// split returns what was typed before the key, and whether the key was typed. A terminal sends one byte for it or, where the agent asked
// for keys to be told apart, a sequence: CSI code ; modifiers u, or CSI 27 ; modifiers ; code ~.
func (k detachKey) split(typed []byte) (before []byte, found bool) {
	for i := 0; i < len(typed); i++ {
		if typed[i] == k.code {
			return typed[:i], true
		}
		if n := k.sequence(typed[i:]); n > 0 {
			return typed[:i], true
		}
	}
	return typed, false
}

// sequence returns the length of the key's sequence at the front of b, 0 when there is none.
func (k detachKey) sequence(b []byte) int {
	rest, ok := bytes.CutPrefix(b, []byte("\x1b["))
	if !ok {
		return 0
	}
	end := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > ';' })
	if end < 0 || rest[end] != 'u' && rest[end] != '~' {
		return 0
	}
	fields := strings.Split(string(rest[:end]), ";")
	code, mods := "", ""
	switch {
	case rest[end] == 'u' && len(fields) >= 2:
		code, mods = fields[0], fields[1]
	case rest[end] == '~' && len(fields) == 3 && fields[0] == "27":
		code, mods = fields[2], fields[1]
	default:
		return 0
	}
	code, _, _ = strings.Cut(code, ":")
	mods, event, _ := strings.Cut(mods, ":")
	c, err := strconv.Atoi(code)
	m, merr := strconv.Atoi(mods)
	const ctrl, locks = 4, 64 | 128
	if err != nil || merr != nil || (m-1)&^locks != ctrl || event == "3" { // 3: it was let go
		return 0
	}
	if c != int(k.base) {
		return 0
	}
	return len("\x1b[") + end + 1
}
