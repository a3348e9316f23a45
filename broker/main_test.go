package broker_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the run when a broker, a connection or a control left a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
