package mcpserver

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of text from others outside of message bodies, in characters.
const (
	maxName     = 64
	maxActivity = 160
)

// harmful reports whether a character, with which text begins and before which prev stands, 0 for none, can do more than stand for
// itself: move a cursor, break a line, turn the direction of what follows, or hide in it. One that shapes its neighbours does not
// where it is at work: a variation selector after an emoji, a joiner between two, a joiner of a script that has them.
func harmful(prev, r rune, text string) bool {
	switch {
	case r >= ' ' && r < 0x7f:
		return false
	case r <= 0x9f, r == utf8.RuneError, r == '\u2028', r == '\u2029':
		return true
	case r == textStyle, r == emojiStyle:
		keycap := prev >= '0' && prev <= '9' || prev == '#' || prev == '*'
		return !pictures(prev) && !(keycap && strings.HasPrefix(text[utf8.RuneLen(r):], "\u20e3"))
	case r == joiner:
		next, _ := utf8.DecodeRuneInString(text[utf8.RuneLen(r):])
		picture := (pictures(prev) || prev == emojiStyle) && pictures(next)
		return !picture && !(unicode.Is(unicode.Mn, prev) && unicode.Is(unicode.Lo, next))
	case r >= 0xe0000 && r <= 0xe0fff: // tags, and variation selectors that can spell hidden text
		return true
	}
	return unicode.In(r, unicode.Cf, unicode.Co, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

const (
	joiner     = '\u200d'
	textStyle  = '\ufe0e'
	emojiStyle = '\ufe0f'
)

// pictures reports whether a character can be an emoji.
func pictures(r rune) bool {
	return r > 0x9f && r != utf8.RuneError && unicode.In(r, unicode.So, unicode.Sm) || r >= 0x1f3fb && r <= 0x1f3ff || r == '\u203c' || r == '\u2049' || r == '\u3030'
}

func escape(b *strings.Builder, r rune) {
	switch {
	case r < 0x100:
		b.WriteString(`\x`)
		pad(b, r, 2)
	case r < 0x10000:
		b.WriteString(`\u`)
		pad(b, r, 4)
	default:
		b.WriteString(`\U`)
		pad(b, r, 8)
	}
}

func pad(b *strings.Builder, r rune, width int) {
	s := strconv.FormatInt(int64(r), 16)
	b.WriteString(strings.Repeat("0", max(0, width-len(s))))
	b.WriteString(s)
}

// name makes a short claim of a peer harmless between quotes in a line of ours.
func name(s string) string { return claim(s, maxName) }

// claim makes text of a peer harmless in a line of ours: on one line, without brackets or quotes of any script that could seem to end
// what it stands in, and bounded. What may hold words stands between quotes or brackets of ours.
func claim(s string, limit int) string {
	var b strings.Builder
	n, prev := 0, rune(0)
	for i, r := range s {
		if n++; n > limit {
			b.WriteString("…")
			break
		}
		switch {
		case harmful(prev, r, s[i:]):
			escape(&b, r)
		case r == '\u2018' || r == '\u2019':
			b.WriteByte('\'')
		case strings.ContainsRune("<>\"`|＜＞＂｀｜″‶", r), unicode.In(r, unicode.Ps, unicode.Pe, unicode.Pi, unicode.Pf):
			b.WriteByte('_')
		default:
			b.WriteRune(r)
		}
		prev = r
	}
	return b.String()
}

// said is a value of a peer's choosing in a line of ours: as it is when it is one word, else between quotes, so that no sentence of
// a peer's stands beside ours.
func said(s string, limit int) string {
	if isWord(s) {
		return s
	}
	return `"` + claim(s, limit) + `"`
}

// isWord reports whether s is of [A-Za-z0-9_.:-]{1,64}.
func isWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.:-", c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

// quote writes text of a peer with every line behind a mark, so that none of it can be taken for a line of ours.
func quote(b *strings.Builder, text string) {
	b.WriteString(linePrefix)
	prev := rune(0)
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		here := text[i:]
		i += n
		switch {
		case r == '\r' && i < len(text) && text[i] == '\n':
		case r == '\n', r == '\r', r == '\v', r == '\f', r == '\u0085', r == '\u2028', r == '\u2029':
			b.WriteByte('\n')
			b.WriteString(linePrefix)
		case r == '\t':
			b.WriteByte('\t')
		case harmful(prev, r, here):
			escape(b, r)
		default:
			b.WriteRune(r)
		}
		prev = r
	}
	b.WriteByte('\n')
}

// linePrefix begins every line that somebody else wrote.
const linePrefix = "| "

// chars is the length of a text as pages count it.
func chars(s string) int { return utf8.RuneCountInString(s) }

// plural writes a count with its noun.
func plural(n uint64, noun string) string {
	s := strconv.FormatUint(n, 10) + " " + noun
	if n != 1 {
		s += "s"
	}
	return s
}
