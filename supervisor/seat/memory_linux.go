package seat

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// pageOut unmaps the pages of this program's own code and constants that starting touched. Nothing is lost: they are clean pages of the
// file, which stay in the system's cache, shared by all seats, and are mapped again one by one where they are needed. A seat needs
// few of a program that can do everything else too.
func pageOut() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range bytes.Lines(maps) {
		f := bytes.Fields(line)
		if len(f) < 6 || string(f[5]) != exe || len(f[1]) != 4 || f[1][1] != '-' || f[1][3] != 'p' {
			continue // only private mappings that cannot be written
		}
		from, to, _ := bytes.Cut(f[0], []byte("-"))
		start, err1 := strconv.ParseUint(string(from), 16, 64)
		end, err2 := strconv.ParseUint(string(to), 16, 64)
		if err1 != nil || err2 != nil || end <= start {
			continue
		}
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), syscall.MADV_DONTNEED)
	}
}
