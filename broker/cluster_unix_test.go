//go:build unix

package broker_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestClusterAnswersAsOne asks a broker of two servers, then one of which the second no longer answers.
func TestClusterAnswersAsOne(t *testing.T) {
	a := authority(t)
	routes := [2]int{freePort(t), freePort(t)}
	var ps [2]*process
	for i := range ps {
		ps[i] = newProcess(t, a, fmt.Sprintf("cotal-%d", i), fmt.Sprintf(
			"cluster { name: test, listen: \"127.0.0.1:%d\", routes: [ \"nats://127.0.0.1:%d\" ] }\n", routes[i], routes[1-i]))
		ps[i].start(t)
	}
	ctl, patient := external(t, ps[0], a), external(t, ps[0], a, func(o *broker.DialOptions) { broker.Patient(o, time.Minute) })
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for both := false; !both; {
		servers, err := ctl.Ping(ctx)
		if err != nil && !errors.Is(err, broker.ErrIncomplete) {
			t.Fatalf("Ping: %v\n%s", err, ps[0].log())
		}
		both = len(servers) == 2
	}

	rec, err := a.AddSpace(ctx, "team", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ctl.PutAccount(ctx, rec.Public, rec.JWT); err != nil {
		t.Fatalf("PutAccount: %v", err)
	}
	toldByBoth := followBoth(ctx, t, patient, rec.Public)
	for _, p := range ps {
		// At once, on both: nobody had to wait for the servers to compare notes.
		nc, err := nats.Connect(p.url(), member(t, a, trust.Observer), nats.NoReconnect(), nats.Timeout(time.Minute))
		if err != nil {
			t.Fatalf("connect to %s: %v", p.address, err)
		}
		defer nc.Close()
	}
	all, err := patient.Connections(ctx, rec.Public)
	if err != nil || len(all) != 2 || all[0].ServerName != "cotal-0" || all[1].ServerName != "cotal-1" {
		t.Fatalf("Connections = %+v, %v; want one on each server", all, err)
	}
	if n, err := patient.EvictTagged(ctx, rec.Public, "profile:observer"); n != 2 || err != nil {
		t.Errorf("EvictTagged = %d, %v; want 2", n, err)
	}

	toldByBoth()

	// Stopped, not ended: it keeps its route and its place in the count, and answers nothing.
	pause(t, ps[1].cmd.Process.Pid)
	if _, err = ctl.Connections(ctx, rec.Public); !errors.Is(err, broker.ErrIncomplete) {
		servers, pingErr := ctl.Ping(ctx)
		t.Errorf("Connections while a server is silent = %v, want %v; ping says %+v, %v\n%s", err, broker.ErrIncomplete, servers, pingErr, ps[0].log())
	}
	short, cancelShort := context.WithTimeout(ctx, 5*time.Second)
	defer cancelShort()
	if err := ctl.PutAccount(short, rec.Public, rec.JWT); !errors.Is(err, broker.ErrIncomplete) && !errors.Is(err, wire.ErrDeadline) {
		t.Errorf("PutAccount while a server is silent = %v, want it to be said", err)
	}
}

// pause stops a child of the test and returns when every thread of it stands still: a signal alone is on its way for a while.
func pause(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for {
		var status syscall.WaitStatus
		switch _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); {
		case err == syscall.EINTR:
		case err != nil || !status.Stopped():
			t.Fatalf("process %d did not stop: %v, %v", pid, status, err)
		default:
			return
		}
	}
}

// followBoth follows an account over the connection to one server. The check it returns wants that a client came to each of
// the two servers and went, as told by that server, and ends the following.
func followBoth(ctx context.Context, t *testing.T, ctl *broker.Control, account string) (check func()) {
	t.Helper()
	told := make(chan broker.ConnectionChange, 64)
	done := make(chan error, 1)
	followCtx, stop := context.WithCancel(ctx)
	go func() { done <- ctl.Follow(followCtx, account, func(c broker.ConnectionChange) { told <- c }) }()
	if c := <-told; !c.Missed {
		t.Errorf("first call of Follow = %+v", c)
	}
	return func() {
		t.Helper()
		seen := map[string]int{}
		for range 4 {
			select {
			case c := <-told:
				seen[fmt.Sprintf("%s %v", c.Connection.ServerName, c.Connected)]++
			case <-ctx.Done():
				t.Fatalf("notices = %v, want two of each server", seen)
			}
		}
		for _, what := range []string{"cotal-0 true", "cotal-0 false", "cotal-1 true", "cotal-1 false"} {
			if seen[what] != 1 {
				t.Errorf("notices %q = %d, want 1: %v", what, seen[what], seen)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("Follow = %v, want nil", err)
		}
	}
}
