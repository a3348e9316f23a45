package view_test

import (
	"testing"

	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/wire"
)

func TestMentionedPhrases(t *testing.T) {
	helper := wire.MentionReach{Name: "helper", Principal: "local.helper", Tier: wire.ReachLive}
	nova := wire.MentionReach{Name: "nova", Principal: "local.nova", Tier: wire.ReachStored, Reason: wire.MentionOffline}
	none := func(name, principal, reason string) wire.MentionReach {
		return wire.MentionReach{Name: name, Principal: principal, Tier: wire.ReachNobody, Reason: reason}
	}
	for _, tt := range []struct {
		all  []wire.MentionReach
		want string
	}{
		{[]wire.MentionReach{helper}, "mentioned: helper (there)"},
		{
			[]wire.MentionReach{helper, nova, none("nobody", "", wire.MentionUnknown), none("lib", "local.lib", wire.MentionUnread)},
			`mentioned: helper (there), nova (away); nobody is called "nobody"; lib may not read #gone`,
		},
		{[]wire.MentionReach{none("nobody", "", wire.MentionUnknown)}, `mentioned nobody: nobody is called "nobody"`},
		{[]wire.MentionReach{none("dan", "", wire.MentionAmbiguous)}, `mentioned nobody: several are called "dan", name one by its principal`},
		{[]wire.MentionReach{helper, none("ada", "local.ada", wire.MentionSelf)}, "mentioned: helper (there); ada is you"},
		{
			[]wire.MentionReach{{Name: "nova", Principal: "u_x.nova", Tier: wire.ReachStored, Reason: wire.MentionUnsure}, none("a", "", target.MentionBeyond), none("b", "", target.MentionBeyond)},
			"mentioned: u_x.nova (there or away); 2 names beyond the 32 that count",
		},
		{[]wire.MentionReach{none("x\x1b", "", "later\x1b")}, `mentioned nobody: "x\x1b" is not told: later\x1b`},
	} {
		if got := view.Mentioned("gone", tt.all); got != tt.want {
			t.Errorf("Mentioned(%+v) = %q, want %q", tt.all, got, tt.want)
		}
	}
}
