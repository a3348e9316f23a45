package supervisor_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// TestAgentWithoutItsRecord: a folder that has lost the record of its agent and has a seat is left as it is and told of, since its agent may run;
// one that nothing was started in is taken away.
func TestAgentWithoutItsRecord(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		lost, unused := wire.NewUID(), wire.NewUID()
		s.stop()
		for _, dir := range []string{filepath.Join(string(lost), "seat-1"), string(unused)} {
			if err := os.MkdirAll(filepath.Join(s.opts.Dir, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := supervisor.Kept(s.opts.Dir); err != nil || !slices.Equal(got, []string{string(lost)}) {
			t.Errorf("Kept() = %q, %v; want %q", got, err, lost)
		}
		s.begin(t)
		if got := s.Agents(operator, wire.AgentsRequest{}).Unreadable; !slices.Equal(got, []wire.UID{lost}) {
			t.Errorf("an operator is told of %q, want %q", got, lost)
		}
		if _, err := os.Stat(filepath.Join(s.opts.Dir, string(lost), "seat-1")); err != nil {
			t.Errorf("the seat's folder: %v", err)
		}
		if _, err := os.Stat(filepath.Join(s.opts.Dir, string(unused))); !os.IsNotExist(err) {
			t.Errorf("the folder of nothing: %v", err)
		}
	})
}
