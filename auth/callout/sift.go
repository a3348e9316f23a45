package callout

import (
	"context"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// job is one question on its way.
type job struct {
	at     time.Time // when it arrived
	reply  string
	xkey   string // the curve key that it was sealed with
	sealed []byte // until it is opened

	req      *request // once it is opened
	waited   bool     // it waited for the list of brokers
	verified bool     // the server's signature has been verified
	suspect  bool
	deadline time.Time

	lifecycle wire.Lifecycle // once it is proved
	view      trust.View

	done bool // answered or dropped; of the goroutine that holds the job
}

// take is called for each message, one after the other. It does nothing that costs.
func (s *Service) take(ctx context.Context, m *nats.Msg) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.shut {
		return
	}
	s.stats.add(func(st *Stats) { st.Taken++ })
	now := time.Now()
	s.guard(ctx, &job{
		at: now, deadline: now.Add(s.o.Deadline), reply: m.Reply, xkey: m.Header.Get(wire.CalloutKeyHeader), sealed: m.Data,
	}, s.enqueue)
}

// enqueue is every check of a message as it is.
func (s *Service) enqueue(ctx context.Context, j *job) {
	switch {
	case j.reply == "":
		s.drop(ctx, j, DropUnanswerable)
		return
	case len(j.sealed) > MaxRequest:
		s.hush(ctx, j, trust.ReasonMalformed)
		return
	case j.xkey == "" || len(j.xkey) > maxText:
		s.drop(ctx, j, DropUnsealed)
		return
	}
	select {
	case s.intake <- j:
	default:
		s.hush(ctx, j, trust.ReasonBusy)
	}
}

// guard runs one stage of a job. A stage that panics refuses the job.
func (s *Service) guard(ctx context.Context, j *job, stage func(context.Context, *job)) {
	defer func() {
		if r := recover(); r != nil {
			s.stats.add(func(st *Stats) { st.Panics++ })
			s.log.ErrorContext(ctx, "decision panicked", logkey.Error, r, logkey.Stack, string(debug.Stack()))
			s.hush(ctx, j, trust.ReasonUnavailable)
		}
	}()
	stage(ctx, j)
}

// sift opens a question and reads it.
func (s *Service) sift(ctx context.Context, j *job) {
	plain, err := s.o.Responder.Open(j.sealed, j.xkey)
	if err != nil {
		s.drop(ctx, j, DropUnsealed)
		return
	}
	j.sealed = nil
	if j.req, err = decodeRequest(plain); err != nil || !j.req.fromSealer(j.xkey, s.account) {
		s.drop(ctx, j, DropMalformed)
		return
	}
	s.identify(ctx, j)
}

// identify makes sure that the question is from a broker of ours. Encryption proves that the sender holds the curve key; that
// the key is the server's is proved once, by a signature.
func (s *Service) identify(ctx context.Context, j *job) {
	id := j.req.NATS.Server.ID
	switch s.servers.standing(id, j.xkey) {
	case bound:
	case pinned:
		if !j.req.verify() {
			s.drop(ctx, j, DropForged)
			return
		}
		j.verified = true
		s.servers.bind(id, j.xkey)
	default:
		if j.waited || !s.servers.park(j) {
			s.drop(ctx, j, DropForeign)
		}
		return
	}
	// Whoever takes rights away waits as long as a broker of ours takes to admit what was decided before, and looks once more.
	if w := j.req.window(); w > s.o.window {
		s.patient.Do(func() {
			s.log.ErrorContext(ctx, "a broker waits too long for the callout, and nobody is let in through it: set its authorization timeout to 2 s",
				logkey.Server, id, logkey.Wait, w)
		})
		s.drop(ctx, j, DropPatient)
		return
	}
	s.inspect(ctx, j)
}

// maxWindow is how long a broker may wait for an answer, in the whole seconds of its question.
const maxWindow = trust.AuthTimeout + time.Second

// inspect is every check of the client that needs no signature.
func (s *Service) inspect(ctx context.Context, j *job) {
	now := time.Now()
	r := j.req
	switch {
	case !r.answerable():
		s.drop(ctx, j, DropUnanswerable)
		return
	case !r.current(now):
		s.drop(ctx, j, DropStale)
		return
	}
	if end := j.at.Add(r.window() * 3 / 4); end.Before(j.deadline) {
		j.deadline = end
	}
	host := r.NATS.Client.Host
	j.suspect = s.hosts.suspect(host, now)
	if r.NATS.Client.Kind != kindClient || r.NATS.Connect.Token == "" {
		s.refuseStranger(ctx, j, trust.ReasonMalformed)
		return
	}
	if _, _, err := s.o.Validator.Peek(r.NATS.Connect.Token); err != nil {
		s.refuseStranger(ctx, j, reasonOf(err, trust.ReasonMalformed))
		return
	}
	if !s.lanes.put(j) {
		s.hush(ctx, j, trust.ReasonBusy)
	}
}

const maxText = 128

// clip bounds a text from outside that is kept or told. It ends at a whole character.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n])
}
