package trust_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// TestAgentPayloadLimit: a message of the largest allowed size passes with its headers, and what is larger than any message
// ends the connection of the agent that sends it, below the limit of the account.
func TestAgentPayloadLimit(t *testing.T) {
	cotaltest.Bubble(t, func(t *testing.T) {
		r := newRealm(t)
		for _, c := range []struct {
			size int
			want bool
		}{{wire.MaxMessage + 16<<10, true}, {trust.MaxAgentPayload, true}, {trust.MaxAgentPayload + 1, false}} {
			nc, _, err := r.connect(r.user(t, trust.Agent))
			if err != nil {
				t.Fatal(err)
			}
			// The broker tells the client the limit of its user after the connect; whichever of the two is first refuses.
			if err = nc.Publish("cotal.main.chat.local.ada.general", make([]byte, c.size)); err == nil {
				err = nc.FlushTimeout(5 * time.Second)
			}
			if (err == nil) != c.want {
				t.Errorf("publish of %d bytes = %v, want accepted %v", c.size, err, c.want)
			}
			nc.Close()
		}
	})
}
