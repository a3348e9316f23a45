package auth

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cotal-go/cotal/internal/logkey"
	"github.com/cotal-go/cotal/space"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/trust/mint"
	"github.com/cotal-go/cotal/wire"
)

// fileAgent is [Authority.Grant] for a managed agent in a space of credential files: its credential is a user JWT for a key that the
// supervisor made. It is in the issuance log before it is handed out, and what was issued under an earlier start is refused before
// that. Without a key nothing is handed out.
//
// It is refused with resource-exhausted, before anything is written, where agents have used up their share of the revocations of the
// account, of the issuance log or of the records of grants.
func (a *Authority) fileAgent(ctx context.Context, req GrantRequest, userKey string) (cred wire.AgentCredential, err error) {
	if err := req.check(); err != nil {
		return cred, err
	}
	ses, err := a.session(ctx, req.Space)
	if err != nil {
		return cred, fmt.Errorf("grant agent %q: %w", req.principal(), err)
	}
	out := GrantChange{did: req.did, asked: req.asked}
	pl, err := a.grantPlan(ctx, ses, req, &out)
	if err != nil {
		return cred, err
	}
	if err := req.mintable(pl.grant); err != nil {
		return cred, err
	}
	until, err := chain(ctx, ses, pl.grant, time.Now())
	if err != nil && !req.takes() {
		return cred, err
	}
	if pl.write && !req.takes() {
		if err := a.agentRoom(ctx, ses, req.Space); err != nil {
			return cred, fmt.Errorf("grant agent %q: %w", req.principal(), err)
		}
	}
	if err := a.activate(ctx, ses, req.Space, &pl); err != nil {
		return cred, err
	}
	out.Grant = pl.grant
	if userKey != "" {
		if cred, err = a.handedOut(ctx, ses, req.Space, pl.grant, userKey, until); err != nil {
			if out.Created && errors.Is(err, wire.ErrExhausted) {
				err = a.undone(ctx, ses, req.Space, pl.grant, err) // nobody has it, and it may be long before somebody asks again
			}
			return wire.AgentCredential{}, err
		}
	}
	if err := a.settleAgent(ctx, ses, req, pl, &out); err != nil {
		return wire.AgentCredential{}, err
	}
	a.log.InfoContext(ctx, "agent granted", logkey.Space, req.Space, logkey.Principal, req.principal().String(), logkey.Action, out.action())
	return cred, nil
}

// agentRoom refuses to begin what could not be handed out, or not be taken back.
func (a *Authority) agentRoom(ctx context.Context, ses *session, s wire.Space) error {
	if err := a.mint.AgentRoom(ctx, s); err != nil {
		return err
	}
	return ses.grants.MintRoom(ctx)
}

// handedOut makes what an agent starts with: its queues, then its credential.
func (a *Authority) handedOut(ctx context.Context, ses *session, s wire.Space, g trust.Grant, userKey string, until time.Time) (wire.AgentCredential, error) {
	if err := makeQueues(ctx, ses, s, g); err != nil {
		return wire.AgentCredential{}, err
	}
	return a.agentJWT(ctx, ses, s, g, userKey, until)
}

// undone ends a life that was begun just now and cannot be handed out, and returns why.
func (a *Authority) undone(ctx context.Context, ses *session, s wire.Space, g trust.Grant, why error) error {
	_, err := a.revoke(context.WithoutCancel(ctx), ses, s, g.Lifecycle(), ses.grants.Update)
	return errors.Join(why, err)
}

// settleAgent refuses what was issued before, and lets a credential go only while what it rests on stands.
func (a *Authority) settleAgent(ctx context.Context, ses *session, req GrantRequest, pl plan, out *GrantChange) error {
	if pl.grant.Refusing != 0 {
		ref, err := a.refuseEarlier(ctx, ses, req.Space, pl.grant, ses.grants.Update)
		if out.Kicked = ref.Kicked; err != nil {
			return err
		}
	}
	if !req.takes() {
		// Once more: whoever took away what is above has looked for what is below before this was written.
		if _, err := chain(ctx, ses, pl.grant, time.Now()); err != nil {
			if out.Created {
				err = a.undone(ctx, ses, req.Space, pl.grant, err)
			}
			return err
		}
	}
	if err := a.release(ctx, ses, pl); err != nil {
		return err
	}
	if out.Changed || pl.grant.Refusing != 0 {
		a.auditGrant(ctx, req.Space, *out)
	}
	if req.takes() {
		return nil
	}
	return a.stillFiles(ctx, req.Space, pl.grant)
}

// stillFiles is the last look at the mode before a credential goes: a switch to people refuses what was signed before it, and this may
// be later.
func (a *Authority) stillFiles(ctx context.Context, s wire.Space, g trust.Grant) error {
	people, err := a.People(ctx, s)
	if err == nil && people {
		return ofFiles(g.Principal(), trust.ReasonUserMode)
	}
	return err
}

// renewFile hands out a later credential under a grant that stands.
func (a *Authority) renewFile(ctx context.Context, ses *session, s wire.Space, pl plan, userKey string, until time.Time) (wire.AgentCredential, error) {
	if pl.grant.Refusing != 0 { // a start that was interrupted
		if _, err := a.refuseEarlier(ctx, ses, s, pl.grant, ses.grants.Update); err != nil {
			return wire.AgentCredential{}, err
		}
	}
	cred, err := a.agentJWT(ctx, ses, s, pl.grant, userKey, until)
	if err == nil {
		// Once more: whoever narrowed what is above has looked for what was issued below before this was logged.
		_, err = chain(ctx, ses, pl.grant, time.Now())
	}
	if err == nil {
		err = a.release(ctx, ses, pl)
	}
	if err == nil {
		err = a.stillFiles(ctx, s, pl.grant)
	}
	if err != nil {
		return wire.AgentCredential{}, err
	}
	a.audit(ctx, s, change{
		action: space.ActionRenew, target: pl.grant.Lifecycle(), by: pl.grant.By,
		detail: "credential of an agent until " + time.UnixMilli(cred.Expires).UTC().Format(time.RFC3339),
	})
	return cred, nil
}

// agentJWT logs and signs the credential of an agent for a key. A key that is in the log under the same epoch of the grant gets what
// it got before: the answer may have been lost. Of another epoch it was refused, and stays so.
func (a *Authority) agentJWT(ctx context.Context, ses *session, s wire.Space, g trust.Grant, userKey string, until time.Time) (wire.AgentCredential, error) {
	expires := time.Now().Add(trust.Agent.Lifetime().Default)
	if !until.IsZero() && until.Before(expires) {
		expires = until
	}
	expires = expires.Truncate(time.Second)
	err := ses.grants.LogMint(ctx, g.UID, space.Mint{UserKey: userKey, Epoch: g.Epoch, Expires: expires})
	if errors.Is(err, wire.ErrExists) {
		expires, err = loggedEnd(ctx, ses, g, userKey)
	}
	if err != nil {
		return wire.AgentCredential{}, fmt.Errorf("log credential of %q: %w", g.Principal(), err)
	}
	token, err := a.mint.UserJWT(ctx, mint.UserRequest{
		Space: s, Profile: trust.Agent, Principal: g.Principal(), UID: g.UID, Role: g.Role, Subscribe: g.AllowSubscribe, Publish: g.AllowPublish,
		Commands: trust.ScopeCommands(g.Scope), Spawns: trust.Spawns(g.Scope),
	}, userKey, expires)
	if err != nil {
		return wire.AgentCredential{}, err
	}
	return wire.AgentCredential{Principal: g.Principal().String(), UID: g.UID, JWT: token, Expires: expires.UnixMilli()}, nil
}

// loggedEnd is when the credential of a key ends that was logged under the grant as it is.
func loggedEnd(ctx context.Context, ses *session, g trust.Grant, userKey string) (time.Time, error) {
	mints, err := ses.grants.Mints(ctx, g.UID)
	if err != nil {
		return time.Time{}, err
	}
	for _, m := range mints {
		if m.UserKey == userKey && m.Epoch == g.Epoch && !m.Connection && m.Expires.After(time.Now()) {
			return m.Expires, nil
		}
	}
	return time.Time{}, trust.Deny(wire.CodeConflict, trust.ReasonReplayed, "the key %.64q is that of an earlier start; make another", userKey)
}

// refuseExceeding refuses the credentials of those held under a grant who hold more than it does now, and ends their connections, so
// that a credential file below is no more than the one above. They get others once they fit again.
func (a *Authority) refuseExceeding(ctx context.Context, ses *session, s wire.Space, g trust.Grant, out *Refusal) error {
	below, err := descendants(ctx, ses, g)
	if err != nil || len(below) == 0 {
		return err
	}
	rec, err := a.mint.Account(ctx, s)
	if err != nil {
		return err
	}
	for _, child := range below {
		if child.State != trust.GrantActive {
			continue
		}
		_, err := chain(ctx, ses, child, time.Now())
		switch {
		case err == nil:
			continue
		case trust.ReasonOf(err) == "":
			return err
		}
		keys, err := a.refuseKeys(ctx, ses, s, child.Lifecycle(), math.MaxUint64)
		if err != nil {
			return err
		}
		kicked, err := a.ctl.EvictTagged(ctx, rec.Public, "uid:"+string(child.UID))
		if err != nil {
			return err
		}
		out.Keys, out.Kicked = out.Keys+len(keys), out.Kicked+kicked
		out.Exceeding = append(out.Exceeding, child.Principal())
	}
	return nil
}
