package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
)

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
	if _, err := ada.Join(t.Context(), "team", hear); err != nil {
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
		select {
		case got := <-heard:
			if got != text {
				t.Errorf("heard %q, want %q", got, text)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no %q within 10 s", text)
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
	stop()
	if err := <-done; err != nil {
		t.Errorf("serve ended with %v, want nil after its context", err)
	}
}
