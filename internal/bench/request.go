package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/cotal-go/cotal/control"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/wire"
)

type echo struct {
	Text string `json:"text"`
}

// rawRequest and rawReply are the envelopes of the control rails as the contract writes them.
type rawRequest struct {
	V             int              `json:"v"`
	ID            string           `json:"id"`
	Op            rawOp            `json:"op"`
	Class         string           `json:"class"`
	ReplyExpected bool             `json:"replyExpected"`
	Args          json.RawMessage  `json:"args"`
	From          wire.EndpointRef `json:"from"`
	DeadlineMS    int64            `json:"deadlineMs"`
}

type rawOp struct {
	Endpoint string `json:"endpoint"`
	Command  string `json:"command"`
}

type rawReply struct {
	V    int             `json:"v"`
	ID   string          `json:"id"`
	OK   bool            `json:"ok"`
	Data json.RawMessage `json:"data"`
}

// requests measures calls of a service and their answers: beside the rails of the contract written on nats.go, and, plain,
// beside the library's own request and reply with the same envelope, which needs no subject of its own for each request
// and tells the service nothing about who asks.
func requests(plain bool) pair {
	s := messageSeries("requests/s")
	name := "request"
	if plain {
		name = "request/plain"
		s[0].ratioAtLeast = 0
	}
	return pair{name: name, series: s, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		var c closers
		fail := func(err error) (measure, measure, func(), error) {
			c.close()
			return nil, nil, nil, err
		}
		ours, err := l.ourEcho(ctx, &c)
		if err != nil {
			return fail(err)
		}
		echo := l.rawRails
		if plain {
			echo = l.rawEcho
		}
		raw, err := echo(&c)
		if err != nil {
			return fail(err)
		}
		return calls(l.count(20_000), ours), calls(l.count(20_000), raw), c.close, nil
	}}
}

func calls(n int, call func(context.Context) error) measure {
	return func(ctx context.Context) ([]float64, error) {
		began := time.Now()
		if err := blast(ctx, n, call); err != nil {
			return nil, err
		}
		rate := float64(n) / time.Since(began).Seconds()
		took := make([]time.Duration, 2000)
		for i := range took {
			began := time.Now()
			if err := call(ctx); err != nil {
				return nil, err
			}
			took[i] = time.Since(began)
		}
		return []float64{rate, quantile(took, 0.5), quantile(took, 0.99)}, nil
	}
}

func (l *lab) ourEcho(ctx context.Context, c *closers) (func(context.Context) error, error) {
	nc, err := nats.Connect(l.open.URL())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.add(nc.Close)
	svc := control.New("com.example.echo", nil)
	control.Handle(svc, control.Command{Name: "echo", Effect: control.Read}, func(_ context.Context, _ *control.Request, in echo) (echo, error) { return in, nil })
	run, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- svc.Run(run, nc, benchSpace) }()
	c.add(func() {
		cancel()
		<-done
	})
	select {
	case <-svc.Ready():
	case err := <-done:
		done <- nil
		return nil, err
	}
	ep, err := endpoint.Connect(ctx, l.open.URL(), nil, &endpoint.Options{Name: "caller", Quiet: true, Open: &endpoint.Open{Space: benchSpace, Actor: "caller"}})
	if err != nil {
		return nil, err
	}
	c.add(func() { _ = ep.Close() })
	target := control.Target{Endpoint: "com.example.echo", Command: "echo"}
	return func(ctx context.Context) error {
		var out echo
		if err := ep.Call(ctx, target, echo{Text: text}, &out); err != nil {
			return err
		}
		if out.Text != text {
			return errors.New("another text came back")
		}
		return nil
	}, nil
}

func (l *lab) rawEcho(c *closers) (func(context.Context) error, error) {
	server, err := nats.Connect(l.open.URL())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.add(server.Close)
	_, err = server.QueueSubscribe("raw.echo", "q", func(m *nats.Msg) {
		if out := rawAnswer(m.Data); out != nil {
			_ = m.Respond(out)
		}
	})
	if err == nil {
		err = server.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	client, err := nats.Connect(l.open.URL())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.add(client.Close)
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		body, err := rawAsk()
		if err != nil {
			return err
		}
		m, err := client.RequestWithContext(ctx, "raw.echo", body)
		if err != nil {
			return err
		}
		return rawHear(m.Data)
	}, nil
}

// rawAnswer is what a service does with a request; nil for one that it cannot read.
func rawAnswer(data []byte) []byte {
	var req rawRequest
	var in echo
	if json.Unmarshal(data, &req) != nil || json.Unmarshal(req.Args, &in) != nil {
		return nil
	}
	back, _ := json.Marshal(in)
	out, _ := json.Marshal(rawReply{V: 1, ID: req.ID, OK: true, Data: back})
	return out
}

func rawAsk() ([]byte, error) {
	args, err := json.Marshal(echo{Text: text})
	if err != nil {
		return nil, err
	}
	return json.Marshal(rawRequest{
		V: 1, ID: nuid.Next(), Op: rawOp{"com.example.echo", "echo"}, Class: "ephemeral", ReplyExpected: true, Args: args,
		From: wire.EndpointRef{ID: "local.caller", Name: "caller"}, DeadlineMS: 5000,
	})
}

func rawHear(data []byte) error {
	var reply rawReply
	var out echo
	if err := errors.Join(json.Unmarshal(data, &reply), json.Unmarshal(reply.Data, &out)); err != nil {
		return err
	}
	if out.Text != text {
		return errors.New("another text came back")
	}
	return nil
}

// connects measures connections made and closed, eight at a time, with credentials made before.
func connects() pair {
	return pair{name: "connect", series: []series{{name: "rate", unit: "connects/s"}}, setup: func(ctx context.Context, l *lab) (measure, measure, func(), error) {
		creds, err := l.creds(ctx, "")
		if err != nil {
			return nil, nil, nil, err
		}
		n := max(workers, l.count(400))
		rate := func(connect func(context.Context) error) measure {
			return func(ctx context.Context) ([]float64, error) {
				began := time.Now()
				if err := blast(ctx, n, connect); err != nil {
					return nil, err
				}
				return []float64{float64(n) / time.Since(began).Seconds()}, nil
			}
		}
		return rate(func(ctx context.Context) error {
				ep, err := endpoint.Connect(ctx, l.node.URL(), endpoint.Static(creds), &endpoint.Options{Name: "connect", Quiet: true})
				if err != nil {
					return err
				}
				return ep.Close()
			}), rate(func(context.Context) error {
				nc, err := nats.Connect(l.node.URL(), rawOptions(creds)...)
				if err != nil {
					return err
				}
				defer nc.Close()
				return nc.Flush()
			}), func() {}, nil
	}}
}
