package cotal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/auth/oidc"
	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/dial"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// Verbs of the node's own service. It answers in the system account, where only holders of the system seed can
// ask; the public contract of a space has no part in it.
const (
	verbStatus      = "status"
	verbSpaceAdd    = "space-add"
	verbSpaceRemove = "space-remove"
	verbSignIn      = "space-sign-in"
	verbHeal        = "heal"
	verbStop        = "stop"
)

// nodeCallLimit bounds one request to the node; removing a large space takes the longest.
const nodeCallLimit = time.Minute

// systemSource mints credentials of the system account as they are needed, so that a connection may outlive one.
func systemSource(m *mint.Authority, kind trust.SystemKind) broker.Source {
	return func(ctx context.Context) (*trust.Credentials, error) {
		return m.SystemUser(ctx, mint.SystemRequest{Kind: kind})
	}
}

type nodeRequest struct {
	V    int    `json:"v"`
	Name string `json:"name,omitempty"`
	// Provider is for verbSignIn.
	Provider *oidc.Pin `json:"provider,omitempty"`
}

// serveNode answers in the system account until the node stops, on a connection whose credential is replaced
// before it expires.
func (r *running) serveNode(ctx context.Context) error {
	refused := make(chan struct{}, 1) // the credential is no longer accepted: replace it now
	nc, renew, err := r.subscribeNode(ctx, refused)
	if err != nil {
		return fmt.Errorf("serve node commands: %w", err)
	}
	r.wg.Go(func() {
		attempt := 0
		for {
			t := time.NewTimer(time.Until(renew))
			select {
			case <-r.ctx.Done():
				t.Stop()
				dial.Drain(nc)
				return
			case <-t.C:
			case <-refused:
				t.Stop()
			}
			next, at, err := r.subscribeNode(r.ctx, refused)
			if err != nil {
				attempt++
				r.n.log.Warn("node service not renewed", logkey.Attempt, attempt, logkey.Error, err)
				renew = time.Now().Add(min(time.Minute, time.Duration(attempt)*time.Second))
				continue
			}
			old := nc
			nc, renew, attempt = next, at, 0
			dial.Drain(old)
		}
	})
	return nil
}

func (r *running) subscribeNode(ctx context.Context, refused chan<- struct{}) (*nats.Conn, time.Time, error) {
	creds, err := r.mint.SystemUser(ctx, mint.SystemRequest{Kind: trust.SystemNode})
	if err != nil {
		return nil, time.Time{}, err
	}
	nc, err := dial.Connect(ctx, dial.Options{InProcess: r.srv.InProcess(), Creds: creds, Name: "node", Logger: r.n.log, OnError: func(_ *nats.Conn, err error) {
		if dial.Refused(err) {
			select {
			case refused <- struct{}{}:
			default:
			}
		}
	}})
	if err != nil {
		return nil, time.Time{}, err
	}
	_, err = nc.QueueSubscribe(trust.NodeSubject("*"), "node", func(m *nats.Msg) { r.wg.Go(func() { r.answer(nc, m) }) })
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		nc.Close()
		return nil, time.Time{}, fmt.Errorf("subscribe: %w", err)
	}
	return nc, creds.RenewAt(), nil
}

// answerWithin bounds the wait until an answer is with the broker.
const answerWithin = time.Second

func (r *running) answer(nc *nats.Conn, m *nats.Msg) {
	ctx, cancel := context.WithTimeout(r.ctx, nodeCallLimit)
	defer cancel()
	verb := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	var req nodeRequest
	reply := wire.Reply{V: 1, OK: true}
	err := wire.Decode(m.Data, &req, wire.MaxMessage)
	var data any
	if err == nil {
		data, err = r.do(ctx, verb, req)
	}
	if err == nil && data != nil {
		reply.Data, err = json.Marshal(data)
	}
	if err != nil {
		r.n.log.Warn("node command refused", logkey.Command, verb, logkey.Error, err)
		reply.OK, reply.Error = false, wireError(err)
	}
	out, err := json.Marshal(reply)
	if err == nil {
		err = m.Respond(out)
	}
	if err != nil {
		r.n.log.Warn("node answer not sent", logkey.Command, verb, logkey.Error, err)
	}
	if verb == verbStop && reply.OK {
		_ = nc.FlushTimeout(answerWithin) // the answer goes before the broker does
		r.stop(errStopAsked)
	}
}

func (r *running) do(ctx context.Context, verb string, req nodeRequest) (any, error) {
	switch verb {
	case verbStatus:
		return r.n.Status(ctx)
	case verbSpaceAdd:
		return nil, r.n.AddSpace(ctx, req.Name)
	case verbSpaceRemove:
		return nil, r.n.RemoveSpace(ctx, req.Name)
	case verbSignIn:
		if req.Provider == nil {
			return nil, wire.Errorf(wire.CodeBadRequest, "sign people in at space %q: no identity provider", req.Name)
		}
		return nil, r.n.SignIn(ctx, req.Name, *req.Provider)
	case verbHeal:
		return nil, r.heal()
	case verbStop:
		r.n.log.Info("stop asked")
		return nil, nil
	}
	return nil, wire.Errorf(wire.CodeUnimplemented, "node has no command %q", verb)
}
