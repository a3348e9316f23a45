package supervisor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/cotal-go/cotal/internal/pause"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

const (
	// maxNames bounds the numbers that are tried of one persona, and maxAsked how many of them the authority is asked about.
	maxNames = 4096
	maxAsked = 64
	// vacateTimeout bounds the wait for a name whose holder has ended.
	vacateTimeout = 20 * time.Second
)

// grant finds a name and has the authority grant it. An explicit name is taken or refused; that of a persona is numbered until one is
// free. Whoever has ended and still holds a name gives it up first.
func (k *Keeper) grant(ctx context.Context, by Caller, rec *record, explicit bool, owner string) (*material, error) {
	base, most := rec.Plan.Name, maxNames
	if explicit {
		most = 1
	}
	refused := taken(wire.Principal{Owner: owner, Actor: base}, "and so are the numbered ones")
	for n, asked := 1, 0; n <= most && asked < maxAsked; {
		var p wire.Principal
		var holder *agent
		if n, p, holder = k.name(owner, base, n, most); n == 0 {
			break
		}
		var err error
		if holder != nil {
			err = holder.vacate(ctx, p)
		} else {
			asked++
			var m *material
			rec.Plan.Name, rec.Renamed = p.Actor, n > 1
			if m, err = k.grantName(ctx, by, rec, p); err == nil {
				return m, nil
			}
		}
		switch {
		case err == nil: // its holder has given it up: it is looked for again
			continue
		case !errors.Is(err, wire.ErrExists):
			return nil, err
		}
		refused = err
		n++
	}
	return nil, refused
}

// name reserves the first name from number n on that nobody here has, which unname gives back, or returns the holder of one who has
// ended. The number is 0 when there is none.
func (k *Keeper) name(owner, base string, n, most int) (int, wire.Principal, *agent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ; n <= most; n++ {
		p := wire.Principal{Owner: owner, Actor: numbered(base, n)}
		holder := k.names[p]
		switch {
		case k.reserved[p]:
		case holder == nil:
			k.reserved[p] = true
			return n, p, nil
		case most == 1, holder.snapshot().State.over():
			return n, p, holder
		}
	}
	return 0, wire.Principal{}, nil
}

func (k *Keeper) unname(p wire.Principal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.reserved, p)
}

// numbered is the nth name of a persona: name, name_2, name_3 …, within the length of an actor.
func numbered(name string, n int) string {
	if n == 1 {
		return name
	}
	suffix := "_" + strconv.Itoa(n)
	return name[:min(len(name), wire.MaxToken-len(suffix))] + suffix
}

// vacate waits until the name of an agent that has ended is free.
func (a *agent) vacate(ctx context.Context, p wire.Principal) error {
	ctx, cancel := context.WithTimeout(ctx, vacateTimeout)
	defer cancel()
	for asked := false; ; {
		rec, changed := a.watchChange()
		a.mu.Lock()
		held := a.heldBy
		a.mu.Unlock()
		switch {
		case rec.settled():
			return nil
		case !rec.State.over():
			return taken(p, "its agent is "+rec.State.Phase)
		case !rec.State.lingers() && held+a.k.live(a.uid) > 0:
			return taken(p, "its agent has ended, and those that it started have not; to end them: cotal stop "+p.Actor+" --children")
		case !asked:
			asked = true
			a.send(Event{Kind: EventStop, Reason: rec.State.Reason})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return taken(p, "its last holder is still being retired; try again in a moment")
		}
	}
}

// grantTries bounds how often one grant is asked for whose answer was lost.
const grantTries = 4

// grantName asks the authority. An answer that is lost is asked for again, with the same proof, which is answered with the same grant;
// what is granted in the end and not taken is retired by sweepGrants. The name is reserved; after an error it is free again.
func (k *Keeper) grantName(ctx context.Context, by Caller, rec *record, p wire.Principal) (*material, error) {
	m, err := k.askGrant(ctx, by, rec, p)
	if err != nil {
		k.unname(p)
	}
	return m, err
}

func (k *Keeper) askGrant(ctx context.Context, by Caller, rec *record, p wire.Principal) (*material, error) {
	proof, err := newProof()
	if err != nil {
		return nil, err
	}
	req := wire.AgentGrantRequest{
		Actor: p.Actor, Parent: rec.Parent, ParentUID: rec.ParentUID, Role: rec.Plan.Role,
		Subscribe: given(rec.Plan.AllowSubscribe), Publish: given(rec.Plan.AllowPublish), Scope: given(rec.Plan.Capabilities),
		Label: rec.Label, By: by.Life.Principal.String(), Proof: proof.wire,
	}
	if rec.Parent == "" {
		req.Owner = p.Owner
	}
	m := &material{proof: proof}
	for try := 0; ; try++ {
		m.at = time.Now()
		err := k.ask(ctx, wire.CommandAgentGrant, req, &m.cred)
		if err == nil {
			return m, k.checkGrant(m, p)
		}
		if !lostAnswer(err) || try+1 >= grantTries || ctx.Err() != nil {
			return nil, err
		}
		if pause.For(ctx, backoff(try)) != nil {
			return nil, err
		}
	}
}

// lostAnswer reports that a request may have been carried out, or can be asked again at once.
func lostAnswer(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	return !ok || e.Code == wire.CodeUnavailable || e.Code == wire.CodeDeadlineExceeded || e.Code == wire.CodeCancelled
}

// checkGrant refuses an answer that is not for what was asked.
func (k *Keeper) checkGrant(m *material, p wire.Principal) error {
	if m.cred.Principal != p.String() || m.cred.UID.Validate() != nil || (m.cred.JWT == "") == !m.cred.Exchange {
		return wire.Errorf(wire.CodeContractMismatch, "grant of %q: the authority answered with something else", p)
	}
	return nil
}

// given is a list that is there: the contract knows no absent one.
func given(list []string) []string {
	if list == nil {
		return []string{}
	}
	return slices.Clone(list)
}

// definePersona defines an agent file for a caller, which must not say more than the caller holds.
//
// Errors: unimplemented on a host without agent files; those of the authority, with nothing done; those of the store.
func (k *Keeper) definePersona(ctx context.Context, by Caller, req wire.PersonaRequest) (wire.PersonaReply, error) {
	if k.opts.Personas == nil {
		return wire.PersonaReply{}, wire.Errorf(wire.CodeUnimplemented, "define persona %.80q: this host has no agent files", req.Name)
	}
	who := persona.Definer{Principal: by.Life.Principal.String(), Any: by.Mode == wire.ModeAny}
	if !who.Any {
		grants, err := k.standingGrants(ctx, freshEnough)
		if err != nil {
			return wire.PersonaReply{}, err
		}
		for i, g := range grants {
			if g.UID == by.Life.UID && g.Principal == who.Principal {
				who.Grant = &grants[i]
			}
		}
	}
	p, created, err := k.opts.Personas.Define(who, req)
	return wire.PersonaReply{Persona: p.Wire(true), Created: created}, err
}
