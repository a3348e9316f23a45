package attach

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/internal/term"
)

// person is a terminal of a person.
type person struct{ *term.Screen }

func (p person) Write(b []byte) (int, error) { return p.Screen.Write(b) }

// cropped compares what the person sees with the part of the agent's terminal around the cursor.
func cropped(t *testing.T, g *glass, p person, what string) {
	t.Helper()
	agent, seen := g.screen.Grid(), p.Grid()
	for y := range seen.Rows {
		for x := 0; x < seen.Cols; x++ {
			want := term.Cell{Text: " ", Width: 1}
			if ay, ax := y+g.oy, x+g.ox; ay < agent.Rows && ax < agent.Cols {
				c := agent.Cells[ay][ax]
				if c.Width == 2 && x+2 > seen.Cols || c.Width == 0 && x == 0 {
					continue // half of a wide character at the edge
				}
				want.Text, want.Width, want.Style = c.Text, c.Width, c.Style
			}
			got := seen.Cells[y][x]
			if got.Text != want.Text || got.Width != want.Width || want.Style != "" && got.Style != want.Style {
				t.Fatalf("%s: at %d, %d the person sees %+v, not %+v\n%s\n--\n%s", what, x, y, got, want, agent.Text(), seen.Text())
			}
		}
	}
	if x, y := agent.CursorX-g.ox, agent.CursorY-g.oy; x != seen.CursorX || y != seen.CursorY {
		t.Fatalf("%s: the cursor is at %d, %d, not %d, %d", what, seen.CursorX, seen.CursorY, x, y)
	}
	if seen.Hidden != agent.Hidden {
		t.Fatalf("%s: hidden %v", what, seen.Hidden)
	}
}

// output is what a program may write.
func output(r *rand.Rand, cols, rows int) string {
	var b strings.Builder
	for range 1 + r.IntN(8) {
		switch r.IntN(13) {
		case 0:
			fmt.Fprintf(&b, "\x1b[%d;%dH", 1+r.IntN(rows), 1+r.IntN(cols))
		case 1:
			fmt.Fprintf(&b, "\x1b[%d;4%dm", 30+r.IntN(8), r.IntN(8))
		case 2:
			b.WriteString("漢字かな")
		case 3:
			b.WriteString("e\u0301a\u0308")
		case 4:
			b.WriteString([]string{"\x1b[?1049h", "\x1b[?1049l"}[r.IntN(2)])
		case 5:
			b.WriteString([]string{"\x1b[?25h", "\x1b[?25l", "\x1b[?1h", "\x1b[?2004h", "\x1b[?1000h"}[r.IntN(5)])
		case 6:
			b.WriteString("\r\n")
		case 7:
			b.WriteString([]string{"\x1b[K", "\x1b[2J", "\x1b[L", "\x1b[M", "\x1b[2;5r", "\x1b[r", "\x1b[0m", "\x1b[7m"}[r.IntN(8)])
		case 8:
			b.WriteString([]string{"\x1b7", "\x1b8", "\x1b[3g", "\x1bH", "\t", "\x1b[?6h", "\x1b[?6l", "\x1b[4h", "\x1b[4l", "\x1b(0", "\x1b(B"}[r.IntN(11)])
		default:
			fmt.Fprintf(&b, "word%d ", r.IntN(1000))
		}
	}
	return b.String()
}

// TestGlass shows a terminal on terminals of the same and of other sizes, through size changes on both sides and snapshots.
func TestGlass(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		cols, rows := 10+r.IntN(60), 4+r.IntN(20)
		p := person{term.New(cols, rows)}
		g := newGlass(p, cols, rows)
		agent := term.New(30, 10)
		g.take(endpoint.SessionEvent{Kind: endpoint.SessionSnapshot, Cols: 30, Rows: 10, Data: agent.Snapshot()})
		for step := range 60 {
			switch c, rr := agent.Size(); r.IntN(9) {
			case 2: // a line at the bottom, which the next one or a snapshot takes away: the cursor and all that is not seen stay
				g.status("not connected")
				if diff := differ(overlaid(agent), overlaid(p.Screen)); g.whole() && diff != "" {
					t.Fatalf("seed %d, step %d, under a line (-agent +person):\n%.3000s", seed, step, diff)
				}
				if g.whole() && !strings.Contains(p.Grid().Text(), "not conn") {
					t.Fatalf("seed %d, step %d: the line is not there:\n%s", seed, step, p.Grid().Text())
				}
				g.repaint()
			case 0: // a driver changes the size; the seat tells it and repaints
				c, rr = 10+r.IntN(60), 4+r.IntN(20)
				if r.IntN(2) == 0 {
					c, rr = g.cols, g.rows
				}
				agent.Resize(c, rr)
				g.take(endpoint.SessionEvent{Kind: endpoint.SessionResized, Cols: c, Rows: rr})
				g.take(endpoint.SessionEvent{Kind: endpoint.SessionSnapshot, Cols: c, Rows: rr, Data: agent.Snapshot()})
			case 1: // the person's terminal changes
				c, rr = 10+r.IntN(60), 4+r.IntN(20)
				if r.IntN(2) == 0 {
					c, rr = agent.Size()
				}
				p.Resize(c, rr)
				g.resize(c, rr)
			default:
				out := bytes.Clone(agent.Feed([]byte(output(r, c, rr))))
				g.take(endpoint.SessionEvent{Kind: endpoint.SessionOutput, Data: out})
			}
			if g.dirty {
				g.draw(g.last)
			}
			what := fmt.Sprintf("seed %d, step %d", seed, step)
			if g.whole() {
				if diff := differ(agent.Grid(), p.Grid()); diff != "" {
					t.Fatalf("%s (-agent +person):\n%.3000s", what, diff)
				}
			} else {
				cropped(t, g, p, what)
			}
		}
		g.status("not connected") // and the next snapshot takes it away
		c, rr := agent.Size()
		g.take(endpoint.SessionEvent{Kind: endpoint.SessionSnapshot, Cols: c, Rows: rr, Data: agent.Snapshot()})
		if !g.whole() {
			cropped(t, g, p, "after a status line")
		}
		// P15: whatever was set is undone on leaving.
		_, _ = io.WriteString(p, leaving(g.cols))
		was, fresh := p.Grid(), term.New(g.cols, g.rows).Grid()
		if stateOf(was.State) != stateOf(fresh.State) || was.Alt || was.Hidden {
			t.Fatalf("seed %d: after leaving the terminal is in state\n%s\nnot\n%s", seed, was.State, fresh.State)
		}
	}
}

// stateOf leaves out of a state what a person would not miss: title and saved cursors.
func stateOf(s string) string {
	_, s, _ = strings.Cut(s, "region")
	s, rest, _ := strings.Cut(s, "title")
	_, tabs, _ := strings.Cut(rest, "tabs")
	return s + tabs
}

// differ is cmp.Diff, which takes its time, of what is the same most often.
func differ(a, b term.Grid) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return cmp.Diff(a, b)
}

// overlaid is a screen without the row at the bottom.
func overlaid(s *term.Screen) term.Grid {
	g := s.Grid()
	g.Cells = g.Cells[:g.Rows-1]
	return g
}

// TestANoteGoes shows for a moment that what was typed did not reach the agent, and nothing of it afterwards. What the program has saved
// of its cursor stays.
func TestANoteGoes(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		p := person{term.New(20, 3)}
		con := &console{failed: make(chan error, 1), glass: newGlass(p, 20, 3)}
		con.show = con.glass
		events, ended := make(chan endpoint.SessionEvent), make(chan error, 1)
		v := &visit{key: detachKey{name: defaultKey}, greeted: true}
		go func() {
			ended <- v.watch(t.Context(), con, far{events: events, input: func([]byte) error { return nil }})
		}()
		agent := term.New(20, 3)
		_, _ = agent.Write([]byte("busy\x1b[2;4H\x1b7\x1b[3;1Hbottom"))
		events <- endpoint.SessionEvent{Kind: endpoint.SessionSnapshot, Cols: 20, Rows: 3, Data: agent.Snapshot()}
		for range 2 { // the second is said anew
			events <- endpoint.SessionEvent{Kind: endpoint.SessionDropped}
			synctest.Wait()
			if got, want := p.Grid().Text(), "busy\n\n what was typed did"; got != want {
				t.Errorf("the person reads %q, want %q", got, want)
			}
			time.Sleep(noteTime - time.Millisecond)
		}
		events <- endpoint.SessionEvent{Kind: endpoint.SessionOutput, Data: bytes.Clone(agent.Feed([]byte("!\x1b8x")))}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if diff := differ(agent.Grid(), p.Grid()); diff != "" {
			t.Errorf("afterwards (-agent +person):\n%s", diff)
		}
		close(events)
		<-ended
	})
}
