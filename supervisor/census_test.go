package supervisor_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestAgentsThatMayLiveAreCountedOn has a supervisor that is killed a moment after its first agent was accepted, and one that says goodbye while it
// cannot read the record of an agent: both have agents that may live, and are known to the other for that.
func TestAgentsThatMayLiveAreCountedOn(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: state})
		one, two := newCrew(t, m, dir, "one"), newCrew(t, m, dir, "two")
		_, leaveTwo := one.front(t), two.front(t)
		op := one.asker(t, trust.Operator)
		known := func(when string) {
			t.Helper()
			time.Sleep(2 * time.Hour)
			if r := census(t, op, wire.ModeAny, 1)[one.k.Instance()]; len(r.Peers) != 2 {
				t.Errorf("%s: the other knows %+v", when, r.Peers)
			}
		}
		time.Sleep(time.Minute)
		var a wire.SpawnReply
		if err := op.Call(t.Context(), target(wire.CommandSpawn, two.k.Instance(), wire.ModeAny), named("ada"), &a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		leaveTwo(false)
		two.stop()
		known("killed")
		record := filepath.Join(dir, "two", string(a.Agent.UID), "agent.json")
		if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		two = newCrew(t, m, dir, "two")
		leaveTwo = two.front(t)
		synctest.Wait()
		leaveTwo(true)
		known("left with a record that cannot be read")
	})
}
