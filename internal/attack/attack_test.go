package attack_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// intruder is a raw NATS connection with a valid credential. It collects what the broker refuses.
type intruder struct {
	nc *nats.Conn
	id trust.Identity

	mu     sync.Mutex
	denied []string
}

func intrude(t testing.TB, m *cotaltest.Mesh, creds *trust.Credentials) *intruder {
	t.Helper()
	in := &intruder{id: creds.Identity()}
	nc, err := dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: creds, Name: "intruder", OnError: func(_ *nats.Conn, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			in.mu.Lock()
			in.denied = append(in.denied, err.Error())
			in.mu.Unlock()
		}
	}})
	if err != nil {
		t.Fatalf("connect intruder: %v", err)
	}
	t.Cleanup(nc.Close)
	in.nc = nc
	return in
}

// barrier returns when the broker has answered everything sent before and the refusals have been collected:
// asynchronous errors are handed out in order, so the refusal of a final, always refused publish comes last.
func (in *intruder) barrier(t testing.TB) {
	t.Helper()
	mark := fmt.Sprintf("barrier.%s", nats.NewInbox())
	if err := in.nc.Publish(mark, nil); err != nil {
		t.Fatalf("publish barrier: %v", err)
	}
	if err := in.nc.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !in.refused(mark) {
		select {
		case <-deadline.Done():
			t.Fatal("the broker did not refuse the barrier")
		case <-time.After(time.Millisecond):
		}
	}
}

// refused reports whether the broker refused this exact subject.
func (in *intruder) refused(subject string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, d := range in.denied {
		if strings.Contains(d, `"`+subject+`"`) {
			return true
		}
	}
	return false
}

// mustNotPublish tries the publish and fails the test unless the broker refuses it.
func (in *intruder) mustNotPublish(t testing.TB, subject string, body []byte) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Reply, m.Data = in.nc.NewRespInbox(), body
	if err := in.nc.PublishMsg(m); err != nil {
		t.Fatalf("publish %q: %v", subject, err)
	}
	in.barrier(t)
	if !in.refused(subject) {
		t.Errorf("publish %q as %s: accepted, want refused", subject, in.id.Principal)
	}
}

// mustNotSubscribe tries the subscription and fails the test unless the broker refuses it.
func (in *intruder) mustNotSubscribe(t testing.TB, subject string) {
	t.Helper()
	sub, err := in.nc.SubscribeSync(subject)
	if err != nil {
		t.Fatalf("subscribe %q: %v", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := in.nc.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
	if _, err := sub.NextMsg(time.Millisecond); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("subscribe %q as %s: %v, want permission violation", subject, in.id.Principal, err)
	}
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func local(actor string) wire.Principal { return wire.Principal{Owner: wire.LocalOwner, Actor: actor} }
