package brokerconf

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// CheckTLS says why a certificate and its key cannot serve host at now: unreadable, a key that others can read, not
// belonging together, not valid, or not covering the host. An unspecified address such as 0.0.0.0 is not compared. Errors
// have code not-found or failed-precondition and name the file.
func CheckTLS(certFile, keyFile, host string, now time.Time) error {
	cert, err := readFile("certificate", certFile)
	if err != nil {
		return err
	}
	info, err := os.Stat(keyFile)
	if err != nil {
		return fileError("key", keyFile, err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return unusable("key %q is open to others with mode %04o: run chmod 600 on it", keyFile, mode)
	}
	key, err := readFile("key", keyFile)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return unusable("certificate %q and key %q are not a pair: %v", certFile, keyFile, err)
	}
	leaf := pair.Leaf
	switch {
	case now.Before(leaf.NotBefore):
		return unusable("certificate %q is not valid before %s", certFile, leaf.NotBefore.UTC().Format(time.RFC3339))
	case now.After(leaf.NotAfter):
		return unusable("certificate %q expired at %s", certFile, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return nil
	}
	if err := leaf.VerifyHostname(host); err != nil {
		return unusable("certificate %q does not cover host %q, only %q and %q", certFile, host, leaf.DNSNames, leaf.IPAddresses)
	}
	return nil
}

func readFile(what, name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fileError(what, name, err)
	}
	return data, nil
}

func fileError(what, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Errorf(wire.CodeNotFound, "%s %q is missing", what, name)
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return unusable("%s %q cannot be read: %v", what, name, err)
}

func unusable(format string, args ...any) error {
	return wire.Errorf(wire.CodeFailedPrecondition, format, args...)
}
