package wire

import "strings"

// Rail says how a request is routed.
type Rail string

// The request rails.
const (
	RailOne  Rail = "one"  // any one instance of the endpoint, by queue group
	RailAll  Rail = "all"  // every instance
	RailInst Rail = "inst" // one named instance

	railReply Rail = "reply"
)

// Mode says whom a request acts on, so that the broker can pin it.
type Mode string

// The addressing modes of a request. The zero Mode is an untargeted request.
const (
	ModeNone  Mode = ""
	ModeSelf  Mode = "self"  // the caller; no target tokens
	ModeOwner Mode = "owner" // something of the caller's own owner; one token, that owner
	ModeAny   Mode = "any"   // something of any owner; one token, operators only
	ModeExact Mode = "exact" // one lifecycle; three tokens: owner, actor, uid
)

// arity returns the number of target tokens, or -1 for what is no mode.
func (m Mode) arity() int {
	switch m {
	case ModeNone, ModeSelf:
		return 0
	case ModeOwner, ModeAny:
		return 1
	case ModeExact:
		return 3
	}
	return -1
}

// RequestSubject is the subject of a request. The broker vouches for the caller: it pins the three tokens.
//
//	cotal.<space>.ep.one|all.<endpoint>.<command>[.<mode>[.<target…>]].<owner>.<actor>.<uid>.<nonce>
//	cotal.<space>.ep.inst.<endpoint>.<instance>.<command>[.<mode>[.<target…>]].<owner>.<actor>.<uid>.<nonce>
type RequestSubject struct {
	Space    Space
	Rail     Rail
	Endpoint string    // the name with dots, such as "delivery" or "com.acme.deploy"; see ValidateEndpoint
	Instance string    // [A-Za-z0-9_-]{1,64}, set on RailInst only
	Command  string    // [a-z0-9-]{1,32}
	Mode     Mode      // ModeNone for an untargeted command
	Target   []string  // the target tokens of the mode
	Caller   Lifecycle // who asks; the owner must be known
	Nonce    string    // [A-Za-z0-9_-]{22,64}, unguessable, one per request
}

// Subject returns the subject, at most 1,024 bytes. Its error has code bad-request.
func (r RequestSubject) Subject() (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	toks := make([]string, 0, 14)
	toks = append(toks, "ep", string(r.Rail), EndpointToken(r.Endpoint))
	if r.Rail == RailInst {
		toks = append(toks, r.Instance)
	}
	toks = append(toks, r.Command)
	if r.Mode != ModeNone {
		toks = append(toks, string(r.Mode))
		toks = append(toks, r.Target...)
	}
	toks = append(toks, r.Caller.Owner, r.Caller.Actor, string(r.Caller.UID), r.Nonce)
	return railSubject(r.Space, toks...)
}

// Reply returns where one instance answers this request. It is derived from the request subject alone; a reply address
// that comes with the transport or in the payload must be ignored.
func (r RequestSubject) Reply(instance, epoch string) ReplySubject {
	return ReplySubject{
		Space: r.Space, Endpoint: r.Endpoint, Instance: instance, Epoch: epoch,
		Caller: r.Caller, Nonce: r.Nonce,
	}
}

func (r RequestSubject) check() error {
	if err := firstError(r.Space.Validate(), ValidateEndpoint(r.Endpoint), ValidateCommand(r.Command),
		r.Caller.checkSpeaker(), checkNonce(r.Nonce)); err != nil {
		return err
	}
	switch r.Rail {
	case RailOne, RailAll:
		if r.Instance != "" {
			return Errorf(CodeBadRequest, "check request subject: instance %q on rail %q", clip(r.Instance), r.Rail)
		}
	case RailInst:
		if err := checkToken("instance", r.Instance); err != nil {
			return err
		}
	default:
		return Errorf(CodeBadRequest, "check request subject: rail %q is not one, all or inst", clip(string(r.Rail)))
	}
	return r.checkTarget()
}

func (r RequestSubject) checkTarget() error {
	n := r.Mode.arity()
	if n < 0 {
		return Errorf(CodeBadRequest, "check request subject: mode %q is not self, owner, any or exact", clip(string(r.Mode)))
	}
	if len(r.Target) != n {
		return Errorf(CodeBadRequest, "check request subject: mode %q takes %d target tokens, not %d", r.Mode, n, len(r.Target))
	}
	if n > 0 && !ownerKnown(r.Target[0]) {
		return Errorf(CodeBadRequest, "check request subject: target owner %q is unknown", clip(r.Target[0]))
	}
	if r.Mode == ModeOwner && r.Target[0] != r.Caller.Owner {
		return Errorf(CodeTargetMismatch, "check request subject: mode owner names owner %q, the caller's is %q", r.Target[0], r.Caller.Owner)
	}
	if n == 3 {
		return firstError(ValidateActor(r.Target[1]), UID(r.Target[2]).Validate())
	}
	return nil
}

// ParseRequestSubject reads a request subject and checks every token, the caller's owner included. Its error has code
// bad-request, or target-mismatch for mode owner with another's owner, and ReasonSubject.
func ParseRequestSubject(s string) (RequestSubject, error) {
	t := tokens{rest: s}
	var r RequestSubject
	if len(s) > MaxRailSubject || t.next() != Root {
		return RequestSubject{}, badRail("request", s)
	}
	r.Space = Space(t.next())
	if t.next() != "ep" {
		return RequestSubject{}, badRail("request", s)
	}
	r.Rail = Rail(t.next())
	r.Endpoint = endpointName(t.next())
	if r.Rail == RailInst {
		r.Instance = t.next()
	}
	r.Command = t.next()
	tok := r.parseTarget(&t)
	r.Caller.Owner = tok
	r.Caller.Actor = t.next()
	r.Caller.UID = UID(t.next())
	r.Nonce = t.next()
	if !t.done() {
		return RequestSubject{}, badRail("request", s)
	}
	if err := r.check(); err != nil {
		return RequestSubject{}, malformedAs(CodeOf(err), ReasonSubject, "parse request subject %q: %v", clip(s), err)
	}
	return r, nil
}

// parseTarget takes the mode and its target, if there is one, and returns the token after it, the caller's owner. A mode
// word is never a known owner, so the first token decides.
func (r *RequestSubject) parseTarget(t *tokens) string {
	tok := t.next()
	m := Mode(tok)
	if m == ModeNone || m.arity() < 0 {
		return tok
	}
	r.Mode = m
	if n := m.arity(); n > 0 {
		r.Target = make([]string, n)
		for i := range r.Target {
			r.Target[i] = t.next()
		}
	}
	return t.next()
}

// ReplySubject is the subject of a reply. The broker vouches that whoever answers serves the endpoint. Instance and epoch are its claim: whoever
// serves an endpoint can answer as any instance of it, but for a supervisor, which the broker holds to its own.
//
//	cotal.<space>.ep.reply.<endpoint>.<instance>.<epoch>.<owner>.<actor>.<uid>.<nonce>
type ReplySubject struct {
	Space    Space
	Endpoint string // the name with dots
	Instance string // [A-Za-z0-9_-]{1,64}
	Epoch    string // [A-Za-z0-9_-]{1,64}: which start of the instance
	Caller   Lifecycle
	Nonce    string
}

// Subject returns the subject, at most 1,024 bytes. Its error has code bad-request.
func (r ReplySubject) Subject() (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	return railSubject(r.Space, "ep", "reply", EndpointToken(r.Endpoint), r.Instance, r.Epoch,
		r.Caller.Owner, r.Caller.Actor, string(r.Caller.UID), r.Nonce)
}

func (r ReplySubject) check() error {
	return firstError(r.Space.Validate(), ValidateEndpoint(r.Endpoint), checkToken("instance", r.Instance),
		checkToken("epoch", r.Epoch), r.Caller.checkSpeaker(), checkNonce(r.Nonce))
}

// ParseReplySubject reads a reply subject and checks every token. Its error has code bad-request and ReasonSubject.
func ParseReplySubject(s string) (ReplySubject, error) {
	t := tokens{rest: s}
	var r ReplySubject
	if len(s) > MaxRailSubject || t.next() != Root {
		return ReplySubject{}, badRail("reply", s)
	}
	r.Space = Space(t.next())
	if t.next() != "ep" || t.next() != string(railReply) {
		return ReplySubject{}, badRail("reply", s)
	}
	r.Endpoint = endpointName(t.next())
	r.Instance, r.Epoch = t.next(), t.next()
	r.Caller.Principal = t.principal()
	r.Caller.UID = UID(t.next())
	r.Nonce = t.next()
	if !t.done() {
		return ReplySubject{}, badRail("reply", s)
	}
	if err := r.check(); err != nil {
		return ReplySubject{}, malformed(ReasonSubject, "parse reply subject %q: %v", clip(s), err)
	}
	return r, nil
}

// ReplyFilter returns the one subscription a caller needs for all its replies. Errors have code bad-request.
func ReplyFilter(s Space, caller Lifecycle) (string, error) {
	if err := firstError(s.Validate(), caller.checkSpeaker()); err != nil {
		return "", err
	}
	return join(s, "ep", "reply", "*", "*", "*", caller.Owner, caller.Actor, string(caller.UID), "*"), nil
}

// ServeFilter returns the subscription of a server on one rail. Instance is used on RailInst and must be empty on the
// others. On RailOne subscribe with QueueGroup. Errors have code bad-request.
func ServeFilter(s Space, rail Rail, endpoint, instance string) (string, error) {
	if err := firstError(s.Validate(), ValidateEndpoint(endpoint)); err != nil {
		return "", err
	}
	switch {
	case rail == RailInst:
		if err := checkToken("instance", instance); err != nil {
			return "", err
		}
		return railSubject(s, "ep", string(rail), EndpointToken(endpoint), instance, ">")
	case rail != RailOne && rail != RailAll:
		return "", Errorf(CodeBadRequest, "build serve filter: rail %q is not one, all or inst", clip(string(rail)))
	case instance != "":
		return "", Errorf(CodeBadRequest, "build serve filter: instance %q on rail %q", clip(instance), rail)
	}
	return railSubject(s, "ep", string(rail), EndpointToken(endpoint), ">")
}

// QueueGroup returns the queue group instances of an endpoint share on RailOne.
func QueueGroup(endpoint string) string { return EndpointToken(endpoint) }

// EventSubject is the subject of an event. The broker vouches for the endpoint; instance and epoch are the claim of whoever serves it.
//
//	cotal.<space>.epe.<endpoint>.<instance>.<epoch>.<topic…>
type EventSubject struct {
	Space    Space
	Endpoint string // the name with dots
	Instance string // [A-Za-z0-9_-]{1,64}
	Epoch    string // [A-Za-z0-9_-]{1,64}
	Topic    string // dotted [A-Za-z0-9_-]+
}

// Subject returns the subject, at most 1,024 bytes. Its error has code bad-request.
func (e EventSubject) Subject() (string, error) {
	if err := e.check(); err != nil {
		return "", err
	}
	return railSubject(e.Space, "epe", EndpointToken(e.Endpoint), e.Instance, e.Epoch, e.Topic)
}

func (e EventSubject) check() error {
	if err := firstError(e.Space.Validate(), ValidateEndpoint(e.Endpoint), checkToken("instance", e.Instance),
		checkToken("epoch", e.Epoch)); err != nil {
		return err
	}
	if !channelOK(e.Topic, false) {
		return Errorf(CodeBadRequest, "check event topic %q: not dotted [A-Za-z0-9_-]+", clip(e.Topic))
	}
	return nil
}

// ParseEventSubject reads an event subject and checks every token. Its error has code bad-request and ReasonSubject.
func ParseEventSubject(s string) (EventSubject, error) {
	t := tokens{rest: s}
	var e EventSubject
	if len(s) > MaxRailSubject || t.next() != Root {
		return EventSubject{}, badRail("event", s)
	}
	e.Space = Space(t.next())
	if t.next() != "epe" {
		return EventSubject{}, badRail("event", s)
	}
	e.Endpoint = endpointName(t.next())
	e.Instance, e.Epoch = t.next(), t.next()
	e.Topic = t.tail()
	if err := e.check(); err != nil {
		return EventSubject{}, malformed(ReasonSubject, "parse event subject %q: %v", clip(s), err)
	}
	return e, nil
}

// EventFilter returns the subscription for a topic, or a topic pattern, of every instance of an endpoint. Errors have
// code bad-request.
func EventFilter(s Space, endpoint, topic string) (string, error) {
	if err := firstError(s.Validate(), ValidateEndpoint(endpoint)); err != nil {
		return "", err
	}
	if !channelOK(topic, true) {
		return "", Errorf(CodeBadRequest, "check event topic pattern %q: not dotted [A-Za-z0-9_-]+, \"*\" or a last \">\"", clip(topic))
	}
	return railSubject(s, "epe", EndpointToken(endpoint), "*", "*", topic)
}

// SessionSubject is the subject of the bytes of one terminal session, in one direction.
//
//	cotal.<space>.eps.<endpoint>.<session>.<epoch>.in|out
//	cotal.<space>.epm.<mode>.<endpoint>.<session>.<epoch>.in|out
type SessionSubject struct {
	Space Space
	// Mode is that of the request which asked for the session: none, owner or any. So the broker lets take part in it who may still
	// ask for one like it.
	Mode     Mode
	Endpoint string // the name with dots
	Session  string // [A-Za-z0-9_-]{1,64}
	Epoch    string // [A-Za-z0-9_-]{1,64}
	In       bool   // towards the session; false is output from it
}

// Subject returns the subject, at most 1,024 bytes. Its error has code bad-request.
func (s SessionSubject) Subject() (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	dir := "out"
	if s.In {
		dir = "in"
	}
	if s.Mode != ModeNone {
		return railSubject(s.Space, "epm", string(s.Mode), EndpointToken(s.Endpoint), s.Session, s.Epoch, dir)
	}
	return railSubject(s.Space, "eps", EndpointToken(s.Endpoint), s.Session, s.Epoch, dir)
}

func (s SessionSubject) check() error {
	if s.Mode != ModeNone && s.Mode != ModeOwner && s.Mode != ModeAny {
		return Errorf(CodeBadRequest, "check session subject: mode %q opens no sessions", clip(string(s.Mode)))
	}
	return firstError(s.Space.Validate(), ValidateEndpoint(s.Endpoint), checkToken("session", s.Session), checkToken("epoch", s.Epoch))
}

// ParseSessionSubject reads a session subject and checks every token. Its error has code bad-request and ReasonSubject.
func ParseSessionSubject(s string) (SessionSubject, error) {
	t := tokens{rest: s}
	var p SessionSubject
	if len(s) > MaxRailSubject || t.next() != Root {
		return SessionSubject{}, badRail("session", s)
	}
	p.Space = Space(t.next())
	switch t.next() {
	case "eps":
	case "epm":
		if p.Mode = Mode(t.next()); p.Mode == ModeNone {
			return SessionSubject{}, badRail("session", s)
		}
	default:
		return SessionSubject{}, badRail("session", s)
	}
	p.Endpoint = endpointName(t.next())
	p.Session, p.Epoch = t.next(), t.next()
	dir := t.next()
	p.In = dir == "in"
	if !t.done() || dir != "in" && dir != "out" {
		return SessionSubject{}, badRail("session", s)
	}
	if err := p.check(); err != nil {
		return SessionSubject{}, malformed(ReasonSubject, "parse session subject %q: %v", clip(s), err)
	}
	return p, nil
}

// ValidateEndpoint reports whether name can be an endpoint: labels of [a-z0-9]([a-z0-9-]*[a-z0-9])? joined by dots, at most
// 64 bytes. One label is for endpoints of this project (manager, delivery, auth), others are reverse-DNS; who may serve a
// name is the credential's business, not the grammar's. Its error has code bad-request.
func ValidateEndpoint(name string) error {
	if !endpointOK(name) {
		return Errorf(CodeBadRequest, "check endpoint %q: not dotted labels of [a-z0-9-], at most %d bytes", clip(name), MaxToken)
	}
	return nil
}

func endpointOK(name string) bool {
	if len(name) == 0 || len(name) > MaxToken {
		return false
	}
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			if charClass[name[i]]&classLabel == 0 {
				return false
			}
			continue
		}
		if i == start || name[start] == '-' || name[i-1] == '-' {
			return false
		}
		start = i + 1
	}
	return true
}

// EndpointToken returns the one subject token of an endpoint name: dots become "_", which no label holds, so the mapping
// goes both ways. It does not validate name.
func EndpointToken(name string) string { return strings.ReplaceAll(name, ".", "_") }

// endpointName undoes EndpointToken.
func endpointName(token string) string { return strings.ReplaceAll(token, "_", ".") }

// ValidateCommand reports whether c can be a command: [a-z0-9-]{1,32}. Its error has code bad-request.
func ValidateCommand(c string) error {
	if !inClass(c, classLabel, MaxCommand) {
		return Errorf(CodeBadRequest, "check command %q: not [a-z0-9-]{1,%d}", clip(c), MaxCommand)
	}
	return nil
}

func checkToken(what, s string) error {
	if !inClass(s, classToken, MaxToken) {
		return Errorf(CodeBadRequest, "check %s %q: not [A-Za-z0-9_-]{1,%d}", what, clip(s), MaxToken)
	}
	return nil
}

// minNonce is the shortest nonce: 22 characters of 64 carry 132 bits.
const minNonce = 22

func checkNonce(s string) error {
	if len(s) < minNonce || !inClass(s, classToken, MaxToken) {
		return Errorf(CodeBadRequest, "check nonce of %d bytes: not [A-Za-z0-9_-]{%d,%d}", len(s), minNonce, MaxToken)
	}
	return nil
}

func railSubject(s Space, toks ...string) (string, error) {
	subj := join(s, toks...)
	if len(subj) > MaxRailSubject {
		return "", Errorf(CodeBadRequest, "build subject %q: %d bytes, at most %d", clip(subj), len(subj), MaxRailSubject)
	}
	return subj, nil
}

func badRail(what, s string) error {
	return malformed(ReasonSubject, "parse %s subject %q: no %s subject of this contract", what, clip(s), what)
}
