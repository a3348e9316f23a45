package term

import (
	"fmt"
	"strconv"
)

// mode is the set of modes that are on.
type mode uint32

const (
	modeWrap mode = 1 << iota
	modeVisible
	modeInsert
	modeNewline
	modeCursorKeys
	modeKeypad
	modeReverse
	modeBlink
	modePaste
	modeFocus
	modeAltScroll
	modeMouseX10
	modeMouseNormal
	modeMouseButton
	modeMouseAny
	modeMouseUTF8
	modeMouseSGR
	modeMouseURXVT
	modeMousePixels
)

const (
	mouseKinds   = modeMouseX10 | modeMouseNormal | modeMouseButton | modeMouseAny
	mouseFormats = modeMouseUTF8 | modeMouseSGR | modeMouseURXVT | modeMousePixels
)

// private returns the mode of a DEC private number; 0 for one that is not a plain switch.
func private(n int) mode {
	switch n {
	case 1:
		return modeCursorKeys
	case 5:
		return modeReverse
	case 7:
		return modeWrap
	case 9:
		return modeMouseX10
	case 12:
		return modeBlink
	case 25:
		return modeVisible
	case 66:
		return modeKeypad
	case 1000:
		return modeMouseNormal
	case 1002:
		return modeMouseButton
	case 1003:
		return modeMouseAny
	case 1004:
		return modeFocus
	case 1005:
		return modeMouseUTF8
	case 1006:
		return modeMouseSGR
	case 1007:
		return modeAltScroll
	case 1015:
		return modeMouseURXVT
	case 1016:
		return modeMousePixels
	case 2004:
		return modePaste
	}
	return 0
}

// privateNumbers are the numbers that private knows, those first that must be first when all are set.
const privateNumbers = "1 5 7 9 12 66 1000 1002 1003 1004 1005 1006 1007 1015 1016 2004 25"

// privateModes sets or clears DEC private modes. Viewers get those that are understood, one sequence each.
func (s *Screen) privateModes(p params, on bool) bool {
	final := byte('l')
	if on {
		final = 'h'
	}
	for _, m := range p {
		was := s.onAlt
		if m.n != 2026 && !s.privateMode(m.n, on) {
			continue
		}
		s.out = append(s.out, "\x1b[?"...)
		s.out = append(strconv.AppendInt(s.out, int64(m.n), 10), final)
		if s.onAlt && !was {
			// Some terminals show what the alternate screen last held.
			s.out = append(s.out, "\x1b[2J"...)
		}
	}
	return false
}

func (s *Screen) privateMode(n int, on bool) bool {
	switch n {
	case 6:
		s.cur.origin = on
		s.moveTo(0, 0)
	case 47, 1047:
		s.screen(on)
	case 1048:
		if on {
			s.save()
		} else {
			s.restore()
		}
	case 1049:
		if on && !s.onAlt {
			s.save()
			s.screen(true)
		} else if !on && s.onAlt {
			s.screen(false)
			s.restore()
		} else {
			return false
		}
	default:
		m := private(n)
		if m == 0 {
			return false
		}
		switch {
		case m&mouseKinds != 0:
			s.modes &^= mouseKinds
		case m&mouseFormats != 0:
			s.modes &^= mouseFormats
		case m == modeWrap && !on:
			s.cur.wrap = false
		}
		s.modes &^= m
		if on {
			s.modes |= m
		}
	}
	return true
}

// screen shows the alternate screen, empty, or the main one again.
func (s *Screen) screen(alt bool) {
	if alt == s.onAlt {
		return
	}
	s.onAlt = alt
	if !alt {
		return
	}
	if s.alt == nil {
		s.alt = newGrid(s.cols, s.rows)
	}
	s.cur.wrap, s.saved[1], s.keys[1] = false, freshCursor(), nil
	for _, row := range s.alt {
		fill(row, s.cur.st)
	}
}

// ansiModes sets or clears ANSI modes. Viewers get those that are understood, one sequence each.
func (s *Screen) ansiModes(p params, on bool) bool {
	for _, m := range p {
		bit := modeInsert
		switch m.n {
		case 4:
		case 20:
			bit = modeNewline
		default:
			continue
		}
		s.modes &^= bit
		if on {
			s.modes |= bit
		}
		s.out = fmt.Appendf(s.out, "\x1b[%d%c", m.n, "lh"[b2i(on)])
	}
	return false
}
