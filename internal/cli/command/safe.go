package command

import (
	"fmt"
	"strings"
	"unicode"
)

// Safe makes one line of text harmless to a terminal: control characters, line ends included, and characters that
// reorder or hide text are written as escapes; everything else stays.
func Safe(s string) string { return clean(s, false) }

// SafeBody makes a text of several lines harmless: as Safe, but line ends and tabs stay, and every line after the
// first begins with indent, so that no line of the text can pass for one of ours.
func SafeBody(s, indent string) string {
	s = strings.TrimRight(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	return strings.ReplaceAll(clean(s, true), "\n", "\n"+indent)
}

func clean(s string, body bool) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return hostile(r, body) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hostile(r, body):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// hostile reports whether r acts on the terminal or on the order of the text instead of being shown.
func hostile(r rune, body bool) bool {
	switch {
	case body && (r == '\n' || r == '\t'):
		return false
	case unicode.IsControl(r), r == unicode.ReplacementChar:
		return true
	case r == 0x2028, r == 0x2029: // line and paragraph separator
		return true
	case r == 0x200d: // joins emoji
		return false
	}
	return unicode.Is(unicode.Cf, r)
}
