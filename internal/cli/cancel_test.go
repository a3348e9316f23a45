package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/cli"
)

// TestCancelled: whatever a command is at when the person ends it, it says that, and no word of the place it was at.
func TestCancelled(t *testing.T) {
	w := newWorld(t)
	w.up()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, line := range []string{
		"status", "mint nova", "revoke nova", "grants", "history general", "history clear general --force", "members", "leave general",
		"send msg general hello", "send dm ada hello", "send ask reviewer hello", "inbox", "inbox nova", "receipt ask-1", "roster",
		"channels list", "channels set general --delivery live", "role list", "role clear x --force", "deadletter list", "space add lab",
		"space rm main --force", "serve delivery", "join", "tail",
	} {
		var errs strings.Builder
		code := cli.Main(ctx, strings.Fields(line), w.cliEnv(strings.NewReader(""), new(strings.Builder), &errs))
		if got, want := errs.String(), "cotal: cancelled; nothing was done\n"; code != 8 || got != want {
			t.Errorf("%s: exit %d, %q; want 8, %q", line, code, got, want)
		}
	}
}
