package attach

import (
	"io"
	"strings"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/term"
)

// plain prints what an agent's terminal shows where there is no terminal: text alone, line after line.
type plain struct {
	out   io.Writer
	notes io.Writer // standard error
	shown bool      // a snapshot was printed
	in    escape
	lead  bool // the first byte of a character was held back that may be a control of the second set
	err   error
}

// escape is where in a sequence a stream of terminal output is.
type escape int

const (
	ground  escape = iota
	escaped        // after ESC
	control        // in a control sequence
	str            // in a string that BEL or ESC \\ ends
	strEnd         // after ESC in a string
	charset        // one more byte
)

func (p *plain) print(text string) {
	if p.err == nil && text != "" {
		_, p.err = io.WriteString(p.out, text)
	}
}

func (p *plain) take(ev endpoint.SessionEvent) {
	switch ev.Kind {
	case endpoint.SessionSnapshot:
		if p.shown && !ev.Overflow {
			return // the same screen again
		}
		s := term.New(ev.Cols, ev.Rows)
		_, _ = s.Write(ev.Data) // a screen takes everything
		if lines := s.Lines(ev.Rows); len(lines) > 0 {
			p.print(strings.Join(lines, "\n") + "\n")
		}
		p.shown, p.in = true, ground
	case endpoint.SessionOutput:
		p.print(p.strip(ev.Data))
	}
}

func (p *plain) status(text string) { _, _ = io.WriteString(p.notes, "cotal: "+text+"\n") } // nobody may be there to read it

// strip leaves the text.
func (p *plain) strip(data []byte) string {
	var b strings.Builder
	for _, c := range data {
		if p.lead {
			if p.lead = false; c >= 0x80 && c < 0xa0 {
				continue // U+0080 to U+009F, such as CSI in one character
			}
			b.WriteByte(0xc2)
		}
		switch p.in {
		case ground:
			switch {
			case c == 0xc2:
				p.lead = true
			case c == 0x1b:
				p.in = escaped
			case c == '\n' || c == '\t' || c >= ' ' && c != 0x7f:
				b.WriteByte(c)
			}
		case escaped:
			switch c {
			case '[':
				p.in = control
			case ']', 'P', '_', '^', 'X':
				p.in = str
			case '(', ')', '*', '+', '#', '%', ' ':
				p.in = charset
			default:
				p.in = ground
			}
		case control:
			if c >= '@' && c <= '~' {
				p.in = ground
			}
		case str:
			switch c {
			case 0x07:
				p.in = ground
			case 0x1b:
				p.in = strEnd
			}
		case strEnd:
			p.in = ground
			if c != '\\' {
				p.in = str
			}
		case charset:
			p.in = ground
		}
	}
	return b.String()
}
