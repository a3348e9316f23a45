package term

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Limits of a screen. A size beyond them is clamped.
const (
	MaxCols = 1000
	MaxRows = 500
	// History bounds the text of lines that left the top, in bytes. Up to twice as much is held.
	History = 32 << 10
)

const (
	maxSequence = 4096     // bytes of one escape sequence; a longer one is dropped whole
	maxReplies  = 4096     // bytes of answers that nobody fetched
	maxMarks    = 32       // bytes of combining characters of one cell
	maxPooled   = 64 << 10 // bytes of output buffer kept between calls
	maxLink     = 2048     // bytes of a hyperlink; a longer one is none
	maxLinks    = 1024     // different hyperlinks on the screen; text of further ones is not linked
	maxLinked   = 4 << 20  // bytes of a snapshot after which its text is not linked
	maxRepeated = 1 << 20  // bytes of output of one call after which repeated characters come as a snapshot
)

// Screen is a terminal's screen. Make it with [New].
type Screen struct {
	mu         sync.Mutex
	cols, rows int
	main, alt  [][]cell // alt is nil until it is used
	onAlt      bool
	cur        cursor
	saved      [2]cursor // of main and alt
	keys       [2][]int  // kitty keyboard flags pushed, of main and alt
	otherKeys  int       // modifyOtherKeys
	top, bot   int       // scroll region, bot exclusive
	tabs       []bool
	modes      mode
	shape      int // DECSCUSR
	title      string
	links      map[link]*link // those that cells may have
	last       rune           // for REP
	history    []byte

	in      state
	seq     []byte // of the sequence that is being read, from ESC
	tooLong bool
	part    [utf8.UTFMax]byte // of a character
	partLen int
	out     []byte // what Feed returns
	replies []byte
}

// cursor is what DECSC saves, and whether the next character wraps first.
type cursor struct {
	x, y   int
	wrap   bool
	st     style
	link   *link
	sets   [4]byte // character sets: B, A or 0
	gl     int
	origin bool
}

func freshCursor() cursor { return cursor{sets: [4]byte{'B', 'B', 'B', 'B'}} }

// New returns an empty screen. Sizes are clamped to 1 … [MaxCols] and 1 … [MaxRows].
func New(cols, rows int) *Screen {
	s := &Screen{cols: min(max(cols, 1), MaxCols), rows: min(max(rows, 1), MaxRows)}
	s.main = newGrid(s.cols, s.rows)
	s.reset()
	return s
}

// reset brings everything but size and history to what it is on a new screen.
func (s *Screen) reset() {
	s.onAlt, s.alt = false, nil
	for _, row := range s.main {
		fill(row, style{})
	}
	s.cur, s.saved = freshCursor(), [2]cursor{freshCursor(), freshCursor()}
	s.keys, s.otherKeys, s.shape, s.title, s.last, s.links = [2][]int{}, 0, 0, "", 0, nil
	s.top, s.bot = 0, s.rows
	s.modes = modeWrap | modeVisible
	s.tabs = defaultTabs(s.cols, 0, nil)
}

// Write takes output of the program. It never fails.
func (s *Screen) Write(p []byte) (int, error) {
	s.Feed(p)
	return len(p), nil
}

// Feed is Write, and returns what a viewer's terminal should be given for it: whole sequences and characters only, without
// questions and without what the screen does not understand. The result is valid until the next call of Feed or Write. A sequence or
// character that has not ended yet comes with the call that ends it.
func (s *Screen) Feed(p []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(s.out) > maxPooled {
		s.out = nil
	}
	s.out = s.out[:0]
	s.parse(p)
	return s.out
}

// Replies returns and forgets the answers to what the program asked since the last call: where the cursor is, what kind of terminal
// this is, which modes are set. They belong into the program's input. Nil when there are none.
func (s *Screen) Replies() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.replies
	s.replies = nil
	return r
}

// Size returns the size in cells.
func (s *Screen) Size() (cols, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cols, s.rows
}

// Pasting reports whether the program has asked for pasted text to be marked (bracketed paste).
func (s *Screen) Pasting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modes&modePaste != 0
}

// Resize changes the size, clamped as in [New]. Lines are cut or filled, not wrapped anew. Rows that no longer fit above the cursor
// leave by the top. The scroll region becomes the whole screen.
func (s *Screen) Resize(cols, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cols, rows = min(max(cols, 1), MaxCols), min(max(rows, 1), MaxRows)
	if cols == s.cols && rows == s.rows {
		return
	}
	gone := max(s.cur.y-rows+1, 0)
	if !s.onAlt {
		for _, row := range s.main[:gone] {
			s.remember(row)
		}
	}
	s.main = resized(s.main, gone*b2i(!s.onAlt), cols, rows)
	if s.alt != nil {
		s.alt = resized(s.alt, gone*b2i(s.onAlt), cols, rows)
	}
	s.tabs = defaultTabs(cols, s.cols, s.tabs)
	s.cols, s.rows, s.top, s.bot = cols, rows, 0, rows
	s.cur.y -= gone
	if s.cur.x >= cols-1 {
		s.cur.x, s.cur.wrap = cols-1, false
	}
	s.cur.wrap = s.cur.wrap && s.cur.x == cols-1
	for i := range s.saved {
		s.saved[i].x, s.saved[i].y = min(s.saved[i].x, cols-1), min(s.saved[i].y, rows-1)
	}
}

// Lines returns the text of the last n lines that have any, oldest first: of the screen, preceded by those that left its top.
// Blank lines at the end do not count.
func (s *Screen) Lines(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	if !s.onAlt && len(s.history) > 0 {
		for l := range bytes.SplitSeq(bytes.TrimSuffix(s.history, []byte("\n")), []byte("\n")) {
			lines = append(lines, string(l))
		}
	}
	for _, row := range s.grid() {
		lines = append(lines, text(row))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return slices.Clone(lines[max(len(lines)-max(n, 0), 0):])
}

// remember keeps the text of a line that leaves the top.
func (s *Screen) remember(row []cell) {
	if len(s.history) > 2*History {
		cut := len(s.history) - History
		if i := bytes.IndexByte(s.history[cut:], '\n'); i >= 0 {
			cut += i + 1
		}
		s.history = s.history[:copy(s.history, s.history[cut:])]
	}
	s.history = appendText(s.history, row)
	s.history = append(s.history, '\n')
}

func (s *Screen) grid() [][]cell {
	if s.onAlt {
		return s.alt
	}
	return s.main
}

func text(row []cell) string { return string(appendText(nil, row)) }

func appendText(b []byte, row []cell) []byte {
	start := len(b)
	for i := range row {
		if row[i].r == 0 {
			continue
		}
		b = utf8.AppendRune(b, row[i].r)
		b = append(b, row[i].marks...)
	}
	return b[:start+len(bytes.TrimRight(b[start:], " "))]
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// defaultTabs returns a stop at every eighth column, but the old ones up to column from.
func defaultTabs(cols, from int, old []bool) []bool {
	t := make([]bool, cols)
	for i := range t {
		t[i] = i > 0 && i%8 == 0
	}
	copy(t, old[:min(from, len(old))])
	return t
}

// Grid is a screen as tests compare it.
type Grid struct {
	Cols, Rows       int
	Alt              bool
	CursorX, CursorY int
	Hidden           bool
	Cells            [][]Cell // of the screen that is shown
	Main             [][]Cell // of the main screen while the alternate one is shown
	State            string   // modes, scroll region, tab stops, saved cursors and what else there is, as text
}

// Cell is one cell. The right half of a wide character has width 0 and no text.
type Cell struct {
	Text  string
	Width int
	Style string // an SGR sequence
	Link  string
}

// Text returns the lines of the grid without trailing spaces.
func (g Grid) Text() string {
	var b strings.Builder
	for _, row := range g.Cells {
		line := ""
		for _, c := range row {
			line += c.Text
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// Grid returns a copy of what the screen shows.
func (s *Screen) Grid() Grid {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := Grid{
		Cols: s.cols, Rows: s.rows, Alt: s.onAlt, CursorX: s.cur.x, CursorY: s.cur.y, Hidden: s.modes&modeVisible == 0,
		Cells: cells(s.grid()), State: s.state(),
	}
	if s.onAlt {
		g.Main = cells(s.main)
	}
	return g
}

func cells(grid [][]cell) [][]Cell {
	out := make([][]Cell, len(grid))
	for y, row := range grid {
		out[y] = make([]Cell, len(row))
		for x := range row {
			c := Cell{Style: string(row[x].st.append(nil))}
			if row[x].r != 0 {
				c.Text, c.Width = string(row[x].r)+row[x].marks, 1+b2i(row[x].wide)
			}
			if l := row[x].link; l != nil {
				c.Link = l.params + ";" + l.url
			}
			out[y][x] = c
		}
	}
	return out
}
