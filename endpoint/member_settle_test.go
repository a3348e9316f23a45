package endpoint_test

import (
	"testing"
	"time"

	"testing/synctest"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// TestFailedConfirmSettlesNothing: a message whose Confirm failed is not reported as handled later, and can be given back.
func TestFailedConfirmSettlesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *keeper) {
		m := k.member(&endpoint.JoinOptions{Manual: true}, nil)
		k.store(ada, "1", true)
		k.store(ada, "2", true)
		synctest.Wait()
		all := m.got.list()
		k.set(func() { k.fail[wire.CommandAck] = errAway })
		check(t, "confirm", all[0].Confirm(t.Context()), wire.ErrUnavailable)
		k.set(func() { clear(k.fail) })
		check(t, "ack", all[1].Ack(t.Context()), nil)
		time.Sleep(2 * time.Minute)
		k.set(func() {
			if k.floor != 0 || !within(k.handled, 2) || within(k.handled, 1) {
				t.Errorf("recorded floor %d, handled %v", k.floor, k.handled)
			}
		})
		check(t, "nak", all[0].Nak(t.Context(), time.Second), nil)
		time.Sleep(2 * time.Second)
		m.want(t, "1 2 1")
		check(t, "confirm", m.got.list()[2].Confirm(t.Context()), nil)
		k.wantFloor(t, 2)
	})
}
