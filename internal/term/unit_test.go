package term_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/term"
)

func written(cols, rows int, out ...string) *term.Screen {
	s := term.New(cols, rows)
	for _, o := range out {
		_, _ = s.Write([]byte(o))
	}
	return s
}

func TestText(t *testing.T) {
	for name, tc := range map[string]struct {
		out  []string
		want string
	}{
		"wrap":                {[]string{"0123456789ab"}, "0123456789\nab"},
		"wide_does_not_split": {[]string{"123456789漢X"}, "123456789\n漢X"},
		"wide_overwritten":    {[]string{"漢字\x1b[1;2Hx"}, " x字"},
		"mark_in_next_write":  {[]string{"e", "\u0301x"}, "e\u0301x"},
		"mark_at_the_edge":    {[]string{"012345678e", "\u0301", "x"}, "012345678e\u0301\nx"},
		"character_in_parts":  {[]string{"\xe6", "\xbc", "\xa2"}, "漢"},
		"not_utf8":            {[]string{"a\xffb\xe6z"}, "a\ufffdb\ufffdz"},
		"sequence_in_parts":   {[]string{"\x1b", "[", "2;", "3", "Hx"}, "\n  x"},
		"string_unfinished":   {[]string{"a\x1b]2;tit\x1b[3Cb"}, "a   b"},
		"line_drawing":        {[]string{"\x1b(0lqk\x1b(Bq"}, "┌─┐q"},
		"scroll_region":       {[]string{"a\r\nb\r\nc\r\nd\x1b[2;3r\x1b[3;1H\nx"}, "a\nc\nx\nd"},
		"repeat":              {[]string{"ab\x1b[3b"}, "abbbb"},
		"alternate":           {[]string{"main\x1b[?1049halt\x1b[?1049l+"}, "main+"},
		"tabs":                {[]string{"\x1b[3g\x1b[1;4H\x1bH\r\tx"}, "   x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := written(10, 4, tc.out...).Grid().Text(); got != tc.want {
				t.Errorf("screen after %q = %q, want %q", tc.out, got, tc.want)
			}
		})
	}
}

// What tmux does not know of the moves of the cursor, viewers are told by what every terminal does.
func TestMovesThatAllTerminalsKnow(t *testing.T) {
	for out, want := range map[string]string{
		"\x1b[2;1H\x1b[3ex":    "\x1b[2;1H\x1b[3Bx",
		"\x1b[6;1H\x1b[9ax":    "\x1b[6;1H\x1b[9Cx",
		"\x1b[9;20H\x1b[4jx":   "\x1b[9;20H\x1b[4Dx",
		"\x1b[9;20H\x1b[kx":    "\x1b[9;20H\x1b[Ax",
		"\x1b[7;1H\x1b[2Ix":    "\x1b[7;1H\x1b[17Gx",
		"\x1b[3g\r\x1b[Ix":     "\x1b[3g\r\x1b[40Gx",
		"\x1b[2b\x1b[65535a":   "\x1b[65535C",
		"\x1b[1;39Hab\x1b[Icd": "\x1b[1;39Hab\x1b[40Gcd",
	} {
		s := term.New(40, 12)
		v := repainted(s)
		show := s.Feed([]byte(out))
		if string(show) != want {
			t.Errorf("a viewer gets %q of %q, want %q", show, out, want)
		}
		_, _ = v.Write(show)
		equal(t, s.Grid(), v.Grid(), out)
	}
}

// A program's questions are answered here, and neither they nor what could harm a viewer reach the viewer.
func TestQuestionsAndHarm(t *testing.T) {
	for out, want := range map[string]string{
		"\x1b[c":                           "\x1b[?62;22c",
		"\x1b[2;3H\x1b[6n":                 "\x1b[2;3R",
		"\x1b[5n":                          "\x1b[0n",
		"\x1b[?2004$p":                     "\x1b[?2004;2$y",
		"\x1b[?2004h\x1b[?2004$p":          "\x1b[?2004;1$y",
		"\x1b[?31337$p":                    "\x1b[?31337;0$y",
		"\x1b]11;?\x07":                    "\x1b]11;rgb:0000/0000/0000\x1b\\",
		"\x1b[>1u\x1b[?u":                  "\x1b[?1u",
		"\x1b[18t":                         "\x1b[8;4;10t",
		"\x1bP+q544e\x1b\\":                "\x1bP0+r\x1b\\",
		"\x1b]52;c;?\x07\x1b]52;c;aGk=\a":  "",
		"\x1b]1337;File=name=x:aGk=\x07":   "",
		"\x1b_Ga=q,i=1;AAAA\x1b\\\x1b[21t": "",
	} {
		s := term.New(10, 4)
		show := string(s.Feed([]byte(out)))
		if got := string(s.Replies()); got != want {
			t.Errorf("replies to %q = %q, want %q", out, got, want)
		}
		for _, bad := range []string{"\x1b[c", "6n", "5n", "$p", "?\x07", "[?u", "18t", "+q", "]52", "1337", "_G", "21t"} {
			if strings.Contains(show, bad) {
				t.Errorf("a viewer gets %q of %q", show, out)
			}
		}
	}
}

func TestLinesKeepWhatLeftTheTop(t *testing.T) {
	s := term.New(20, 5)
	for i := range 5000 {
		_, _ = fmt.Fprintf(s, "line %d\r\n", i)
	}
	got := s.Lines(100)
	if len(got) != 100 || got[0] != "line 4900" || got[99] != "line 4999" {
		t.Errorf("Lines(100) = %d from %q to %q; want 100, line 4900 to line 4999", len(got), got[0], got[len(got)-1])
	}
	if n := len(s.Lines(100000)); n < term.History/10 || n > 5000 {
		t.Errorf("%d lines are kept", n)
	}
}

func TestSizesAreClamped(t *testing.T) {
	s := term.New(0, -3)
	s.Resize(1<<30, 0)
	if c, r := s.Size(); c != term.MaxCols || r != 1 {
		t.Errorf("size = %dx%d, want %dx1", c, r, term.MaxCols)
	}
	_, _ = s.Write([]byte(strings.Repeat("漢\x1b[A\x1b[L\x1b[65535@", 100)))
}

func BenchmarkFeed(b *testing.B) {
	var out []byte
	for i := range 2000 {
		out = fmt.Appendf(out, "\x1b[3%dmline %d\x1b[0m some text that is like a log with words in it and more\r\n", i%8, i)
	}
	s := term.New(120, 32)
	b.SetBytes(int64(len(out)))
	for b.Loop() {
		s.Feed(out)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s := term.New(120, 32)
	for i := range 100 {
		_, _ = fmt.Fprintf(s, "\x1b[3%dmline %d\x1b[0m some text that is like a log with words in it and more\r\n", i%8, i)
	}
	for b.Loop() {
		s.Snapshot()
	}
}

// linked is n characters, each with a link of its own.
func linked(from, n int) (out []byte) {
	for i := range n {
		out = fmt.Appendf(out, "\x1b]8;;https://a.example/%d\x1b\\x", from+i)
	}
	return out
}

func links(g term.Grid) map[string]int {
	out := map[string]int{}
	for _, row := range g.Cells {
		for _, c := range row {
			if c.Link != "" {
				out[c.Link]++
			}
		}
	}
	return out
}

// A screen keeps so many links, of such a length; of text that has another nothing is said to be part of the one before.
func TestLinksAreBounded(t *testing.T) {
	s := term.New(100, 20)
	_, _ = s.Write(linked(0, 1500))
	if n := len(links(s.Grid())); n != 1024 {
		t.Errorf("%d links are kept, want 1024", n)
	}
	v := repainted(s)
	equal(t, s.Grid(), v.Grid(), "after repaint")
	for from := 2000; from < 10000; from += 1000 { // what went away makes room, here and at a viewer
		_, _ = v.Write(s.Feed([]byte("\x1b]8;;\x1b\\\x1b[2J\x1b[H")))
		_, _ = v.Write(s.Feed(linked(from, 1000)))
		if n := len(links(s.Grid())); n != 1000 {
			t.Errorf("%d links are shown, want 1000", n)
		}
	}
	_, _ = v.Write(s.Feed(linked(10000, 1500)))
	equal(t, s.Grid(), v.Grid(), "after more output")
	for _, bad := range []string{"https://" + strings.Repeat("x", 3000), "https://" + strings.Repeat("x", 9000), "https://\u200b"} {
		s := written(20, 2, "\x1b]8;;https://ok.example\x1b\\in")
		v := repainted(s)
		_, _ = v.Write(s.Feed([]byte("\x1b]8;;" + bad + "\x1b\\out")))
		g := s.Grid()
		if got := links(g); len(got) != 1 || got[";https://ok.example"] != 2 || g.Text() != "inout" {
			t.Errorf("%.20q: %q has links %v", bad, g.Text(), got)
		}
		equal(t, g, v.Grid(), "at a viewer")
	}
}

// A snapshot is not much larger than the text, whatever its links.
func TestLinksInASnapshotAreBounded(t *testing.T) {
	s := term.New(200, 100)
	for i := range 20000 {
		_, _ = fmt.Fprintf(s, "\x1b]8;;https://%d.example/%s\x1b\\x", i%2, strings.Repeat("x", 1900))
	}
	snapshot := s.Snapshot()
	if len(snapshot) > 5<<20 {
		t.Errorf("a snapshot of %d bytes", len(snapshot))
	}
	v := term.New(200, 100)
	_, _ = v.Write(snapshot)
	if s.Grid().Text() != v.Grid().Text() {
		t.Error("the text is not the same")
	}
}

// A character is repeated as often as the screen has cells at most, and many times are told shortly.
func TestRepeatIsBounded(t *testing.T) {
	s := term.New(40, 10)
	if n := len(s.Feed([]byte("x\x1b[65535b"))); n != 1+400 {
		t.Errorf("a viewer gets %d bytes, want 401", n)
	}
	s = written(100, 40, "x")
	v := repainted(s)
	show := s.Feed([]byte(strings.Repeat("\x1b[65535b", 4000)))
	if len(show) > 2<<20 {
		t.Errorf("a viewer gets %d bytes", len(show))
	}
	_, _ = v.Write(show)
	equal(t, s.Grid(), v.Grid(), "after many")
}
