package callout_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/nacl/box"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/callout"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// work is the cryptography of one connect.
type work struct{ signs, verifies, shares int }

var (
	// ofService is what the service cannot do without: it verifies the question, the bearer and the proof, and signs the
	// credential and the answer. What it shares with the broker is made once.
	ofService = work{signs: 2, verifies: 3}
	// ofConnect is that of everybody: the client signs the nonce; the broker verifies the sentinel, makes a key, signs and seals
	// the question, opens the answer, verifies it and the credential in it.
	ofConnect = work{signs: 2 + 1 + 2, verifies: 3 + 3, shares: 2}
)

// cost measures the cryptography alone, as long as it takes on this machine at this moment.
func (w work) cost(b *testing.B) time.Duration {
	b.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	peer, private, err := box.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	msg := make([]byte, 1500)
	sig := ed25519.Sign(key, msg)
	const rounds = 20
	var each []time.Duration
	for range 21 { // the median: what else the machine does comes in bursts
		began := time.Now()
		for range rounds {
			for range w.signs {
				ed25519.Sign(key, msg)
			}
			for range w.verifies {
				if !ed25519.Verify(pub, msg, sig) {
					b.Fatal("signature does not verify")
				}
			}
			for range w.shares {
				var shared [32]byte
				box.Precompute(&shared, peer, private)
			}
		}
		each = append(each, time.Since(began)/rounds)
	}
	return quantile(each, 50)
}

// report says how much dearer an operation is than its cryptography, when that is spread over all processors as well.
func report(b *testing.B, w work, took time.Duration) {
	b.Helper()
	each := took / time.Duration(b.N) * time.Duration(runtime.GOMAXPROCS(0))
	alone := w.cost(b)
	b.ReportMetric(float64(b.N)/took.Seconds(), "connects/s")
	b.ReportMetric(float64(alone.Microseconds()), "crypto-µs")
	b.ReportMetric(float64(each)/float64(alone), "x-crypto")
}

// repeated are records that let the same key in again and again, so that one question can be asked for ever.
type repeated struct {
	mint  *mint.Authority
	space wire.Space
}

func (r repeated) Connect(ctx context.Context, s wire.Space, req auth.ConnectRequest) (string, auth.Admission, error) {
	token, err := r.mint.ConnectionJWT(ctx, s, mint.ConnectionRequest{UserKey: req.UserKey, Expires: req.Expires, UserRequest: mint.UserRequest{
		Profile: "agent", Principal: req.Principal, UID: req.UID, Subscribe: []string{"general"}, Publish: []string{"general"},
	}})
	return token, auth.Admission{}, err
}

// BenchmarkService is one question and its answer, with a broker only to carry them.
func BenchmarkService(b *testing.B) {
	const asking = 8
	for name, junk := range map[string]bool{"admit": false, "junk": true} {
		b.Run(name, func(b *testing.B) {
			ours := newOrigin(b)
			l := newLab(b, ours)
			l.o.Authority = repeated{l.w.records.mint, "main"}
			l.o.OnDecision = func(context.Context, callout.Decision) {}
			longLived(&l.o)
			d := run(b, l.serve, l.o)
			ada := newPerson(b, "ada")
			token, w := l.w.bearer(b, ada, true, 15*time.Minute), ofService
			if junk {
				token, w = "junk", work{signs: 1}
			}
			m := ours.patient(b, l.w, ada, token, "203.0.113.1")
			b.SetParallelism(asking)
			b.ResetTimer()
			began := time.Now()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := l.nc.RequestMsg(m, time.Minute); err != nil {
						b.Error(err)
					}
				}
			})
			took := time.Since(began)
			b.StopTimer()
			report(b, w, took)
			b.Logf("%d rounds: %d refused without content", b.N, d.Stats().Bare)
		})
	}
}

// BenchmarkConnect is a whole connect through the callout: client, broker and service in one process.
func BenchmarkConnect(b *testing.B) {
	m := newMesh(b, "main")
	w := m.worlds["main"]
	m.serve(b, w, func(o *callout.Options) { o.OnDecision = func(context.Context, callout.Decision) {} })
	ada := newPerson(b, "ada")
	token := w.bearer(b, ada, true, 15*time.Minute)
	b.SetParallelism(8)
	b.ResetTimer()
	began := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			nc, err := m.connect(w, token, ada.key)
			if err != nil {
				b.Error(err)
				continue
			}
			nc.Close()
		}
	})
	took := time.Since(began)
	b.StopTimer()
	report(b, ofConnect, took)
}

func quantile(d []time.Duration, percent int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(time.Microsecond)
}
