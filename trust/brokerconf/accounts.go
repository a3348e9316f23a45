package brokerconf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/wire"
)

// AccountFiles returns the files that a server's accounts folder starts with, by name: one "<public key>.jwt" per account
// JWT. The system account must be among them. Its error has code bad-request.
func AccountFiles(jwts ...string) (map[string][]byte, error) {
	files := make(map[string][]byte, len(jwts))
	for i, token := range jwts {
		claims, err := jwt.DecodeAccountClaims(token)
		if err != nil {
			return nil, wire.Errorf(wire.CodeBadRequest, "make account files: number %d is not an account JWT", i+1)
		}
		files[claims.Subject+".jwt"] = []byte(token)
	}
	return files, nil
}

// WriteAccounts writes the files of [AccountFiles] into dir, which it makes with mode 0700. Each file is replaced as a
// whole. Do not write below a running server: push instead.
func WriteAccounts(dir string, jwts ...string) error {
	files, err := AccountFiles(jwts...)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fileError("accounts folder", dir, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := replace(dir, name, files[name]); err != nil {
			return fmt.Errorf("write account file %q: %w", name, err)
		}
	}
	return nil
}

func replace(dir, name string, data []byte) error {
	f, err := os.CreateTemp(dir, ".tmp-*") // mode 0600
	if err != nil {
		return fileError("accounts folder", dir, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(unusable("%v", err), os.Remove(f.Name()))
	}
	return nil
}
