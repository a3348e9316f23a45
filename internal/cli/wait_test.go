package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/cli"
)

// hook is a place to write to that calls fn once something was written.
type hook struct {
	strings.Builder
	on string
	fn func()
}

func (h *hook) Write(p []byte) (int, error) {
	n, err := h.Builder.Write(p)
	if strings.Contains(h.String(), h.on) {
		h.fn()
	}
	return n, err
}

// TestWaitIsCancelled: the person ends the wait for a receipt.
func TestWaitIsCancelled(t *testing.T) {
	w := newWorld(t)
	w.up()
	w.must("mint", "nova", "--json")
	w.must("send", "dm", "nova", "hi", "--id", "hi-1", "--json")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := &hook{on: "stored; waiting\n", fn: cancel}
	out := new(strings.Builder)
	code := cli.Main(ctx, []string{"receipt", "hi-1", "--wait", "5m", "--verbose"}, w.cliEnv(strings.NewReader(""), out, errs))
	if last := errs.String(); code != 8 || !strings.HasSuffix(last, "\ncotal: cancelled\n") || out.Len() > 0 {
		t.Errorf("exit %d, %q on standard error, %q on standard output; want 8 and cancelled", code, last, out.String())
	}
}
