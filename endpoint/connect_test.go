package endpoint_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// untouched is a broker that nobody must dial.
type untouched struct{ tb testing.TB }

func (u *untouched) InProcessConn() (net.Conn, error) {
	u.tb.Error("the broker was dialled")
	return nil, net.ErrClosed
}

func TestRefusedBeforeDialling(t *testing.T) {
	w := newWorld(t)
	creds := w.user("ada")
	other := wire.Principal{Owner: wire.LocalOwner, Actor: "bob"}
	good := endpoint.Static(creds)
	tests := []struct {
		name string
		src  endpoint.Source
		opts endpoint.Options
		code wire.Code
	}{
		{"another_principal", good, endpoint.Options{Principal: &other}, wire.CodeFailedPrecondition},
		{"another_space", good, endpoint.Options{Space: "other"}, wire.CodeFailedPrecondition},
		{"malformed_principal", good, endpoint.Options{Principal: &wire.Principal{Owner: "a b", Actor: "c"}}, wire.CodeBadRequest},
		{"no_credential", nil, endpoint.Options{}, wire.CodeUnauthenticated},
		{"nil_credential", endpoint.Static(nil), endpoint.Options{}, wire.CodeUnauthenticated},
		{"credential_and_open", good, endpoint.Options{Open: &endpoint.Open{Space: lab, Actor: "ada"}}, wire.CodeBadRequest},
		{"unknown_kind", good, endpoint.Options{Kind: "robot"}, wire.CodeBadRequest},
		{"negative_size", good, endpoint.Options{DedupSize: -1}, wire.CodeBadRequest},
		{"negative_timeout", good, endpoint.Options{CloseTimeout: -1}, wire.CodeBadRequest},
		{"name_too_long", good, endpoint.Options{Name: strings.Repeat("x", 129)}, wire.CodeBadRequest},
		{"open_without_actor", nil, endpoint.Options{Open: &endpoint.Open{Space: lab}}, wire.CodeBadRequest},
		{"open_token_and_user", nil, endpoint.Options{Open: &endpoint.Open{Space: lab, Actor: "a", Token: "t", User: "u"}}, wire.CodeBadRequest},
		{"missing_file", endpoint.File(filepath.Join(t.TempDir(), "no.creds")), endpoint.Options{}, wire.CodeNotFound},
		{"failing_source", endpoint.SourceFunc(func(context.Context) (*trust.Credentials, error) {
			return nil, fmt.Errorf("vault is sealed")
		}), endpoint.Options{}, wire.CodeUnauthenticated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.InProcess = &untouched{t}
			_, err := endpoint.Connect(t.Context(), "", tt.src, &tt.opts)
			if got := wire.CodeOf(err); got != tt.code {
				t.Errorf("code = %q (%v), want %q", got, err, tt.code)
			}
		})
	}
}

func TestBadCredentialFiles(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "text": "hello", "large": strings.Repeat("x", 1<<17), "half": "-----BEGIN NATS USER JWT-----\nabc\n------END NATS USER JWT------\n",
	} {
		path := filepath.Join(t.TempDir(), "x.creds")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := endpoint.Connect(t.Context(), "", endpoint.File(path), &endpoint.Options{InProcess: &untouched{t}})
		if wire.CodeOf(err) != wire.CodeBadRequest || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error = %v, want a bad-request that names the file", name, err)
		}
	}
}

func TestBadAddresses(t *testing.T) {
	w := newWorld(t)
	creds := endpoint.Static(w.user("ada"))
	for addr, code := range map[string]wire.Code{
		"":                                 wire.CodeBadRequest,
		"http://127.0.0.1:4222":            wire.CodeBadRequest,
		"nats://":                          wire.CodeBadRequest,
		"nats://user:tiger@127.0.0.1":      wire.CodeBadRequest,
		"nats://127.0.0.1:4222/path":       wire.CodeBadRequest,
		"nats://127.0.0.1:1,tls://[::1]:2": wire.CodeBadRequest,
		"nats://%zz":                       wire.CodeBadRequest,
		"nats://192.0.2.1:4222":            wire.CodeFailedPrecondition,
		"broker.example":                   wire.CodeFailedPrecondition,
		"nats://127.0.0.1,nats://10.0.0.1": wire.CodeFailedPrecondition,
		"127.0.0.1:1":                      wire.CodeUnavailable,
		"tls://127.0.0.1:1":                wire.CodeUnavailable,
	} {
		_, err := endpoint.Connect(t.Context(), addr, creds, nil)
		if got := wire.CodeOf(err); got != code {
			t.Errorf("%q: code = %q (%v), want %q", addr, got, err, code)
		}
		if err != nil && strings.Contains(err.Error(), "tiger") {
			t.Errorf("%q: error shows the secret: %v", addr, err)
		}
	}
}

func TestPlaintextOutsideLoopbackWhenAllowed(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // dialling is attempted, and ends here
	_, err := endpoint.Connect(ctx, "nats://192.0.2.1:4222", endpoint.Static(w.user("ada")), &endpoint.Options{AllowPlaintext: true})
	if got := wire.CodeOf(err); got != wire.CodeUnavailable {
		t.Errorf("code = %q (%v), want %q", got, err, wire.CodeUnavailable)
	}
}

func TestExpiredCredentialIsNotPresented(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w := newWorld(t)
		creds := w.user("ada", lasting(time.Hour))
		time.Sleep(time.Hour)
		_, err := endpoint.Connect(t.Context(), "", endpoint.Static(creds), &endpoint.Options{InProcess: &untouched{t}})
		if got := wire.CodeOf(err); got != wire.CodeExpired {
			t.Errorf("code = %q (%v), want %q", got, err, wire.CodeExpired)
		}
	})
}

func TestForeignCredentialIsRefused(t *testing.T) {
	bubbled(t)
	faketime.Test(t, func(t *testing.T) {
		w, foreign := newWorld(t), newWorld(t)
		start := time.Now()
		_, err := endpoint.Connect(t.Context(), "", endpoint.Static(foreign.user("ada")), w.inProcess(nil))
		if got := wire.CodeOf(err); got != wire.CodeUnauthenticated {
			t.Errorf("code = %q (%v), want %q", got, err, wire.CodeUnauthenticated)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("refusal took %v", took)
		}
	})
}

func TestConnectEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := silent.Accept(); err == nil {
			accepted <- c
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := endpoint.Connect(ctx, silent.Addr().String(), endpoint.Static(w.user("ada")), &endpoint.Options{ConnectTimeout: time.Minute})
		done <- err
	}()
	conn := <-accepted
	defer conn.Close()
	cancel()
	select {
	case err := <-done:
		wantError(t, err, wire.CodeUnavailable, wire.OutcomeNotExecuted)
	case <-time.After(time.Minute):
		t.Fatal("Connect outlives its context")
	}
}

func TestIdentityIsTheCredentials(t *testing.T) {
	w := newWorld(t)
	creds := w.user("Ada_7", role("reviewer"))
	who := creds.Identity().Principal
	ep := w.connect(creds, &endpoint.Options{Principal: &who, Space: lab})
	if ep.Space() != lab || ep.Principal() != who || ep.Lifecycle() != creds.Identity().Lifecycle || ep.Identity().Role != "reviewer" || !ep.Connected() {
		t.Errorf("endpoint is %v in %q, credential %v", ep.Lifecycle(), ep.Space(), creds.Identity())
	}
	conns := must(w.ctl.Connections(t.Context(), must(w.mint.Account(t.Context(), lab))(t).Public, broker.WithSubscriptions()))(t)
	for _, c := range conns {
		if c.UserKey != creds.Identity().UserKey {
			continue
		}
		if c.Name != who.String() {
			t.Errorf("connection name = %q, want %q", c.Name, who)
		}
		foreign := slices.DeleteFunc(c.Subscriptions, func(s string) bool {
			return strings.HasPrefix(s, wire.InboxPrefix(string(creds.Identity().UID))+".")
		})
		notices := must(wire.EventFilter(lab, wire.DeliveryEndpoint, "receipt."+who.String()))(t)
		if len(foreign) != 1 || foreign[0] != notices {
			t.Errorf("subscriptions outside its inbox: %q, want the notices about its own messages alone", foreign)
		}
		return
	}
	t.Errorf("no connection of %v among %v", who, conns)
}

func TestOptionsKeepSecrets(t *testing.T) {
	o := endpoint.Options{Open: &endpoint.Open{Space: lab, Actor: "ada", Token: "tiger", User: "u", Password: "lion"}}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "open", o.Open, "options", o)
	for _, text := range []string{
		fmt.Sprintf("%v %+v %#v %s", o.Open, o.Open, o.Open, o.Open), fmt.Sprintf("%v %+v %#v", *o.Open, *o.Open, *o.Open), log.String(), string(must(json.Marshal(o.Open))(t)),
	} {
		if strings.Contains(text, "tiger") || strings.Contains(text, "lion") {
			t.Errorf("secret in %q", text)
		}
	}
}

func TestCloseIsIdempotent(t *testing.T) {
	w := newWorld(t)
	ep, err := endpoint.Connect(t.Context(), "", endpoint.Static(w.user("ada")), w.inProcess(nil))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-ep.Done():
	default:
		t.Error("Done is open after Close")
	}
	for name, call := range map[string]func() error{
		"post":   func() error { _, err := ep.Post(t.Context(), "team", endpoint.Text("x")); return err },
		"join":   func() error { _, err := ep.Listen(t.Context(), "team", func(*endpoint.Delivery) {}); return err },
		"direct": func() error { return ep.HandleDirect(t.Context(), func(*endpoint.Delivery) {}) },
		"status": func() error { return ep.SetStatus(t.Context(), wire.StatusIdle, "") },
		"roster": func() error { _, err := ep.Roster(t.Context()); return err },
		"watch":  func() error { return ep.WatchRoster(t.Context(), func(endpoint.RosterUpdate) {}) },
	} {
		if err := call(); err != endpoint.ErrClosed {
			t.Errorf("%s after close: %v, want %v", name, err, endpoint.ErrClosed)
		}
	}
}
