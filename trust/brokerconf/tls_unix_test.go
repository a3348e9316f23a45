//go:build !windows

package brokerconf_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cotal-go/cotal/trust/brokerconf"
	"github.com/cotal-go/cotal/wire"
)

func TestCheckTLSRefusesASharedKey(t *testing.T) {
	cert, key := certificate(t, "127.0.0.1")
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
		if err := brokerconf.CheckTLS(cert, key, "127.0.0.1", time.Now()); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("key with mode %04o: %v, want a refusal", mode, err)
		}
	}
}
