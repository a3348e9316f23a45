package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// DecodeRequest decodes and checks a request of at most MaxRequest bytes, under the rules of Decode. Errors have code
// bad-request, or the other codes of Request.Validate, and ReasonJSON.
func DecodeRequest(data []byte) (*Request, error) {
	s := scanner{data: data, limit: MaxNestedDepth}
	r := new(Request)
	if !s.begin(MaxRequest) || !r.scan(&s) || !s.end() {
		return nil, s.refusal("decode request")
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return r, nil
}

// Fields of a request, by their place in requestNames. The first six must be there.
const (
	reqV = iota
	reqID
	reqOp
	reqClass
	reqReplyExpected
	reqFrom
	reqTarget
	reqBind
	reqArgs
	reqDeadline
	reqCorrelation
)

var requestNames = []string{"v", "id", "op", "class", "replyExpected", "from", "target", "bind", "args", "deadlineMs", "correlation"}

func (r *Request) scan(s *scanner) bool {
	var got fieldSet
	ok := s.members(requestNames, &got, func(field int) bool { return r.scanField(s, field) })
	return ok && s.require(requestNames[:reqTarget], got)
}

func (r *Request) scanField(s *scanner, field int) (ok bool) {
	switch field {
	case reqV:
		r.V, ok = s.version()
	case reqID:
		r.ID, ok = s.text()
	case reqOp:
		ok = r.Op.scan(s)
	case reqClass:
		r.Class, ok = s.text()
	case reqReplyExpected:
		r.ReplyExpected, ok = s.boolean()
	case reqFrom:
		ok = r.From.scan(s)
	case reqTarget:
		r.Target = new(Target)
		ok = r.Target.scan(s)
	case reqBind:
		r.Bind = new(Bind)
		ok = s.strings([]string{"instanceId", "epoch"}, 2, &r.Bind.InstanceID, &r.Bind.Epoch)
	case reqArgs:
		if s.peek() != '{' {
			return s.fail("want an object")
		}
		r.Args, ok = s.raw()
	case reqDeadline:
		r.DeadlineMS, ok = s.integer()
	case reqCorrelation:
		r.Correlation = new(Correlation)
		ok = s.strings([]string{"traceparent", "tracestate", "baggage"}, 0,
			&r.Correlation.Traceparent, &r.Correlation.Tracestate, &r.Correlation.Baggage)
	}
	return ok
}

func (o *Op) scan(s *scanner) bool {
	return s.strings([]string{"endpoint", "command", "inputDigest", "outputDigest"}, 2,
		&o.Endpoint, &o.Command, &o.InputDigest, &o.OutputDigest)
}

func (t *Target) scan(s *scanner) bool {
	return s.strings([]string{"owner", "actor", "lifecycleUid"}, 2, &t.Owner, &t.Actor, (*string)(&t.LifecycleUID))
}

// strings reads an object whose known fields are all strings; the first few must be there.
func (s *scanner) strings(names []string, must int, into ...*string) bool {
	var got fieldSet
	ok := s.members(names, &got, func(field int) (ok bool) {
		*into[field], ok = s.text()
		return ok
	})
	return ok && s.require(names[:must], got)
}

func (s *scanner) version() (int, bool) {
	v, ok := s.integer()
	return int(v), ok
}

// AppendJSON appends the encoded request to dst. It refuses what Validate refuses, args that DecodeRequest would refuse,
// and more than MaxRequest bytes; dst is then returned as it was. Errors are those of Validate, and code
// resource-exhausted for the size.
func (r *Request) AppendJSON(dst []byte) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return dst, err
	}
	if len(r.Args) > 0 {
		if what := checkNested(r.Args, 1, MaxRequest); what != "" {
			return dst, malformed(ReasonJSON, "encode request: args: %s", what)
		}
		if bytes.TrimLeft(r.Args, " \t\r\n")[0] != '{' {
			return dst, malformed(ReasonJSON, "encode request: args: want an object")
		}
	}
	out := r.append(dst)
	if n := len(out) - len(dst); n > MaxRequest {
		return dst, Errorf(CodeResourceExhausted, "encode request: %d bytes, at most %d", n, MaxRequest)
	}
	return out, nil
}

func (r *Request) append(b []byte) []byte {
	b = append(b, `{"v":`...)
	b = strconv.AppendInt(b, int64(r.V), 10)
	b = appendField(b, "id", r.ID)
	b = append(b, `,"op":{"endpoint":`...)
	b = appendString(b, r.Op.Endpoint)
	b = appendField(b, "command", r.Op.Command)
	b = appendField(b, "inputDigest", r.Op.InputDigest)
	b = appendField(b, "outputDigest", r.Op.OutputDigest)
	b = append(b, '}')
	b = appendField(b, "class", r.Class)
	b = append(b, `,"replyExpected":`...)
	b = strconv.AppendBool(b, r.ReplyExpected)
	b = r.Target.append(b)
	b = r.Bind.append(b)
	if len(r.Args) > 0 {
		b = append(b, `,"args":`...)
		b = append(b, r.Args...)
	}
	b = append(b, `,"from":`...)
	b = r.From.append(b)
	if r.DeadlineMS > 0 {
		b = append(b, `,"deadlineMs":`...)
		b = strconv.AppendInt(b, r.DeadlineMS, 10)
	}
	b = r.Correlation.append(b)
	return append(b, '}')
}

func (t *Target) append(b []byte) []byte {
	if t == nil {
		return b
	}
	b = append(b, `,"target":{"owner":`...)
	b = appendString(b, t.Owner)
	b = appendField(b, "actor", t.Actor)
	b = appendField(b, "lifecycleUid", string(t.LifecycleUID))
	return append(b, '}')
}

func (d *Bind) append(b []byte) []byte {
	if d == nil {
		return b
	}
	b = append(b, `,"bind":{"instanceId":`...)
	b = appendString(b, d.InstanceID)
	b = appendField(b, "epoch", d.Epoch)
	return append(b, '}')
}

func (c *Correlation) append(b []byte) []byte {
	if c == nil {
		return b
	}
	b = append(b, `,"correlation":{`...)
	start := len(b)
	b = appendField(b, "traceparent", c.Traceparent)
	b = appendField(b, "tracestate", c.Tracestate)
	b = appendField(b, "baggage", c.Baggage)
	if len(b) > start { // the first member takes no comma, and any may be it
		b = append(b[:start], b[start+1:]...)
	}
	return append(b, '}')
}

// DecodeReply decodes and checks a reply of at most MaxReply bytes, under the rules of Decode. Errors have code
// bad-request, or unsupported-version for another version, and ReasonJSON.
func DecodeReply(data []byte) (*Reply, error) {
	s := scanner{data: data, limit: MaxNestedDepth}
	r := new(Reply)
	if !s.begin(MaxReply) || !r.scan(&s) || !s.end() {
		return nil, s.refusal("decode reply")
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return r, nil
}

var (
	replyNames = []string{"v", "id", "ok", "data", "error"}
	errorType  = reflect.TypeFor[Error]()
)

func (r *Reply) scan(s *scanner) bool {
	var got fieldSet
	ok := s.members(replyNames, &got, func(field int) (ok bool) {
		switch field {
		case 0:
			r.V, ok = s.version()
		case 1:
			r.ID, ok = s.text()
		case 2:
			r.OK, ok = s.boolean()
		case 3:
			r.Data, ok = s.raw()
		case 4:
			r.Error = new(Error)
			ok = r.Error.scan(s)
		}
		return ok
	})
	return ok && s.require(replyNames[:3], got)
}

// scan reads an error. Errors are rare, so encoding/json fills the value once the scanner has passed it.
func (e *Error) scan(s *scanner) bool {
	start := s.pos
	if s.peek() != '{' {
		return s.fail("want an object")
	}
	if !s.typed(errorType) {
		return false
	}
	if err := json.Unmarshal(s.data[start:s.pos], e); err != nil {
		s.pos = start
		return s.fail("error of another shape")
	}
	return true
}

// AppendJSON appends the encoded reply to dst. It refuses what Validate refuses, data that DecodeReply would refuse, error
// details without a JSON form, and more than MaxReply bytes; dst is then returned as it was. Errors are those of Validate,
// and code resource-exhausted for the size.
func (r *Reply) AppendJSON(dst []byte) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return dst, err
	}
	if len(r.Data) > 0 {
		if what := checkNested(r.Data, 1, MaxReply); what != "" {
			return dst, malformed(ReasonJSON, "encode reply: data: %s", what)
		}
	}
	b := append(dst, `{"v":`...)
	b = strconv.AppendInt(b, int64(r.V), 10)
	b = appendField(b, "id", r.ID)
	b = append(b, `,"ok":`...)
	b = strconv.AppendBool(b, r.OK)
	if len(r.Data) > 0 {
		b = append(b, `,"data":`...)
		b = append(b, r.Data...)
	}
	if r.Error != nil {
		var what string
		if b, what = r.Error.append(append(b, `,"error":`...)); what != "" {
			return dst, malformed(ReasonJSON, "encode reply: error: %s", what)
		}
	}
	b = append(b, '}')
	if n := len(b) - len(dst); n > MaxReply {
		return dst, Errorf(CodeResourceExhausted, "encode reply: %d bytes, at most %d", n, MaxReply)
	}
	return b, nil
}

func (e *Error) append(b []byte) (_ []byte, what string) {
	b = append(b, `{"code":`...)
	b = appendString(b, string(e.Code))
	b = append(b, `,"message":`...)
	b = appendString(b, strings.ToValidUTF8(e.Message, "\uFFFD"))
	if len(e.Details) > 0 {
		details, err := json.Marshal(e.Details)
		if err != nil {
			return b, "details have no JSON form"
		}
		if what := checkNested(details, 2, MaxReply); what != "" {
			return b, "details: " + what
		}
		b = append(b, `,"details":`...)
		b = append(b, details...)
	}
	b = appendField(b, "outcome", string(e.Outcome))
	return append(b, '}'), ""
}

// checkNested reports what is wrong with a value that will stand inside depth levels of an envelope, "" if nothing.
func checkNested(raw []byte, depth, maxBytes int) string {
	s := scanner{data: raw, limit: MaxNestedDepth, depth: depth}
	if !s.begin(maxBytes) || !s.value() || !s.end() {
		return s.err
	}
	return ""
}
