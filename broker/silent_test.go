package broker_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/faketime"
)

// TestASilentClientLosesItsPlace: a client that no longer answers is sent away within ten seconds, so that a queue group
// sends nothing to it any more; one that answers stays, however long it has nothing to say.
func TestASilentClientLosesItsPlace(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		opts := options(t)
		opts.Open = true
		s := start(t, broker.Trust{}, opts)
		answers := connect(t, s, nats.NoReconnect(), nats.PingInterval(24*time.Hour))
		silent, err := s.InProcess().InProcessConn()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
		if _, err := fmt.Fprint(silent, "CONNECT {\"verbose\":false}\r\nPING\r\nSUB work group 1\r\n"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		asked, last := 0, ""
		for lines := bufio.NewScanner(silent); lines.Scan(); {
			if last = lines.Text(); last == "PING" {
				asked++
			}
		}
		if took := time.Since(began); asked != 2 || took < 5*time.Second || took > 10*time.Second || !strings.Contains(last, "Stale") {
			t.Errorf("ended after %v and %d questions with %q, want within 10 s and two, as stale", took, asked, last)
		}
		time.Sleep(time.Hour)
		if !answers.IsConnected() {
			t.Errorf("the client that answers was sent away: %v", answers.LastError())
		}
		answers.Close()
		synctest.Wait()
	})
}
