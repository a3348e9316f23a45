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

// gather publishes a request and collects answers until enough says so. Every server of a cluster answers once, so the
// first answer alone proves nothing.
//
// Errors: unavailable when nobody serves the subject; ErrIncomplete, together with the answers, when some came and more
// were expected; permission-denied; deadline-exceeded.
func (c *Control) gather(ctx context.Context, subject string, body any, enough func([]*nats.Msg) bool) ([]*nats.Msg, error) {
	data, err := encode(body)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "encode request for %q: %v", subject, err)
	}
	l, err := c.use(ctx)
	if err != nil {
		return nil, err
	}
	defer l.calls.Done()
	ctx, done := c.watch(ctx, subject)
	defer done()
	sub, err := l.nc.SubscribeSync(l.nc.NewRespInbox())
	if err != nil {
		return nil, failure(ctx, subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := l.nc.PublishRequest(subject, sub.Subject, data); err != nil {
		return nil, failure(ctx, subject, err)
	}
	return collect(ctx, sub, subject, enough)
}

func collect(ctx context.Context, sub *nats.Subscription, subject string, enough func([]*nats.Msg) bool) ([]*nats.Msg, error) {
	var got []*nats.Msg
	for wait := ctx; ; {
		msg, err := sub.NextMsgWithContext(wait)
		switch {
		case err != nil && len(got) > 0 && context.Cause(ctx) == nil:
			return got, ErrIncomplete
		case err != nil:
			return got, failure(ctx, subject, err)
		case msg.Header.Get("Status") == "503":
			return got, wire.Errorf(wire.CodeUnavailable, "control broker: nobody serves %q", subject)
		}
		got = append(got, msg)
		if enough(got) {
			return got, nil
		}
		if len(got) == 1 {
			var cancel context.CancelFunc
			wait, cancel = context.WithTimeout(ctx, incompleteAfter)
			defer cancel()
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
	case errors.Is(err, nats.ErrPermissionViolation):
		return wire.Errorf(wire.CodePermissionDenied, "control broker: the system credential may not receive answers to %q", subject)
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
