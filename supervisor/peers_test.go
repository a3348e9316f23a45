package supervisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// TestPeersDoNotHoldKeeper has a disk that does not come to an end with the file of the other keepers: the keeper answers meanwhile, and
// the newest is what the file has in the end.
func TestPeersDoNotHoldKeeper(t *testing.T) {
	dir := t.TempDir()
	k, err := supervisor.NewKeeper(lab, &supervisor.Options{Dir: dir, Program: "/bin/cotal", Seats: newTheatre(), Server: func() supervisor.Server { return supervisor.Server{} }})
	if err != nil {
		t.Fatal(err)
	}
	known := func() int {
		return len(k.Agents(supervisor.Caller{Mode: wire.ModeAny}, wire.AgentsRequest{}).Peers) - 1 // itself
	}
	release := k.HoldPeers()
	var wg sync.WaitGroup
	for i, name := range []string{"one", "two", "three"} {
		wg.Go(func() { k.HeardPeer(wire.ManagerPeer{Instance: name, Host: "far"}) })
		for known() <= i {
			runtime.Gosched()
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "peers.json")); err == nil {
		t.Error("the file was written while it was held")
	}
	release()
	wg.Wait()
	data, err := os.ReadFile(filepath.Join(dir, "peers.json"))
	for _, name := range []string{"one", "two", "three"} {
		if err != nil || !strings.Contains(string(data), `"`+name+`"`) {
			t.Errorf("peers.json = %s, %v; want %q in it", data, err, name)
		}
	}
}

// TestPeerThatLeftItsAgents: a keeper that said goodbye while it kept agents, or fell silent with them, is one that may have what is
// looked for, for as long as one of them holds a grant, and also after the others began anew. One that kept none is not.
func TestPeerThatLeftItsAgents(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		others := func() (out []string) {
			for _, p := range s.Agents(operator, wire.AgentsRequest{}).Peers[1:] {
				out = append(out, p.Instance)
			}
			return out
		}
		want := func(when string, names ...string) {
			t.Helper()
			if got := others(); !slices.Equal(got, names) {
				t.Errorf("%s: others are %q, want %q", when, got, names)
			}
		}
		for _, name := range []string{"left", "silent"} {
			s.led.mu.Lock()
			s.led.grants["local."+name] = &wire.ManagedGrant{Principal: "local." + name, UID: wire.NewUID(), Label: name + ":1"}
			s.led.mu.Unlock()
			s.HeardPeer(wire.ManagerPeer{Instance: name, Host: "far", Agents: 1})
		}
		s.HeardPeer(wire.ManagerPeer{Instance: "empty", Host: "far"})
		s.HeardPeer(wire.ManagerPeer{Instance: "left", Host: "far", Agents: 1, Left: true})
		s.HeardPeer(wire.ManagerPeer{Instance: "over", Host: "far", Agents: 1})
		s.HeardPeer(wire.ManagerPeer{Instance: "over", Host: "far", Left: true})
		want("at once", "empty", "left", "silent")
		time.Sleep(2 * time.Hour)
		want("later", "left", "silent")
		s.again(t)
		want("after a new begin", "left", "silent")
		for _, name := range []string{"left", "silent"} {
			s.led.mu.Lock()
			delete(s.led.grants, "local."+name)
			s.led.down = errors.New("not there")
			s.led.mu.Unlock()
		}
		time.Sleep(2 * time.Minute)
		want("while the authority does not say what stands", "left", "silent")
		s.led.mu.Lock()
		s.led.down = nil
		s.led.mu.Unlock()
		time.Sleep(2 * time.Minute)
		want("once nothing of theirs stands")
		s.again(t)
		want("after that")
	})
}
