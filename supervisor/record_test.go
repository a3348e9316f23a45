package supervisor_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
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

// TestManyThatEndedFitAnAnswer: an agent whose own have ended in folders of long names, as many as are kept, keeps nobody from being told of all
// agents.
func TestManyThatEndedFitAnAnswer(t *testing.T) {
	long := t.TempDir()
	for len(long) < 3700 {
		long = filepath.Join(long, strings.Repeat("long", 60))
	}
	if err := os.MkdirAll(long, 0o700); err != nil {
		t.Fatal(err)
	}
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.th.set(func() { s.th.script = func(p *playSeat) { p.endLocked(supervisor.Ending{}, nil) } })
		const many = 300
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				req := request("process")
				req.Cwd = long
				s.spawn(t, operator, req)
			})
		}
		all.Wait()
		time.Sleep(time.Minute)
		told := s.Agents(operator, wire.AgentsRequest{Ended: true})
		data, err := json.Marshal(told)
		if err != nil || len(told.Agents) != many || len(data) > wire.MaxReply {
			t.Errorf("%d agents are told in %d bytes, %v; want %d in at most %d", len(told.Agents), len(data), err, many, wire.MaxReply)
		}
		if one := s.Agents(operator, wire.AgentsRequest{Ended: true, UID: told.Agents[many-1].UID}).Agents; len(one) != 1 || one[0].Cwd != long {
			t.Error("one alone is told without its folder")
		}
	})
}
