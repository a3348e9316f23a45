package exchange_test

import (
	"crypto/ed25519"
	"net/http/httptest"
	"testing"

	"github.com/cotal-go/cotal/auth/exchange"
)

const rounds = 50_000

// BenchmarkExchange is one exchange through the handler, with the real issuer and a provider that costs nothing. Compare with
// BenchmarkSign, the signature alone.
func BenchmarkExchange(b *testing.B) {
	for name, body := range map[string]string{"person": personBody(good, ""), "agent": agentBody(agentToken, ""), "refused": personBody("forged", "")} {
		b.Run(name, func(b *testing.B) {
			most := func(o *exchange.Options) {
				o.OnDecision, o.Logger = nil, nil
				o.Limits = exchange.Limits{Refusals: rounds, PerActor: rounds, PerOwner: rounds}
			}
			k := newKit(b, most)
			h := k.PublicHandler()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n++; n%rounds == 0 { // beyond it a limit would be measured
					b.StopTimer()
					k = newKit(b, most)
					h = k.PublicHandler()
					b.StartTimer()
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, ask{body: body}.request(k, exchange.Public, "http://127.0.0.1"))
				if w.Code != 200 && name != "refused" {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "exchanges/s")
		})
	}
}

func BenchmarkSign(b *testing.B) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 600)
	for b.Loop() {
		ed25519.Sign(key, payload)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "signatures/s")
}
