//go:build linux || darwin

package cotal_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
)

// TestASupervisorApartTellsThatItIsAlone: a supervisor in a process of its own is told once that the mesh is gone, with the reason, and once that it is
// back, however long it is away.
func TestASupervisorApartTellsThatItIsAlone(t *testing.T) {
	t.Parallel()
	var opts cotal.SupervisorOptions
	s := newStack(t, func(o *cotal.Options) { opts, o.Supervisor, o.SupervisorElsewhere = *o.Supervisor, nil, true })
	var mu sync.Mutex // guards url
	url := s.node.URL()
	locate := func() string {
		mu.Lock()
		defer mu.Unlock()
		return url
	}
	c, err := cotal.DialNode(t.Context(), url, s.store, &cotal.DialOptions{Locate: locate})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	told := make(chan error, 64)
	opts.Away = func(reason error) { told <- reason }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- c.ServeSupervisor(ctx, lab, opts, "", func(instance string) { ready <- instance }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	next := func() error {
		t.Helper()
		select {
		case err := <-told:
			return err
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is told")
			return nil
		}
	}
	s.stop()
	if reason := next(); reason == nil {
		t.Error("it is told that the mesh is there")
	}
	s.start()
	mu.Lock()
	url = s.node.URL()
	mu.Unlock()
	if reason := next(); reason != nil {
		t.Errorf("once the mesh is back it is told %v", reason)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(told) > 0 {
		t.Errorf("it is told more: %v", <-told)
	}
}
