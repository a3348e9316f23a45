package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// certificate is the pair a listener presents; it can be replaced while the broker runs.
type certificate struct {
	certFile, keyFile, host string
	current                 atomic.Pointer[tls.Certificate]
}

// loadCertificate reads and checks the pair of t for host.
func loadCertificate(t Transport, host string) (*certificate, error) {
	c := &certificate{certFile: t.certFile, keyFile: t.keyFile, host: host}
	return c, c.reload(time.Now())
}

// reload replaces the pair by what the files hold now; the old one stays when they are not acceptable.
func (c *certificate) reload(now time.Time) error {
	pair, err := CheckCertificate(c.certFile, c.keyFile, c.host, now)
	if err != nil {
		return err
	}
	c.current.Store(pair)
	return nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}

// CheckCertificate loads a certificate and its key and refuses a pair that clients could not or should not trust:
// unreadable, a key that others can read, not belonging together, not valid at now, or not covering host. A host
// that is an unspecified address, such as 0.0.0.0, is not compared.
func CheckCertificate(certFile, keyFile, host string, now time.Time) (*tls.Certificate, error) {
	certPEM, err := readFile("certificate", certFile)
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(keyFile); err != nil {
		return nil, err
	}
	keyPEM, err := readFile("key", keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, wire.Errorf(wire.CodeFailedPrecondition, "certificate %q and key %q cannot be used together: %v", certFile, keyFile, err)
	}
	return &pair, checkLeaf(certFile, pair.Leaf, host, now)
}

func checkLeaf(certFile string, leaf *x509.Certificate, host string, now time.Time) error {
	refuse := func(format string, args ...any) error {
		return wire.Errorf(wire.CodeFailedPrecondition, "certificate %q "+format, append([]any{certFile}, args...)...)
	}
	switch {
	case now.Before(leaf.NotBefore):
		return refuse("is not valid before %s", leaf.NotBefore.Format(time.RFC3339))
	case now.After(leaf.NotAfter):
		return refuse("expired at %s", leaf.NotAfter.Format(time.RFC3339))
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return nil
	}
	if err := leaf.VerifyHostname(host); err != nil {
		names := slices.Clone(leaf.DNSNames)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		return refuse("does not cover host %q, only %q", host, names)
	}
	return nil
}

// checkPrivate refuses a key file that others can read.
func checkPrivate(keyFile string) error {
	info, err := os.Stat(keyFile)
	if err != nil {
		return fileError("read key", keyFile, err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return wire.Errorf(wire.CodeFailedPrecondition, "key %q is open to other users with mode %04o: restrict it to 0600", keyFile, mode)
	}
	return nil
}

func readFile(what, path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fileError("read "+what, path, err)
	}
	return data, nil
}

// fileError translates an error of the file system, without the doubled path of its own text.
func fileError(verb, path string, err error) error {
	code := wire.CodeFailedPrecondition
	if errors.Is(err, fs.ErrNotExist) {
		code = wire.CodeNotFound
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return wire.Errorf(code, "%s %q: %v", verb, path, err)
}
