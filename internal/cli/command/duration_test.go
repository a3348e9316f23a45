package command_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/wire"
)

func TestDuration(t *testing.T) {
	for in, want := range map[string]string{"168h": "7d", "30d": "30d", "36h": "36h", "90m": "1h30m", "45s": "45s", "0s": "0s", "24h": "1d", "1h0m1s": "1h0m1s"} {
		d, err := command.ParseDuration("--ttl", in)
		if got := command.Duration(d); err != nil || got != want {
			t.Errorf("duration %q = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "d", "-1d", "1.5d", "9999999d", "1h2d", "week"} {
		if d, err := command.ParseDuration("--ttl", in); wire.CodeOf(err) != wire.CodeBadRequest {
			t.Errorf("duration %q = %v, %v; want bad-request", in, d, err)
		}
	}
	var d time.Duration
	f := command.DurationFlag(&d)
	if err := f.Set("3d"); err != nil || d != 72*time.Hour || f.String() != "3d" {
		t.Errorf("flag = %v, %v, %q", d, err, f)
	}
}
