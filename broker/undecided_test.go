package broker_test

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/faketime"
)

// TestTheUndecidedAreSentAway: who shows no credential is sent away after AuthTimeout, neither sooner nor later.
func TestTheUndecidedAreSentAway(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		s := start(t, newChain(t).trust, options(t))
		c, err := s.InProcess().InProcessConn()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		began, last := time.Now(), ""
		for lines := bufio.NewScanner(c); lines.Scan(); {
			last = lines.Text()
		}
		if took := time.Since(began); took != broker.AuthTimeout || !strings.Contains(last, "Authentication Timeout") {
			t.Errorf("ended after %v with %q, want %v", took, last, broker.AuthTimeout)
		}
	})
}
