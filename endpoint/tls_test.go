package endpoint_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// certificate writes a self-signed certificate for loopback and its key.
func certificate(tb testing.TB) (certFile, keyFile string) {
	tb.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(tb)
	secret := must(x509.MarshalPKCS8PrivateKey(key))(tb)
	dir := tb.TempDir()
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			tb.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

func TestTLS(t *testing.T) {
	certFile, keyFile := certificate(t)
	w := newWorld(t, func(o *broker.Options) {
		o.NoListen, o.Port, o.Transport = false, broker.RandomPort, broker.TLS(certFile, keyFile)
	})
	_, host, _ := strings.Cut(w.srv.ClientURL(), "://")
	creds := w.user("ada")
	path := filepath.Join(t.TempDir(), "ada.creds")
	if err := os.WriteFile(path, creds.Reveal(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		addr, ca string
		code     wire.Code
	}{
		"trusted":           {"tls://" + host, certFile, ""},
		"implied_by_the_ca": {host, certFile, ""},
		"unknown_authority": {"tls://" + host, "", wire.CodeFailedPrecondition},
		"plaintext":         {"nats://" + host, "", wire.CodeFailedPrecondition},
		"no_certificates":   {"tls://" + host, keyFile, wire.CodeBadRequest},
		"no_file":           {"tls://" + host, certFile + ".gone", wire.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			ep, err := endpoint.Connect(t.Context(), tt.addr, endpoint.File(path), &endpoint.Options{CAFile: tt.ca})
			if err == nil {
				defer ep.Close()
			}
			if got := wire.CodeOf(err); got != tt.code {
				t.Fatalf("code = %q (%v), want %q", got, err, tt.code)
			}
			if err == nil {
				must(ep.Post(t.Context(), "team", endpoint.Text("over TLS")))(t)
			}
		})
	}
}
