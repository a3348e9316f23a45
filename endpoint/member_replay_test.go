package endpoint_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

func TestReplay(t *testing.T) {
	for name, class := range map[string]string{"durable": "durable", "live": "live"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k *keeper) {
				k.class = class
				want := ""
				for i := range 250 {
					k.store(ada, fmt.Sprint("old", i), false)
					want += fmt.Sprint("old", i, " ")
				}
				gate := make(chan struct{})
				k.hold[wire.CommandHistory] = gate
				m := k.member(&endpoint.JoinOptions{Replay: true}, nil)
				k.store(ada, "new1", true)
				k.store(ada, "new2", true)
				close(gate)
				synctest.Wait()
				m.want(t, want+"new1 new2")
				for i, d := range m.got.list() {
					if d.Replayed != (i < 250) {
						t.Fatalf("message %d is replayed: %v", i, d.Replayed)
					}
				}
				check(t, "stop", m.Stop(t.Context()), nil)
				k.store(ada, "new3", false)
				k.set(func() { clear(k.hold) })
				m.got.take()
				m.join(t, &endpoint.JoinOptions{Replay: true}, nil)
				synctest.Wait()
				if class == "durable" {
					m.want(t, "new3") // what was handled is not shown again, unless it is asked for
					check(t, "stop", m.Stop(t.Context()), nil)
					m.got.take()
					m.join(t, &endpoint.JoinOptions{Replay: true, ReplayHandled: true}, nil)
					synctest.Wait()
				}
				m.want(t, want+"new1 new2 new3")
			})
		})
	}
}

// TestReplayAfterLive: delivery comes late, and what was shown live is not in the backlog.
func TestReplayAfterLive(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		k.store(ada, "old", false)
		k.set(func() { k.fail[wire.CommandJoin] = errAway })
		m := k.member(&endpoint.JoinOptions{Replay: true}, nil)
		k.store(ada, "live", true)
		time.Sleep(20 * time.Second)
		k.set(func() { clear(k.fail) })
		time.Sleep(time.Minute)
		k.store(ada, "last", true)
		synctest.Wait()
		m.want(t, "live old last")
	})
}
