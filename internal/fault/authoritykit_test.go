package fault_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
)

const (
	roleAuthority = "authority" // it signs people in

	childReplica = "COTAL_FAULT_REPLICA" // "1": beside a primary
	childPublic  = "COTAL_FAULT_PUBLIC"  // the port of its public face
	childFront   = "COTAL_FAULT_FRONT"   // the address of the proxy in front of it
)

// person is an identity provider that believes everybody.
type person struct{}

const personIssuer = "https://idp.example"

func (person) Verify(_ context.Context, token string) (oidc.Claims, error) {
	return oidc.Claims{Issuer: personIssuer, Subject: token, Expires: time.Now().Add(time.Hour)}, nil
}

func personPin() *oidc.Pin {
	return &oidc.Pin{
		Issuer: personIssuer, Audience: "mesh", ClientID: "mesh", JWKSURI: personIssuer + "/keys", Algorithms: []string{"EdDSA"}, Shape: oidc.ShapeOIDC,
	}
}

// authorityChild signs people in until its input ends. It logs to its standard error.
func authorityChild(dir string, out io.Writer) error {
	ctx, cancel := untilParentEnds()
	defer cancel()
	store, err := records(dir)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	client, err := cotal.DialNode(ctx, os.Getenv(childURL), store, &cotal.DialOptions{Logger: logger})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	port, err := strconv.Atoi(os.Getenv(childPublic))
	if err != nil {
		return err
	}
	opts := cotal.PeopleOptions{
		PublicPort: port, PublicURL: os.Getenv(childFront), TrustedProxy: true, Identity: func(string) exchange.Identity { return person{} },
	}
	return client.ServeAuthority(ctx, os.Getenv(childSpace), os.Getenv(childReplica) == "1", opts, func(st cotal.PeopleStatus) {
		_ = json.NewEncoder(out).Encode(st)
	})
}

// lockedText is what a process has said so far.
type lockedText struct {
	mu    sync.Mutex // guards text
	text  bytes.Buffer
	wrote chan struct{} // something was written since it was last read
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// hears waits until the process has said something.
func (l *lockedText) hears(t *testing.T, what string, within time.Duration) {
	t.Helper()
	limit := time.After(within)
	for !strings.Contains(l.String(), what) {
		select {
		case <-l.wrote:
		case <-limit:
			t.Fatalf("not said within %v: %q; said was:\n%s", within, what, l.String())
		}
	}
}

// authorityProcess is a process that signs people in.
type authorityProcess struct {
	child
	said   *lockedText
	public string // host:port of its public face
	status cotal.PeopleStatus
	done   chan struct{}
	ended  error // set before done is closed
}

// startAuthority starts one and returns when it serves, or has ended.
func startAuthority(t *testing.T, dir, brokerURL, space, front string, replica bool) *authorityProcess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	public := freeAddress(t)
	_, port, _ := net.SplitHostPort(public)
	a := &authorityProcess{said: &lockedText{wrote: make(chan struct{}, 1)}, public: public, done: make(chan struct{}), child: child{cmd: exec.Command(exe)}}
	a.cmd.Env = append(os.Environ(), childDir+"="+dir, childRole+"="+roleAuthority, childURL+"="+brokerURL, childSpace+"="+space,
		childPublic+"="+port, childFront+"="+front)
	if replica {
		a.cmd.Env = append(a.cmd.Env, childReplica+"=1")
	}
	a.cmd.Stderr = a.said
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if a.in, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n') // ends with the process
	go func() {
		defer close(a.done)
		a.ended = a.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		<-a.done
	})
	if err != nil {
		<-a.done
		return a
	}
	if err := json.Unmarshal(line, &a.status); err != nil {
		t.Fatalf("authority said %q: %v", line, err)
	}
	return a
}

// alive reports whether the process has not ended.
func (a *authorityProcess) alive() bool {
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// killed is kill -9.
func (a *authorityProcess) killed() {
	_ = a.cmd.Process.Kill()
	<-a.done
}

// freeAddress is an address that nobody listens on, below the ports that the system gives to connections: one of those could take it
// before the process that is told to listen there.
func freeAddress(t *testing.T) string {
	t.Helper()
	for t.Context().Err() == nil {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.N(10000))))
		if err == nil {
			defer func() { _ = l.Close() }()
			return l.Addr().String()
		}
	}
	t.Fatal("no free address")
	return ""
}

// front is the proxy of the operator: it hands a request to one authority after the other, and to the next one when one does not
// take it.
type front struct {
	*http.Server
	url string

	mu    sync.Mutex // guards hosts
	hosts []string
	next  atomic.Uint64
}

func newFront(t *testing.T) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{url: "http://" + l.Addr().String()}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "authority"})
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		// One that is stopped takes connections and answers nothing: a proxy gives it up.
		Transport: &http.Transport{DialContext: f.dial, ResponseHeaderTimeout: time.Second},
		ErrorLog:  log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	f.Server = &http.Server{Handler: proxy, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("proxy: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = f.Close()
		<-done
		proxy.Transport.(*http.Transport).CloseIdleConnections()
	})
	return f
}

// dial connects to the next authority that takes connections.
func (f *front) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	f.mu.Lock()
	hosts := append([]string(nil), f.hosts...)
	f.mu.Unlock()
	err := fmt.Errorf("no authority")
	for range hosts {
		var c net.Conn
		var d net.Dialer
		if c, err = d.DialContext(ctx, network, hosts[f.next.Add(1)%uint64(len(hosts))]); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func (f *front) add(a *authorityProcess) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts = append(f.hosts, a.public)
}

// city is a mesh of people whose authorities are processes of their own.
type city struct {
	*cotaltest.Mesh
	dir    string
	front  *front
	owners trust.OwnerSecret
	leases *space.Leases
}

func newCity(t *testing.T) *city {
	t.Helper()
	dir := t.TempDir()
	store, err := records(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &city{dir: dir, front: newFront(t), Mesh: cotaltest.New(t, &cotaltest.Options{
		Listen: true, Store: store, DeliveryElsewhere: true, People: cotal.PeopleOptions{Provider: personPin(), Elsewhere: true},
	})}
	if c.owners, err = trust.EnsureOwnerSecret(t.Context(), store, c.Space()); err != nil {
		t.Fatal(err)
	}
	st := &stage{Mesh: c.Mesh, a: c.Node().Authority()}
	st.where.URL = c.URL()
	c.leases = space.NewLeases(st.service(t, trust.Authority), c.Space())
	return c
}

// authority starts a process that signs people in, and puts it behind the proxy.
func (c *city) authority(t *testing.T, replica bool) *authorityProcess {
	t.Helper()
	a := startAuthority(t, c.dir, c.URL(), string(c.Space()), c.front.url, replica)
	if !a.alive() {
		t.Fatalf("authority ended: %v\n%s", a.ended, a.said)
	}
	c.front.add(a)
	return a
}

// lease is who does the work that one does for all.
func (c *city) lease(t *testing.T) space.Lease {
	t.Helper()
	l, err := c.leases.Get(t.Context(), "primary")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// leaseMoves waits until somebody else has the lease, and returns it.
func (c *city) leaseMoves(t *testing.T, from space.Lease, within time.Duration) space.Lease {
	t.Helper()
	for began := time.Now(); ; pause(50 * time.Millisecond) {
		l := c.lease(t)
		switch {
		case l.Holder != from.Holder && l.Fence > from.Fence:
			return l
		case time.Since(began) > within:
			t.Fatalf("%s still has the lease after %v", l.Holder, within)
		}
	}
}
