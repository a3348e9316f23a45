package term

import "strconv"

// dispatch does what a CSI sequence asks for, and reports whether viewers may have it.
func (s *Screen) dispatch() bool {
	var room [maxParams + 1]param
	marker, inter, final, p, ok := s.split(room[:])
	if !ok {
		return false
	}
	switch {
	case marker == 0 && inter == 0:
		return s.move(final, p) || s.edit(final, p) || s.set(final, p)
	case marker == '?' && inter == 0 && (final == 'h' || final == 'l'):
		return s.privateModes(p, final == 'h')
	case marker == '?' && inter == 0 && (final == 'J' || final == 'K'):
		return s.edit(final, p)
	case marker == 0 && inter == ' ' && final == 'q':
		s.shape = min(p.at(0, 0), 6)
		return true
	case marker == 0 && inter == '!' && final == 'p':
		s.softReset()
		return true
	case final == 'u' && inter == 0 && marker != 0:
		return s.keyboard(marker, p)
	case marker == '>' && inter == 0 && final == 'm' && p.at(0, 0) == 4:
		s.otherKeys = min(p.at(1, 0), 3)
		return true
	}
	s.ask(marker, inter, final, p)
	return false
}

// known are the finals that do the same as others which every terminal knows.
var known = map[byte]byte{'k': 'A', 'e': 'B', 'a': 'C', 'j': 'D'}

// move handles what only moves the cursor. What some terminals do not know, tmux for one, viewers are told by what all of them do.
func (s *Screen) move(final byte, p params) bool {
	if all, ok := known[final]; ok {
		s.seq[len(s.seq)-1], final = all, all
	}
	n := p.count(0)
	switch final {
	case 'A':
		s.moveY(-n)
	case 'B':
		s.moveY(n)
	case 'C':
		s.moveX(s.cur.x + n)
	case 'D':
		s.moveX(s.cur.x - n)
	case 'E':
		s.moveY(n)
		s.moveX(0)
	case 'F':
		s.moveY(-n)
		s.moveX(0)
	case 'G', '`':
		s.moveX(n - 1)
	case 'H', 'f':
		s.moveTo(p.count(1)-1, n-1)
	case 'd':
		s.moveTo(s.cur.x, n-1)
	case 'I':
		s.tab(n)
		s.seq = append(strconv.AppendInt(append(s.seq[:0], esc, '['), int64(s.cur.x+1), 10), 'G')
	case 'Z':
		s.tab(-n)
	default:
		return false
	}
	return true
}

// edit handles what changes cells.
func (s *Screen) edit(final byte, p params) bool {
	n, row, pen := p.count(0), s.grid()[s.cur.y], s.cur.st
	switch final {
	case '@':
		shiftRight(row, s.cur.x, n, pen)
	case 'P':
		shiftLeft(row, s.cur.x, n, pen)
	case 'X':
		erase(row, s.cur.x, s.cur.x+n, pen)
	case 'K':
		return s.eraseLine(p.at(0, 0))
	case 'J':
		return s.eraseScreen(p.at(0, 0))
	case 'L', 'M':
		return s.lines(final, n)
	case 'S':
		s.scrollUp(s.top, n, true)
	case 'T':
		if len(p) > 1 {
			return false // mouse highlighting
		}
		s.scrollDown(s.top, n)
	case 'b':
		return s.repeat(n)
	default:
		return false
	}
	s.cur.wrap = false
	return true
}

// lines inserts or deletes lines. Terminals differ in where that leaves the cursor and in what they do outside of the scroll region, so
// viewers are told the one and spared the other.
func (s *Screen) lines(final byte, n int) bool {
	if s.cur.y < s.top || s.cur.y >= s.bot {
		return false
	}
	if final == 'L' {
		s.scrollDown(s.cur.y, n)
	} else {
		s.scrollUp(s.cur.y, n, false)
	}
	s.moveX(0)
	s.out = append(append(s.out, s.seq...), '\r')
	return false
}

// repeat prints the last character again, as often as the screen has cells at most. Viewers get the characters themselves, because what
// they have seen last may differ; a flood of them is told by a snapshot.
func (s *Screen) repeat(n int) bool {
	defer func() {
		if len(s.out) > maxRepeated {
			s.out = s.snapshot(s.out[:0])
		}
	}()
	for range min(n, s.cols*s.rows) * b2i(s.last != 0) {
		s.print(s.last)
	}
	return false
}

func (s *Screen) eraseLine(how int) bool {
	row := s.grid()[s.cur.y]
	switch how {
	case 0:
		erase(row, s.cur.x, s.cols, s.cur.st)
	case 1:
		erase(row, 0, s.cur.x+1, s.cur.st)
	case 2:
		erase(row, 0, s.cols, s.cur.st)
	default:
		return false
	}
	s.cur.wrap = false
	return true
}

func (s *Screen) eraseScreen(how int) bool {
	grid, from, to := s.grid(), 0, s.rows
	switch how {
	case 0:
		s.eraseLine(0)
		from = s.cur.y + 1
	case 1:
		s.eraseLine(1)
		to = s.cur.y
	case 2:
	case 3:
		// A viewer's own history is not the program's to clear.
		s.history = nil
		return false
	default:
		return false
	}
	for _, row := range grid[from:to] {
		fill(row, s.cur.st)
	}
	s.cur.wrap = false
	return true
}

// set handles pen, margins, tab stops, ANSI modes and the saved cursor.
func (s *Screen) set(final byte, p params) bool {
	switch final {
	case 'm':
		s.cur.st.sgr(p)
	case 'r':
		top, bot := p.count(0), p.at(1, s.rows)
		if bot <= 0 || bot > s.rows {
			bot = s.rows
		}
		if top >= bot {
			return false
		}
		s.top, s.bot = top-1, bot
		s.moveTo(0, 0)
	case 'g':
		switch p.at(0, 0) {
		case 0:
			s.tabs[s.cur.x] = false
		case 3:
			clear(s.tabs)
		default:
			return false
		}
	case 'h', 'l':
		return s.ansiModes(p, final == 'h')
	case 's':
		if len(p) > 0 {
			return false
		}
		s.save()
	case 'u':
		s.restore()
	default:
		s.ask(0, 0, final, p)
		return false
	}
	return true
}

func (s *Screen) save() { s.saved[b2i(s.onAlt)] = s.cur }

func (s *Screen) restore() {
	link := s.cur.link
	s.cur = s.saved[b2i(s.onAlt)]
	s.cur.link, s.cur.wrap = link, false
	if s.cur.origin {
		s.cur.y = min(max(s.cur.y, s.top), s.bot-1)
	}
}

func (s *Screen) softReset() {
	s.modes = s.modes&^(modeInsert|modeCursorKeys|modeKeypad) | modeWrap | modeVisible
	s.top, s.bot = 0, s.rows
	at := s.cur
	s.cur = freshCursor()
	s.cur.x, s.cur.y, s.cur.link = at.x, at.y, at.link
	s.saved[b2i(s.onAlt)] = freshCursor()
}

// keyboard handles the progressive keyboard enhancements: flags are pushed, popped and set.
func (s *Screen) keyboard(marker byte, p params) bool {
	const depth = 8
	stack := &s.keys[b2i(s.onAlt)]
	switch marker {
	case '>':
		if len(*stack) == depth {
			*stack = append((*stack)[:0:0], (*stack)[1:]...)
		}
		*stack = append(*stack, p.at(0, 0)&31)
	case '<':
		*stack = (*stack)[:max(len(*stack)-p.count(0), 0)]
	case '=':
		if len(*stack) == 0 {
			*stack = append(*stack, 0)
		}
		top, flags := &(*stack)[len(*stack)-1], p.at(0, 0)&31
		switch p.at(1, 1) {
		case 1:
			*top = flags
		case 2:
			*top |= flags
		case 3:
			*top &^= flags
		}
	default:
		s.ask(marker, 0, 'u', p)
		return false
	}
	return true
}

// escapeFinal handles a sequence of ESC and one byte.
func (s *Screen) escapeFinal(b byte) bool {
	switch b {
	case '7':
		s.save()
	case '8':
		s.restore()
	case 'D':
		s.index()
	case 'E':
		s.index()
		s.moveX(0)
	case 'M':
		s.reverseIndex()
	case 'H':
		s.tabs[s.cur.x] = true
	case 'c':
		// A viewer's terminal is not reset as a whole; it is brought to the same state.
		s.reset()
		s.out = s.snapshot(s.out)
		return false
	case '=':
		s.modes |= modeKeypad
	case '>':
		s.modes &^= modeKeypad
	case 'n', 'o':
		s.cur.gl = int(b-'n') + 2
	default:
		return false
	}
	return true
}

// designate handles a sequence of ESC, intermediate bytes and a final byte.
func (s *Screen) designate() bool {
	if len(s.seq) != 3 {
		return false
	}
	set := s.seq[2]
	switch s.seq[1] {
	case '(', ')', '*', '+':
		if set != '0' && set != 'A' {
			set = 'B'
		}
		s.cur.sets[s.seq[1]-'('] = set
		s.seq[2] = set
		return true
	case '#':
		if set != '8' {
			return false
		}
		for _, row := range s.grid() {
			for x := range row {
				row[x] = cell{r: 'E'}
			}
		}
		s.top, s.bot = 0, s.rows
		s.cur.x, s.cur.y, s.cur.wrap = 0, 0, false
		return true
	}
	return false
}
