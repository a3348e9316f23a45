package endpoint

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// maxCredentials bounds a credentials file. A JWT that fits the broker's control line is far smaller.
const maxCredentials = 64 << 10

// Source hands out the endpoint's credential: at connect, at three quarters of its life, and again after the broker
// refused it. It is called from one goroutine at a time.
type Source interface {
	// Credentials returns the newest credential there is. Returning the one that is in use means that there
	// is no newer one yet; the endpoint asks again later.
	Credentials(ctx context.Context) (*trust.Credentials, error)
}

// SourceFunc makes a function a [Source].
type SourceFunc func(ctx context.Context) (*trust.Credentials, error)

// Credentials calls f.
func (f SourceFunc) Credentials(ctx context.Context) (*trust.Credentials, error) { return f(ctx) }

// File is a credentials file, read anew each time, so that replacing the file renews the endpoint.
//
// Errors: not-found when there is no such file, permission-denied when it cannot be read, bad-request when it holds
// no credentials.
func File(path string) Source {
	return SourceFunc(func(context.Context) (*trust.Credentials, error) {
		data, err := readBounded(path, maxCredentials)
		if err != nil {
			return nil, err
		}
		creds, err := trust.ParseCredentials(data)
		if err != nil {
			return nil, wire.Errorf(wire.CodeBadRequest, "read credentials %q: %w", path, err)
		}
		return creds, nil
	})
}

// Static is one credential without renewal: the endpoint works until it expires.
func Static(creds *trust.Credentials) Source {
	return SourceFunc(func(context.Context) (*trust.Credentials, error) {
		if creds == nil {
			return nil, wire.Errorf(wire.CodeUnauthenticated, "read credentials: there are none")
		}
		return creds, nil
	})
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		code := wire.CodeUnavailable
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, wire.Errorf(wire.CodeNotFound, "read %q: no such file", path)
		case errors.Is(err, fs.ErrPermission):
			code = wire.CodePermissionDenied
		}
		return nil, wire.Errorf(code, "read %q: %v", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, wire.Errorf(wire.CodeUnavailable, "read %q: %v", path, err)
	case int64(len(data)) > limit:
		return nil, wire.Errorf(wire.CodeBadRequest, "read %q: larger than %d bytes", path, limit)
	}
	return data, nil
}
