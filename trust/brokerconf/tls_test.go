package brokerconf_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/conf"

	"github.com/cotal-go/cotal/trust/brokerconf"
	"github.com/cotal-go/cotal/wire"
)

// settings reads configuration text as the server does.
func settings(text string) (map[string]any, error) { return conf.Parse(text) }

// certificate writes a self-signed certificate for a host, valid for an hour, and its key.
func certificate(t testing.TB, host string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return write(t, dir, "cert.pem", 0o644, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		write(t, dir, "key.pem", 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

func write(t testing.TB, dir, name string, mode os.FileMode, data []byte) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, data, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCheckTLS(t *testing.T) {
	cert, key := certificate(t, "mesh.example.org")
	_, otherKey := certificate(t, "mesh.example.org")
	now := time.Now()
	for _, host := range []string{"mesh.example.org", "0.0.0.0", "::"} {
		if err := brokerconf.CheckTLS(cert, key, host, now); err != nil {
			t.Errorf("host %s: %v", host, err)
		}
	}
	junk := write(t, t.TempDir(), "junk.pem", 0o600, []byte("junk"))
	for name, c := range map[string]struct {
		want            error
		cert, key, host string
		now             time.Time
		says            string
	}{
		"missing certificate": {wire.ErrNotFound, cert + "x", key, "mesh.example.org", now, "missing"},
		"missing key":         {wire.ErrNotFound, cert, key + "x", "mesh.example.org", now, "missing"},
		"unreadable":          {wire.ErrPrecondition, junk, key, "mesh.example.org", now, "not a pair"},
		"foreign key":         {wire.ErrPrecondition, cert, otherKey, "mesh.example.org", now, "not a pair"},
		"another host":        {wire.ErrPrecondition, cert, key, "other.example.org", now, "does not cover"},
		"an address":          {wire.ErrPrecondition, cert, key, "127.0.0.1", now, "does not cover"},
		"expired":             {wire.ErrPrecondition, cert, key, "mesh.example.org", now.Add(2 * time.Hour), "expired"},
		"not yet valid":       {wire.ErrPrecondition, cert, key, "mesh.example.org", now.Add(-time.Hour), "not valid before"},
	} {
		err := brokerconf.CheckTLS(c.cert, c.key, c.host, c.now)
		if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, c.want, c.says)
		}
	}
}
