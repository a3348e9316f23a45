package endpoint_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// Each benchmark does its work twice: with an endpoint, and directly on nats.go with an equal envelope and
// encoding/json. Their ratio is what the library costs.

// benchWorld listens on loopback, as for separate processes.
func benchWorld(b *testing.B) *world {
	return newWorld(b, func(o *broker.Options) {
		o.NoListen, o.Port, o.Transport = false, broker.RandomPort, broker.Plaintext()
	})
}

func (w *world) dialTCP(creds *trust.Credentials) *nats.Conn {
	w.tb.Helper()
	nc := must(nats.Connect(w.srv.ClientURL(), nats.UserJWT(func() (string, error) { return creds.JWT(), nil }, creds.Sign),
		nats.CustomInboxPrefix(wire.InboxPrefix(creds.Identity().Inbox))))(w.tb)
	w.tb.Cleanup(func() { shut(nc) })
	return nc
}

func (w *world) connectTCP(creds *trust.Credentials) *endpoint.Endpoint {
	w.tb.Helper()
	ep := must(endpoint.Connect(w.tb.Context(), w.srv.ClientURL(), endpoint.Static(creds), nil))(w.tb)
	w.tb.Cleanup(func() { _ = ep.Close() })
	return ep
}

// plain is the envelope as a program without this project would write it.
type plain struct {
	ID        string           `json:"id"`
	TS        int64            `json:"ts"`
	Space     string           `json:"space"`
	From      wire.EndpointRef `json:"from"`
	Channel   string           `json:"channel,omitempty"`
	To        string           `json:"to,omitempty"`
	ToService string           `json:"toService,omitempty"`
	Parts     []plainPart      `json:"parts"`
}

type plainPart struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

var benchText = strings.Repeat("all work and no play ", 10)

func (w *world) rawSend(b *testing.B, js jetstream.JetStream, subject string, fill func(*plain)) {
	m := plain{
		ID: wire.NewID(), TS: time.Now().UnixMilli(), Space: string(lab), From: wire.EndpointRef{ID: "local.ada", Name: "ada"},
		Parts: []plainPart{{"text", benchText}},
	}
	fill(&m)
	data, err := json.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	msg := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{"Nats-Msg-Id": {m.ID}}}
	if _, err := js.PublishMsg(b.Context(), msg); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPost(b *testing.B) {
	w := benchWorld(b)
	subject := must(wire.ChannelSubject(lab, ada, "team"))(b)
	for name, parallel := range map[string]int{"alone": 1, "by_32": 32} {
		b.Run(name+"/endpoint", func(b *testing.B) {
			ep := w.connectTCP(w.user("ada"))
			b.ReportAllocs()
			spread(b, parallel, func() {
				if _, err := ep.Post(b.Context(), "team", endpoint.Text(benchText)); err != nil {
					b.Error(err)
				}
			})
		})
		b.Run(name+"/raw", func(b *testing.B) {
			js := must(jetstream.New(w.dialTCP(w.user("ada"))))(b)
			b.ReportAllocs()
			spread(b, parallel, func() { w.rawSend(b, js, subject, func(m *plain) { m.Channel = "team" }) })
		})
	}
}

// spread runs fn b.N times from n goroutines.
func spread(b *testing.B, n int, fn func()) {
	b.ResetTimer()
	if n == 1 {
		for range b.N {
			fn()
		}
		return
	}
	b.SetParallelism(n)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			fn()
		}
	})
}

// tally counts to b.N and then says so.
type tally struct {
	n    atomic.Int64
	want int64
	done chan struct{}
}

func newTally(want int) *tally { return &tally{want: int64(want), done: make(chan struct{})} }

func (t *tally) add() {
	if t.n.Add(1) == t.want {
		close(t.done)
	}
}

func BenchmarkLiveReceive(b *testing.B) {
	w := benchWorld(b)
	subject := must(wire.ChannelSubject(lab, ada, "team"))(b)
	flood := func(b *testing.B, nc *nats.Conn) {
		data := encode(b, ada, "team", "ID", benchText)
		for range b.N {
			id := wire.NewID()
			m := &nats.Msg{
				Subject: subject, Header: nats.Header{"Nats-Msg-Id": {id}},
				Data: []byte(strings.Replace(string(data), `"id":"ID"`, `"id":"`+id+`"`, 1)),
			}
			if err := nc.PublishMsg(m); err != nil {
				b.Fatal(err)
			}
		}
		if err := nc.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("endpoint", func(b *testing.B) {
		sender, ep, count := w.dialTCP(w.user("ada")), w.connectTCP(w.user("bob")), newTally(b.N)
		sub := must(ep.Listen(b.Context(), "team", func(d *endpoint.Delivery) {
			if d.Message.Text() == "" {
				b.Error("empty")
			}
			count.add()
		}))(b)
		b.ReportAllocs()
		b.ResetTimer()
		flood(b, sender)
		<-count.done
		b.StopTimer()
		_ = sub.Leave(b.Context())
	})
	b.Run("raw", func(b *testing.B) {
		sender, nc, count := w.dialTCP(w.user("ada")), w.dialTCP(w.user("bob")), newTally(b.N)
		sub := must(nc.Subscribe(must(wire.LiveFilter(lab, "team"))(b), func(msg *nats.Msg) {
			var m plain
			if err := json.Unmarshal(msg.Data, &m); err != nil || m.Parts[0].Text == "" {
				b.Error(err)
			}
			count.add()
		}))(b)
		if err := nc.Flush(); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.ResetTimer()
		flood(b, sender)
		<-count.done
		b.StopTimer()
		_ = sub.Unsubscribe()
	})
}

func BenchmarkDirect(b *testing.B) {
	w := benchWorld(b)
	creds := w.user("bob")
	w.durables(creds)
	subject := must(wire.DirectSubject(lab, bob, ada))(b)
	b.Run("endpoint", func(b *testing.B) {
		sender, ep, count := w.connectTCP(w.user("ada")), w.connectTCP(creds), newTally(b.N)
		if err := ep.HandleDirect(b.Context(), func(d *endpoint.Delivery) {
			if err := d.Ack(b.Context()); err != nil {
				b.Error(err)
			}
			count.add()
		}); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		spread(b, 32, func() {
			if _, err := sender.Direct(b.Context(), bob, endpoint.Text(benchText)); err != nil {
				b.Error(err)
			}
		})
		<-count.done
		b.StopTimer()
		_ = ep.Close()
	})
	b.Run("raw", func(b *testing.B) {
		js, count := must(jetstream.New(w.dialTCP(w.user("ada"))))(b), newTally(b.N)
		mine := must(jetstream.New(w.dialTCP(creds)))(b)
		c := must(mine.Consumer(b.Context(), "DM_lab", wire.DirectDurable(creds.Identity().Lifecycle)))(b)
		cc := must(c.Consume(func(msg jetstream.Msg) {
			var m plain
			if err := json.Unmarshal(msg.Data(), &m); err != nil {
				b.Error(err)
			}
			if err := msg.Ack(); err != nil {
				b.Error(err)
			}
			count.add()
		}))(b)
		b.ReportAllocs()
		spread(b, 32, func() { w.rawSend(b, js, subject, func(m *plain) { m.To = "local.bob" }) })
		<-count.done
		b.StopTimer()
		cc.Stop()
		<-cc.Closed()
	})
}
