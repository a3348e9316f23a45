package term

// cell is one cell of a grid. The right half of a wide character has r 0.
type cell struct {
	r     rune
	wide  bool
	st    style
	marks string // combining characters
	link  *link
}

// link is a hyperlink of OSC 8.
type link struct{ params, url string }

func newGrid(cols, rows int) [][]cell {
	all := make([]cell, cols*rows)
	grid := make([][]cell, rows)
	for y := range grid {
		grid[y] = all[y*cols : (y+1)*cols : (y+1)*cols]
		fill(grid[y], style{})
	}
	return grid
}

// blank is a space that keeps the background of st.
func blank(st style) cell { return cell{r: ' ', st: style{bg: st.bg}} }

func fill(row []cell, st style) {
	b := blank(st)
	for i := range row {
		row[i] = b
	}
}

// resized returns a copy of the grid without its first gone rows, cut or filled to the size.
func resized(grid [][]cell, gone, cols, rows int) [][]cell {
	out := newGrid(cols, rows)
	for y, row := range grid[gone:min(len(grid), gone+rows)] {
		n := copy(out[y], row)
		if out[y][n-1].wide {
			out[y][n-1] = blank(out[y][n-1].st)
		}
	}
	return out
}

// part makes sure that no wide character lies across the left edge of column x: both halves become spaces.
func part(row []cell, x int) {
	if x > 0 && x < len(row) && row[x].r == 0 {
		row[x-1], row[x] = blank(row[x-1].st), blank(row[x].st)
	}
}

// erase makes columns [from, to) blank.
func erase(row []cell, from, to int, st style) {
	from, to = max(from, 0), min(to, len(row))
	if from >= to {
		return
	}
	part(row, from)
	part(row, to)
	fill(row[from:to], st)
}

// shiftRight opens n blank cells at column x; what leaves on the right is lost.
func shiftRight(row []cell, x, n int, st style) {
	n = min(n, len(row)-x)
	if n <= 0 {
		return
	}
	part(row, x)
	part(row, len(row)-n)
	copy(row[x+n:], row[x:])
	fill(row[x:x+n], st)
}

// shiftLeft removes n cells at column x; blank ones come in on the right.
func shiftLeft(row []cell, x, n int, st style) {
	n = min(n, len(row)-x)
	if n <= 0 {
		return
	}
	part(row, x)
	part(row, x+n)
	copy(row[x:], row[x+n:])
	fill(row[len(row)-n:], st)
}
