package control

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/wire"
)

// ShapeCheck validates with the fast check, and reports false when the schema is left to the full validator.
func ShapeCheck(s *jsonschema.Schema, value []byte) (reason string, fast bool) {
	sh, ok := compileShape(s)
	if !ok {
		return "", false
	}
	path, why := sh.check(value)
	if why == "" {
		return "", true
	}
	return path + ": " + why, true
}

// Admit takes a request as far as a handler would see it. It returns nil for one that is refused or dropped.
func (s *Service) Admit(subject string, data []byte) (*Request, *wire.Error) {
	r, err := wire.ParseRequestSubject(subject)
	if err != nil || !s.addressed(&r) {
		return nil, nil
	}
	j := &job{msg: &nats.Msg{Subject: subject, Data: data}, subject: r, cmd: s.commands[r.Command], at: time.Now()}
	req, no := s.open(j)
	if no != nil {
		return nil, no.err
	}
	return req, nil
}

// Begin prepares a service for Admit without a connection.
func (s *Service) Begin(space wire.Space) error { return s.begin(space) }

// ReadReply is what a caller makes of a reply to a request with the ID.
func ReadReply(id string, data []byte) (Answer, bool, error) {
	f := &flight{c: &Caller{log: discard}, id: id}
	return f.read(reply{data: data})
}

// InputSchema returns the published input schema of a command.
func (s *Service) InputSchema(command string) json.RawMessage { return s.commands[command].in.raw }

// NewLazyContext returns a handler's context and what ends it.
func NewLazyContext(base context.Context, at time.Time) (context.Context, func()) {
	c := newLazyContext(base, at)
	return c, c.end
}
