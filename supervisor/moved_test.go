package supervisor_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/supervisor"
	"github.com/cotal-go/cotal/wire"
)

// TestBrokerMoves: the launch file of an agent that runs follows the broker, under one keeper and from one to the next, also after it
// could not be written for a while. Nothing else in it changes, and the agent is left alone.
func TestBrokerMoves(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var at atomic.Pointer[supervisor.Server]
		at.Store(&supervisor.Server{URL: "nats://127.0.0.1:4222", CapabilityFile: "/tmp/capability"})
		s := newStand(t, func(o *supervisor.Options) { o.Server = func() supervisor.Server { return *at.Load() } })
		a := s.spawn(t, operator, named("a")).Agent
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		dir := filepath.Join(s.opts.Dir, string(a.UID))
		path := filepath.Join(dir, "launch.json")
		first, err := launch.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		want := func(now supervisor.Server) {
			t.Helper()
			time.Sleep(40 * time.Second) // longer than the longest pause between two tries
			synctest.Wait()
			got, err := launch.Read(path)
			if err != nil {
				t.Fatal(err)
			}
			if got.Server != now.URL || got.TLS != now.TLS || got.CAFile != now.CAFile || got.TLSName != now.TLSName {
				t.Errorf("the launch file leads to %s (TLS %t, %s, %s), want %+v", got.Server, got.TLS, got.CAFile, got.TLSName, now)
			}
			got.Server, got.TLS, got.CAFile, got.TLSName = first.Server, first.TLS, first.CAFile, first.TLSName
			if got.Creds != first.Creds || got.Seat != first.Seat || got.UID != first.UID || got.HostSocket != first.HostSocket {
				t.Errorf("the launch file is now %v, want all but the broker as it was", got)
			}
		}
		move := func(now supervisor.Server) {
			t.Helper()
			at.Store(&now)
			want(now)
		}
		move(supervisor.Server{URL: "nats://127.0.0.1:4333", CapabilityFile: "/tmp/capability"})
		move(supervisor.Server{URL: "tls://127.0.0.1:4444", CapabilityFile: "/tmp/capability", TLS: true, CAFile: "/tmp/ca.pem", TLSName: "mesh"})

		s.stop()
		at.Store(&supervisor.Server{URL: "nats://127.0.0.1:4555", CapabilityFile: "/tmp/capability"})
		s.begin(t)
		want(*at.Load())

		if err := os.Chmod(path, 0o644); err != nil { // it is not read then
			t.Fatal(err)
		}
		at.Store(&supervisor.Server{URL: "nats://127.0.0.1:4666", CapabilityFile: "/tmp/capability"})
		time.Sleep(10 * time.Minute)
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		want(*at.Load())
		s.want(t, a.UID, wire.AgentReady, wire.ProcessRunning)
		if starts, _, _ := s.th.counts(); starts != 1 {
			t.Errorf("started %s, want it left alone", times(starts))
		}
	})
}
