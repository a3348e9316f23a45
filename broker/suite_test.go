package broker_test

import (
	"context"
	"testing"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/broker/brokertest"
	"github.com/cotal-go/cotal/trust/mint"
)

func TestEmbeddedBroker(t *testing.T) {
	brokertest.Run(t, func(t testing.TB, a *mint.Authority) *brokertest.Broker {
		opts := options(t)
		opts.NoListen, opts.Port, opts.Transport = false, broker.RandomPort, broker.Plaintext()
		opts.MaxStore, opts.MaxMemory = 0, 0
		s := start(t, records(t, a), opts)
		return &brokertest.Broker{
			URL:     s.ClientURL(),
			Control: control(t, s, brokertest.Source(a)),
			Restart: func(t testing.TB) {
				t.Helper()
				if err := s.Restart(context.Background(), records(t, a)); err != nil {
					t.Fatalf("Restart: %v", err)
				}
			},
		}
	})
}

func records(t testing.TB, a *mint.Authority) broker.Trust {
	t.Helper()
	trust, err := brokertest.Trust(context.Background(), a)
	if err != nil {
		t.Fatalf("read trust records: %v", err)
	}
	return trust
}
