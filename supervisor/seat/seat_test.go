//go:build linux || darwin

package seat_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/supervisor/seat"
)

func TestExitIsKept(t *testing.T) {
	o := options(t, "sh", "-c", "echo one; echo two; exit 3")
	c := start(t, o)
	e := ended(t, c)
	if e.Code != 3 || e.Signal != "" || strings.Join(e.LastLines, "|") != "one|two" {
		t.Errorf("exit = %+v, want code 3 with lines one, two", e)
	}
	if err := c.Release(within(t)); err != nil {
		t.Errorf("Release() = %v", err)
	}
	r, err := seat.Read(o.Dir)
	if err != nil || r.Exit == nil || r.Exit.Code != 3 {
		t.Errorf("Read() = %+v, %v; want the exit", r, err)
	}
}

// What the agent ended with is known also when the record of the seat cannot be read, and the error names the file.
func TestExitBesideADamagedRecord(t *testing.T) {
	o := options(t, "sh", "-c", "read x; exit 3")
	c := start(t, o)
	if err := os.WriteFile(filepath.Join(o.Dir, "seat.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	send(t, c, "\r")
	if e := ended(t, c); e.Code != 3 {
		t.Errorf("exit = %+v, want code 3", e)
	}
	if e, ok := seat.ReadExit(o.Dir); !ok || e.Code != 3 {
		t.Errorf("ReadExit() = %+v, %t; want code 3", e, ok)
	}
	if _, err := seat.Read(o.Dir); err == nil || !strings.Contains(err.Error(), "seat.json") {
		t.Errorf("Read() = %v, want seat.json named", err)
	}
}

func TestStopAndAdopt(t *testing.T) {
	o := options(t, "cat") // no shell, which could tell of the signal by its code
	c := start(t, o)
	if err := c.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	d, err := seat.Open(within(t), o.Dir)
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	if err := d.Input(within(t), []byte("hello\r")); err != nil {
		t.Errorf("Input() = %v", err)
	}
	e, err := d.Stop(within(t), time.Second)
	if err != nil || e.Signal == "" {
		t.Errorf("Stop() = %+v, %v; want a signal", e, err)
	}
	if err := d.Release(within(t)); err != nil {
		t.Errorf("Release() = %v", err)
	}
	_ = d.Close()
	if _, err := seat.Open(within(t), o.Dir); !errors.Is(err, seat.ErrGone) {
		t.Errorf("Open(released) = %v, want ErrGone", err)
	}
}

func TestClipLines(t *testing.T) {
	in := make([]string, 30)
	in[0], in[29] = "first", strings.Repeat("é", 500)
	got := seat.ClipLines(in)
	if len(got) != 20 || got[19] != strings.Repeat("é", 400) || in[29] != strings.Repeat("é", 500) {
		t.Errorf("ClipLines() = %d lines, the last of %d bytes; want 20 and 800, and the given ones as they were", len(got), len(got[19]))
	}
}
