package control_test

import (
	"context"
	"sync"
	"testing"
)

// TestRequestsComeWhileItBegins asks all the time while instances come and go: a request that is there before the connection is
// known to be good is answered on it.
func TestRequestsComeWhileItBegins(t *testing.T) {
	srv := broker(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, who := range []string{"ada", "bob", "carol"} {
		c := caller(t, dial(t, srv), lifecycle(who))
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = c.Call(ctx, sum, sumIn{}, nil) // mostly there is nobody
			}
		})
	}
	for range 40 {
		stop := run(t, newSum(nil), dial(t, srv))
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	cancel()
	wg.Wait()
}
