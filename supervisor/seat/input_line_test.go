//go:build linux || darwin

package seat_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
)

// TestUnsentLine types keys, a chunk each second, and looks whether a line is left that Enter would send.
func TestUnsentLine(t *testing.T) {
	for name, tc := range map[string]struct {
		keys []string
		want bool
	}{
		"nothing":                    {nil, false},
		"text":                       {[]string{"delete the "}, true},
		"sent":                       {[]string{"hello", "\r"}, false},
		"sent_by_line_feed":          {[]string{"hello\n"}, false},
		"cleared_by_c":               {[]string{"hello", "\x03"}, false},
		"cleared_by_u":               {[]string{"hello", "\x15"}, false},
		"begun_anew":                 {[]string{"hello\rand"}, true},
		"taken_back":                 {[]string{"né", "\x7f", "\x08"}, false},
		"taken_back_in_part":         {[]string{"日本", "\x7f"}, true},
		"taken_back_beyond":          {[]string{"\x7f\x7f\x7f", "a"}, true},
		"arrows":                     {[]string{"\x1b[A", "\x1bOB", "\x1b[1;5C", "\x1b[3~"}, false},
		"arrow_in_two_parts":         {[]string{"\x1b", "x"}, true}, // the second is a second later: Escape, and then a letter
		"focus":                      {[]string{"\x1b[I\x1b[O"}, false},
		"mouse":                      {[]string{"\x1b[<0;10;20M\x1b[<0;10;20m", "\x1b[M !!", "\x1b[32;10;20M"}, false},
		"console_function_key":       {[]string{"\x1b[[A"}, false},
		"answers_of_a_terminal":      {[]string{"\x1b]11;rgb:0/0/0\x1b\\", "\x1bP1$r0m\x1b\\", "\x1b]4;1;x\x07", "\x1b[?62;22c"}, false},
		"alt_letter":                 {[]string{"\x1bb"}, false},
		"escape_and_enter":           {[]string{"hello\x1b", "\r"}, false},
		"line_end_within":            {[]string{"hello", "\x1b\r"}, true},
		"paste":                      {[]string{"\x1b[200~one\rtwo\n\x1b[201~"}, true},
		"paste_of_line_ends":         {[]string{"\x1b[200~\r\x1b[201~"}, true},
		"paste_in_parts":             {[]string{"\x1b[200~one", "\r", "\x1b[201", "~"}, true},
		"paste_with_escapes":         {[]string{"\x1b[200~\x1b\x1b[20\x1b[201~\x7f\x7f"}, false},
		"paste_sent":                 {[]string{"\x1b[200~one\rtwo\x1b[201~", "\r"}, false},
		"empty_paste":                {[]string{"\x1b[200~\x1b[201~"}, false},
		"coded_letter":               {[]string{"\x1b[97u"}, true},
		"coded_letter_with_shift":    {[]string{"\x1b[97:65;2u"}, true},
		"coded_letter_let_go":        {[]string{"\x1b[97;1:3u"}, false},
		"coded_letter_and_enter":     {[]string{"a\x1b[13u"}, false},
		"coded_line_end":             {[]string{"\x1b[13;2u"}, true},
		"coded_backspace":            {[]string{"a\x1b[127u"}, false},
		"coded_clear":                {[]string{"abc\x1b[99;5u", "abc\x1b[27;5;117~"}, false},
		"coded_letter_the_other_way": {[]string{"\x1b[27;2;65~"}, true},
		"coded_control":              {[]string{"\x1b[112;5u\x1b[98;3u"}, false},
		"coded_key_of_no_letter":     {[]string{"\x1b[57441u", "\x1b[27u", "\x1b[9u"}, false},
		"cut_sequence":               {[]string{"\x1b[1\ra"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			stands, _ := seat.Unsent(time.Second, tc.keys...)
			if got := stands(0); got != tc.want {
				t.Errorf("after %q a line is left: %t, want %t", tc.keys, got, tc.want)
			}
		})
	}
}

// A line that nobody came back to keeps the agent from its messages for ten minutes, and reports of a terminal do not prolong that.
func TestUnsentLineIsLeft(t *testing.T) {
	stands, limit := seat.Unsent(time.Minute, "hello", "\x1b[I", "\x1b[O")
	if !stands(limit-2*time.Minute-time.Second) || stands(limit-2*time.Minute) {
		t.Errorf("a line stands until its last key is %v old, and does not", limit)
	}
}

func FuzzUnsentLine(f *testing.F) {
	for _, s := range []string{"a\r", "\x1b[200~x\x1b[201~", "\x1b[97;5:3u", "\x1b[27;5;117~", "\x1b[M", "\x1b]x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, keys string) {
		// Whatever came before, Enter that is typed once a paste has ended leaves no line.
		if stands, _ := seat.Unsent(time.Second, keys, "\x1b[201~", "\r"); stands(0) {
			t.Errorf("a line is left after %q and Enter", keys)
		}
	})
}

// TestWakeLeavesAnUnsentLine begins a line at a prompt: no line is typed behind it until it is sent.
func TestWakeLeavesAnUnsentLine(t *testing.T) {
	c := start(t, options(t, "sh", "-c", `stty -echo; echo ready; while read -r l; do echo "got <$l>"; done`))
	shows(t, c, "ready")
	typed := func(keys string) {
		t.Helper()
		end, err := c.Type(within(t), []byte(keys))
		if err == nil {
			_, err = c.Written(within(t), end)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	typed("delete the branch ")
	if woke, err := c.Wake(within(t), "news", 0); err != nil || woke {
		t.Errorf("Wake() behind an unsent line = %t, %v; want false", woke, err)
	}
	typed("\x1b[I\r")
	if woke, err := c.Wake(within(t), "news", 0); err != nil || !woke {
		t.Errorf("Wake() after the line was sent = %t, %v; want true", woke, err)
	}
	shows(t, c, "got <news>")
}
