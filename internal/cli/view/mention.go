package view

import (
	"slices"
	"strings"
	"unicode"

	"github.com/cotal-go/cotal/wire"
)

// Mentions are the names written as @name in a text, and the extra ones, lower-cased, each once, in order. A text that
// mentions more than a message may carry keeps the first ones.
func Mentions(text string, extra []string) []string {
	var out []string
	add := func(name string) {
		name = strings.ToLower(name)
		if name != "" && len(out) < wire.MaxMentions && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, name := range extra {
		add(strings.TrimPrefix(name, "@"))
	}
	before := ' '
	for i, r := range text {
		if r == '@' && !nameRune(before) && before != '.' {
			add(nameAt(text[i+1:]))
		}
		before = r
	}
	return out
}

// nameAt is the name that s begins with.
func nameAt(s string) string {
	end := strings.IndexFunc(s, func(r rune) bool { return !nameRune(r) && r != '-' && r != '.' })
	if end < 0 {
		end = len(s)
	}
	return strings.TrimRight(s[:end], ".-")
}

func nameRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
