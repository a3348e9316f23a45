package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
)

// lines collects what the observer prints and says when something is among it.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *lines) wait(t *testing.T, want string) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		l.mu.Lock()
		got := l.text.String()
		l.mu.Unlock()
		if strings.Contains(got, want) {
			return
		}
		select {
		case <-l.more:
		case <-limit:
			t.Fatalf("no %q within a minute in:\n%s", want, got)
		}
	}
}

func TestObserve(t *testing.T) {
	m := cotaltest.New(t, nil)
	creds := m.Credentials(t, "watcher", &cotaltest.Peer{Request: &auth.Request{Profile: trust.Observer}})
	out := &lines{more: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- observe(ctx, out, "", endpoint.Static(creds), "team.>", &endpoint.Options{InProcess: m.InProcess()})
	}()
	out.wait(t, `watching "team.>" in space test`)

	ada := m.Endpoint(t, "ada", nil)
	if _, err := ada.Post(t.Context(), "team.backend", endpoint.Text("hello\x1b[2J")); err != nil {
		t.Fatal(err)
	}
	out.wait(t, `#team.backend local.ada: "hello\x1b[2J"`)
	out.wait(t, "@local.ada is idle")
	stop()
	if err := <-done; err != nil {
		t.Errorf("observe ended with %v, want nil after its context", err)
	}
}
