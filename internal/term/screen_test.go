package term_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cotal-go/cotal/internal/term"
)

// repainted returns what a fresh terminal of the same size shows after the snapshot of s.
func repainted(s *term.Screen) *term.Screen {
	v := term.New(s.Size())
	_, _ = v.Write(s.Snapshot())
	return v
}

func equal(t testing.TB, want, got term.Grid, what string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s (-screen +viewer):\n%s", what, d)
	}
}

// pieces are what random output is made of: whole sequences as programs write them, text, and noise.
func pieces() *rapid.Generator[[]byte] {
	num := rapid.OneOf(rapid.IntRange(0, 12), rapid.IntRange(0, 70000))
	sequence := rapid.Custom(func(t *rapid.T) []byte {
		finals := "@ABCDEFGHIJKLMPSTXZ`abdefghjklmnrsu"
		f := finals[rapid.IntRange(0, len(finals)-1).Draw(t, "final")]
		parts := rapid.SliceOfN(num, 0, 4).Draw(t, "params")
		return fmt.Appendf(nil, "\x1b[%s%c", strings.Trim(strings.ReplaceAll(fmt.Sprint(parts), " ", ";"), "[]"), f)
	})
	private := rapid.Custom(func(t *rapid.T) []byte {
		n := rapid.SampledFrom([]int{1, 5, 6, 7, 9, 12, 25, 47, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047, 1048, 1049, 2004, 2026, 3, 69}).Draw(t, "mode")
		return fmt.Appendf(nil, "\x1b[?%d%c", n, "hl"[rapid.IntRange(0, 1).Draw(t, "on")])
	})
	style := rapid.Custom(func(t *rapid.T) []byte {
		return fmt.Appendf(nil, "\x1b[%sm", rapid.SampledFrom([]string{"", "0", "1", "2;3", "4", "4:3", "5", "7", "9", "21", "22", "24", "31", "42", "97", "104",
			"38;5;200", "48;5;9", "38;2;1;2;3", "48:2::9:8:7", "58;5;3", "58:2::1:1:1", "59", "39;49", "53", "55", "27;29", "38;5", "38"}).Draw(t, "sgr"))
	})
	fixed := rapid.SampledFrom([]string{
		"\n", "\r\n", "\r", "\t", "\b", "\x0e", "\x0f", "\x1b7", "\x1b8", "\x1bD", "\x1bE", "\x1bM", "\x1bH", "\x1bc", "\x1b=", "\x1b>", "\x1bn", "\x1bo",
		"\x1b(0", "\x1b)0", "\x1b(B", "\x1b#8", "\x1b[4h", "\x1b[4l", "\x1b[20h", "\x1b[20l", "\x1b[3g", "\x1b[!p", "\x1b[4 q", "\x1b[>1u", "\x1b[<u",
		"\x1b[=5;2u", "\x1b[>4;2m", "\x1b[>4m", "\x1b]2;title\x07", "\x1b]8;id=1;https://a.example\x1b\\", "\x1b]8;;\x1b\\", "\x1b]52;c;?\x07", "\x1bP+q544e\x1b\\",
		"漢", "👩‍👩‍👧", "é", "e\u0301", "\u0301", "각", "\u200d", "ａ", "\x1b[c", "\x1b[6n", "a", "hello world", "mmmmmmmmmmmmmmmmm", "\x1b[5b",
	})
	return rapid.OneOf(sequence, private, style, rapid.Map(fixed, func(s string) []byte { return []byte(s) }),
		rapid.SliceOfN(rapid.Byte(), 0, 8), rapid.SliceOfN(rapid.ByteRange(' ', '~'), 0, 30))
}

// whatever was written, a repaint shows the same, and so does what follows it.
func repaintHolds(t *rapid.T) {
	s := term.New(rapid.IntRange(1, 12).Draw(t, "cols"), rapid.IntRange(1, 6).Draw(t, "rows"))
	for _, p := range rapid.SliceOfN(pieces(), 0, 40).Draw(t, "output") {
		_, _ = s.Write(p)
	}
	if rapid.Bool().Draw(t, "resize") {
		s.Resize(rapid.IntRange(1, 12).Draw(t, "cols2"), rapid.IntRange(1, 6).Draw(t, "rows2"))
	}
	v := repainted(s)
	if d := cmp.Diff(s.Grid(), v.Grid()); d != "" {
		t.Fatalf("after repaint (-screen +viewer):\n%s\n%q", d, s.Snapshot())
	}
	for _, p := range rapid.SliceOfN(pieces(), 0, 20).Draw(t, "more") {
		show := s.Feed(p)
		_, _ = v.Write(show)
		if r := v.Replies(); len(r) > 0 {
			t.Fatalf("viewer was asked by %q of %q: %q", show, p, r)
		}
	}
	if d := cmp.Diff(s.Grid(), v.Grid()); d != "" {
		t.Fatalf("after more output (-screen +viewer):\n%s", d)
	}
}

func TestRepaintIsTheSame(t *testing.T) { rapid.Check(t, repaintHolds) }

func FuzzRepaint(f *testing.F) {
	for _, s := range []string{"hello", "\x1b[?1049h\x1b[2;5r\x1b[?6h漢字\x1b[7m", "e\u0301\x1b[5;5H\x1b7\x1b[31m\x1b[?7lxxxxxxxxxxxxxxxxxxxxxxxx", "\x1b[38:2::1:2:3mx\x1b[4:3my",
		"\x1b]8;;https://a.example\x1b\\a\x1b]8;;https://" + strings.Repeat("x", 3000) + "\x1b\\b\x1b]8;;https://" + strings.Repeat("y", 5000) + "\ac",
		"x\x1b[65535b\x1b[7m\x1b[99999999999b" + strings.Repeat("\x1b[65535b", 20), "漢\x1b[65535b\x1b[?7l\x1b[4h\x1b[65535b"} {
		f.Add([]byte(s), 10)
	}
	var many []byte
	for i := range 1100 {
		many = fmt.Appendf(many, "\x1b]8;id=%d;https://a.example\x1b\\a", i)
	}
	f.Add(many, len(many)/2)
	f.Fuzz(func(t *testing.T, out []byte, cut int) {
		s := term.New(20, 6)
		cut = min(max(cut, 0), len(out))
		_, _ = s.Write(out[:cut])
		v := repainted(s)
		equal(t, s.Grid(), v.Grid(), "after repaint")
		_, _ = v.Write(s.Feed(out[cut:]))
		equal(t, s.Grid(), v.Grid(), "after more output")
		if bytes.Contains(s.Snapshot(), []byte("\x1b[6n")) || len(v.Replies()) > 0 {
			t.Fatal("a viewer was asked something")
		}
	})
}
