package endpoint_test

import (
	"testing"

	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// BenchmarkDedupKey is what each send pays for a value of Nats-Msg-Id that tells nobody its id.
func BenchmarkDedupKey(b *testing.B) {
	key, id := endpoint.NewDedupKey(), wire.NewID()
	b.ReportAllocs()
	for b.Loop() {
		if key("cotal.lab.chat.local.ada.team.backend", id) == "" {
			b.Fatal("empty")
		}
	}
}
