package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// A credential of a later life of the name ends the agent instead of leaving it trying for ever.
func TestAgentEndsWhenItsNameIsGrantedAnew(t *testing.T) {
	m := cotaltest.New(t, nil)
	peer := &cotaltest.Peer{Role: "reviewer"}
	first := m.Credentials(t, "helper", peer)
	var newest atomic.Pointer[trust.Credentials]
	newest.Store(first)
	src := endpoint.SourceFunc(func(context.Context) (*trust.Credentials, error) { return newest.Load(), nil })
	here := make(chan struct{})
	w := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "is here") {
			close(here)
		}
		return len(p), nil
	})
	done := make(chan error, 1)
	go func() {
		done <- serve(t.Context(), w, "", src, "team", &endpoint.Options{InProcess: m.InProcess()})
	}()
	<-here
	if _, err := m.Node().Authority().Revoke(t.Context(), m.Space(), first.Identity().Principal); err != nil {
		t.Fatal(err)
	}
	newest.Store(m.Credentials(t, "helper", peer))
	if err := <-done; wire.CodeOf(err) != wire.CodeUnauthenticated {
		t.Errorf("serve ended with %v, want unauthenticated", err)
	}
}

// A credential that stays refused is told of at once, and then once a minute, with how often it was.
func TestAgentCountsRefusals(t *testing.T) {
	var r refusals
	var got []string
	now := time.Unix(1_700_000_000, 0)
	see := func(e endpoint.Event) {
		if text := r.text(e, now); text != "" {
			got = append(got, text)
		}
		now = now.Add(2 * time.Second)
	}
	refused := endpoint.EventRefused{Err: errors.New("no")}
	for range 62 {
		see(refused)
	}
	see(endpoint.EventConnected{Server: "s"})
	see(refused)
	see(refused)
	want := []string{
		"credential refused: no", "credential refused: no (30 times since)", "credential refused: no (30 times since)",
		`connected to "s"`, "credential refused: no",
	}
	if !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestAgentAnswers(t *testing.T) {
	m := cotaltest.New(t, nil)
	creds := m.Credentials(t, "helper", &cotaltest.Peer{Role: "reviewer"})
	ada := m.Endpoint(t, "ada", nil)
	heard := make(chan string, 8)
	hear := func(d *endpoint.Delivery) {
		if d.Sender.Actor == "helper" {
			heard <- d.Kind.String() + " " + d.Message.Text()
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("acknowledge: %v", err)
		}
	}
	if _, err := ada.Join(t.Context(), "team", hear, nil); err != nil {
		t.Fatal(err)
	}
	if err := ada.HandleDirect(t.Context(), hear); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, io.Discard, "", endpoint.Static(creds), "team", &endpoint.Options{InProcess: m.InProcess()})
	}()
	want := func(text string) {
		t.Helper()
		if got := <-heard; got != text {
			t.Errorf("heard %q, want %q", got, text)
		}
	}
	want("channel hello, I am local.helper")
	if _, err := ada.Direct(t.Context(), creds.Identity().Principal, endpoint.Text("are you there?")); err != nil {
		t.Fatal(err)
	}
	want("direct you said: are you there?")
	if _, err := ada.Ask(t.Context(), "reviewer", endpoint.Text("review this")); err != nil {
		t.Fatal(err)
	}
	want("direct done: review this")
	mention := endpoint.Text("anybody?")
	mention.Mentions = []string{"helper"}
	if _, err := ada.Post(t.Context(), "team", mention); err != nil {
		t.Fatal(err)
	}
	want("channel here I am")
	stop()
	if err := <-done; err != nil {
		t.Errorf("serve ended with %v, want nil after its context", err)
	}
}
