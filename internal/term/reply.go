package term

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// ask answers a question of the program.
func (s *Screen) ask(marker, inter, final byte, p params) {
	switch {
	case final == 'c' && inter == 0 && p.at(0, 0) == 0:
		switch marker {
		case 0:
			s.reply("\x1b[?62;22c") // a VT220 with colour
		case '>':
			s.reply("\x1b[>1;10;0c")
		}
	case final == 'n' && inter == 0 && p.at(0, 0) == 5 && marker == 0:
		s.reply("\x1b[0n")
	case final == 'n' && inter == 0 && p.at(0, 0) == 6:
		y := s.cur.y
		if s.cur.origin {
			y -= s.top
		}
		if marker == '?' {
			s.reply("\x1b[?%d;%d;1R", y+1, s.cur.x+1)
		} else if marker == 0 {
			s.reply("\x1b[%d;%dR", y+1, s.cur.x+1)
		}
	case final == 'p' && inter == '$' && marker == '?':
		s.reply("\x1b[?%d;%d$y", p.at(0, 0), s.setting(p.at(0, 0)))
	case final == 'p' && inter == '$' && marker == 0:
		set := 0
		switch p.at(0, 0) {
		case 4:
			set = 2 - b2i(s.modes&modeInsert != 0)
		case 20:
			set = 2 - b2i(s.modes&modeNewline != 0)
		}
		s.reply("\x1b[%d;%d$y", p.at(0, 0), set)
	case final == 'q' && marker == '>' && inter == 0:
		s.reply("\x1bP>|cotal\x1b\\")
	case final == 'u' && marker == '?' && inter == 0:
		flags := 0
		if k := s.keys[b2i(s.onAlt)]; len(k) > 0 {
			flags = k[len(k)-1]
		}
		s.reply("\x1b[?%du", flags)
	case final == 't' && marker == 0 && inter == 0 && (p.at(0, 0) == 18 || p.at(0, 0) == 19):
		s.reply("\x1b[%d;%d;%dt", p.at(0, 0)-10, s.rows, s.cols)
	}
}

// setting is a private mode as DECRQM tells it: 0 not known, 1 set, 2 reset.
func (s *Screen) setting(n int) int {
	switch n {
	case 6:
		return 2 - b2i(s.cur.origin)
	case 47, 1047, 1049:
		return 2 - b2i(s.onAlt)
	case 2026:
		return 2
	}
	if m := private(n); m != 0 {
		return 2 - b2i(s.modes&m != 0)
	}
	return 0
}

func (s *Screen) reply(format string, args ...any) {
	if len(s.replies) < maxReplies {
		s.replies = fmt.Appendf(s.replies, format, args...)
	}
}

// stringEnd handles a string sequence that is complete in seq, and reports whether viewers may have it.
func (s *Screen) stringEnd() bool {
	if s.tooLong {
		if bytes.HasPrefix(s.seq, []byte("\x1b]8;")) {
			s.unlink()
		}
		return false
	}
	body := bytes.TrimRight(s.seq[2:], "\x1b\\\a")
	if s.seq[len(s.seq)-1] == '\\' {
		body = s.seq[2 : len(s.seq)-2]
	}
	if s.seq[1] != ']' {
		s.device(body)
		return false
	}
	kind, rest, _ := bytes.Cut(body, []byte(";"))
	switch string(kind) {
	case "0", "2":
		s.title = plain(rest)
		return s.title == string(rest)
	case "8":
		return s.hyperlink(rest)
	case "10", "11", "12":
		if string(rest) == "?" {
			// Nobody may be looking, and viewers differ: light on dark.
			c := "d8d8/d8d8/d8d8"
			if kind[1] == '1' {
				c = "0000/0000/0000"
			}
			s.reply("\x1b]%s;rgb:%s\x1b\\", kind, c)
		}
	case "133":
		return plain(rest) == string(rest) && !bytes.Contains(rest, []byte("?"))
	}
	return false
}

// device answers the questions that come as device control strings with "not known".
func (s *Screen) device(body []byte) {
	if s.seq[1] != 'P' {
		return
	}
	switch {
	case bytes.HasPrefix(body, []byte("+q")):
		s.reply("\x1bP0+r\x1b\\")
	case bytes.HasPrefix(body, []byte("$q")):
		s.reply("\x1bP0$r\x1b\\")
	}
}

func (s *Screen) hyperlink(rest []byte) bool {
	params, url, ok := strings.Cut(string(rest), ";")
	if !ok {
		return false
	}
	if plain(rest) != string(rest) || len(rest) > maxLink {
		s.unlink()
		return false
	}
	if url == "" {
		s.cur.link = nil
		return true
	}
	l := s.known(link{params, url})
	if l == nil {
		s.unlink()
		return false
	}
	s.cur.link = l
	return true
}

// unlink is for a link that is not taken: what follows is not part of the one before it either.
func (s *Screen) unlink() {
	if s.cur.link != nil {
		s.cur.link = nil
		s.out = s.cur.link.append(s.out)
	}
}

// known returns the one copy of a link that all its cells share, nil when there are too many others.
func (s *Screen) known(l link) *link {
	if have := s.links[l]; have != nil {
		return have
	}
	if len(s.links) >= maxLinks {
		s.forgetLinks()
	}
	if len(s.links) >= maxLinks {
		return nil
	}
	if s.links == nil {
		s.links = map[link]*link{}
	}
	s.links[l] = &l
	return &l
}

// forgetLinks leaves the links that are shown, or will be when the main screen is shown again.
func (s *Screen) forgetLinks() {
	used := map[link]*link{}
	keep := func(l *link) {
		if l != nil {
			used[*l] = l
		}
	}
	keep(s.cur.link)
	grids := [][][]cell{s.main}
	if s.onAlt {
		grids = append(grids, s.alt)
	}
	for _, grid := range grids {
		for _, row := range grid {
			var last *link
			for x := range row {
				if l := row[x].link; l != last {
					last = l
					keep(l)
				}
			}
		}
	}
	s.links = used
}

// plain leaves out what is not a printable character.
func plain(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(b))
}
