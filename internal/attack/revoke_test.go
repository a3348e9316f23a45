package attack_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestRevokedCredential shows that a revoked principal is dropped at once, refused afterwards and still refused
// after a restart of the broker, while its sibling stays connected, and that its name can be given out again without
// inheriting anything.
func TestRevokedCredential(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	creds, sibling := m.Credentials(t, "mallory", nil), m.Credentials(t, "sibling", nil)
	renewed := must[*trust.Credentials](t)(m.Node().Authority().Issue(t.Context(), requestRenew(m.Space(), "mallory")))
	live := []*intruder{intrude(t, m, creds), intrude(t, m, renewed)}
	calm := intrude(t, m, sibling)
	dropped := make(chan struct{}, len(live))
	for _, in := range live {
		in.nc.SetDisconnectErrHandler(func(*nats.Conn, error) { dropped <- struct{}{} })
	}
	calm.nc.SetDisconnectErrHandler(func(*nats.Conn, error) { t.Error("sibling was disconnected") })

	ctl := operate(t, m)
	if n := alive(t, m, ctl, creds, renewed); n != len(live) {
		t.Fatalf("%d connections, want %d", n, len(live))
	}
	began := time.Now()
	out, err := m.Node().Authority().Revoke(t.Context(), m.Space(), local("mallory"))
	if err != nil {
		t.Fatal(err)
	}
	if out.Keys != 2 {
		t.Errorf("revoked %d keys, want 2", out.Keys)
	}
	t.Logf("revoked after %s", time.Since(began))
	if n := alive(t, m, ctl, creds, renewed); n != 0 {
		t.Errorf("%d connections after Revoke returned", n)
	}
	for range live {
		<-dropped
	}
	refused := func(when string) {
		t.Helper()
		for _, c := range []*trust.Credentials{creds, renewed} {
			nc, err := dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: c, Name: "again"})
			if !errors.Is(err, wire.ErrUnauthenticated) {
				t.Errorf("%s: connect with revoked credential: %v, want unauthenticated", when, err)
			}
			if nc != nil {
				nc.Close()
			}
		}
	}
	refused("live")
	calm.nc.SetDisconnectErrHandler(nil)
	for _, in := range live {
		in.nc.Close()
	}
	m.Restart(t)
	refused("after restart")
	nc := must[*nats.Conn](t)(dial.Connect(t.Context(), dial.Options{InProcess: m.InProcess(), Creds: sibling, Name: "sibling"}))
	nc.Close()

	if _, err := m.Node().Authority().Revoke(t.Context(), m.Space(), local("mallory")); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("revoke again: %v, want not-found", err)
	}
	next := m.Credentials(t, "mallory", nil)
	if next.Identity().UID == creds.Identity().UID {
		t.Error("a reused name kept the lifecycle uid")
	}
}

// TestOtherSpace shows that a credential of one space sees and reaches nothing of another on the same broker, not
// even with the broadest profile of its own.
func TestOtherSpace(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, &cotaltest.Options{Spaces: []string{"other"}})
	other := m.Endpoint(t, "resident", &cotaltest.Peer{Space: "other"})
	seen := listen(t, other, false)
	agent := intrude(t, m, m.Credentials(t, "mallory", nil))
	for _, subject := range []string{
		must[string](t)(wire.ChannelSubject("other", local("mallory"), "general")),
		must[string](t)(wire.DirectSubject("other", other.Principal(), local("mallory"))),
		"$JS.API.CONSUMER.MSG.NEXT." + wire.DirectStream("other") + "." + wire.DirectDurable(other.Lifecycle()),
		"$JS.API.STREAM.INFO." + wire.ChatStream("other"),
	} {
		agent.mustNotPublish(t, subject, []byte(`{}`))
	}
	agent.mustNotSubscribe(t, "cotal.other.live.>")

	// The services of a space hold far more, and still nothing of the other account.
	for _, profile := range []trust.Profile{trust.Delivery, trust.Authority, trust.Provisioner, trust.Teardown} {
		creds := must[*trust.Credentials](t)(m.Node().Authority().ServiceCredential(t.Context(), m.Space(), profile, 0))
		in := intrude(t, m, creds)
		js := must[jetstream.JetStream](t)(jetstream.New(in.nc))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if _, err := js.Stream(ctx, wire.ChatStream("other")); err == nil {
			t.Errorf("%s of space test reads the stream of space other", profile)
		}
		cancel()
	}
	if len(seen.text) != 0 {
		t.Errorf("resident of space other saw %q", seen.text)
	}
}

func requestRenew(s wire.Space, actor string) auth.Request {
	return auth.Request{Space: s, Actor: actor, Renew: true}
}
