//go:build linux || darwin

package cotal_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
)

// apart is a supervisor in a process of its own at a mesh of real processes.
type apart struct {
	*stack
	c    *cotal.NodeClient
	told chan error
	end  func()

	mu  sync.Mutex // guards url
	url string
}

func newApart(t *testing.T) *apart {
	t.Helper()
	var opts cotal.SupervisorOptions
	a := &apart{told: make(chan error, 64)}
	a.stack = newStack(t, func(o *cotal.Options) { opts, o.Supervisor, o.SupervisorElsewhere = *o.Supervisor, nil, true })
	a.located(a.node.URL())
	c, err := cotal.DialNode(t.Context(), a.node.URL(), a.store, &cotal.DialOptions{Locate: a.locate})
	if err != nil {
		t.Fatal(err)
	}
	a.c = c
	opts.Away = func(reason error) { a.told <- reason }
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- c.ServeSupervisor(ctx, lab, opts, "", func(instance string) { ready <- instance }) }()
	a.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = c.Close()
	})
	t.Cleanup(a.end)
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return a
}

// located says that the mesh is at url now; empty is nowhere.
func (a *apart) located(url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.url = url
}

func (a *apart) locate() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.url
}

func (a *apart) next(t *testing.T) error {
	t.Helper()
	select {
	case err := <-a.told:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is told")
		return nil
	}
}

// TestASupervisorApartTellsThatItIsAlone: a supervisor in a process of its own is told once that the mesh is gone, with the reason, and once that it is
// back, however long it is away.
func TestASupervisorApartTellsThatItIsAlone(t *testing.T) {
	t.Parallel()
	a := newApart(t)
	a.located("") // the port may be somebody else's soon
	a.stop()
	if reason := a.next(t); reason == nil {
		t.Error("it is told that the mesh is there")
	}
	a.start()
	a.located(a.node.URL())
	if reason := a.next(t); reason != nil {
		t.Errorf("once the mesh is back it is told %v", reason)
	}
	a.end()
	if len(a.told) > 0 {
		t.Errorf("it is told more: %v", <-a.told)
	}
}

// TestASupervisorApartTellsThatItIsAllowedAgain: its connection is ended and its credential refused; with another one it serves again, on another
// connection, and says so.
func TestASupervisorApartTellsThatItIsAllowedAgain(t *testing.T) {
	t.Parallel()
	a := newApart(t)
	if _, err := a.c.Authority().Mint().Revoke(t.Context(), lab, mint.Revocation{UserKey: trust.AllUsers}); err != nil {
		t.Fatal(err)
	}
	if err := a.c.Authority().Push(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	if reason := a.next(t); reason == nil {
		t.Error("it is told that the mesh is there")
	}
	for a.next(t) != nil { // each other reason is told once
	}
}
