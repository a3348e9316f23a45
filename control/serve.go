package control

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/wire"
)

// job is one request on its way through the service.
type job struct {
	msg     *nats.Msg
	subject wire.RequestSubject
	cmd     *command // nil when there is none of that name
	at      time.Time
	req     Request // for the handler, filled when everything has been checked
	reply   *buffer // what to answer, nil for nothing
	next    *job    // behind it in the outbox
}

func (j *job) caller() wire.Principal { return j.subject.Caller.Principal }

// receive is the message handler of every subscription. The subscription proves nothing: a broker can be made to
// deliver anything to it, so the subject is read again and what does not fit is dropped.
func (s *Service) receive(msg *nats.Msg) {
	subject, err := wire.ParseRequestSubject(msg.Subject)
	if err != nil || !s.addressed(&subject) || isStatus(msg) {
		s.drop(msg, wire.ReasonSubject, err)
		return
	}
	j := &job{msg: msg, subject: subject, cmd: s.commands[subject.Command], at: time.Now()}
	p := s.work
	if j.cmd != nil && j.cmd.builtin {
		p = s.builtin
	}
	if v := p.submit(j); v != accepted {
		s.turnAway(j, v)
	}
}

// addressed reports whether a request is for this endpoint, space and instance.
func (s *Service) addressed(r *wire.RequestSubject) bool {
	return r.Space == s.space && r.Endpoint == s.name && (r.Rail != wire.RailInst || r.Instance == s.opts.Instance)
}

// isStatus recognises an answer of the broker to somebody's request, sent here by a foreign reply address.
func isStatus(msg *nats.Msg) bool { return msg.Header != nil && msg.Header.Get("Status") != "" }

func (s *Service) drop(msg *nats.Msg, reason wire.Reason, err error) {
	s.counts.dropped.Add(1)
	s.log.Debug("request dropped", logkey.Subject, msg.Subject, logkey.Reason, string(reason), logkey.Error, err)
}

// turnAway answers a request that the pool did not accept.
func (s *Service) turnAway(j *job, v verdict) {
	e := wire.Errorf(wire.CodeUnavailable, "endpoint %q is stopping", s.name)
	switch v {
	case crowded:
		e = wire.Errorf(wire.CodeResourceExhausted, "endpoint %q is busy: %d requests run and %d wait", s.name, s.opts.Concurrency, s.opts.Queue)
		e.Details = map[string]any{"limit": s.opts.Concurrency + s.opts.Queue}
	case overShare:
		e = wire.Errorf(wire.CodeResourceExhausted, "endpoint %q: %d requests of %q run or wait already", s.name, s.opts.Share, j.caller())
		e.Details = map[string]any{"limit": s.opts.Share, "principal": j.caller().String()}
	}
	s.refuse(j, &refusal{peek(j.msg.Data), e})
	s.send(j, false)
}

// envelope is the little that an answer needs of a request that was not decoded.
type envelope struct {
	ID            string `json:"id"`
	ReplyExpected bool   `json:"replyExpected"`
}

// peek reads the envelope as far as it goes. The ID is empty unless it is one.
func peek(data []byte) (e envelope) {
	if len(data) > wire.MaxRequest || json.Unmarshal(data, &e) != nil || !validID(e.ID) {
		return envelope{}
	}
	return e
}

func validID(id string) bool {
	return len(id) > 0 && len(id) <= wire.MaxToken && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// serve runs one accepted request and prepares its answer, which send sends.
func (s *Service) serve(j *job) {
	req, no := s.open(j)
	if no != nil {
		s.refuse(j, no)
		return
	}
	ctx := newLazyContext(s.base, req.Deadline)
	defer ctx.end()
	if ctx.Err() != nil {
		s.refuse(j, &refusal{envelope{req.ID, req.ReplyExpected}, s.tooLate()})
		return
	}
	out, err := s.call(ctx, j.cmd, req)
	if err != nil {
		s.counts.failed.Add(1)
		err := s.failure(ctx, j.cmd, req, err)
		if req.ReplyExpected {
			s.answer(j, req.ID, err)
		}
		return
	}
	s.counts.served.Add(1)
	if req.ReplyExpected {
		s.reply(ctx, j, req, out)
	}
}

// refusal is why no handler sees a request.
type refusal struct {
	envelope // with no ID the request cannot be answered
	err      *wire.Error
}

// open decodes a request and decides everything that can be decided before a handler runs.
func (s *Service) open(j *job) (*Request, *refusal) {
	env, err := wire.DecodeRequest(j.msg.Data)
	if err != nil {
		return nil, &refusal{peek(j.msg.Data), asRefusal(err)}
	}
	if e := s.check(j, env); e != nil {
		return nil, &refusal{envelope{env.ID, env.ReplyExpected}, e}
	}
	return s.request(j, env), nil
}

// tooLate refuses a request that was not started in time.
func (s *Service) tooLate() *wire.Error {
	e := wire.Errorf(wire.CodeDeadlineExceeded, "endpoint %q did not get to the request in time", s.name)
	if s.base.Err() != nil {
		e = wire.Errorf(wire.CodeUnavailable, "endpoint %q is stopping", s.name)
	}
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

// check decides everything that can be decided before the handler runs. Nothing has been executed if it refuses.
func (s *Service) check(j *job, env *wire.Request) *wire.Error {
	if err := wire.CheckRequest(j.subject, env); err != nil {
		return asRefusal(err)
	}
	cmd := j.cmd
	switch {
	case cmd == nil:
		return wire.Errorf(wire.CodeUnimplemented, "endpoint %q has no command %q", s.name, j.subject.Command)
	case !cmd.modes[j.subject.Mode]:
		return wire.Errorf(wire.CodeTargetMismatch, "command %q of %q does not take mode %q", cmd.Name, s.name, j.subject.Mode)
	case env.Bind != nil && env.Bind.InstanceID != s.opts.Instance:
		return wire.Errorf(wire.CodeFailedPrecondition, "the request is bound to instance %q, this is %q", env.Bind.InstanceID, s.opts.Instance)
	case env.Bind != nil && env.Bind.Epoch != s.opts.Epoch:
		return wire.Errorf(wire.CodeExpired, "the request is bound to epoch %q of instance %q, this is %q", env.Bind.Epoch, s.opts.Instance, s.opts.Epoch)
	}
	if e := cmd.checkDigests(env.Op); e != nil {
		return e
	}
	if cmd.Unchecked {
		return nil
	}
	return cmd.in.check("args", env.Args)
}

// checkDigests refuses a request made for another contract. A caller that pins nothing takes what there is.
func (c *command) checkDigests(op wire.Op) *wire.Error {
	for _, d := range []struct{ side, want, have string }{
		{"input", op.InputDigest, c.in.digest}, {"output", op.OutputDigest, c.out.digest},
	} {
		if d.want != "" && d.want != d.have {
			e := wire.Errorf(wire.CodeContractMismatch, "the %s schema of command %q is %s, the request was made for %s", d.side, c.Name, d.have, d.want)
			e.Details = map[string]any{"side": d.side, "served": d.have, "pinned": d.want}
			return e
		}
	}
	return nil
}

// asRefusal makes an error of the decoder one that says that nothing was done.
func asRefusal(err error) *wire.Error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		e = wire.Errorf(wire.CodeBadRequest, "%v", err)
	}
	e.Outcome = wire.OutcomeNotExecuted
	return e
}

func (s *Service) request(j *job, env *wire.Request) *Request {
	allowed := s.opts.MaxDeadline
	if env.DeadlineMS > 0 { // a cast may leave it out
		allowed = min(allowed, time.Duration(env.DeadlineMS)*time.Millisecond)
	}
	req := &j.req
	*req = Request{
		ID: env.ID, Space: s.space, Command: j.cmd.Name, Rail: j.subject.Rail, Mode: j.subject.Mode, Caller: j.subject.Caller,
		From: env.From, Args: env.Args, Correlation: env.Correlation, ReplyExpected: env.ReplyExpected,
		Received: j.at, Deadline: j.at.Add(allowed),
	}
	switch t := env.Target; {
	case req.Mode == wire.ModeSelf:
		req.Target = req.Caller
	case t != nil:
		req.Target = wire.Lifecycle{Principal: wire.Principal{Owner: t.Owner, Actor: t.Actor}, UID: t.LifecycleUID}
	}
	return req
}

// call runs the handler and survives it.
func (s *Service) call(ctx context.Context, cmd *command, req *Request) (out any, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.counts.panics.Add(1)
			s.log.ErrorContext(ctx, "handler panicked", logkey.Command, cmd.Name, logkey.RequestID, req.ID,
				logkey.Principal, req.Caller.Principal.String(), logkey.Error, r, logkey.Stack, string(debug.Stack()))
			out, err = nil, errPanicked
		}
	}()
	return cmd.handler(ctx, req)
}

var errPanicked = errors.New("the handler panicked")

// failure turns a handler's error into what the caller may know.
func (s *Service) failure(ctx context.Context, cmd *command, req *Request, err error) *wire.Error {
	e, typed := errors.AsType[*wire.Error](err)
	switch {
	case typed && e != nil:
		own := *e
		e = &own
	case errors.Is(err, errPanicked):
		e = internalError(req.ID)
		e.Outcome = wire.OutcomeUnknown
		return e
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		e = s.overrun(ctx, req)
	default:
		s.log.ErrorContext(ctx, "handler failed", logkey.Command, cmd.Name, logkey.RequestID, req.ID,
			logkey.Principal, req.Caller.Principal.String(), logkey.Error, err)
		e = internalError(req.ID)
	}
	if cmd.Effect == Read && (e.Outcome == "" || e.Outcome == wire.OutcomeUnknown) {
		e.Outcome = wire.OutcomeNotExecuted // there is nothing that could have been done
	}
	if e.Outcome == "" {
		e.Outcome = outcomeOf(e.Code)
	}
	return e
}

// overrun is the answer when the handler gave up because its context had ended.
func (s *Service) overrun(ctx context.Context, req *Request) *wire.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return wire.Errorf(wire.CodeDeadlineExceeded, "endpoint %q did not finish within %v", s.name, req.Deadline.Sub(req.Received))
	}
	return wire.Errorf(wire.CodeCancelled, "endpoint %q stopped before the request was done", s.name)
}

// outcomeOf reads the outcome off a refusal that does not state one.
func outcomeOf(c wire.Code) wire.Outcome {
	switch c {
	case wire.CodeDeadlineExceeded, wire.CodeCancelled, wire.CodeInternal:
		return wire.OutcomeUnknown
	}
	return wire.OutcomeNotExecuted
}

func internalError(id string) *wire.Error {
	e := wire.Errorf(wire.CodeInternal, "internal error; the reason is in the endpoint's log under request %s", id)
	e.Details = map[string]any{"requestId": id}
	return e
}

// refuse answers a request that no handler has seen, or drops it when it has no ID to answer under.
func (s *Service) refuse(j *job, no *refusal) {
	if no.ID == "" {
		s.drop(j.msg, wire.ReasonJSON, no.err)
		return
	}
	s.counts.refused.Add(1)
	if no.err.Outcome == "" {
		no.err.Outcome = wire.OutcomeNotExecuted
	}
	s.log.Debug("request refused", logkey.Command, j.subject.Command, logkey.RequestID, no.ID,
		logkey.Principal, j.caller().String(), logkey.Code, string(no.err.Code), logkey.Reason, no.err.Error())
	if no.ReplyExpected {
		s.answer(j, no.ID, no.err)
	}
}

// reply prepares the answer with a result. One that cannot be sent was nevertheless executed.
func (s *Service) reply(ctx context.Context, j *job, req *Request, out any) {
	j.reply = takeBuffer()
	r := wire.Reply{V: wire.EnvelopeVersion, ID: req.ID, OK: true}
	var err error
	if r.Data, err = j.reply.value(out); err == nil && s.opts.CheckResults {
		err = fits(j.cmd.out, r.Data)
	}
	if err == nil {
		err = j.reply.envelope(&r, len(r.Data), wire.MaxReply)
	}
	if err == nil {
		return
	}
	s.log.ErrorContext(ctx, "result cannot be sent", logkey.Command, req.Command, logkey.RequestID, req.ID, logkey.Error, err)
	e := internalError(req.ID)
	if errors.Is(err, wire.ErrExhausted) {
		e = asRefusal(err)
	}
	e.Outcome = wire.OutcomeExecuted
	s.answer(j, req.ID, e)
}

// fits is check with a plain error.
func fits(out *schema, data json.RawMessage) error {
	if e := out.check("data", data); e != nil {
		return e
	}
	return nil
}

// answer prepares the answer with an error. One that cannot be sent as it is becomes internal.
func (s *Service) answer(j *job, id string, e *wire.Error) {
	if j.reply == nil {
		j.reply = takeBuffer()
	}
	r := wire.Reply{V: wire.EnvelopeVersion, ID: id, Error: e}
	if err := j.reply.envelope(&r, 0, wire.MaxReply); err != nil {
		s.log.Error("error cannot be sent as it is", logkey.RequestID, id, logkey.Code, string(e.Code), logkey.Error, err)
		r.Error = internalError(id)
		r.Error.Outcome = e.Outcome
		if j.reply.envelope(&r, 0, wire.MaxReply) != nil {
			j.reply = nil // the ID is no ID, so nobody waits for it
		}
	}
}

// outbox holds answers on their way to the connection, first to last.
type outbox struct {
	mu          sync.Mutex // guards what follows
	first, last *job
	taken       bool // a goroutine will come for what is there
}

// put adds an answer and reports whether its goroutine must come for it.
func (o *outbox) put(j *job) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == nil {
		o.first = j
	} else {
		o.last.next = j
	}
	o.last = j
	if o.taken {
		return false
	}
	o.taken = true
	return true
}

// take empties the box.
func (o *outbox) take() *job {
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.first
	o.first, o.last, o.taken = nil, nil, false
	return j
}

// send sends the answer. While other requests are served, the goroutine that sends lets them finish first and sends their
// answers too: the client then writes them to the broker together instead of one by one.
func (s *Service) send(j *job, busy bool) {
	if j.reply == nil || !s.outbox.put(j) {
		return
	}
	if busy {
		runtime.Gosched()
	}
	for j := s.outbox.take(); j != nil; j = j.next {
		s.publish(j)
	}
}

// publish sends an answer on the newest connection. Where it goes is derived from the request subject; the reply address
// that came with the request is not even read.
func (s *Service) publish(j *job) {
	defer j.reply.free()
	to := s.replyPrefix + callerTokens(j.msg.Subject)
	var err error
	for range 2 { // the newest may close while a handler runs; then the one that took its place serves
		l := s.current.Load()
		if l == nil { // the only one was refused after it had brought a request
			err = nats.ErrConnectionClosed
			break
		}
		if err = l.nc.Publish(to, j.reply.out); err == nil {
			return
		}
		if s.current.Load() == l {
			break
		}
	}
	s.log.Warn("reply not sent", logkey.Command, j.subject.Command, logkey.Subject, to, logkey.Error, err)
}
