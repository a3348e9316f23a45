package field_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/secret/memstore"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/brokerconf"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// leafLog tells what a server complains of.
type leafLog struct{ lines chan string }

func (l leafLog) say(format string, v []any) {
	select {
	case l.lines <- fmt.Sprintf(format, v...):
	default:
	}
}

func (l leafLog) Noticef(string, ...any)         {}
func (l leafLog) Debugf(string, ...any)          {}
func (l leafLog) Tracef(string, ...any)          {}
func (l leafLog) Warnf(format string, v ...any)  { l.say(format, v) }
func (l leafLog) Errorf(format string, v ...any) { l.say(format, v) }
func (l leafLog) Fatalf(format string, v ...any) { l.say(format, v) }

// hear returns the next word of a leaf that says why it is not connected.
func (l leafLog) hear(ctx context.Context, t testing.TB) string {
	t.Helper()
	select {
	case line := <-l.lines:
		return line
	case <-ctx.Done():
		t.Fatal("the leaf says nothing")
		return ""
	}
}

// N9, N10: whoever is on a leaf cannot be asked about by the callout of a hub. There is no layout with a leaf: the broker has no listener for
// one, neither embedded nor as its configuration is written, refuses each that comes, also with a JWT and a key that do not fit, and lives.
func TestN9LeavesAreRefused(t *testing.T) {
	t.Parallel()
	v := newVillage(t, &cotaltest.Options{Listen: true})
	v.grant(t, "ada", "ada")
	ada := v.join(t, v.person(t, "ada", "ada"), nil)
	m := v.authority().Mint()
	agent := must(m.User(t.Context(), mint.UserRequest{Space: v.space, Profile: trust.Agent, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "leaf"}}))(t)
	other := must(m.User(t.Context(), mint.UserRequest{Space: v.space, Profile: trust.Agent, Principal: wire.Principal{Owner: wire.LocalOwner, Actor: "other"}}))(t)
	control := must(m.SystemUser(t.Context(), mint.SystemRequest{Kind: trust.SystemControl}))(t)
	mismatched := strings.Replace(string(agent.Reveal()), seedIn(t, agent.Reveal()), seedIn(t, other.Reveal()), 1)
	for name, creds := range map[string]string{
		"nothing": "", "an agent": string(agent.Reveal()), "the control of the system": string(control.Reveal()), "a key that does not fit": mismatched,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			remote := &server.RemoteLeafOpts{URLs: []*url.URL{must(url.Parse(strings.Replace(v.URL(), "nats:", "nats-leaf:", 1)))(t)}}
			if creds != "" {
				remote.Credentials = filepath.Join(t.TempDir(), "leaf.creds")
				ok(t, "write credentials", os.WriteFile(remote.Credentials, []byte(creds), 0o600))
			}
			log := leafLog{make(chan string, 64)}
			leaf := must(server.NewServer(&server.Options{
				ServerName: "leaf", Host: "127.0.0.1", Port: -1, NoSigs: true, LeafNode: server.LeafNodeOpts{Remotes: []*server.RemoteLeafOpts{remote}},
			}))(t)
			leaf.SetLoggerV2(log, false, false, false)
			leaf.Start()
			defer leaf.WaitForShutdown()
			defer leaf.Shutdown()
			said := log.hear(t.Context(), t)
			if n := leaf.NumLeafNodes(); n != 0 {
				t.Errorf("%d leaves are connected", n)
			}
			t.Logf("the leaf says: %s", said)
			must(ada.Post(t.Context(), "general", endpoint.Text("alive")))(t)
		})
	}
	st := must(v.Node().Status(t.Context()))(t)
	if !st.Healthy() {
		t.Errorf("status after the leaves: %+v", st)
	}

	text := must(brokerconf.Render(brokerconf.Config{
		OperatorJWT: m.OperatorJWT(), StoreDir: filepath.Join(t.TempDir(), "store"), Transport: brokerconf.Plaintext,
	}))(t)
	file := filepath.Join(t.TempDir(), "nats.conf")
	ok(t, "write configuration", os.WriteFile(file, text, 0o600))
	o := must(server.ProcessConfigFile(file))(t)
	defer o.AccountResolver.Close()
	if o.LeafNode.Port != 0 || len(o.LeafNode.Remotes) != 0 || strings.Contains(string(text), "leaf") {
		t.Errorf("the written configuration has a leaf: port %d, %d remotes", o.LeafNode.Port, len(o.LeafNode.Remotes))
	}
}

// seedIn is the seed of a credentials file.
func seedIn(t testing.TB, creds []byte) string {
	t.Helper()
	pair := must(nkeys.ParseDecoratedUserNKey(creds))(t)
	return string(must(pair.Seed())(t))
}

// N10: what a leaf would send, word for word, to the port of clients: a JWT with the signature of another key, and one in a CONNECT that says that it is a
// leaf. It is denied as any client is.
func TestN10AMismatchedLeafIsDenied(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	m := cotaltest.New(t, &cotaltest.Options{Listen: true, Store: store})
	creds := m.Credentials(t, "leaf", nil)
	stranger := must(nkeys.CreateUser())(t)
	addr := strings.TrimPrefix(m.URL(), "nats://")
	for name, sign := range map[string]func(nonce []byte) string{
		"another key": func(nonce []byte) string { return base64.RawURLEncoding.EncodeToString(must(stranger.Sign(nonce))(t)) },
		"another nonce": func([]byte) string {
			return base64.RawURLEncoding.EncodeToString(must(creds.Sign([]byte("another")))(t))
		},
		"no signature": func([]byte) string { return "" },
		"half of one": func(nonce []byte) string {
			return base64.RawURLEncoding.EncodeToString(must(creds.Sign(nonce))(t)[:20])
		},
	} {
		conn := must(new(net.Dialer).DialContext(t.Context(), "tcp", addr))(t)
		r := bufio.NewReader(conn)
		greeting := must(r.ReadString('\n'))(t)
		var info struct {
			Nonce string `json:"nonce"`
		}
		ok(t, "read greeting", json.Unmarshal([]byte(strings.TrimPrefix(greeting, "INFO ")), &info))
		line := must(json.Marshal(map[string]any{
			"jwt": creds.JWT(), "sig": sign([]byte(info.Nonce)), "server_id": "NLEAF", "domain": "leaf", "name": "leaf", "is_hub": false, "cluster": "leaf",
			"headers": true, "jetstream": true, "remote_account": "$G", "version": server.VERSION,
		}))(t)
		must(io.WriteString(conn, "CONNECT "+string(line)+"\r\nLS+ >\r\nPING\r\n"))(t)
		answer, _ := io.ReadAll(r)
		if !strings.Contains(string(answer), "Authorization Violation") && !strings.Contains(string(answer), "Unknown Protocol") {
			t.Errorf("%s: %q, want a refusal", name, answer)
		}
		ok(t, "close", conn.Close())
	}
	ep := m.Connect(t, creds, nil)
	must(ep.Post(t.Context(), "general", endpoint.Text("alive")))(t)
}
