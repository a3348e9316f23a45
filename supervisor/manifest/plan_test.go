package manifest_test

import (
	"testing"

	"github.com/cotal-go/cotal/supervisor/manifest"
	"github.com/cotal-go/cotal/wire"
)

// Revisions begin anew with a space: settings of one that was made under the old name are not those of the deploy, whatever their revision.
func TestSettingsOfASpaceThatWasMadeAnew(t *testing.T) {
	team, err := manifest.Parse("t.yaml", []byte(head+"channels: {work: {description: d}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, by := wire.ChannelConfig{Description: "d"}, wire.ChannelConfig{Description: "by hand"}
	for name, tc := range map[string]struct {
		entry   manifest.LedgerChannel
		account string
		have    wire.ChannelConfig
		ours    bool
		do      manifest.Action
	}{
		"same_space":                {manifest.LedgerChannel{Revision: 1, Account: "A1", Config: by}, "A1", by, true, manifest.Update},
		"same_space_asked":          {manifest.LedgerChannel{Account: "A1", Config: d}, "A1", d, true, manifest.Keep},
		"same_space_changed":        {manifest.LedgerChannel{Revision: 2, Account: "A1", Config: d}, "A1", d, false, manifest.Exists},
		"other_space":               {manifest.LedgerChannel{Revision: 1, Account: "A1", Config: d}, "A2", d, false, manifest.Exists},
		"other_space_asked":         {manifest.LedgerChannel{Account: "A1", Config: d}, "A2", d, false, manifest.Exists},
		"old_ledger":                {manifest.LedgerChannel{Revision: 1, Config: d}, "A2", d, true, manifest.Keep},
		"old_ledger_other_settings": {manifest.LedgerChannel{Revision: 1, Config: d}, "A2", by, false, manifest.Exists},
		"no_account_here":           {manifest.LedgerChannel{Revision: 1, Account: "A1", Config: d}, "", d, true, manifest.Keep},
		"no_account_here_other":     {manifest.LedgerChannel{Revision: 1, Account: "A1", Config: d}, "", by, false, manifest.Exists},
		"no_account_changed":        {manifest.LedgerChannel{Revision: 2, Config: d}, "", d, false, manifest.Exists},
	} {
		t.Run(name, func(t *testing.T) {
			tc.entry.Channel = "work"
			info := wire.ChannelInfo{Channel: "work", Config: &tc.have, Revision: 1}
			now := manifest.Current{Account: tc.account, Channels: []wire.ChannelInfo{info}}
			if got, why := tc.entry.Ours(now, info); got != tc.ours || (why == "") != got {
				t.Errorf("Ours() = %t, %q; want %t", got, why, tc.ours)
			}
			l := manifest.NewLedger(file(t), "main", 1)
			l.Channels = []manifest.LedgerChannel{tc.entry}
			steps := team.Plan(l, now, nil)
			if steps[0].Do != tc.do {
				t.Errorf("plan = %+v, want %s", steps[0], tc.do)
			}
		})
	}
}
