package cotal_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

func text(s string) endpoint.Draft { return endpoint.Draft{Parts: []wire.Part{wire.Text(s)}} }

// TestNothingStopsForADay lets a mesh run for a day and more of fake time, in which every credential of the node and
// of the peers is replaced: no peer is ever disconnected and every message arrives.
func TestNothingStopsForADay(t *testing.T) {
	dir := t.TempDir()
	cotaltest.Bubble(t, func(t *testing.T) {
		m := cotaltest.New(t, &cotaltest.Options{StateDir: dir})
		a := m.Node().Authority()
		source := func(actor string) endpoint.Source {
			first := true
			return endpoint.SourceFunc(func(ctx context.Context) (*trust.Credentials, error) {
				req := auth.Request{Space: m.Space(), Actor: actor, Subscribe: []string{"general"}, Publish: []string{"general"}, TTL: 4 * time.Hour, Renew: !first}
				first = false
				return a.Issue(ctx, req)
			})
		}
		var renewed, disconnected atomic.Int64
		connect := func(actor string) *endpoint.Endpoint {
			ep, err := endpoint.Connect(t.Context(), "", source(actor), &endpoint.Options{Name: actor, Quiet: actor == "ada", InProcess: m.InProcess(), OnEvent: func(e endpoint.Event) {
				switch e.(type) {
				case endpoint.EventRenewed:
					renewed.Add(1)
				case endpoint.EventDisconnected:
					disconnected.Add(1)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			return ep
		}
		ada, bob := connect("ada"), connect("bob")
		heard := make(chan string, 1)
		take := func(d *endpoint.Delivery) {
			if err := d.Ack(t.Context()); err != nil {
				t.Errorf("ack: %v", err)
			}
			heard <- d.Message.Text()
		}
		if _, err := bob.Listen(t.Context(), "general", take); err != nil {
			t.Fatal(err)
		}
		if err := bob.HandleDirect(t.Context(), take); err != nil {
			t.Fatal(err)
		}
		for hour := range 25 {
			time.Sleep(time.Hour)
			for _, way := range []string{"channel", "direct"} {
				said := fmt.Sprintf("%s %d", way, hour)
				var err error
				if way == "channel" {
					_, err = ada.Post(t.Context(), "general", text(said))
				} else {
					_, err = ada.Direct(t.Context(), bob.Principal(), text(said))
				}
				if err != nil {
					t.Fatalf("hour %d: %v", hour, err)
				}
				if got := <-heard; got != said {
					t.Fatalf("hour %d: heard %q, want %q", hour, got, said)
				}
			}
			roster, err := ada.Roster(t.Context())
			if err != nil {
				t.Fatalf("hour %d: roster: %v", hour, err)
			}
			if len(roster.Entries) != 1 || !roster.StaleSince.IsZero() {
				t.Fatalf("hour %d: roster = %+v, want bob, fresh", hour, roster)
			}
			st, err := m.Node().Status(t.Context())
			if err != nil || !st.Healthy() {
				t.Fatalf("hour %d: status = %+v, %v", hour, st, err)
			}
			// The authority and the control of the node work on credentials minted since.
			if _, err := a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: fmt.Sprintf("hourly_%d", hour)}); err != nil {
				t.Fatalf("hour %d: issue: %v", hour, err)
			}
		}
		if got := renewed.Load(); got < 12 {
			t.Errorf("peers renewed %d times in a day, want at least 12", got)
		}
		if got := disconnected.Load(); got != 0 {
			t.Errorf("peers were disconnected %d times, want never", got)
		}
		for _, ep := range []*endpoint.Endpoint{ada, bob} {
			if err := ep.Close(); err != nil {
				t.Error(err)
			}
		}
		m.Stop()
	})
}

// TestSpacesComeAndGo adds and removes spaces while another one talks, also under one name again, and finds nothing of
// the removed one left.
func TestSpacesComeAndGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := cotaltest.New(t, &cotaltest.Options{StateDir: dir})
	ada := m.Endpoint(t, "ada", nil)
	for round := range 3 {
		if err := m.Node().AddSpace(t.Context(), "guest"); err != nil {
			t.Fatal(err)
		}
		if err := m.Node().AddSpace(t.Context(), "guest"); err != nil {
			t.Errorf("add again: %v", err)
		}
		guest := m.Endpoint(t, "guest", &cotaltest.Peer{Space: "guest"})
		page, err := guest.History(t.Context(), wire.HistoryRequest{Channel: "general", Last: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Messages) != 0 {
			t.Fatalf("round %d: a new space has history: %+v", round, page)
		}
		if _, err := guest.Post(t.Context(), "general", text("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := ada.Post(t.Context(), "general", text("still here")); err != nil {
			t.Fatal(err)
		}
		if err := m.Node().RemoveSpace(t.Context(), "guest"); err != nil {
			t.Fatal(err)
		}
		if err := guest.Close(); err != nil && !errors.Is(err, wire.ErrUnavailable) && !errors.Is(err, wire.ErrUnauthenticated) {
			t.Logf("close guest: %v", err)
		}
		if got := m.Node().Spaces(); !slices.Equal(got, []string{"test"}) {
			t.Errorf("spaces = %q", got)
		}
	}
	if err := m.Node().RemoveSpace(t.Context(), "guest"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("remove an unknown space = %v, want not-found", err)
	}
	if err := m.Node().AddSpace(t.Context(), "no.dots"); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("add a bad name = %v, want bad-request", err)
	}
	accounts, err := os.ReadDir(filepath.Join(dir, "jetstream"))
	if err != nil {
		t.Fatal(err)
	}
	if len(accounts) != 1 {
		t.Errorf("%d account folders on disk, want that of the space test only", len(accounts))
	}
}

// TestNodeClient drives a node from outside as another process does.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	m := cotaltest.New(t, &cotaltest.Options{Listen: true, Store: store})
	c, err := cotal.DialNode(t.Context(), m.URL(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.AddSpace(t.Context(), "extra"); err != nil {
		t.Fatal(err)
	}
	st, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Spaces) != 2 || !st.Healthy() || st.PID != os.Getpid() || st.URL != m.URL() {
		t.Errorf("status = %+v", st)
	}
	creds, err := c.Authority().Issue(t.Context(), auth.Request{Space: "extra", Actor: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := c.Dial(t.Context(), creds)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := c.RemoveSpace(t.Context(), "extra"); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveSpace(t.Context(), "extra"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("remove again = %v, want not-found", err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.Stop()
	if _, err := c.Status(t.Context()); !errors.Is(err, wire.ErrUnavailable) && !errors.Is(err, wire.ErrDeadline) {
		t.Errorf("status of a stopped node = %v, want unavailable", err)
	}
	other := cotaltest.New(t, &cotaltest.Options{Listen: true})
	if _, err := cotal.DialNode(t.Context(), other.URL(), store, nil); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Errorf("dial a node of other records = %v, want unauthenticated", err)
	}
	if _, err := cotal.DialNode(t.Context(), other.URL(), memstore.New(), nil); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("dial without records = %v, want not-found", err)
	}
}

// TestStopIsAnswered asks nodes to stop, which ends the connection that the answer comes by: it counts all the same.
func TestStopIsAnswered(t *testing.T) {
	t.Parallel()
	for range 20 {
		store := memstore.New()
		m := cotaltest.New(t, &cotaltest.Options{Listen: true, Store: store})
		c, err := cotal.DialNode(t.Context(), m.URL(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Errorf("Stop() = %v", err)
		}
		_ = c.Close()
		m.Stop()
	}
}

// TestTLSOutsideLoopback shows row 14 for static mode: nothing binds wider without TLS, and a client does not speak
// plaintext to another machine unless it is told to.
func TestTLSOutsideLoopback(t *testing.T) {
	t.Parallel()
	cert, key, pool := certificate(t)
	run := func(opts cotal.Options) (*cotal.Node, error) {
		opts.StateDir, opts.Port, opts.Spaces = t.TempDir(), broker.RandomPort, []string{"test"}
		n := cotal.New(memstore.New(), &opts)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		t.Cleanup(cancel)
		select {
		case <-n.Ready():
			t.Cleanup(func() { cancel(); <-done })
			return n, nil
		case err := <-done:
			return nil, err
		}
	}
	for name, opts := range map[string]cotal.Options{
		"plaintext_on_every_address": {Host: "0.0.0.0", Transport: broker.Plaintext()},
		"no_transport_chosen":        {},
	} {
		if n, err := run(opts); err == nil {
			t.Errorf("%s: node runs at %s", name, n.URL())
		} else if !strings.Contains(err.Error(), "certificate") && !strings.Contains(err.Error(), "TLS") {
			t.Errorf("%s: %v does not name the way out", name, err)
		}
	}
	n, err := run(cotal.Options{Host: "0.0.0.0", Transport: broker.TLS(cert, key)})
	if err != nil {
		t.Fatal(err)
	}
	creds, err := n.Authority().Issue(t.Context(), auth.Request{Space: "test", Actor: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	ep, err := endpoint.Connect(t.Context(), n.URL(), endpoint.Static(creds), &endpoint.Options{Name: "ada", TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatalf("connect with TLS: %v", err)
	}
	if err := ep.Close(); err != nil {
		t.Error(err)
	}
	u, err := url.Parse(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := endpoint.Connect(t.Context(), "nats://"+u.Host, endpoint.Static(creds), &endpoint.Options{Name: "ada", ConnectTimeout: time.Second}); err == nil {
		t.Error("a TLS broker took a plaintext client")
	}
	if _, err := endpoint.Connect(t.Context(), "nats://192.0.2.1:4222", endpoint.Static(creds), &endpoint.Options{Name: "ada", ConnectTimeout: time.Second}); !errors.Is(err, wire.ErrPrecondition) && !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("plaintext to another machine = %v, want a refusal before anything is sent", err)
	}
}

func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mesh"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4zero}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(leaf)
	return certFile, keyFile, pool
}

// TestStateFolderThatTakesNoFile is about folders that cannot be used: that is the state of the machine, and no bug of ours.
func TestStateFolderThatTakesNoFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	odd := t.TempDir()
	if err := os.Mkdir(filepath.Join(odd, "orderly"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(file, "state"), odd} {
		n := cotal.New(memstore.New(), &cotal.Options{StateDir: dir, NoListen: true})
		if err := n.Run(t.Context()); wire.CodeOf(err) != wire.CodeFailedPrecondition {
			t.Errorf("Run over %q = %v, want %s", dir, err, wire.CodeFailedPrecondition)
		}
	}
}

// TestOpenNode serves one space to whoever comes, without any credential.
func TestOpenNode(t *testing.T) {
	t.Parallel()
	n := cotal.New(nil, &cotal.Options{StateDir: t.TempDir(), NoListen: true, Open: true, Spaces: []string{"playground"}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-n.Ready()
	join := func(actor string) *endpoint.Endpoint {
		ep, err := endpoint.Connect(ctx, "", nil, &endpoint.Options{Name: actor, InProcess: n.InProcess(), Open: &endpoint.Open{Space: "playground", Actor: actor}})
		if err != nil {
			t.Fatal(err)
		}
		return ep
	}
	ada, bob := join("ada"), join("bob")
	heard := make(chan string, 1)
	if err := bob.HandleDirect(ctx, func(d *endpoint.Delivery) {
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
		heard <- d.Message.Text()
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := ada.Direct(ctx, bob.Principal(), text("hello")); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "hello" {
		t.Errorf("heard %q", got)
	}
	if err := n.AddSpace(ctx, "second"); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("add a space to an open node = %v, want failed-precondition", err)
	}
	for _, ep := range []*endpoint.Endpoint{ada, bob} {
		if err := ep.Close(); err != nil {
			t.Error(err)
		}
	}
}
