package target_test

import (
	"slices"
	"testing"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/wire"
)

// TestNoSupervisor names the supervisor that was meant, by instance or host.
func TestNoSupervisor(t *testing.T) {
	census := manager.Census{Replies: []wire.AgentsReply{{Instance: "kz4", Host: "build"}, {Instance: "qqq", Host: "laptop"}}}
	for on, want := range map[string][]string{"lpatop": {"did you mean: laptop"}, "kz5": {"did you mean: kz4"}, "elsewhere": nil} {
		err := target.NoSupervisor(census.Missing(on), on)
		if got := command.Hints(err); !slices.Equal(got, want) || err.Error() != `no supervisor "`+on+`"; there are: kz4 on build, qqq on laptop` {
			t.Errorf("NoSupervisor(%q) = %v, hints %q; want hints %q", on, err, got, want)
		}
	}
}
