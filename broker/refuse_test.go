package broker_test

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
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/archtest"
	"github.com/cotal-go/cotal/wire"
)

// refusal runs Start and compares code and sentence; $ in want stands for the store directory.
func refusal(t *testing.T, trust broker.Trust, opts *broker.Options, code wire.Code, want string) {
	t.Helper()
	s, err := broker.Start(context.Background(), trust, opts)
	if err == nil {
		s.Shutdown()
		t.Fatalf("Start succeeded, want: %s", want)
	}
	if wire.CodeOf(err) != code {
		t.Errorf("code = %q, want %q", wire.CodeOf(err), code)
	}
	if opts != nil {
		want = strings.ReplaceAll(want, "$", opts.StoreDir)
	}
	if got := err.Error(); got != want {
		t.Errorf("refusal\n got: %s\nwant: %s", got, want)
	}
}

// TestRefusals starts brokers that would be open to more people than somebody decided.
func TestRefusals(t *testing.T) {
	c := newChain(t)
	for _, tc := range []struct {
		name   string
		adjust func(*broker.Options)
		code   wire.Code
		want   string
	}{
		{"no_store", func(o *broker.Options) { o.StoreDir = "" }, wire.CodeBadRequest, `start broker: no store directory given`},
		{"no_transport", func(o *broker.Options) { o.NoListen = false }, wire.CodeFailedPrecondition,
			`start broker on "127.0.0.1:4222": choose a transport, plaintext or TLS with a certificate and key`},
		{"half_tls", func(o *broker.Options) { o.NoListen, o.Transport = false, broker.TLS("cert.pem", "") }, wire.CodeFailedPrecondition,
			`start broker on "127.0.0.1:4222": choose a transport, plaintext or TLS with a certificate and key`},
		{"wide_plaintext", func(o *broker.Options) { o.NoListen, o.Host, o.Transport = false, "0.0.0.0", broker.Plaintext() }, wire.CodeFailedPrecondition,
			`start broker on "0.0.0.0:4222": plaintext binds loopback addresses only, so give a certificate and key for any other`},
		{"named_plaintext", func(o *broker.Options) { o.NoListen, o.Host, o.Transport = false, "mesh.example", broker.Plaintext() }, wire.CodeFailedPrecondition,
			`start broker on "mesh.example:4222": plaintext binds loopback addresses only, so give a certificate and key for any other`},
		{"wide_open", func(o *broker.Options) {
			o.NoListen, o.Open, o.Host, o.Transport = false, true, "::", broker.TLS("a", "b")
		}, wire.CodeFailedPrecondition,
			`start broker on "[::]:4222": an open broker lets everybody in and binds loopback addresses only`},
		{"port", func(o *broker.Options) { o.NoListen, o.Port, o.Transport = false, 70000, broker.Plaintext() }, wire.CodeBadRequest,
			`start broker: port 70000 is not between 1 and 65535`},
		{"negative", func(o *broker.Options) { o.MaxStore = -1 }, wire.CodeBadRequest, `start broker: store limit -1 is negative`},
		{"open_with_trust", func(o *broker.Options) { o.Open = true }, wire.CodeBadRequest, `start broker: an open broker takes no trust records`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options(t)
			tc.adjust(o)
			refusal(t, c.trust, o, tc.code, tc.want)
		})
	}
	refusal(t, c.trust, nil, wire.CodeBadRequest, `start broker: no store directory given`)
}

func TestStartRefusesTrustThatDoesNotFitTogether(t *testing.T) {
	other := newChain(t)
	for _, tc := range []struct {
		name   string
		adjust func(*testing.T, *chain)
		want   string
	}{
		{"no_operator", func(_ *testing.T, c *chain) { c.trust.OperatorJWT = "" }, `read operator claim: `},
		{"no_system", func(_ *testing.T, c *chain) { c.trust.SystemPublic = "" }, `"" is not the public key of an account`},
		{"foreign_system", func(_ *testing.T, c *chain) {
			c.trust.SystemPublic, c.trust.SystemJWT = other.trust.SystemPublic, other.trust.SystemJWT
		}, `which is no key of operator`},
		{"foreign_account", func(t *testing.T, c *chain) {
			acct := other.account(t)
			c.trust.Accounts[public(t, acct)] = other.trust.Accounts[public(t, acct)]
		}, `which is no key of operator`},
		{"wrong_key", func(t *testing.T, c *chain) {
			a, b := c.account(t), c.account(t)
			c.trust.Accounts[public(t, a)] = c.trust.Accounts[public(t, b)]
		}, `is about account`},
		{"expired_account", func(t *testing.T, c *chain) {
			c.account(t, func(ac *jwt.AccountClaims) { ac.Expires = time.Now().Add(-time.Hour).Unix() })
		}, `expired at`},
		{"torn_account", func(t *testing.T, c *chain) {
			acct := public(t, c.account(t))
			c.trust.Accounts[acct] = c.trust.Accounts[acct][:100]
		}, `read claim of account "`},
		{"system_listed", func(_ *testing.T, c *chain) { c.trust.Accounts[c.trust.SystemPublic] = c.trust.SystemJWT }, `is listed as a data account`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newChain(t)
			tc.adjust(t, c)
			o := options(t)
			_, err := broker.Start(context.Background(), c.trust, o)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Start = %v, want an error with %q", err, tc.want)
			}
			if entries, err := os.ReadDir(o.StoreDir); err != nil || len(entries) != 0 {
				t.Errorf("the refused start left %v, %v in the store", entries, err)
			}
		})
	}
}

func TestStartRefusesStoreDirectories(t *testing.T) {
	c, other := newChain(t), newChain(t)
	t.Run("in_use", func(t *testing.T) {
		o := options(t)
		start(t, c.trust, o)
		refusal(t, c.trust, o, wire.CodeConflict, fmt.Sprintf(`store directory "$" is in use by the broker in process %d`, os.Getpid()))
	})
	t.Run("other_operator", func(t *testing.T) {
		o := options(t)
		start(t, c.trust, o).Shutdown()
		op := must(jwt.DecodeOperatorClaims(c.trust.OperatorJWT))(t)
		refusal(t, other.trust, o, wire.CodeFailedPrecondition,
			fmt.Sprintf(`store directory "$" belongs to a broker of operator %q: choose another directory, or the trust records it was made with`, op.Subject))
		o.Open = true
		refusal(t, broker.Trust{}, o, wire.CodeFailedPrecondition,
			fmt.Sprintf(`store directory "$" belongs to a broker of operator %q: choose another directory, or the trust records it was made with`, op.Subject))
	})
	t.Run("open_mesh", func(t *testing.T) {
		o := options(t)
		o.Open = true
		start(t, broker.Trust{}, o).Shutdown()
		o.Open = false
		refusal(t, c.trust, o, wire.CodeFailedPrecondition,
			`store directory "$" belongs to a broker of an open mesh: choose another directory, or the trust records it was made with`)
	})
	t.Run("not_a_store", func(t *testing.T) {
		o := options(t)
		write(t, filepath.Join(o.StoreDir, "thesis.doc"), "x")
		refusal(t, c.trust, o, wire.CodeFailedPrecondition,
			`store directory "$" holds "thesis.doc" and was not written by a broker: choose an empty directory`)
	})
	t.Run("unknown_streams", func(t *testing.T) {
		o := options(t)
		if err := os.Mkdir(filepath.Join(o.StoreDir, "jetstream"), 0o700); err != nil {
			t.Fatal(err)
		}
		refusal(t, c.trust, o, wire.CodeFailedPrecondition,
			`store directory "$" belongs to a broker of an unknown operator: choose another directory, or the trust records it was made with`)
	})
	t.Run("a_file", func(t *testing.T) {
		o := options(t)
		o.StoreDir = filepath.Join(o.StoreDir, "file")
		write(t, o.StoreDir, "x")
		refusal(t, c.trust, o, wire.CodeFailedPrecondition, `create store directory "$": not a directory`)
	})
	t.Run("damaged_marker", func(t *testing.T) {
		o := options(t)
		write(t, filepath.Join(o.StoreDir, "broker.json"), "{")
		refusal(t, c.trust, o, wire.CodeFailedPrecondition, `store directory "$" has an unreadable "broker.json"`)
	})
	t.Run("unreadable", func(t *testing.T) {
		if runtime.GOOS == "windows" || os.Getuid() == 0 {
			archtest.NotHere(t, "permission bits do not bind this user")
		}
		o := options(t)
		if err := os.Chmod(o.StoreDir, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(o.StoreDir, 0o700) })
		refusal(t, c.trust, o, wire.CodeFailedPrecondition, `read store directory "$": permission denied`)
	})
	t.Run("killed_at_its_first_start", func(t *testing.T) {
		o := options(t)
		left := filepath.Join(o.StoreDir, "broker.json-3062717.tmp")
		claim := filepath.Join(o.StoreDir, "accounts", "ABC.jwt-1.tmp")
		if err := os.Mkdir(filepath.Dir(claim), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, left, `{"v":1,`)
		write(t, claim, "ey")
		start(t, c.trust, o)
		for _, file := range []string{left, claim} {
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", file, err)
			}
		}
	})
	t.Run("adopts_its_own", func(t *testing.T) {
		// An external broker of the same trust used the directory before: it left no marker.
		o := options(t)
		c := newChain(t)
		acct := c.account(t)
		start(t, c.trust, o).Shutdown()
		if err := os.Remove(filepath.Join(o.StoreDir, "broker.json")); err != nil {
			t.Fatal(err)
		}
		connect(t, start(t, c.trust, o), user(t, acct, 0))
	})
}

func TestStartRefusesAnAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	o := options(t)
	o.NoListen, o.Port, o.Transport = false, l.Addr().(*net.TCPAddr).Port, broker.Plaintext()
	refusal(t, newChain(t).trust, o, wire.CodeConflict, fmt.Sprintf(`start broker: address %q is in use by another process`, l.Addr()))
}

func TestStartRefusesAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o := options(t)
	c := newChain(t)
	if _, err := broker.Start(ctx, c.trust, o); wire.CodeOf(err) != wire.CodeCancelled || !errors.Is(err, context.Canceled) {
		t.Errorf("Start with an ended context = %v, want cancelled", err)
	}
	start(t, c.trust, o) // and the store is free
}

// certificate writes a self-signed pair and returns the files.
func certificate(t *testing.T, adjust func(*x509.Certificate)) (certFile, keyFile string) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"mesh.example"},
	}
	if adjust != nil {
		adjust(tmpl)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	return certFile, keyFile
}

func TestStartRefusesCertificates(t *testing.T) {
	c := newChain(t)
	good, goodKey := certificate(t, nil)
	_, otherKey := certificate(t, nil)
	old, oldKey := certificate(t, func(x *x509.Certificate) { x.NotAfter = time.Now().Add(-time.Minute) })
	early, earlyKey := certificate(t, func(x *x509.Certificate) { x.NotBefore = time.Now().Add(time.Minute) })
	public := filepath.Join(t.TempDir(), "public.pem")
	write(t, public, "x")
	if err := os.Chmod(public, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, cert, key, host string
		code                  wire.Code
		want                  string
	}{
		{"absent", filepath.Join(t.TempDir(), "no.pem"), goodKey, "", wire.CodeNotFound, `no.pem": no such file or directory`},
		{"no_key", good, good + "x", "", wire.CodeNotFound, `no such file or directory`},
		{"not_pem", goodKey, goodKey, "", wire.CodeFailedPrecondition, `cannot be used together`},
		{"open_key", good, public, "", wire.CodeFailedPrecondition, `is open to other users with mode 0644: restrict it to 0600`},
		{"other_key", good, otherKey, "", wire.CodeFailedPrecondition, `cannot be used together`},
		{"expired", old, oldKey, "", wire.CodeFailedPrecondition, `expired at`},
		{"early", early, earlyKey, "", wire.CodeFailedPrecondition, `is not valid before`},
		{"other_host", good, goodKey, "other.example", wire.CodeFailedPrecondition, `does not cover host "other.example", only ["mesh.example" "127.0.0.1"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "open_key" && runtime.GOOS == "windows" {
				archtest.NotHere(t, "permission bits say nothing on windows")
			}
			o := options(t)
			o.NoListen, o.Port, o.Transport, o.Advertise = false, broker.RandomPort, broker.TLS(tc.cert, tc.key), tc.host
			_, err := broker.Start(context.Background(), c.trust, o)
			if wire.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Start = %v (code %q), want code %q and %q", err, wire.CodeOf(err), tc.code, tc.want)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	certFile, keyFile := certificate(t, nil)
	o := options(t)
	o.NoListen, o.Port, o.Transport = false, broker.RandomPort, broker.TLS(certFile, keyFile)
	s := start(t, c.trust, o)
	if !strings.HasPrefix(s.ClientURL(), "tls://127.0.0.1:") {
		t.Errorf("ClientURL = %q, want tls://127.0.0.1:…", s.ClientURL())
	}
	nc, err := nats.Connect(s.ClientURL(), nats.RootCAs(certFile), nats.Timeout(time.Minute), user(t, acct, 0))
	if err != nil {
		t.Fatalf("connect with TLS: %v", err)
	}
	nc.Close()
	connect(t, s, user(t, acct, 0)) // in process, no TLS is asked for
	if nc, err := nats.Connect(s.ClientURL(), user(t, acct, 0)); err == nil {
		nc.Close()
		t.Error("connect without trusting the certificate succeeded")
	}

	// A new certificate serves new connections; an unacceptable one changes nothing.
	nextCert, nextKey := certificate(t, nil)
	rename(t, nextCert, certFile)
	if err := s.ReloadCertificate(); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("ReloadCertificate of a pair that does not match = %v, want failed-precondition", err)
	}
	rename(t, nextKey, keyFile)
	if err := s.ReloadCertificate(); err != nil {
		t.Fatalf("ReloadCertificate: %v", err)
	}
	want := must(tls.LoadX509KeyPair(certFile, keyFile))(t)
	nc, err = nats.Connect(s.ClientURL(), nats.RootCAs(certFile), nats.Timeout(time.Minute), user(t, acct, 0))
	if err != nil {
		t.Fatalf("connect with the new certificate: %v", err)
	}
	defer nc.Close()
	state, err := nc.TLSConnectionState()
	if err != nil || !state.PeerCertificates[0].Equal(want.Leaf) {
		t.Errorf("the broker presents another certificate than the new one (%v)", err)
	}
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// A broker that answers no signed claim of ours must not be reachable by a key alone.
func TestBareKeyIsRefused(t *testing.T) {
	c := newChain(t)
	c.account(t)
	s := start(t, c.trust, options(t))
	kp := key(t, nkeys.PrefixByteUser)
	for name, opt := range map[string]nats.Option{
		"nkey":     nats.Nkey(public(t, kp), kp.Sign),
		"password": nats.UserInfo("a", "b"),
		"token":    nats.Token("x"),
		"nothing":  nats.Name("nobody"),
	} {
		if nc, err := nats.Connect("", nats.InProcessServer(s.InProcess()), opt, nats.Timeout(time.Minute)); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("connect with %s = %v, want %v", name, err, nats.ErrAuthorization)
			if nc != nil {
				nc.Close()
			}
		}
	}
}
