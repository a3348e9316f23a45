package space

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cotal-go/cotal/wire"
)

// readTimeout is the bound of one request to the broker whose caller set no deadline.
const readTimeout = 5 * time.Second

// bounded gives ctx a deadline when it has none: a read that the credential does not permit is never answered.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, readTimeout)
}

// apiSubject prefixes a JetStream API subject as the context of js does.
func apiSubject(js jetstream.JetStream, subject string) string {
	o := js.Options()
	switch {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "." + subject
	case o.Domain != "":
		return "$JS." + o.Domain + ".API." + subject
	}
	return "$JS.API." + subject
}

// record is one stored message as the stream's leader gave it.
type record struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// leaderRequest selects one message: the last on a subject, or the first at or after a sequence or a time that matches one.
type leaderRequest struct {
	Seq   uint64     `json:"seq,omitempty"`
	Since *time.Time `json:"start_time,omitempty"`
	Last  string     `json:"last_by_subj,omitempty"`
	Next  string     `json:"next_by_subj,omitempty"`
}

// leaderGet reads from the leader of a stream, so that it sees every write acknowledged before. A missing message is
// not-found.
func leaderGet(ctx context.Context, js jetstream.JetStream, stream string, req leaderRequest) (record, error) {
	what := fmt.Sprintf("read %q of stream %q", req.Last+req.Next, stream)
	body, err := json.Marshal(req)
	if err != nil {
		return record{}, wire.Errorf(wire.CodeInternal, "%s: %v", what, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	msg, err := ask(ctx, js.Conn(), apiSubject(js, "STREAM.MSG.GET."+stream), body)
	if err != nil {
		return record{}, translate(what, err)
	}
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Message *record             `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil || resp.Error == nil && resp.Message == nil {
		return record{}, wire.Errorf(wire.CodeInternal, "%s: unreadable answer of the broker", what)
	}
	if resp.Error != nil {
		return record{}, translate(what, resp.Error)
	}
	return *resp.Message, nil
}

// askTries is how often a question that nobody received is asked, over some 0.8 s in all.
const askTries = 6

// ask sends a read to the JetStream API, again while nobody receives it.
func ask(ctx context.Context, nc *nats.Conn, subject string, body []byte) (*nats.Msg, error) {
	return received(ctx, func() (*nats.Msg, error) { return nc.RequestWithContext(ctx, subject, body) })
}

// received asks the JetStream API. While the account of a space is replaced, as every revocation does, the broker has nobody for its API
// for a moment. Nothing was received then, so it is asked again.
func received[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	return backoff.Retry(ctx, func() (T, error) {
		answer, err := ask()
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			err = backoff.Permanent(err)
		}
		return answer, err
	}, backoff.WithMaxTries(askTries), backoff.WithBackOff(&backoff.ExponentialBackOff{InitialInterval: 25 * time.Millisecond, Multiplier: 2, MaxInterval: time.Second}))
}

// leaderScan calls fn with every message of the stream that matches filter, in stored order, one request each.
func leaderScan(ctx context.Context, js jetstream.JetStream, stream, filter string, fn func(record) error) error {
	return leaderScanFrom(ctx, js, stream, leaderRequest{Seq: 1, Next: filter}, fn)
}

// leaderScanFrom is leaderScan from where a request begins.
func leaderScanFrom(ctx context.Context, js jetstream.JetStream, stream string, req leaderRequest, fn func(record) error) error {
	for {
		r, err := leaderGet(ctx, js, stream, req)
		if errors.Is(err, wire.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
		req.Seq, req.Since = r.Seq+1, nil
	}
}
