package callout

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/bearer"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const (
	// maxRefusals bounds the refusals of strangers that wait to be signed.
	maxRefusals = 64
	// maxUserJWT bounds a credential that is sent, in bytes.
	maxUserJWT = 256 << 10
)

// refusal is one that waits to be signed.
type refusal struct {
	job    *job
	reason trust.Reason
}

// decide verifies the signatures and asks the authority.
func (s *Service) decide(ctx context.Context, j *job) {
	if !time.Now().Before(j.deadline) {
		s.hush(ctx, j, trust.ReasonBusy)
		return
	}
	ctx, cancel := context.WithDeadline(ctx, j.deadline)
	defer cancel()
	if !j.verified && !j.req.verify() {
		s.drop(ctx, j, DropForged)
		return
	}
	claims, err := s.prove(ctx, j.req)
	if err != nil {
		s.refuseStranger(ctx, j, reasonOf(err, trust.ReasonUnavailable))
		return
	}
	token, err := s.connect(ctx, j, claims)
	if err != nil {
		r := reasonOf(err, trust.ReasonUnavailable)
		if r == trust.ReasonUnavailable {
			s.log.WarnContext(ctx, "connection not decided", logkey.Principal, j.lifecycle.Principal.String(), logkey.Error, err)
		}
		s.refuse(context.WithoutCancel(ctx), j, r)
		return
	}
	s.answer(ctx, j, token)
}

// prove verifies the bearer, and that the client holds the key that the bearer names.
func (s *Service) prove(ctx context.Context, r *request) (bearer.Claims, error) {
	claims, err := s.o.Validator.Validate(ctx, r.NATS.Connect.Token)
	if err != nil {
		return claims, err
	}
	switch {
	case claims.Confirmation != nil && !bearer.SignsNonce(claims.Confirmation, r.NATS.Client.Nonce, r.NATS.Connect.Sig):
		return claims, trust.Deny(wire.CodeUnauthenticated, trust.ReasonKeyProof, "the nonce of the connection is not signed by the key of the bearer")
	case claims.Confirmation == nil && s.o.RequireKeyProof:
		return claims, trust.Deny(wire.CodeUnauthenticated, trust.ReasonKeyProof, "a bearer must name a key; prove one at the exchange")
	}
	return claims, nil
}

// connect asks the authority, and makes sure that what it gives is for this connection alone.
func (s *Service) connect(ctx context.Context, j *job, c bearer.Claims) (string, error) {
	j.lifecycle, j.view = c.Act.Lifecycle(), c.Act.View
	token, _, err := s.o.Authority.Connect(ctx, s.o.Space, auth.ConnectRequest{
		Lifecycle: j.lifecycle, Epoch: c.Act.Epoch, View: c.Act.View, Scope: c.Scope, Expires: c.Expires, UserKey: j.req.NATS.UserKey,
	})
	if err != nil {
		return "", err
	}
	var user struct {
		Subject string `json:"sub"`
		Expires int64  `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("the authority returned no JWT")
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || wire.Decode(raw, &user, maxUserJWT) != nil {
		return "", errors.New("the authority returned a JWT that cannot be read")
	}
	if user.Subject != j.req.NATS.UserKey || user.Expires <= 0 || user.Expires > c.Expires.Unix() {
		return "", errors.New("the authority returned a JWT for another connection, or one that outlives the bearer")
	}
	return token, nil
}

// answer lets the connection in.
func (s *Service) answer(ctx context.Context, j *job, token string) {
	c := s.response(j)
	c.Jwt = token
	if err := s.send(ctx, j, c); err != nil {
		s.log.WarnContext(ctx, "answer not sent", logkey.Principal, j.lifecycle.Principal.String(), logkey.Error, err)
		s.hush(ctx, j, trust.ReasonUnavailable)
		return
	}
	s.decided(ctx, j, Decision{OK: true})
}

// refuse says no, with the reason for the broker's log. One that cannot be signed is sent without it.
func (s *Service) refuse(ctx context.Context, j *job, r trust.Reason) {
	c := s.response(j)
	c.Error = string(r)
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	if err := s.send(ctx, j, c); err != nil {
		s.log.WarnContext(ctx, "refusal not signed", logkey.Reason, string(r), logkey.Error, err)
		s.hush(ctx, j, r)
		return
	}
	s.decided(ctx, j, Decision{Reason: r, Told: true})
}

// signTimeout bounds the signing of a refusal: the rest of the time that the broker waits.
const signTimeout = 300 * time.Millisecond

// refuseStranger refuses somebody of whom nothing has been proved. That must stay cheap: an address that sends much of it gets
// refusals without text, and so does everybody while they come faster than one goroutine signs them.
func (s *Service) refuseStranger(ctx context.Context, j *job, r trust.Reason) {
	if blames(r) {
		s.hosts.blame(j.req.NATS.Client.Host, time.Now())
	}
	if j.suspect {
		s.hush(ctx, j, r)
		return
	}
	select {
	case s.refusals <- refusal{job: j, reason: r}:
	default:
		s.hush(ctx, j, r)
	}
}

// blames says which refusals speak against an address. A bearer that has expired, or whose keys cannot be had, is honest.
func blames(r trust.Reason) bool {
	switch r {
	case trust.ReasonExpired, trust.ReasonNotYet, trust.ReasonUnavailable, trust.ReasonBusy:
		return false
	}
	return true
}

// hush refuses with an answer that has no content, which the broker takes for a refusal at once.
func (s *Service) hush(ctx context.Context, j *job, r trust.Reason) {
	if j.done {
		return
	}
	if err := s.nc.Publish(j.reply, nil); err != nil {
		s.drop(ctx, j, DropUnsent)
		return
	}
	s.stats.add(func(st *Stats) { st.Bare++ })
	s.decided(ctx, j, Decision{Reason: r})
}

// response begins the answer to a question: about its user key, for its server, by this account.
func (s *Service) response(j *job) *jwt.AuthorizationResponseClaims {
	c := jwt.NewAuthorizationResponseClaims(j.req.NATS.UserKey)
	c.Audience = j.req.NATS.Server.ID
	c.IssuerAccount = s.account
	return c
}

// send signs an answer, seals it to the broker and publishes it.
func (s *Service) send(ctx context.Context, j *job, c *jwt.AuthorizationResponseClaims) error {
	token, err := s.o.Responder.SignResponse(ctx, c)
	if err != nil {
		return err
	}
	sealed, err := s.o.Responder.Seal([]byte(token), j.xkey)
	if err != nil {
		return err
	}
	return s.nc.Publish(j.reply, sealed)
}

// decided counts and tells a decision. What the client says of itself is clipped.
func (s *Service) decided(ctx context.Context, j *job, d Decision) {
	j.done = true
	d.Lifecycle, d.View, d.Duration = j.lifecycle, j.view, time.Since(j.at)
	if r := j.req; r != nil {
		d.Server, d.UserKey, d.Host, d.ConnectionName = r.NATS.Server.ID, r.NATS.UserKey, clip(r.NATS.Client.Host), clip(r.NATS.Connect.Name)
	}
	s.stats.add(func(st *Stats) {
		if d.OK {
			st.Admitted++
		} else {
			st.Denied[d.Reason]++
		}
	})
	s.log.DebugContext(ctx, "connection decided", logkey.Principal, d.Lifecycle.Principal.String(), logkey.Reason, string(d.Reason),
		logkey.Server, d.Server, logkey.Duration, d.Duration)
	if s.o.OnDecision != nil {
		s.o.OnDecision(context.WithoutCancel(ctx), d)
	}
}

// drop gives no answer.
func (s *Service) drop(ctx context.Context, j *job, why Drop) {
	if j.done {
		return
	}
	j.done = true
	s.stats.add(func(st *Stats) { st.Dropped[why]++ })
	s.log.DebugContext(ctx, "question dropped", logkey.Reason, string(why))
}

// reasonOf is the reason of an error, or what stands for an error without one.
func reasonOf(err error, none trust.Reason) trust.Reason {
	if r := trust.ReasonOf(err); r != "" {
		return r
	}
	return none
}
