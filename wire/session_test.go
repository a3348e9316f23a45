package wire_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/wire"
)

func readSessionFrame(in []byte) (string, error) {
	f, err := wire.DecodeSessionFrame(in)
	if err != nil {
		return "", err
	}
	pairs := []string{"kind", string(rune(f.Kind)), "viewer", strconv.FormatUint(f.Viewer, 10), "turn", strconv.Itoa(int(f.Turn)),
		"sequence", strconv.FormatUint(f.Seq, 10)}
	if f.Cols > 0 || f.Rows > 0 {
		pairs = append(pairs, "size", fmt.Sprintf("%d by %d", f.Cols, f.Rows))
	}
	if len(f.Data) > 0 {
		text := strconv.Quote(string(f.Data))
		if len(f.Data) > 100 {
			text = strconv.Itoa(len(f.Data)) + " bytes"
		}
		pairs = append(pairs, "data", text)
	}
	if f.Bytes > 0 {
		pairs = append(pairs, "bytes", strconv.FormatUint(f.Bytes, 10))
	}
	if f.Taken > 0 {
		pairs = append(pairs, "taken", strconv.FormatUint(f.Taken, 10))
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"first", f.First}, {"last", f.Last}, {"overflow", f.Overflow}} {
		if flag.set {
			pairs = append(pairs, flag.name, "yes")
		}
	}
	switch {
	case f.Open != nil:
		pairs = append(pairs, "open", fmt.Sprintf("%+v", *f.Open))
	case f.Exit != nil:
		pairs = append(pairs, "exit", fmt.Sprintf("%+v", *f.Exit))
	case f.Error != nil:
		pairs = append(pairs, "error", fmt.Sprintf("%s %q", f.Error.Code, f.Error.Message))
	}
	return lines(pairs...), nil
}

func TestExitFitsAFrame(t *testing.T) {
	x := wire.SessionExit{Code: 1}
	for i := range wire.MaxLastLines {
		x.LastLines = append(x.LastLines, fmt.Sprint(i, " ", strings.Repeat("\x01\u2028", 200)))
	}
	given := x.LastLines
	x.Fit()
	f := wire.SessionFrame{Kind: wire.FrameEnded, Turn: 1, Seq: 1, Exit: &x}
	if _, err := f.Append(nil); err != nil {
		t.Fatal(err)
	}
	if len(x.LastLines) == 0 || x.LastLines[len(x.LastLines)-1] != given[len(given)-1] || given[0][0] != '0' {
		t.Errorf("%d lines are left, or the wrong ones", len(x.LastLines))
	}
}
