package fault_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/brokerconf"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

const (
	roleBroker = "broker" // one server of a cluster, as an operator runs it

	childConfig = "COTAL_FAULT_CONFIG"
)

// brokerChild runs a server under the configuration that we render for operators.
func brokerChild(_ string, out io.Writer) error {
	ctx, cancel := untilParentEnds()
	defer cancel()
	opts, err := server.ProcessConfigFile(os.Getenv(childConfig))
	if err != nil {
		return err
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("server is not ready")
	}
	fmt.Fprintln(out, s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// cluster is three servers that keep three copies of everything.
type cluster struct {
	dir     string
	nodes   map[string]*child // by server name
	urls    []string
	all     string // every address, for a client
	client  *cotal.NodeClient
	space   wire.Space
	leases  *space.Leases
	js      jetstream.JetStream
	records secret.Store
}

const clusterSize = 3

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{dir: t.TempDir(), nodes: map[string]*child{}, space: "cluster"}
	var err error
	if c.records, err = records(c.dir); err != nil {
		t.Fatal(err)
	}
	m, err := mint.Init(t.Context(), c.records, nil)
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for range clusterSize {
		routes = append(routes, freeAddress(t))
	}
	for i, route := range routes {
		name := fmt.Sprintf("cotal-%d", i)
		n := spawn(t, childDir+"="+c.dir, childRole+"="+roleBroker, childConfig+"="+c.configure(t, m, name, route, routes))
		c.nodes[name] = n
		c.urls = append(c.urls, n.url)
	}
	c.all = strings.Join(c.urls, ",")
	// The servers elect who leads before they store anything: until then they answer nothing about streams.
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	for {
		if err = c.make(ctx); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("make space on the cluster: %v", err)
		}
	}
	t.Cleanup(func() { _ = c.client.Close() })
	if _, err := oidc.EnsurePin(ctx, c.records, c.space, *personPin()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Authority().EnsurePeople(ctx, c.space); err != nil {
		t.Fatal(err)
	}
	creds, err := c.client.Authority().ServiceCredential(ctx, c.space, trust.Authority, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := c.client.Dial(ctx, creds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if c.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	c.leases = space.NewLeases(c.js, c.space)
	return c
}

// make makes the space. A request that came before somebody led is never answered.
func (c *cluster) make(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if c.client, err = cotal.DialNode(ctx, c.urls[0], c.records, &cotal.DialOptions{Space: clusterSpace()}); err != nil {
		return err
	}
	if err = c.client.Authority().AddSpace(ctx, c.space, nil); err != nil {
		_ = c.client.Close()
	}
	return err
}

// clusterSpace keeps three copies of little.
func clusterSpace() *space.Options {
	const size = 4 << 20
	return &space.Options{Replicas: clusterSize, Sizes: space.Sizes{
		Chat: size, Direct: size, Role: size, Mention: size, Dead: size, Presence: size, Channels: size, Members: size, Cursors: size, Authority: size, Audit: size,
	}}
}

// configure writes the configuration of one server.
func (c *cluster) configure(t *testing.T, m *mint.Authority, name, route string, routes []string) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(freeAddress(t))
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text, err := brokerconf.Render(brokerconf.Config{
		OperatorJWT: m.OperatorJWT(), StoreDir: dir, Transport: brokerconf.Plaintext, Port: n, ServerName: name,
	})
	if err == nil {
		err = brokerconf.WriteAccounts(filepath.Join(dir, "accounts"), m.SystemJWT())
	}
	if err != nil {
		t.Fatal(err)
	}
	var others []string
	for _, r := range routes {
		others = append(others, strconv.Quote("nats://"+r))
	}
	text = fmt.Appendf(text, "cluster { name: cotal, listen: %q, routes: [ %s ] }\n", route, strings.Join(others, ", "))
	config := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// leader is the server that leads the records of grants.
func (c *cluster) leader(t *testing.T) string {
	t.Helper()
	st, err := c.js.Stream(t.Context(), space.BucketStream(wire.AuthorityBucket(c.space)))
	if err != nil {
		t.Fatal(err)
	}
	info := st.CachedInfo()
	if info.Config.Replicas != clusterSize || info.Cluster == nil || info.Cluster.Leader == "" {
		t.Fatalf("records of grants: %+v", info)
	}
	return info.Cluster.Leader
}

// TestRow7AServerOfThreeIsKilledInALoginStorm kills, while people sign in at three authorities of a cluster of three servers, the
// primary authority and the server that leads the records of grants. What is left elects another, and no login fails for longer
// than a client tries.
func TestRow7AServerOfThreeIsKilledInALoginStorm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	owners, err := trust.EnsureOwnerSecret(t.Context(), c.records, c.space)
	if err != nil {
		t.Fatal(err)
	}
	const people = 8
	enrol(t, c.client.Authority(), c.space, owners.Owner, people)
	front := newFront(t)
	var authorities []*authorityProcess
	for i, at := range c.urls {
		a := startAuthority(t, c.dir, at, string(c.space), front.url, i > 0)
		if !a.alive() {
			t.Fatalf("authority ended: %v\n%s", a.ended, a.said)
		}
		front.add(a)
		authorities = append(authorities, a)
	}
	s := storm{patience: 2 * patience} // the servers elect within 4 to 9 s, and may have to do it twice
	ctx, stop := context.WithCancel(t.Context())
	wait := s.rage(ctx, t, front.url, c.all, people, 500*time.Millisecond)
	pause(time.Second) // real time: it is to be in the middle of the storm
	lead := c.leader(t)
	authorities[0].killed()
	c.nodes[lead].kill()
	before := time.Now()
	pause(10 * time.Second)
	stop()
	wait()
	t.Logf("killed the primary and %s; %v later:", lead, time.Since(before).Round(100*time.Millisecond))
	s.report(t, 2*people)
	if now := c.leader(t); now == lead {
		t.Errorf("%s is dead and leads", now)
	}
}
