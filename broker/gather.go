package broker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// ErrIncomplete means that not every server of the broker answered, or that a listing changed while it was read: what is
// missing from the answer may still exist. Its code is unavailable, its outcome unknown.
var ErrIncomplete error = &wire.Error{Code: wire.CodeUnavailable, Message: "not every server of the broker answered", Outcome: wire.OutcomeUnknown}

// incompleteAfter is how long a call waits for the servers that are still missing once one has answered. A dead server is
// counted until its peers give it up.
const incompleteAfter = 2 * time.Second

// maxServers is how many answers may wait to be read; more servers than that are not expected in one broker.
const maxServers = 512

// errLost ends a request whose connection was lost; whether it arrived is unknown.
var errLost = errors.New("connection lost")

// gather publishes a request and collects answers until enough says so. Every server of a cluster answers once, so the
// first answer alone proves nothing. A request whose connection is lost is sent again on the next one: every request of a
// Control may be repeated.
//
// Errors: unavailable when nobody serves the subject; ErrIncomplete, together with the answers, when some came and more
// were expected; permission-denied; deadline-exceeded.
func (c *Control) gather(ctx context.Context, subject string, body any, enough func([]*nats.Msg) bool) ([]*nats.Msg, error) {
	data, err := encode(body)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode request for %q: %v", subject, err)
	}
	for {
		msgs, err := c.ask(ctx, subject, data, enough)
		if !errors.Is(err, errLost) {
			return msgs, err
		}
	}
}

// ask sends a request once.
func (c *Control) ask(ctx context.Context, subject string, data []byte, enough func([]*nats.Msg) bool) ([]*nats.Msg, error) {
	l, err := c.use(ctx)
	if err != nil {
		return nil, err
	}
	defer l.calls.Done()
	lost := l.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer l.nc.RemoveStatusListener(lost)
	if !l.nc.IsConnected() {
		return nil, errLost // between use and the line above
	}
	inbox := l.nc.NewRespInbox()
	ctx, done := c.watch(ctx, &wait{subject: subject, inbox: inbox})
	defer done()
	answers := make(chan *nats.Msg, maxServers)
	sub, err := l.nc.ChanSubscribe(inbox, answers)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		err = l.nc.PublishRequest(subject, inbox, data)
	}
	switch {
	case err != nil && !l.nc.IsConnected():
		return nil, errLost
	case err != nil:
		return nil, failure(ctx, subject, err)
	}
	return c.collect(ctx, subject, answers, lost, enough)
}

// collect waits for answers until there are enough, the rest stays away, or there can be none.
func (c *Control) collect(ctx context.Context, subject string, answers <-chan *nats.Msg, lost <-chan nats.Status, enough func([]*nats.Msg) bool) ([]*nats.Msg, error) {
	var got []*nats.Msg
	var late <-chan time.Time
	for {
		select {
		case msg := <-answers:
			if msg.Header.Get("Status") == "503" {
				return got, wire.Errorf(wire.CodeUnavailable, "control broker: nobody serves %q", subject)
			}
			got = append(got, msg)
			if enough(got) {
				return got, nil
			}
			if late == nil {
				timer := time.NewTimer(c.opts.incomplete)
				defer timer.Stop()
				late = timer.C
			}
		case <-late:
			return got, ErrIncomplete
		case <-lost:
			return nil, errLost
		case <-ctx.Done():
			return got, failure(ctx, subject, ctx.Err())
		}
	}
}

// failure names why a request got no answer.
func failure(ctx context.Context, subject string, err error) error {
	var we *wire.Error
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &we):
		return we
	case cause != nil:
		return wire.Errorf(wire.CodeOf(cause), "control broker: no answer on %q: %w", subject, cause)
	}
	return wire.Errorf(wire.CodeUnavailable, "control broker: ask %q: %v", subject, err)
}

// encode turns a request body into bytes: claims travel as they are, nil is empty, all else is JSON.
func encode(body any) ([]byte, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case string:
		return []byte(b), nil
	}
	return json.Marshal(body)
}

// answer is the frame around every answer of a server. Claim requests and monitoring requests fill the error alike.
type answer[T any] struct {
	Server serverRef    `json:"server"`
	Data   T            `json:"data"`
	Error  *answerError `json:"error"`
}

type serverRef struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Host      string `json:"host"`
	Cluster   string `json:"cluster"`
	Version   string `json:"ver"`
	JetStream bool   `json:"jetstream"`
}

type answerError struct {
	Code        int    `json:"code"`
	Description string `json:"description"`
}

// decodeAnswer reads one answer. The broker is trusted, so the standard decoder will do.
func decodeAnswer[T any](msg *nats.Msg, subject string) (answer[T], error) {
	var a answer[T]
	if err := json.Unmarshal(msg.Data, &a); err != nil {
		return a, wire.Errorf(wire.CodeInternal, "control broker: unreadable answer to %q: %v", subject, err)
	}
	return a, nil
}
