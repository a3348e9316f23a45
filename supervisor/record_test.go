package supervisor_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestTheLargestRequestIsReadAgain asks for an agent by as much as a request holds, of what its record needs most room for: the next
// keeper reads that, and so looks after the agent.
func TestTheLargestRequestIsReadAgain(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: state})
		c := newCrew(t, m, dir, "one")
		leave := c.front(t)
		req := named("ada")
		req.Env = map[string]string{}
		for i := range 63 {
			req.Env[fmt.Sprint("V", i)] = strings.Repeat("<", 4000)
		}
		var a wire.SpawnReply
		if err := c.asker(t, trust.Operator).Call(t.Context(), target(wire.CommandSpawn, "", wire.ModeAny), req, &a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		leave(true)
		c.stop()
		if c = newCrew(t, m, dir, "one"); len(c.k.Unreadable()) > 0 {
			t.Errorf("the next keeper cannot read %q", c.k.Unreadable())
		}
	})
}
