package supervisor

import (
	"context"
	"time"

	"github.com/cotal-go/cotal/wire"
)

// Speak makes the keeper speak through ask and tell until the returned function is called.
func (k *Keeper) Speak(ask func(ctx context.Context, command string, args, out any) error, tell func(wire.AgentStatus)) (detach func() int) {
	return k.attach(&face{ask: ask, tell: tell})
}

// RosterIs gives the keeper the whole roster, RosterHas one change.
func (k *Keeper) RosterIs(entries ...wire.RosterEntry) { k.rosterIs(entries, false) }
func (k *Keeper) RosterHas(e wire.RosterEntry)         { k.rosterHas(e) }

// DefinePersona is the command persona.
func (k *Keeper) DefinePersona(ctx context.Context, by Caller, req wire.PersonaRequest) (wire.PersonaReply, error) {
	return k.definePersona(ctx, by, req)
}

// SweepGrants looks for grants that nobody holds now.
func (k *Keeper) SweepGrants(ctx context.Context) error { return k.sweepGrants(ctx) }

// Reaching is an environment in which cotal is found.
func Reaching(env []string, program string) []string { return reaching(env, program) }

// Environment is that of an agent.
func Environment(ours, pass []string, set ...map[string]string) []string {
	return environment(ours, pass, set...)
}

// HeardPeer takes what another keeper said of itself.
func (k *Keeper) HeardPeer(p wire.ManagerPeer) { k.heardPeer(p, time.Now()) }

// CheckAgents is the health check of what is looked after.
func (k *Keeper) CheckAgents(ctx context.Context) error { return k.checkAgents(ctx) }

// Sessions counts the sessions that are open at the terminals of the keeper's agents.
func (k *Keeper) Sessions() int { return k.relay.Sessions() }

// HoldPeers keeps the file of the other keepers from being written, as a slow disk does, until release.
func (k *Keeper) HoldPeers() (release func()) {
	k.saving.Lock()
	return k.saving.Unlock
}

// HoldRecord keeps the record of an agent from changing, as a slow disk does, until release.
func (k *Keeper) HoldRecord(u wire.UID) (release func()) {
	a := k.find(u)
	a.saving.Lock()
	return a.saving.Unlock
}
