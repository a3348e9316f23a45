package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/cotal-go/cotal/wire"
)

// rawRails serves and calls an echo on the subjects of the control rails with nats.go alone: one subscription for all
// answers, a subject of its own for each request, the reply subject derived from it.
func (l *lab) rawRails(c *closers) (func(context.Context) error, error) {
	root := benchSpace.Prefix() + "ep."
	server, err := nats.Connect(l.open.URL())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.add(server.Close)
	_, err = server.QueueSubscribe(root+"one.com_example_raw.>", "q", func(m *nats.Msg) {
		// … one <endpoint> <command> <owner> <actor> <uid> <nonce>
		tokens := strings.Split(strings.TrimPrefix(m.Subject, root), ".")
		if len(tokens) != 7 {
			return
		}
		if out := rawAnswer(m.Data); out != nil {
			_ = server.Publish(root+"reply."+tokens[1]+".raw1.1."+strings.Join(tokens[3:], "."), out)
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
	self := "local.caller." + string(wire.NewUID())
	var mu sync.Mutex
	waiting := map[string]chan []byte{}
	_, err = client.Subscribe(root+"reply.*.*.*."+self+".*", func(m *nats.Msg) {
		nonce := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		mu.Lock()
		ch := waiting[nonce]
		delete(waiting, nonce)
		mu.Unlock()
		if ch != nil {
			ch <- m.Data
		}
	})
	if err == nil {
		err = client.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("listen for answers: %w", err)
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		body, err := rawAsk()
		if err != nil {
			return err
		}
		nonce, ch := nuid.Next(), make(chan []byte, 1)
		mu.Lock()
		waiting[nonce] = ch
		mu.Unlock()
		reply := root + "reply.com_example_raw._.0." + self + "." + nonce // where "nobody serves this" would come
		if err := client.PublishRequest(root+"one.com_example_raw.echo."+self+"."+nonce, reply, body); err != nil {
			return err
		}
		select {
		case data := <-ch:
			if len(data) == 0 {
				return errors.New("nobody serves the echo")
			}
			return rawHear(data)
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nil
}
