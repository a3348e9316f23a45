package attach

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/term"
)

const (
	// A terminal of another size is drawn at most so often; what is typed shows at once.
	frameTime = 16 * time.Millisecond
	// saveTitle and loadTitle keep the title of the person's terminal.
	saveTitle, loadTitle = "\x1b[22;2t", "\x1b[23;2t"
	noMouse              = "\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l"
	// leave undoes every mode that a screen may set.
	leave = "\x1b[?2026l\x1b[<99u\x1b[?1049l\x1b[<99u\x1b[>4m\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b[20l" + noMouse +
		"\x1b[?1l\x1b[?5l\x1b[?12l\x1b[?66l\x1b[?1005l\x1b[?1006l\x1b[?1007l\x1b[?1015l\x1b[?1016l\x1b[?2004l" +
		"\x1b[0 q\x1b]8;;\x1b\\\x1b[0m\x1b(B\x0f\x1b[?25h\x1b[3g"
)

// leaving undoes what a screen may set in a terminal that is so wide, and goes below what is shown. No terminal tells where its tab stops
// were, so they are those of a new one.
func leaving(cols int) string {
	var b strings.Builder
	b.WriteString(leave)
	for x := 8; x < cols; x += 8 {
		fmt.Fprintf(&b, "\x1b[1;%dH\x1bH", x+1)
	}
	b.WriteString("\x1b[999;1H\r\n")
	return b.String()
}

// glass shows the agent's terminal on a terminal of any size.
type glass struct {
	out        io.Writer
	cols, rows int          // of the person's terminal
	screen     *term.Screen // what the agent's shows; nil before the first snapshot
	ox, oy     int          // of the part that is shown
	drawn      []string     // lines as they were drawn last; nil when the terminal shows something else
	modes      string       // as they were set last
	dirty      bool         // something is not drawn yet
	last       time.Time    // when it was drawn
	err        error        // of the terminal, the first
}

func newGlass(out io.Writer, cols, rows int) *glass { return &glass{out: out, cols: cols, rows: rows} }

func (g *glass) write(p []byte) {
	if g.err == nil && len(p) > 0 {
		_, g.err = g.out.Write(p)
	}
}

// whole reports whether the terminal has the size of the agent's.
func (g *glass) whole() bool {
	cols, rows := g.screen.Size()
	return cols == g.cols && rows == g.rows
}

// take shows one event.
func (g *glass) take(ev endpoint.SessionEvent) {
	switch ev.Kind {
	case endpoint.SessionSnapshot:
		g.screen = term.New(ev.Cols, ev.Rows)
		_, _ = g.screen.Write(ev.Data) // a screen takes everything
		g.repaint()
	case endpoint.SessionOutput:
		if g.screen == nil {
			return
		}
		out := g.screen.Feed(ev.Data)
		if g.whole() && g.drawn == nil {
			g.write(out)
			return
		}
		g.dirty = true
	case endpoint.SessionResized:
		if g.screen != nil {
			g.screen.Resize(ev.Cols, ev.Rows)
			g.repaint()
		}
	}
}

// resize says that the person's terminal has another size.
func (g *glass) resize(cols, rows int) {
	if cols == g.cols && rows == g.rows {
		return
	}
	g.cols, g.rows = cols, rows
	if g.screen != nil {
		g.repaint()
	}
}

// repaint shows everything anew.
func (g *glass) repaint() {
	g.drawn, g.modes = nil, ""
	if g.whole() {
		g.dirty = false
		g.write(g.screen.Snapshot()) // whatever the terminal showed
		return
	}
	g.write([]byte("\x1b[?2026h\x1b[<99u\x1b[?1049l\x1b[<99u\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b]8;;\x1b\\\x1b[0m\x1b(B\x0f\x1b[2J\x1b[?2026l"))
	g.drawn = make([]string, g.rows)
	g.draw(time.Now())
}

// wait is how long until what is dirty should be drawn, and whether anything is.
func (g *glass) wait(now time.Time) (time.Duration, bool) {
	return max(0, frameTime-now.Sub(g.last)), g.dirty
}

// draw draws the part around the cursor, as far as it changed.
func (g *glass) draw(now time.Time) {
	g.dirty, g.last = false, now
	grid := g.screen.Grid()
	g.ox, g.oy = scroll(g.ox, grid.CursorX, g.cols, grid.Cols), scroll(g.oy, grid.CursorY, g.rows, grid.Rows)
	var b bytes.Buffer
	b.WriteString("\x1b[?2026h\x1b[?25l")
	for y := range g.rows {
		line := "\x1b[0m\x1b[K"
		if at := y + g.oy; at < len(grid.Cells) {
			line = g.line(grid.Cells[at])
		}
		if line != g.drawn[y] {
			fmt.Fprintf(&b, "\x1b[%d;1H%s", y+1, line)
			g.drawn[y] = line
		}
	}
	if m := string(g.screen.Modes()); m != g.modes {
		b.WriteString(m + noMouse) // where the mouse points is another place there
		g.modes = m
	}
	b.WriteString(g.place(&grid))
	g.write(b.Bytes())
}

// place ends what was drawn of a part: it puts the cursor where it is there.
func (g *glass) place(grid *term.Grid) string {
	end := fmt.Sprintf("\x1b[0m\x1b[%d;%dH", grid.CursorY-g.oy+1, grid.CursorX-g.ox+1)
	if !grid.Hidden {
		end += "\x1b[?25h"
	}
	return end + "\x1b[?2026l"
}

// scroll moves an offset as little as shows the cursor, and no further than the content goes.
func scroll(offset, cursor, shown, all int) int {
	offset = min(offset, max(all-shown, 0))
	return min(max(offset, cursor-shown+1), cursor)
}

// line is what draws the part of a row that is shown.
func (g *glass) line(row []term.Cell) string {
	var b strings.Builder
	style := ""
	for x := g.ox; x < min(g.ox+g.cols, len(row)); {
		c := row[x]
		if c.Style != style {
			style = c.Style
			b.WriteString("\x1b[0m" + style)
		}
		if c.Width == 0 || x+c.Width > g.ox+g.cols { // half a wide character
			b.WriteByte(' ')
			x++
			continue
		}
		b.WriteString(c.Text)
		x += c.Width
	}
	if len(row)-g.ox < g.cols {
		b.WriteString("\x1b[0m\x1b[K")
	}
	return "\x1b[0m" + b.String()
}

// status shows a line at the bottom, over what is there. The next snapshot takes it away.
func (g *glass) status(text string) {
	line := []rune(" " + text + " ")
	bar := "\x1b[0;7m" + string(line[:min(len(line), g.cols)]) + "\x1b[0m"
	if len(line) < g.cols {
		bar += "\x1b[K"
	}
	switch {
	case g.screen == nil: // the terminal shows what is the person's own
		g.write(fmt.Appendf(nil, "\x1b7\x1b[%d;1H%s\x1b8", g.rows, bar))
	case g.drawn == nil:
		g.write(g.screen.Over(g.rows-1, bar))
	default:
		grid := g.screen.Grid()
		g.write(fmt.Appendf(nil, "\x1b[?2026h\x1b[?25l\x1b[%d;1H%s%s", g.rows, bar, g.place(&grid)))
		g.drawn[len(g.drawn)-1] = "" // to be drawn anew
	}
}
