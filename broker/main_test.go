package broker_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// idleEnv makes the test binary an idle broker that reports its memory.
const idleEnv = "COTAL_TEST_IDLE_BROKER"

// scratch holds what all tests of a run share.
var scratch string

// TestMain fails the run when a broker, a connection or a control left a goroutine behind.
func TestMain(m *testing.M) {
	if dir := os.Getenv(idleEnv); dir != "" {
		os.Exit(idle(dir))
	}
	var err error
	if scratch, err = os.MkdirTemp("", "cotal-broker-test-"); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(scratch)
		os.Exit(code)
	}))
}
