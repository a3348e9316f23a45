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

// TestProjectMoves: an agent works where its folder is now, if that is in the project and the host names one. The folder of a process that
// is another one next time is no project that was moved.
func TestProjectMoves(t *testing.T) {
	for name, tc := range map[string]struct{ named, moves bool }{"named": {named: true, moves: true}, "folder_of_the_process": {}} {
		t.Run(name, func(t *testing.T) {
			a, b := t.TempDir(), t.TempDir()
			for _, dir := range []string{a, b} {
				if err := os.Mkdir(filepath.Join(dir, "work"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			faketime.Test(t, func(t *testing.T) {
				project := func(o *supervisor.Options, dir string) {
					t.Chdir(dir)
					if o.Project = ""; tc.named {
						o.Project = dir
					}
				}
				s := newStand(t, func(o *supervisor.Options) { project(o, a) })
				in, out := named("in"), named("out")
				in.Cwd, out.Cwd = filepath.Join(a, "work"), t.TempDir()
				inside, outside := s.spawn(t, operator, in).Agent, s.spawn(t, operator, out).Agent
				s.stop()
				project(&s.opts, b)
				s.begin(t)
				want := in.Cwd
				if tc.moves {
					want = filepath.Join(b, "work")
				}
				if got := s.see(t, inside.UID); got.Cwd != want || got.Principal != inside.Principal {
					t.Errorf("it works in %q as %s, want %q as %s", got.Cwd, got.Principal, want, inside.Principal)
				}
				if got := s.see(t, outside.UID).Cwd; got != out.Cwd {
					t.Errorf("one outside works in %q, want %q", got, out.Cwd)
				}
			})
		})
	}
}
