package term

import "fmt"

// Over returns bytes that draw text, which may hold SGR sequences, over a row of a terminal of the same size that shows the same, from
// its first column on. All else of that terminal stays as it is: the cursor and what goes with it, and the cursor that the program has
// saved. What Feed returns afterwards continues it.
func (s *Screen) Over(row int, text string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := fmt.Appendf(nil, "\x1b[?2026h\x1b[?6l\x1b[?7h\x1b[4l\x1b]8;;\x1b\\\x1b[0m\x1b(B\x0f\x1b[%d;1H%s", row+1, text)
	return append(s.paintCursor(b), "\x1b[?2026l"...)
}
