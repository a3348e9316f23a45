package broker_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// idleEnv makes the test binary an idle broker that reports its memory.
const idleEnv = "COTAL_TEST_IDLE_BROKER"

// TestMain fails the run when a broker, a connection or a control left a goroutine behind.
func TestMain(m *testing.M) {
	if dir := os.Getenv(idleEnv); dir != "" {
		os.Exit(idle(dir))
	}
	goleak.VerifyTestMain(m)
}
