package brokerconf_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/brokerconf"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

func newMint(t testing.TB) *mint.Authority {
	t.Helper()
	a, err := mint.Init(t.Context(), memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func config(t testing.TB, a *mint.Authority) brokerconf.Config {
	return brokerconf.Config{OperatorJWT: a.OperatorJWT(), StoreDir: filepath.Join(t.TempDir(), "store"), Transport: brokerconf.Plaintext}
}

// parse reads a rendered configuration as the server does.
func parse(t testing.TB, c brokerconf.Config) *server.Options {
	t.Helper()
	text, err := brokerconf.Render(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("the server does not read what was rendered: %v\n%s", err, text)
	}
	return opts
}

func TestRenderedDefaults(t *testing.T) {
	a := newMint(t)
	c := config(t, a)
	o := parse(t, c)
	if o.Host != "127.0.0.1" || o.Port != 4222 || o.ServerName != "cotal" || o.MaxControlLine != trust.MaxControlLine || o.MaxPayload != 1<<20 {
		t.Errorf("listener %s:%d, name %q, control line %d, payload %d", o.Host, o.Port, o.ServerName, o.MaxControlLine, o.MaxPayload)
	}
	if o.PingInterval != 3*time.Second || o.MaxPingsOut != 2 || o.AuthTimeout != trust.AuthTimeout.Seconds() {
		t.Errorf("the silent are asked every %s, %d times, and the undecided wait %g s", o.PingInterval, o.MaxPingsOut, o.AuthTimeout)
	}
	if !o.JetStream || o.StoreDir != c.StoreDir || o.SyncInterval != 250*time.Millisecond || o.SyncAlways {
		t.Errorf("JetStream %v in %q, sync every %s", o.JetStream, o.StoreDir, o.SyncInterval)
	}
	if o.SystemAccount != a.SystemPublic() || len(o.TrustedOperators) != 1 || o.TrustedOperators[0].Subject == "" {
		t.Errorf("system account %q, operators %d", o.SystemAccount, len(o.TrustedOperators))
	}
	if _, ok := o.AccountResolver.(*server.DirAccResolver); !ok {
		t.Errorf("resolver is a %T, want the full one", o.AccountResolver)
	}
	if o.TLSConfig != nil || o.Websocket.Port != 0 || o.Cluster.Port != 0 || o.LeafNode.Port != 0 || o.HTTPPort != 0 || o.NoAuthUser != "" {
		t.Error("the server opens more than it was told to")
	}
}

func TestRenderedOptions(t *testing.T) {
	c := config(t, newMint(t))
	c.Host, c.Port, c.ServerName = "::1", 14222, "node-1"
	c.MaxStore, c.MaxMemory, c.MaxPayload = 10<<30, 1<<30, 8<<20
	c.AccountsDir = filepath.Join(t.TempDir(), "accounts")
	c.SyncAlways = true
	c.Websocket = &brokerconf.Websocket{Port: 14223}
	o := parse(t, c)
	if o.Host != "::1" || o.Port != 14222 || o.ServerName != "node-1" || o.MaxPayload != 8<<20 {
		t.Errorf("listener %s:%d, name %q, payload %d", o.Host, o.Port, o.ServerName, o.MaxPayload)
	}
	if o.JetStreamMaxStore != 10<<30 || o.JetStreamMaxMemory != 1<<30 || !o.SyncAlways {
		t.Errorf("JetStream caps %d and %d, sync always %v", o.JetStreamMaxStore, o.JetStreamMaxMemory, o.SyncAlways)
	}
	if o.Websocket.Host != "::1" || o.Websocket.Port != 14223 || !o.Websocket.NoTLS {
		t.Errorf("websocket %+v", o.Websocket)
	}
}

func TestRenderIsPure(t *testing.T) {
	c := config(t, newMint(t))
	one, err := brokerconf.Render(c)
	if err != nil {
		t.Fatal(err)
	}
	two, err := brokerconf.Render(c)
	if err != nil || string(one) != string(two) {
		t.Errorf("the same configuration rendered differently: %v", err)
	}
	if _, err := os.Stat(c.StoreDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("rendering touched the store folder: %v", err)
	}
}

func TestRenderRefuses(t *testing.T) {
	a := newMint(t)
	for name, edit := range map[string]func(c *brokerconf.Config){
		"no transport":          func(c *brokerconf.Config) { c.Transport = 0 },
		"unknown transport":     func(c *brokerconf.Config) { c.Transport = 7 },
		"plaintext anywhere":    func(c *brokerconf.Config) { c.Host = "0.0.0.0" },
		"plaintext on a name":   func(c *brokerconf.Config) { c.Host = "example.org" },
		"plaintext websocket":   func(c *brokerconf.Config) { c.Websocket = &brokerconf.Websocket{Host: "0.0.0.0", Port: 8080} },
		"plaintext certificate": func(c *brokerconf.Config) { c.CertFile, c.KeyFile = "/c.pem", "/k.pem" },
		"TLS without key":       func(c *brokerconf.Config) { c.Transport, c.CertFile = brokerconf.TLSRequired, "/c.pem" },
		"TLS with relative key": func(c *brokerconf.Config) {
			c.Transport, c.CertFile, c.KeyFile = brokerconf.TLSRequired, "/c.pem", "k.pem"
		},
		"no operator":             func(c *brokerconf.Config) { c.OperatorJWT = "" },
		"system JWT as operator":  func(c *brokerconf.Config) { c.OperatorJWT = a.SystemJWT() },
		"no store":                func(c *brokerconf.Config) { c.StoreDir = "" },
		"relative store":          func(c *brokerconf.Config) { c.StoreDir = "store" },
		"port out of range":       func(c *brokerconf.Config) { c.Port = 70000 },
		"negative port":           func(c *brokerconf.Config) { c.Port = -2 },
		"websocket without port":  func(c *brokerconf.Config) { c.Websocket = &brokerconf.Websocket{} },
		"negative store cap":      func(c *brokerconf.Config) { c.MaxStore = -1 },
		"payload below a message": func(c *brokerconf.Config) { c.MaxPayload = 1024 },
		"sync every day":          func(c *brokerconf.Config) { c.SyncInterval = 24 * time.Hour },
		"host with a line break":  func(c *brokerconf.Config) { c.Host = "127.0.0.1\nhttp_port: 1" },
		"host with a quote":       func(c *brokerconf.Config) { c.Host = "127.0.0.1\"\nhttp: 1" },
		"name with a space":       func(c *brokerconf.Config) { c.ServerName = "a b" },
		"path with a line break":  func(c *brokerconf.Config) { c.StoreDir = "/tmp/x\nhttp_port: 1" },
		"path with a null":        func(c *brokerconf.Config) { c.StoreDir = "/tmp/x\x00" },
		"path that is not UTF-8":  func(c *brokerconf.Config) { c.StoreDir = "/tmp/\xff" },
		"too few accounts":        func(c *brokerconf.Config) { c.MaxAccounts = 1 },
	} {
		c := config(t, a)
		edit(&c)
		if text, err := brokerconf.Render(c); !errors.Is(err, wire.ErrBadRequest) || text != nil {
			t.Errorf("%s: %v, want a bad request", name, err)
		}
	}
}

// TestValuesCannotAddSettings puts what the configuration language knows into every free value.
func TestValuesCannotAddSettings(t *testing.T) {
	for _, hostile := range []string{
		`x"; http_port: 8222 #`, `x\"; http_port: 8222 #`, `x' http_port: 8222`, `x } http_port: 8222 {`, `$HOME`, `x$HOME`, `x\x22`, `x\`, `x\\`,
		`include "/etc/passwd"`, `x # comment`, `x // comment`, `(`, `x (`, `%x`, `é`, `x, y`, `[x]`, `true`,
	} {
		c := config(t, newMint(t))
		c.StoreDir = "/tmp/" + hostile
		c.ServerName = strings.ReplaceAll(strings.ReplaceAll(hostile, " ", "_"), "é", "e")
		o := parse(t, c)
		if o.StoreDir != c.StoreDir || o.ServerName != c.ServerName {
			t.Errorf("store %q and name %q came out as %q and %q", c.StoreDir, c.ServerName, o.StoreDir, o.ServerName)
		}
		if o.HTTPPort != 0 || o.Port != 4222 {
			t.Errorf("%q added a setting", hostile)
		}
	}
}

func FuzzRender(f *testing.F) {
	for _, s := range []string{"/var/lib/cotal", `/tmp/"x`, `/tmp/\`, "/tmp/$HOME", "/tmp/x\n", "/tmp/ü"} {
		f.Add(s, "cotal", "127.0.0.1")
	}
	a := newMint(f)
	f.Fuzz(func(t *testing.T, dir, name, host string) {
		c := brokerconf.Config{OperatorJWT: a.OperatorJWT(), StoreDir: dir, AccountsDir: "/tmp/cotal-fuzz-accounts", ServerName: name, Host: host, Transport: brokerconf.Plaintext}
		text, err := brokerconf.Render(c)
		if err != nil {
			return
		}
		got, err := settings(string(text))
		if err != nil {
			t.Fatalf("the server cannot read what was rendered: %v\n%s", err, text)
		}
		js, _ := got["jetstream"].(map[string]any)
		if js["store_dir"] != dir || (name != "" && got["server_name"] != name) || len(got) != 12 {
			t.Errorf("store %q, name %q, host %q came out as %v", dir, name, host, got)
		}
	})
}

// TestServerRuns starts a server from the rendered text and the written accounts, and pushes an account while it runs.
func TestServerRuns(t *testing.T) {
	a := newMint(t)
	first, err := a.AddSpace(t.Context(), "first", nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t, "127.0.0.1")
	c := config(t, a)
	c.Port, c.Transport, c.CertFile, c.KeyFile = brokerconf.RandomPort, brokerconf.TLSRequired, cert, key
	if err := brokerconf.CheckTLS(cert, key, "127.0.0.1", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := brokerconf.WriteAccounts(filepath.Join(c.StoreDir, "accounts"), a.SystemJWT(), first.JWT); err != nil {
		t.Fatal(err)
	}
	o := parse(t, c)
	o.NoSigs, o.NoLog = true, true
	srv, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	connect := func(creds *trust.Credentials, opts ...nats.Option) (*nats.Conn, error) {
		opts = append(opts, nats.NoReconnect(), nats.CustomInboxPrefix(wire.InboxPrefix(creds.Identity().Inbox)),
			nats.UserJWT(func() (string, error) { return creds.JWT(), nil }, creds.Sign))
		nc, err := nats.Connect(srv.ClientURL(), opts...)
		if err == nil {
			t.Cleanup(nc.Close)
		}
		return nc, err
	}
	agent := func(s wire.Space) *trust.Credentials {
		creds, err := a.User(t.Context(), mint.UserRequest{Space: s, Profile: trust.Agent, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "ada"}})
		if err != nil {
			t.Fatal(err)
		}
		return creds
	}
	trusted := nats.RootCAs(cert)
	if _, err := connect(agent("first"), trusted); err != nil {
		t.Errorf("connect: %v", err)
	}
	if _, err := connect(agent("first")); err == nil {
		t.Error("a client that does not know the certificate connected")
	}
	second, err := a.AddSpace(t.Context(), "second", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(agent("second"), trusted); err == nil {
		t.Error("an account that was not pushed was accepted")
	}
	system, err := a.SystemUser(t.Context(), mint.SystemRequest{Kind: mint.SystemControl})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := connect(system, trusted)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := nc.Request("$SYS.REQ.CLAIMS.UPDATE", []byte(second.JWT), 5*time.Second); err != nil || !strings.Contains(string(m.Data), `"code":200`) {
		t.Fatalf("push: %v", err)
	}
	if _, err := connect(agent("second"), trusted); err != nil {
		t.Errorf("connect to the pushed account: %v", err)
	}
}

func TestAccountFiles(t *testing.T) {
	a := newMint(t)
	files, err := brokerconf.AccountFiles(a.SystemJWT())
	if err != nil || len(files) != 1 || string(files[a.SystemPublic()+".jwt"]) != a.SystemJWT() {
		t.Errorf("files %v, %v, want the system account under its public key", files, err)
	}
	if _, err := a.AddSpace(t.Context(), "people", nil); err != nil {
		t.Fatal(err)
	}
	rec, err := a.EnsureCallout(t.Context(), "people")
	if err != nil {
		t.Fatal(err)
	}
	both, err := brokerconf.AccountFiles(brokerconf.Accounts(a.SystemJWT(), rec)...)
	if err != nil || len(both) != 3 || string(both[rec.Public+".jwt"]) != rec.JWT || string(both[rec.Callout.Public+".jwt"]) != rec.Callout.JWT {
		t.Errorf("%d files, %v, want those of the system account and of both accounts of the space", len(both), err)
	}
	for _, bad := range []string{"", "x", a.OperatorJWT()} {
		if _, err := brokerconf.AccountFiles(a.SystemJWT(), bad); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("AccountFiles of %.10q = %v, want a bad request", bad, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "accounts")
	for range 2 {
		if err := brokerconf.WriteAccounts(dir, a.SystemJWT()); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v, want one file", left, err)
	}
}
