package brokerconf

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Accounts lists the account JWTs that a server starts with: that of the system account, and of every space its account and, when
// it signs people in, its callout account.
func Accounts(systemJWT string, spaces ...trust.AccountRecord) []string {
	out := []string{systemJWT}
	for _, rec := range spaces {
		for _, a := range rec.Accounts() {
			out = append(out, a.JWT)
		}
	}
	return out
}

// AccountFiles returns the files that a server's accounts folder starts with, by name: one "<public key>.jwt" per account
// JWT, such as those of [Accounts]. The system account must be among them. Its error has code bad-request.
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
		if err := atomicfile.Write(filepath.Join(dir, name), files[name], 0o600); err != nil {
			return unusable("write account file %q: %v", name, err)
		}
	}
	return nil
}
