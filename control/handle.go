package control

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Request is what a handler learns about the request it serves. The broker vouches for what comes from the subject;
// the rest is the caller's claim.
type Request struct {
	ID      string         // the caller's; the same when it repeats a request
	Space   wire.Space     // broker
	Command string         // broker
	Rail    wire.Rail      // broker
	Mode    wire.Mode      // broker
	Caller  wire.Lifecycle // broker
	// From repeats the caller; its ID has been checked, its name and role are claims.
	From wire.EndpointRef
	// Target is whom the command acts on. For mode self it is the caller and for exact the broker vouches for all of
	// it; for owner and any the broker vouches for the owner and the rest is a claim, whose UID may be empty. It is
	// zero for an untargeted request.
	Target wire.Lifecycle
	// Args are the raw arguments, checked against the schema unless the command is Unchecked. They may be nil.
	Args json.RawMessage
	// Correlation is the caller's trace context, or nil.
	Correlation *wire.Correlation
	// ReplyExpected is false when the caller does not wait: the result is dropped.
	ReplyExpected bool
	// Received is when the request came, Deadline when the handler's context ends.
	Received, Deadline time.Time
}

// HandlerFunc serves one command. The result is encoded as JSON; json.RawMessage is sent as it is, nil means no data.
//
// A *wire.Error, also a wrapped one, is sent to the caller with its message and details. If it has no outcome it gets
// one: unknown for the codes deadline-exceeded, cancelled and internal, else not-executed. Any other error is logged and
// the caller gets internal, a fixed sentence and the request ID. For a Read command the outcome is never unknown.
type HandlerFunc func(ctx context.Context, req *Request) (any, error)

// command is a registered Command.
type command struct {
	Command
	in, out *schema
	handler HandlerFunc
	modes   map[wire.Mode]bool
	builtin bool
}

// Handle registers a command. It panics for a name that is taken or cannot be, no effect, a nil handler, a schema that
// does not compile, and once the service runs.
func (s *Service) Handle(c Command, fn HandlerFunc) {
	s.mustBeNew("Handle " + c.Name)
	if err := s.register(c, fn); err != nil {
		panic("control: Handle: " + err.Error())
	}
}

func (s *Service) register(c Command, fn HandlerFunc) error {
	if err := c.check(); err != nil {
		return err
	}
	if fn == nil {
		return fmt.Errorf("handler of command %q is nil", c.Name)
	}
	if s.commands[c.Name] != nil {
		return fmt.Errorf("command %q is taken", c.Name)
	}
	if c.Modes == nil {
		c.Modes = []wire.Mode{wire.ModeNone}
	}
	cmd := &command{Command: c, handler: fn, modes: map[wire.Mode]bool{}}
	for _, m := range c.Modes {
		cmd.modes[m] = true
	}
	var err error
	if cmd.in, err = compileSchema(c.In); err != nil {
		return fmt.Errorf("input of command %q: %w", c.Name, err)
	}
	if cmd.out, err = compileSchema(c.Out); err != nil {
		return fmt.Errorf("output of command %q: %w", c.Name, err)
	}
	s.commands[c.Name] = cmd
	return nil
}

// Handle registers a command whose arguments and result are Go values. In and Out of c, when nil, are inferred as
// [SchemaOf] does. Use [None] for a side without payload. Arguments are checked against the schema, then decoded; a
// pointer In is nil when the caller sent none. It panics as [Service.Handle] does.
func Handle[In, Out any](s *Service, c Command, fn func(ctx context.Context, req *Request, in In) (Out, error)) {
	if fn == nil {
		panic("control: Handle: handler of command " + c.Name + " is nil")
	}
	// The schema of a Go type closes its objects, so that a key in the wrong case is refused before json.Unmarshal would
	// take it for the field. With another schema, or none, the strict decoder must see to that.
	strict := c.In != nil || c.Unchecked
	if c.In == nil {
		c.In = SchemaOf[In]()
	}
	if c.Out == nil {
		c.Out = SchemaOf[Out]()
	}
	noIn := reflect.TypeFor[In]() == reflect.TypeFor[None]()
	noOut := reflect.TypeFor[Out]() == reflect.TypeFor[None]()
	s.Handle(c, func(ctx context.Context, req *Request) (any, error) {
		var in In
		if !noIn && len(req.Args) > 0 {
			if err := decodeArgs(req.Args, &in, strict); err != nil {
				return nil, err
			}
		}
		out, err := fn(ctx, req, in)
		if err != nil || noOut {
			return nil, err
		}
		return out, nil
	})
}

func decodeArgs(args json.RawMessage, in any, strict bool) error {
	if strict {
		return wire.Decode(args, in, wire.MaxRequest)
	}
	if err := json.Unmarshal(args, in); err != nil {
		return invalid("args", decodeReason(err))
	}
	return nil
}

// decodeReason says why a Go type refused arguments, without the Go type's name.
func decodeReason(err error) string {
	if e, ok := err.(*json.UnmarshalTypeError); ok {
		return fmt.Sprintf("%s at %q does not fit", e.Value, e.Field)
	}
	return "the value does not fit"
}
