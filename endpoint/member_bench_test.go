package endpoint_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

// BenchmarkStream is what a live message costs a member, and a listener to compare: a test plays the broker, so that
// nothing is stored.
func BenchmarkStream(b *testing.B) {
	w := newOpenWorld(b)
	k := newKeeper(w)
	ep := w.connect("carol", nil)
	seq := uint64(0)
	run := func(b *testing.B, begin func(func(*endpoint.Delivery)) func()) {
		k.set(func() { k.end = seq })
		count := newTally(b.N)
		end := begin(func(*endpoint.Delivery) { count.add() })
		subject, at := must(wire.LiveSubject(lab, ada, "team"))(b), time.Now().UTC().Format(time.RFC3339Nano)
		all := make([]*nats.Msg, b.N)
		for i := range all {
			h := nats.Header{"Nats-Sequence": {fmt.Sprint(seq + 1)}, "Nats-Last-Sequence": {fmt.Sprint(seq)}, "Nats-Time-Stamp": {at}}
			seq++
			all[i] = &nats.Msg{Subject: subject, Header: h, Data: encode(b, ada, "team", wire.NewID(), benchText)}
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i, m := range all {
			for count.n.Load() < int64(i)-5000 {
				runtime.Gosched()
			}
			if err := w.nc.PublishMsg(m); err != nil {
				b.Fatal(err)
			}
		}
		<-count.done
		b.StopTimer()
		k.set(func() { k.end = seq })
		end()
	}
	b.Run("listen", func(b *testing.B) {
		run(b, func(fn func(*endpoint.Delivery)) func() {
			s := must(ep.Listen(b.Context(), "team", fn))(b)
			return func() { _ = s.Leave(b.Context()) }
		})
	})
	b.Run("join", func(b *testing.B) {
		run(b, func(fn func(*endpoint.Delivery)) func() {
			m := must(ep.Join(b.Context(), "team", fn, nil))(b)
			return func() { _ = m.Leave(b.Context()) }
		})
	})
}

// BenchmarkCatchUp reads 10,000 messages that a member missed.
func BenchmarkCatchUp(b *testing.B) { benchStored(b, false) }

// BenchmarkReplay joins a channel that holds 10,000 messages.
func BenchmarkReplay(b *testing.B) { benchStored(b, true) }

func benchStored(b *testing.B, replay bool) {
	const n = 10_000
	mesh := cotaltest.New(b, &cotaltest.Options{Listen: true})
	ada := mesh.Endpoint(b, "ada", nil)
	creds := mesh.Credentials(b, "carol", nil)
	var shown atomic.Int64
	join := func(ep *endpoint.Endpoint, replay bool) (*endpoint.Membership, chan struct{}) {
		all := make(chan struct{})
		shown.Store(0)
		m := must(ep.Join(b.Context(), "team", func(*endpoint.Delivery) {
			if shown.Add(1) == n {
				close(all)
			}
		}, &endpoint.JoinOptions{Replay: replay}))(b)
		return m, all
	}
	connect := func() *endpoint.Endpoint {
		return must(endpoint.Connect(b.Context(), mesh.URL(), endpoint.Static(creds), nil))(b)
	}
	fill := func() {
		work := make(chan struct{})
		go func() {
			defer close(work)
			for range n {
				work <- struct{}{}
			}
		}()
		done := make(chan struct{})
		for range 64 {
			go func() {
				for range work {
					if _, err := ada.Post(b.Context(), "team", endpoint.Text(benchText)); err != nil {
						b.Error(err)
					}
				}
				done <- struct{}{}
			}()
		}
		for range 64 {
			<-done
		}
	}
	if replay {
		fill()
	} else {
		ep := connect()
		m, _ := join(ep, false)
		_ = m.Stop(b.Context())
		_ = ep.Close()
	}
	var took time.Duration
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		if !replay {
			fill()
		}
		ep := connect()
		b.StartTimer()
		start := time.Now()
		m, all := join(ep, replay)
		<-all
		took += time.Since(start)
		b.StopTimer()
		if replay {
			_ = m.Leave(b.Context())
		}
		_ = ep.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(n*b.N)/took.Seconds(), "messages/s")
	b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/10000")
}
