package control_test

import (
	"context"
	"encoding/json"
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

func rawCall(b *testing.B, server, client *nats.Conn, command string) oneCall {
	const subject = "raw.ep.one.bench.sum.local.ada.aaaaaaaaaaaaaaaaaaaaaaaaaa"
	sub, err := server.QueueSubscribe(subject, "bench", func(msg *nats.Msg) {
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
		msg, err := client.Request(subject, data, 5*time.Second)
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

func BenchmarkCall(b *testing.B) {
	for _, transport := range []string{"inprocess", "tcp"} {
		for _, command := range []string{"void", "sum"} {
			for _, parallel := range []int{1, 32} {
				name := transport + "/" + command + "/" + map[int]string{1: "1", 32: "32"}[parallel]
				b.Run(name+"/raw", func(b *testing.B) { benchCall(b, transport, command, parallel, rawCall) })
				b.Run(name+"/control", func(b *testing.B) { benchCall(b, transport, command, parallel, controlCall) })
			}
		}
	}
}

func benchCall(b *testing.B, transport, command string, parallel int, prepare func(b *testing.B, s, c *nats.Conn, command string) oneCall) {
	connect := dialer(b, transport)
	call := prepare(b, connect(), connect(), command)
	b.ReportAllocs()
	b.ResetTimer()
	times := make([][]time.Duration, parallel)
	var wg sync.WaitGroup
	for w := range parallel {
		n := b.N / parallel
		if w == 0 {
			n += b.N % parallel
		}
		wg.Go(func() {
			for range n {
				start := time.Now()
				if err := call(); err != nil {
					b.Error(err)
					return
				}
				times[w] = append(times[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Sorted(slices.Values(slices.Concat(times...)))
	if len(all) > 0 {
		b.ReportMetric(float64(all[len(all)/2].Nanoseconds()), "p50-ns")
		b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds()), "p99-ns")
		b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "calls/s")
	}
}

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
