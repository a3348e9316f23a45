package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/wire"
)

// The benchmarks put a call beside the same work written on nats.go: a request with an equal JSON envelope, decoded by
// a subscription callback and answered with an equal reply.

type sumIn struct {
	A     int    `json:"a"`
	B     int    `json:"b"`
	Label string `json:"label,omitempty"`
}

type sumOut struct {
	Sum int `json:"sum"`
}

// oneCall makes one round trip.
type oneCall func() error

func controlCall(b *testing.B, server, client *nats.Conn, command string) oneCall {
	s := control.New("bench", nil)
	control.Handle(s, control.Command{Name: "sum", Effect: control.Read},
		func(_ context.Context, _ *control.Request, in sumIn) (sumOut, error) { return sumOut{in.A + in.B}, nil })
	control.Handle(s, control.Command{Name: "void", Effect: control.Read},
		func(context.Context, *control.Request, control.None) (control.None, error) {
			return control.None{}, nil
		})
	run(b, s, server)
	c := caller(b, client, ada)
	t := control.Target{Endpoint: "bench", Command: command}
	if command == "void" {
		return func() error { return c.Call(context.Background(), t, nil, nil) }
	}
	return func() error {
		var out sumOut
		return c.Call(context.Background(), t, sumIn{A: 1, B: 2, Label: "bench"}, &out)
	}
}

// rawCall is the same on nats.go. With a nonce each request has a subject of its own, as the contract has it, which costs
// the broker a search of its subscriptions.
func rawCall(b *testing.B, server, client *nats.Conn, command string, nonce bool) oneCall {
	subject := "raw.ep.one.bench.sum.local.ada.aaaaaaaaaaaaaaaaaaaaaaaaaa"
	filter := subject
	if nonce {
		filter += ".*"
	}
	sub, err := server.QueueSubscribe(filter, "bench", func(msg *nats.Msg) {
		var req wire.Request
		if json.Unmarshal(msg.Data, &req) != nil {
			return
		}
		reply := wire.Reply{V: 1, ID: req.ID, OK: true}
		if command != "void" {
			var in sumIn
			if json.Unmarshal(req.Args, &in) != nil {
				return
			}
			reply.Data, _ = json.Marshal(sumOut{in.A + in.B})
		}
		data, _ := json.Marshal(&reply)
		_ = msg.Respond(data)
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := server.Flush(); err != nil {
		b.Fatal(err)
	}
	return func() error {
		req := wire.Request{
			V: 1, ID: wire.NewID(), Op: wire.Op{Endpoint: "bench", Command: "sum"}, Class: "ephemeral", ReplyExpected: true,
			From: wire.EndpointRef{ID: "local.ada", Name: "ada"}, DeadlineMS: 5000,
		}
		if command != "void" {
			req.Args, _ = json.Marshal(sumIn{A: 1, B: 2, Label: "bench"})
		}
		data, err := json.Marshal(&req)
		if err != nil {
			return err
		}
		to := subject
		if nonce {
			to += "." + wire.NewID()
		}
		msg, err := client.Request(to, data, 5*time.Second)
		if err != nil {
			return err
		}
		var reply wire.Reply
		if err := json.Unmarshal(msg.Data, &reply); err != nil {
			return err
		}
		if command == "void" {
			return nil
		}
		var out sumOut
		return json.Unmarshal(reply.Data, &out)
	}
}

// BenchmarkCall alternates between them, so that whatever else the machine does falls on all. Metrics: p50, p99 and rate of
// raw and of control, and control's share of raw's speed as ratios: 1 is equal, above 1 is faster. The nonce ratios are those
// to raw requests that have a subject each.
func BenchmarkCall(b *testing.B) {
	for _, transport := range []string{"inprocess", "tcp"} {
		for _, command := range []string{"void", "sum"} {
			for _, parallel := range []int{1, 32} {
				b.Run(fmt.Sprint(transport, "/", command, "/", parallel), func(b *testing.B) {
					connect := dialer(b, transport)
					s, c := connect(), connect()
					compare(b, parallel, rawCall(b, s, c, command, false), rawCall(b, s, c, command, true), controlCall(b, s, c, command))
				})
			}
		}
	}
}

// chunk is how many calls one side makes before it is the next one's turn.
const chunk = 3200

func compare(b *testing.B, parallel int, calls ...oneCall) {
	sides := make([]measured, len(calls))
	for i, call := range calls {
		sides[i].calls(b, call, parallel, chunk) // warm
		sides[i] = measured{}
	}
	b.ResetTimer()
	for left := b.N; left > 0; left -= chunk {
		for i, call := range calls {
			sides[i].calls(b, call, parallel, min(left, chunk))
		}
	}
	b.StopTimer()
	raw, nonce, ours := &sides[0], &sides[1], &sides[2]
	b.ReportMetric(0, "ns/op")
	for p, name := range map[int]string{50: "p50-us", 99: "p99-us"} {
		b.ReportMetric(raw.percentile(p), "raw-"+name)
		b.ReportMetric(ours.percentile(p), name)
	}
	b.ReportMetric(raw.rate(), "raw-calls/s")
	b.ReportMetric(ours.rate(), "calls/s")
	b.ReportMetric(raw.percentile(50)/ours.percentile(50), "p50-ratio")
	b.ReportMetric(ours.rate()/raw.rate(), "rate-ratio")
	b.ReportMetric(nonce.percentile(50)/ours.percentile(50), "p50-nonce-ratio")
	b.ReportMetric(ours.rate()/nonce.rate(), "rate-nonce-ratio")
}

// measured is what one side did.
type measured struct {
	times []time.Duration
	total time.Duration
}

func (m *measured) calls(b *testing.B, call oneCall, parallel, n int) {
	times := make([]time.Duration, n)
	var wg sync.WaitGroup
	begin := time.Now()
	for w := range parallel {
		wg.Go(func() {
			for i := w; i < n; i += parallel {
				start := time.Now()
				if err := call(); err != nil {
					b.Error(err)
					return
				}
				times[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	m.total += time.Since(begin)
	m.times = append(m.times, times...)
}

func (m *measured) percentile(p int) float64 {
	sorted := slices.Sorted(slices.Values(m.times))
	return float64(sorted[len(sorted)*p/100].Nanoseconds()) / 1000
}

func (m *measured) rate() float64 { return float64(len(m.times)) / m.total.Seconds() }

func dialer(b *testing.B, transport string) func() *nats.Conn {
	if transport == "inprocess" {
		srv := broker(b)
		return func() *nats.Conn { return dial(b, srv) }
	}
	srv := start(b, &server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	return func() *nats.Conn {
		nc, err := nats.Connect(srv.ClientURL())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { shut(nc) })
		return nc
	}
}
