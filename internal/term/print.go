package term

import (
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
)

// width counts columns as wcwidth does: 0, 1 or 2.
func width(r rune) int {
	if r < 0x300 {
		return 1
	}
	return min(max(displaywidth.Rune(r), 0), 2)
}

// print puts a character at the cursor, and shows it to viewers if it has a place.
func (s *Screen) print(r rune) {
	if r >= 0x7f && r < 0xa0 {
		return
	}
	if s.put(r) {
		s.out = utf8.AppendRune(s.out, r)
	}
}

func (s *Screen) put(r rune) bool {
	shown := r
	if r < 0x7f {
		switch s.cur.sets[s.cur.gl] {
		case '0':
			shown = graphic(r)
		case 'A':
			if r == '#' {
				shown = '£'
			}
		}
	}
	w := width(shown)
	if w == 0 {
		return s.mark(shown)
	}
	if w > s.cols {
		return false
	}
	if s.cur.wrap || w == 2 && s.cur.x == s.cols-1 {
		if s.modes&modeWrap == 0 {
			return false // terminals differ in where it goes, so it goes nowhere
		}
		s.cur.x = 0
		s.index()
	}
	x, row := s.cur.x, s.grid()[s.cur.y]
	if s.modes&modeInsert != 0 {
		shiftRight(row, x, w, s.cur.st)
	} else {
		part(row, x)
		part(row, x+w)
	}
	row[x] = cell{r: shown, wide: w == 2, st: s.cur.st, link: s.cur.link}
	if w == 2 {
		row[x+1] = cell{st: s.cur.st, link: s.cur.link}
	}
	s.last = r
	s.cur.x += w
	if s.cur.x >= s.cols {
		s.cur.x, s.cur.wrap = s.cols-1, s.modes&modeWrap != 0
	}
	return true
}

// mark adds a combining character to the one before the cursor. At the start of a line there is none.
func (s *Screen) mark(r rune) bool {
	x, row := s.cur.x-1, s.grid()[s.cur.y]
	if s.cur.wrap {
		x = s.cur.x
	}
	if x >= 0 && row[x].r == 0 {
		x--
	}
	if x < 0 || len(row[x].marks)+utf8.RuneLen(r) > maxMarks {
		return false
	}
	row[x].marks += string(r)
	return true
}

// graphic is the line drawing set of the VT100.
func graphic(r rune) rune {
	const from = '`'
	const set = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
	if r < from || r > '~' {
		return r
	}
	i := from
	for _, g := range set {
		if i == r {
			return g
		}
		i++
	}
	return r
}

// control does what a control character asks for.
func (s *Screen) control(b byte) {
	switch b {
	case bel:
	case '\b':
		s.moveX(s.cur.x - 1)
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.index()
		if s.modes&modeNewline != 0 {
			s.moveX(0)
		}
	case '\r':
		s.moveX(0)
	case 0x0e:
		s.cur.gl = 1
	case 0x0f:
		s.cur.gl = 0
	default:
		return
	}
	s.out = append(s.out, b)
}

func (s *Screen) moveX(x int) {
	s.cur.x, s.cur.wrap = min(max(x, 0), s.cols-1), false
}

// moveTo is CUP: in origin mode it counts from the scroll region and stays in it.
func (s *Screen) moveTo(x, y int) {
	low, high := 0, s.rows
	if s.cur.origin {
		low, high = s.top, s.bot
	}
	s.cur.y = min(max(y+low, low), high-1)
	s.moveX(x)
}

// moveY goes up or down, and stops at the edge of the scroll region when it starts inside.
func (s *Screen) moveY(n int) {
	low, high := 0, s.rows-1
	if s.cur.y >= s.top {
		low = s.top
	}
	if s.cur.y < s.bot {
		high = s.bot - 1
	}
	s.cur.y, s.cur.wrap = min(max(s.cur.y+n, low), high), false
}

func (s *Screen) index() {
	s.cur.wrap = false
	switch {
	case s.cur.y == s.bot-1:
		s.scrollUp(s.top, 1, true)
	case s.cur.y < s.rows-1:
		s.cur.y++
	}
}

func (s *Screen) reverseIndex() {
	s.cur.wrap = false
	switch {
	case s.cur.y == s.top:
		s.scrollDown(s.top, 1)
	case s.cur.y > 0:
		s.cur.y--
	}
}

// scrollUp moves the rows from top to the end of the region up by n. Rows that leave the main screen at its top are remembered
// if keep is set.
func (s *Screen) scrollUp(top, n int, keep bool) {
	grid := s.grid()
	n = min(n, s.bot-top)
	for range n {
		row := grid[top]
		if keep && top == 0 && !s.onAlt {
			s.remember(row)
		}
		copy(grid[top:s.bot], grid[top+1:s.bot])
		fill(row, s.cur.st)
		grid[s.bot-1] = row
	}
}

func (s *Screen) scrollDown(top, n int) {
	grid := s.grid()
	n = min(n, s.bot-top)
	for range n {
		row := grid[s.bot-1]
		copy(grid[top+1:s.bot], grid[top:s.bot-1])
		fill(row, s.cur.st)
		grid[top] = row
	}
}

// tab goes n tab stops on, or back when n is negative.
func (s *Screen) tab(n int) {
	x, step := s.cur.x, 1
	if n < 0 {
		n, step = -n, -1
	}
	for range min(n, s.cols) {
		for x += step; x > 0 && x < s.cols-1 && !s.tabs[x]; x += step {
		}
	}
	s.moveX(x)
}
