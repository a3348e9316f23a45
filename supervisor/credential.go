package supervisor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"path/filepath"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/internal/atomicfile"
	"github.com/cotal-go/cotal/internal/fserr"
	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// proof is what an agent will prove itself by: a user key and a secret, both made here. It prints as nothing of use.
type proof struct {
	seed  func() []byte
	token func() launch.Secret // nil when the secret is that of an earlier start
	wire  wire.AgentProof      // what the authority is told
}

// newProof makes a key and a secret.
func newProof() (*proof, error) {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	token := launch.Secret(base64.RawURLEncoding.EncodeToString(raw))
	sum := sha256.Sum256([]byte(token))
	p, err := newKeyProof(hex.EncodeToString(sum[:]))
	if err == nil {
		p.token = func() launch.Secret { return token }
	}
	return p, err
}

// newKeyProof makes a key beside the secret of an earlier start, of which only the hash is known.
func newKeyProof(tokenHash string) (*proof, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "make user key: %v", err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "make user key: %v", err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "make user key: %v", err)
	}
	return &proof{seed: func() []byte { return seed }, wire: wire.AgentProof{UserKey: public, TokenHash: tokenHash}}, nil
}

// material is what an agent starts with: the answer of the authority and the proof that it is for.
type material struct {
	cred  wire.AgentCredential
	proof *proof
	at    time.Time // when it was asked for
}

// renewPart is the part of its life after which a credential file is made anew. It is a little before the three quarters at which its
// holder reads the file again.
const renewPart = 0.7

// install writes the credential file, in a space of those, and says when it is to be made anew.
func (a *agent) install(m *material) error {
	if m.cred.Exchange {
		return a.update(func(r *record) { r.Renew, r.Expires = time.Time{}, time.Time{} })
	}
	creds, err := trust.NewCredentials(m.cred.JWT, m.proof.seed())
	if err != nil {
		return err
	}
	if l := creds.Identity().Lifecycle; l != a.life() {
		return wire.Errorf(wire.CodeContractMismatch, "the authority answered with a credential of %q for %q", l.Principal, a.life().Principal)
	}
	if err := atomicfile.Write(filepath.Join(a.dir, credsFile), creds.Reveal(), 0o600); err != nil {
		return wire.Errorf(wire.CodeUnavailable, "write credential file: %v", fserr.Cause(err))
	}
	expires := time.UnixMilli(m.cred.Expires).UTC()
	life := time.Duration(float64(expires.Sub(m.at)) * renewPart)
	return a.update(func(r *record) {
		r.Expires, r.Renew, r.TokenHash = expires, m.at.Add(life).UTC(), m.proof.wire.TokenHash
	})
}

func (a *agent) life() wire.Lifecycle {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec.life()
}

// material returns what run starts with: that of the grant for the first, else a fresh one. Its number is on disk before it is asked
// for, so that no later one has the same.
func (a *agent) material(ctx context.Context) (*material, error) {
	a.mu.Lock()
	m := a.fresh
	a.fresh = nil
	a.mu.Unlock()
	if m != nil {
		return m, nil
	}
	p, err := newProof()
	if err != nil {
		return nil, err
	}
	req := wire.AgentStartRequest{Proof: p.wire}
	err = a.update(func(r *record) {
		r.Start++
		req.Principal, req.UID, req.Start = r.Principal, r.UID, r.Start
	})
	if err != nil {
		return nil, err
	}
	m = &material{proof: p, at: time.Now()}
	return m, a.k.ask(ctx, wire.CommandAgentStart, req, &m.cred)
}

// renewAt is when the credential is made anew, zero for never: only what runs needs one.
func (a *agent) renewAt(r *record) time.Time {
	if r.State.Process != wire.ProcessRunning || r.State.Goal != GoalRun {
		return time.Time{}
	}
	return r.Renew
}

// renewPause is between tries to renew.
const renewPause = 30 * time.Second

// renew has the credential file made anew, beside. Whatever comes of it, the next try is planned first.
func (a *agent) renew(ctx context.Context) {
	_ = a.update(func(r *record) { r.Renew = time.Now().Add(renewPause).UTC() }) // said by update
	rec := a.snapshot()
	a.tasks.Go(func() {
		if err := a.renewNow(ctx, &rec); err != nil && ctx.Err() == nil {
			a.k.log.WarnContext(ctx, "credential of agent not renewed", logkey.Principal, rec.Principal, logkey.UID, string(a.uid),
				logkey.Expires, rec.Expires, logkey.Error, err)
		}
	})
}

func (a *agent) renewNow(ctx context.Context, rec *record) error {
	ctx, cancel := context.WithTimeout(ctx, renewPause)
	defer cancel()
	p, err := newKeyProof(rec.TokenHash)
	if err != nil {
		return err
	}
	m := &material{proof: p, at: time.Now()}
	req := wire.AgentStartRequest{Principal: rec.Principal, UID: rec.UID, Proof: p.wire}
	if err := a.k.ask(ctx, wire.CommandAgentRenew, req, &m.cred); err != nil {
		return err
	}
	if now := a.snapshot(); now.State.Runs != rec.State.Runs {
		return nil // a later start has a credential of its own
	}
	return a.install(m)
}

// suspend takes the proof of a run that has ended away, so that nothing comes back with it before the next start. A grant that
// cannot be suspended now is suspended by that start or its retirement at the latest. It names the start, since it may arrive late.
func (a *agent) suspend(ctx context.Context, run int) {
	for try := 0; ; try++ {
		rec := a.snapshot()
		if rec.State.Grant != GrantSuspended || rec.State.Runs != run {
			return
		}
		err := a.k.ask(ctx, wire.CommandAgentStop, wire.AgentStopRequest{Principal: rec.Principal, UID: rec.UID, Start: rec.Start}, nil)
		if err == nil || !again(err) {
			if err != nil {
				a.k.log.WarnContext(ctx, "grant not suspended", logkey.Principal, rec.Principal, logkey.Error, err)
			}
			return
		}
		if pause.For(ctx, backoff(try)) != nil {
			return
		}
	}
}

// again reports that the same request may succeed later.
func again(err error) bool {
	switch wire.CodeOf(err) {
	case wire.CodeUnavailable, wire.CodeDeadlineExceeded, wire.CodeCancelled, wire.CodeResourceExhausted, wire.CodeConflict, wire.CodeExpired:
		return true
	}
	return false
}

// retire ends the grant of an agent whose process is known to have ended. The credential goes first, the name is free last. While
// others that were started under it live, their rights depend on it, so it waits for them. Those that linger do so no longer: nothing
// under a life that is over is started again.
func (a *agent) retire(ctx context.Context) {
	rec := a.snapshot()
	here := a.k.where(func(r *record) bool { return r.ParentUID == rec.UID && !r.settled() })
	elsewhere, err := 0, error(nil)
	if len(here) == 0 {
		elsewhere, err = a.k.heldElsewhere(ctx, rec.UID)
	}
	a.mu.Lock()
	a.heldBy = elsewhere
	a.mu.Unlock()
	why := ""
	switch {
	case err != nil:
		why = "not retired yet: " + err.Error()
	case elsewhere > 0, len(here) > 0 && a.k.live(rec.UID) > 0:
		why = "its grant stays until those that it started have ended"
	case len(here) > 0:
		why = "its grant stays until those of the agents that it started are retired"
	}
	if why != "" {
		a.send(Event{Kind: EventNotRetired, Reason: why})
		for _, c := range here { // later, so that the nudge of the last of them finds this one waiting
			c.endLinger()
		}
		return
	}
	if err := shred(a.dir); err != nil {
		a.send(Event{Kind: EventNotRetired, Reason: "not retired yet: " + err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = a.k.ask(ctx, wire.CommandAgentRetire, wire.AgentRequest{Principal: rec.Principal, UID: rec.UID}, nil)
	if err != nil && !errors.Is(err, wire.ErrNotFound) {
		a.send(Event{Kind: EventNotRetired, Reason: "not retired yet: " + err.Error()})
		return
	}
	a.send(Event{Kind: EventRetired})
}
