package control

import (
	"strings"
	"sync"

	"github.com/cotal-go/cotal/wire"
)

// Target says where a request goes and what it acts on.
type Target struct {
	// Endpoint and Command are required, such as "delivery" and "history".
	Endpoint, Command string
	// Instance addresses one instance; empty means any, or all for [Caller.Scatter].
	Instance string
	// Epoch, with Instance, makes a later start of the instance refuse the request before it does anything.
	Epoch string
	// Mode is how the command addresses what it acts on; the zero Mode is an untargeted request.
	Mode wire.Mode
	// Of is what the command acts on: an owner and an actor for modes owner and any, with a UID if it is known, and a
	// whole lifecycle for exact.
	Of wire.Lifecycle
	// InputDigest and OutputDigest pin the schemas that the request was written for, see [DigestOf]. An endpoint with
	// others refuses. Empty takes whatever is served.
	InputDigest, OutputDigest string
}

// route is everything about requests to one target that does not change from call to call.
type route struct {
	subject string       // up to the nonce
	reply   string       // of the broker's own answer, up to the nonce
	request wire.Request // without ID, arguments, deadline and correlation
}

// routes makes routes and keeps those in use.
type routes struct {
	space wire.Space
	self  wire.Lifecycle
	from  wire.EndpointRef

	mu    sync.RWMutex // guards known
	known map[routeKey]*route
}

type routeKey struct {
	Target
	rail wire.Rail
	cast bool
}

// maxRoutes bounds the cache. Most callers use a handful.
const maxRoutes = 256

func newRoutes(space wire.Space, self wire.Lifecycle, from wire.EndpointRef) (*routes, error) {
	from.ID = self.Principal.String()
	if from.Name == "" {
		from.Name = self.Actor
	}
	r := &routes{space: space, self: self, from: from, known: map[routeKey]*route{}}
	// Every request states the same sender, so it is checked here once.
	probe := wire.Request{
		V: wire.EnvelopeVersion, ID: "check", Op: wire.Op{Endpoint: "check", Command: "check"}, Class: wire.ClassEphemeral,
		From: from, DeadlineMS: 1,
	}
	return r, probe.Validate()
}

// of returns the route to a target over a rail.
func (r *routes) of(t Target, rail wire.Rail, cast bool) (*route, error) {
	key := routeKey{Target: t, rail: rail, cast: cast}
	r.mu.RLock()
	rt := r.known[key]
	r.mu.RUnlock()
	if rt != nil {
		return rt, nil
	}
	rt, err := r.build(t, rail, cast)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxRoutes {
		clear(r.known)
	}
	r.known[key] = rt
	return rt, nil
}

func (r *routes) build(t Target, rail wire.Rail, cast bool) (*route, error) {
	subject := wire.RequestSubject{
		Space: r.space, Rail: rail, Endpoint: t.Endpoint, Instance: t.Instance, Command: t.Command, Mode: t.Mode,
		Target: targetTokens(t), Caller: r.self, Nonce: noNonce,
	}
	full, err := subject.Subject()
	if err != nil {
		return nil, err
	}
	reply, err := subject.Reply(sentinelInstance, sentinelEpoch).Subject()
	if err != nil {
		return nil, err
	}
	rt := &route{subject: strings.TrimSuffix(full, noNonce), reply: strings.TrimSuffix(reply, noNonce), request: r.request(t, cast)}
	probe := rt.request
	probe.ID, probe.DeadlineMS = "check", 1
	if err := probe.Validate(); err != nil {
		return nil, err
	}
	return rt, wire.CheckRequest(subject, &probe)
}

// request is the envelope of requests to a target, without what changes from call to call.
func (r *routes) request(t Target, cast bool) wire.Request {
	req := wire.Request{
		V: wire.EnvelopeVersion, Class: wire.ClassEphemeral, ReplyExpected: !cast, From: r.from,
		Op: wire.Op{Endpoint: t.Endpoint, Command: t.Command, InputDigest: t.InputDigest, OutputDigest: t.OutputDigest},
	}
	switch t.Mode {
	case wire.ModeOwner, wire.ModeAny, wire.ModeExact:
		req.Target = &wire.Target{Owner: t.Of.Owner, Actor: t.Of.Actor, LifecycleUID: t.Of.UID}
	}
	if t.Epoch != "" {
		req.Bind = &wire.Bind{InstanceID: t.Instance, Epoch: t.Epoch}
	}
	return req
}

func targetTokens(t Target) []string {
	switch t.Mode {
	case wire.ModeOwner, wire.ModeAny:
		return []string{t.Of.Owner}
	case wire.ModeExact:
		return []string{t.Of.Owner, t.Of.Actor, string(t.Of.UID)}
	}
	return nil
}
