package term

import "strconv"

// color is 0 for the default, 1<<24|n for a palette entry, 2<<24|rgb for a colour of its own.
type color uint32

const (
	colorPalette color = 1 << 24
	colorRGB     color = 2 << 24
)

type style struct {
	fg, bg, ul color
	attrs      attr
	under      uint8 // 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed
}

type attr uint16

const (
	attrBold attr = 1 << iota
	attrFaint
	attrItalic
	attrBlink
	attrRapid
	attrReverse
	attrConceal
	attrStrike
	attrOver
)

// sgrOf is the parameter that sets each attribute, in the order of their bits.
const sgrOf = "\x01\x02\x03\x05\x06\x07\x08\x09\x35"

// append writes the SGR sequence that makes any pen this one.
func (st style) append(b []byte) []byte {
	b = append(b, "\x1b[0"...)
	for i := range len(sgrOf) {
		if st.attrs&(1<<i) != 0 {
			b = append(b, ';')
			b = strconv.AppendInt(b, int64(sgrOf[i]), 10)
		}
	}
	switch {
	case st.under == 1:
		b = append(b, ";4"...)
	case st.under > 1:
		b = append(b, ";4:"...)
		b = append(b, '0'+st.under)
	}
	b = st.fg.append(b, 30, 90, "38")
	b = st.bg.append(b, 40, 100, "48")
	b = st.ul.append(b, 0, 0, "58")
	return append(b, 'm')
}

func (c color) append(b []byte, low, high int64, extended string) []byte {
	n := int64(c & 0xffffff)
	switch {
	case c == 0:
		return b
	case c&colorRGB != 0:
		b = append(append(b, ';'), extended...)
		b = append(b, ";2;"...)
		b = strconv.AppendInt(b, n>>16, 10)
		b = strconv.AppendInt(append(b, ';'), n>>8&0xff, 10)
		return strconv.AppendInt(append(b, ';'), n&0xff, 10)
	case n < 8 && low != 0:
		return strconv.AppendInt(append(b, ';'), low+n, 10)
	case n < 16 && low != 0:
		return strconv.AppendInt(append(b, ';'), high+n-8, 10)
	}
	b = append(append(b, ';'), extended...)
	return strconv.AppendInt(append(b, ";5;"...), n, 10)
}

// sgr applies the parameters of an SGR sequence.
func (st *style) sgr(p params) {
	if len(p) == 0 {
		*st = style{}
	}
	for i := 0; i < len(p); i++ {
		switch n := p[i].n; {
		case n <= 0:
			*st = style{}
		case n == 4:
			st.under = 1
			if subs := p.subs(i); len(subs) > 0 {
				st.under = uint8(min(max(subs[0].n, 0), 5))
			}
		case n == 21:
			st.under = 2
		case n == 22:
			st.attrs &^= attrBold | attrFaint
		case n == 24:
			st.under = 0
		case n == 25:
			st.attrs &^= attrBlink | attrRapid
		case n == 38, n == 48, n == 58:
			c, used := p.color(i)
			i += used
			if c != 0 {
				*st.color(n) = c
			}
		case n == 39, n == 49, n == 59:
			*st.color(n - 1) = 0
		case n >= 30 && n <= 37:
			st.fg = colorPalette | color(n-30)
		case n >= 40 && n <= 47:
			st.bg = colorPalette | color(n-40)
		case n >= 90 && n <= 97:
			st.fg = colorPalette | color(n-90+8)
		case n >= 100 && n <= 107:
			st.bg = colorPalette | color(n-100+8)
		default:
			st.attrs = attrSet(st.attrs, n)
		}
		i += len(p.subs(i))
	}
}

// attrSet sets or clears the attribute that has a parameter of its own.
func attrSet(a attr, n int) attr {
	for i := range len(sgrOf) {
		set := int(sgrOf[i])
		clear := set + 20
		if set == 53 {
			clear = 55
		}
		switch n {
		case set:
			return a | 1<<i
		case clear:
			return a &^ (1 << i)
		}
	}
	return a
}

func (st *style) color(n int) *color {
	switch n {
	case 38:
		return &st.fg
	case 48:
		return &st.bg
	}
	return &st.ul
}

// color reads an extended colour at i, with semicolons or colons, and returns it with how many parameters after i belong to it
// and were given with semicolons. 0 is none.
func (p params) color(i int) (color, int) {
	rest, used := p.subs(i), 0
	colons := len(rest) > 0
	if !colons {
		rest = p[i+1:]
	}
	if len(rest) == 0 {
		return 0, 0
	}
	var c color
	switch rest[0].n {
	case 5:
		used = 2
		if len(rest) > 1 && rest[1].n >= 0 && rest[1].n < 256 {
			c = colorPalette | color(rest[1].n)
		}
	case 2:
		used = 4
		v := rest[1:]
		if colons && len(v) > 3 {
			v = v[1:] // the colour space
		}
		if len(v) >= 3 {
			c = colorRGB | color(clampByte(v[0].n)<<16|clampByte(v[1].n)<<8|clampByte(v[2].n))
		}
	default:
		used = 1
	}
	if colons {
		return c, 0
	}
	return c, min(used, len(rest))
}

func clampByte(n int) int { return min(max(n, 0), 255) }
