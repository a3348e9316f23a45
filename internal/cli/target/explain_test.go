package target

import (
	"strings"
	"testing"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/internal/manager"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestExplainCensus pins what to do about supervisors that did not say what they have: the mesh itself runs.
func TestExplainCensus(t *testing.T) {
	silent := []wire.ManagerPeer{{Instance: "one", Host: "alpha"}}
	refused := []manager.Refusal{{ManagerPeer: wire.ManagerPeer{Instance: "two"}, Err: wire.Errorf(wire.CodePermissionDenied, "not for you")}}
	unread := []wire.AgentsReply{{Instance: "one", Host: "alpha", Unreadable: []wire.UID{wire.NewUID()}}}
	away := func(revoke, list string) string {
		return "start the supervisor that is silent, on its host: cotal up --detach, or cotal serve supervisor with the --state that it had; " +
			"one whose host is gone for good is forgotten once its agents hold nothing, and an hour after it was last heard if it fell silent: " + revoke + " of each; names are in: " + list
	}
	files, people := away("cotal revoke <name>", "cotal grants"), away("cotal actor revoke <name> --owner <owner>", "cotal actor list")
	for name, tt := range map[string]struct {
		census manager.Census
		want   string
		as     *trust.Identity
	}{
		"silent":  {manager.Census{Silent: silent}, files, nil},
		"refused": {manager.Census{Refused: refused}, "", nil},
		"unread":  {manager.Census{Replies: unread}, "mend the file agent.json in the folder of that name below .cotal/run/agents and start the supervisor anew, or end what runs and take the folder away", nil},
		"both":    {manager.Census{Silent: silent, Refused: refused}, files, nil},
		"person":  {manager.Census{Silent: silent}, people, &trust.Identity{}},
	} {
		err := (&Target{Config: &config.Config{}, as: tt.as}).Explain(tt.census.Complete("agents"))
		if got := strings.Join(command.Hints(err), "; "); got != tt.want || wire.CodeOf(err) != wire.CodeUnavailable {
			t.Errorf("%s: %v with hints %q, want %q", name, err, got, tt.want)
		}
	}
}
