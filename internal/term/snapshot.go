package term

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Snapshot returns bytes that make a terminal of the same size show the same: grid, styles, links, both screens, cursor, scroll
// region, tab stops, modes, title. After 4 MiB links are left out. They work whatever that terminal showed before. What Feed returns afterwards continues it.
func (s *Screen) Snapshot() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot(make([]byte, 0, 4096))
}

func (s *Screen) snapshot(b []byte) []byte {
	// Nothing is shown until all of it is there, in terminals that know how.
	b = append(b, "\x1b[?2026h\x1b[?25l\x1b[<99u\x1b[?1049l\x1b[<99u\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l\x1b]8;;\x1b\\\x1b[0m\x1b[2J"...)
	b = s.paintTabs(b)
	b = s.paint(b, s.main, 0)
	if s.onAlt {
		b = s.paintSaved(b, s.saved[0])
		b = append(b, "\x1b[?1049h\x1b[<99u"+unpen+"\x1b[2J"...)
		b = s.paint(b, s.alt, 1)
	}
	b = s.paintSaved(b, s.saved[b2i(s.onAlt)])
	b = append(b, unpen+"\x1b]2;"...)
	b = append(append(b, s.title...), "\x1b\\"...)
	b = s.paintModes(b)
	b = fmt.Appendf(b, "\x1b[%d;%dr", s.top+1, s.bot)
	return append(s.paintCursor(b), "\x1b[?2026l"...)
}

// paint writes the cells of a cleared grid, and the keyboard flags of its screen.
func (s *Screen) paint(b []byte, grid [][]cell, screen int) []byte {
	b = append(b, "\x1b(B\x0f"...)
	var pen style
	var at *link
	for y, row := range grid {
		end := len(row)
		for end > 0 && plainBlank(row[end-1]) {
			end--
		}
		if end == 0 {
			continue
		}
		b = fmt.Appendf(b, "\x1b[%dH", y+1)
		for x := 0; x < end; x++ {
			c := &row[x]
			if c.r == 0 {
				continue
			}
			if c.st != pen {
				pen = c.st
				b = pen.append(b)
			}
			l := c.link
			if len(b) > maxLinked {
				l = nil
			}
			if l != at && (l == nil || at == nil || *l != *at) {
				b = l.append(b)
			}
			at = l
			b = utf8.AppendRune(b, c.r)
			b = append(b, c.marks...)
		}
	}
	if at != nil {
		b = (*link)(nil).append(b)
	}
	b = append(b, "\x1b[0m"...)
	for _, flags := range s.keys[screen] {
		b = fmt.Appendf(b, "\x1b[>%du", flags)
	}
	return b
}

func plainBlank(c cell) bool { return c == cell{r: ' '} }

func (l *link) append(b []byte) []byte {
	if l == nil {
		return append(b, "\x1b]8;;\x1b\\"...)
	}
	b = append(append(b, "\x1b]8;"...), l.params...)
	return append(append(append(b, ';'), l.url...), "\x1b\\"...)
}

func (s *Screen) paintTabs(b []byte) []byte {
	b = append(b, "\x1b[3g"...)
	for x, stop := range s.tabs {
		if stop {
			b = fmt.Appendf(b, "\x1b[1;%dH\x1bH", x+1)
		}
	}
	return b
}

// unpen ends what paintSaved leaves behind.
const unpen = "\x1b[?6l\x1b[r\x1b[0m\x1b(B\x0f"

// paintSaved makes c the saved cursor of the screen that is shown, and leaves its pen, place and origin mode. What follows is unpen,
// or the switch to the alternate screen, which saves the cursor once more.
func (s *Screen) paintSaved(b []byte, c cursor) []byte {
	y := c.y
	if c.origin {
		// Setting origin mode moves to the top of the region, so the region is cut to begin at or above the cursor.
		top := max(min(c.y, s.rows-2), 0)
		b = fmt.Appendf(b, "\x1b[%d;%dr\x1b[?6h", top+1, s.rows)
		y -= top
	}
	b = fmt.Appendf(b, "\x1b[%d;%dH", y+1, c.x+1)
	return append(s.paintPen(b, c), "\x1b7"...)
}

// paintPen sets style and character sets.
func (s *Screen) paintPen(b []byte, c cursor) []byte {
	b = c.st.append(b)
	for i, set := range c.sets {
		b = append(b, esc, byte('('+i), set)
	}
	switch c.gl {
	case 0:
		return append(b, 0x0f)
	case 1:
		return append(b, 0x0e)
	}
	return append(b, esc, byte('n'+c.gl-2))
}

// Modes returns bytes that set the modes of another terminal: what its keys, its mouse and pasting send, its cursor's shape. They paint
// nothing.
func (s *Screen) Modes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paintModes(nil)
}

// paintModes sets every switch, on or off, but for wrapping, which comes with the cursor.
func (s *Screen) paintModes(b []byte) []byte {
	var on []int
	for f := range strings.FieldsSeq(privateNumbers) {
		n, _ := strconv.Atoi(f)
		switch m := private(n); {
		case m == modeWrap, m == modeVisible, m == modeBlink:
		case s.modes&m != 0:
			on = append(on, n)
		default:
			b = fmt.Appendf(b, "\x1b[?%dl", n)
		}
	}
	for _, n := range on {
		b = fmt.Appendf(b, "\x1b[?%dh", n)
	}
	b = fmt.Appendf(b, "\x1b[%d q\x1b[?12%c", s.shape, onOff(s.modes&modeBlink != 0))
	if s.otherKeys == 0 {
		return append(b, "\x1b[>4m"...)
	}
	return fmt.Appendf(b, "\x1b[>4;%dm", s.otherKeys)
}

func onOff(on bool) byte {
	if on {
		return 'h'
	}
	return 'l'
}

// paintCursor puts the cursor where it is, with what it has pending.
func (s *Screen) paintCursor(b []byte) []byte {
	c := s.cur
	y := c.y
	if c.origin {
		b = append(b, "\x1b[?6h"...)
		y -= s.top
	}
	b = fmt.Appendf(b, "\x1b[%d;%dH", y+1, c.x+1)
	if c.wrap {
		// Only a character written in the last column leaves the cursor behind it: it is written once more.
		x, row := c.x, s.grid()[c.y]
		if row[x].r == 0 {
			x--
		}
		b = fmt.Appendf(b, "\x1b[%d;%dH", y+1, x+1)
		b = row[x].st.append(b)
		if row[x].link != nil {
			b = row[x].link.append(b)
		}
		b = append(utf8.AppendRune(b, row[x].r), row[x].marks...)
		b = (*link)(nil).append(b)
	}
	if s.modes&modeWrap == 0 {
		b = append(b, "\x1b[?7l"...)
	}
	b = s.paintPen(b, c)
	if c.link != nil {
		b = c.link.append(b)
	}
	if s.modes&modeInsert != 0 {
		b = append(b, "\x1b[4h"...)
	}
	if s.modes&modeNewline != 0 {
		b = append(b, "\x1b[20h"...)
	}
	return append(append(b, "\x1b[?25"...), onOff(s.modes&modeVisible != 0))
}

// state is what a grid does not show, as text.
func (s *Screen) state() string {
	at := func(c cursor) string {
		l := link{}
		if c.link != nil {
			l = *c.link
		}
		return fmt.Sprintf("%d,%d wrap=%t origin=%t pen=%q sets=%s/%d link=%q", c.x, c.y, c.wrap, c.origin, c.st.append(nil), c.sets, c.gl, l)
	}
	saved0, saved1 := s.saved[0], s.saved[1]
	saved0.link, saved0.wrap, saved1.link, saved1.wrap = nil, false, nil, false
	var b strings.Builder
	fmt.Fprintf(&b, "cursor %s\nsaved %s\n", at(s.cur), at(saved0))
	keys := s.keys[:1]
	if s.onAlt {
		fmt.Fprintf(&b, "saved alt %s\n", at(saved1))
		keys = s.keys[:]
	}
	fmt.Fprintf(&b, "region %d-%d modes %x shape %d keys %v other %d title %q tabs", s.top, s.bot, uint32(s.modes), s.shape, keys, s.otherKeys, s.title)
	for x, stop := range s.tabs {
		if stop {
			fmt.Fprintf(&b, " %d", x)
		}
	}
	return b.String()
}
