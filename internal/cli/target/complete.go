package target

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

// completeTimeout bounds what a shell waits for candidates. A mesh that does not answer by then has none.
const completeTimeout = 2 * time.Second

// CompleteChannels proposes the channels of the space, or nothing when the mesh does not answer at once.
func CompleteChannels(ctx context.Context, e *command.Env) []string {
	var out []string
	complete(ctx, e, func(ctx context.Context, ep *endpoint.Endpoint) {
		list, err := ep.Channels(ctx)
		if err != nil {
			return
		}
		for _, c := range list.Channels {
			out = append(out, c.Channel)
		}
	})
	return out
}

// CompleteNames proposes the peers of the space, or nothing when the mesh does not answer at once.
func CompleteNames(ctx context.Context, e *command.Env) []string {
	var out []string
	complete(ctx, e, func(ctx context.Context, ep *endpoint.Endpoint) {
		r, err := ep.Roster(ctx)
		if err != nil {
			return
		}
		for _, en := range r.Entries {
			out = append(out, PeerOf(en).ID().Actor)
		}
	})
	return out
}

// CompleteGranted proposes the names that hold credential files or an agent's rights of the project's own records, or nothing when the
// mesh does not answer at once.
func CompleteGranted(ctx context.Context, e *command.Env) []string {
	return CompleteNode(ctx, e, func(ctx context.Context, t *Target, node *cotal.NodeClient) []string {
		grants, _ := node.Authority().List(ctx, t.Space())
		var out []string
		for _, g := range grants {
			if g.State == trust.GrantActive && g.Owner == wire.LocalOwner {
				out = append(out, g.Actor)
			}
		}
		return out
	})
}

// CompleteRoles proposes the roles that are granted or that something waits for, or, without the records of a project, those of
// the peers that are there.
func CompleteRoles(ctx context.Context, e *command.Env) []string {
	var roles []string
	opened(ctx, e, func(ctx context.Context, t *Target) {
		if t.Foreign() || !t.trusted() {
			t.asking(ctx, func(ep *endpoint.Endpoint) { roles = t.heldRoles(ctx, ep) })
			return
		}
		node, err := t.Node(ctx)
		if err != nil {
			return
		}
		roles = t.heldRoles(ctx, nil)
		work, _ := node.Authority().Work(ctx, t.Space())
		roles = slices.AppendSeq(roles, maps.Keys(work))
	})
	slices.Sort(roles)
	return slices.Compact(roles)
}

// heldRoles are the roles that are granted, as far as the command spoke with the node, and else those of the peers that are there.
func (t *Target) heldRoles(ctx context.Context, ep *endpoint.Endpoint) []string {
	held := map[string]bool{}
	if t.node != nil {
		grants, _ := t.node.Authority().List(ctx, t.Space())
		for _, g := range grants {
			if g.State == trust.GrantActive {
				held[g.Role] = true
			}
		}
	} else {
		r, _ := ep.Roster(ctx)
		for _, en := range r.Entries {
			held[en.Presence.Card.Role] = true
		}
	}
	delete(held, "")
	return slices.Sorted(maps.Keys(held))
}

// MeantRole is a hint that names roles which are held and near one that nobody holds; "" for none, and when nobody says.
func (t *Target) MeantRole(ctx context.Context, ep *endpoint.Endpoint, role string) string {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	held := t.heldRoles(ctx, ep)
	if slices.Contains(held, role) {
		return ""
	}
	return command.Meant(role, held)
}

// CompleteNode proposes what fn finds at the node of the project, or nothing when it does not answer at once.
func CompleteNode(ctx context.Context, e *command.Env, fn func(context.Context, *Target, *cotal.NodeClient) []string) []string {
	var out []string
	own := *e
	own.Records = true
	opened(ctx, &own, func(ctx context.Context, t *Target) {
		if node, err := t.Node(ctx); err == nil {
			out = fn(ctx, t, node)
		}
	})
	return out
}

func complete(ctx context.Context, e *command.Env, fn func(context.Context, *endpoint.Endpoint)) {
	opened(ctx, e, func(ctx context.Context, t *Target) {
		t.asking(ctx, func(ep *endpoint.Endpoint) { fn(ctx, ep) })
	})
}

// asking joins the space to ask something, in silence when that does not work.
func (t *Target) asking(ctx context.Context, fn func(*endpoint.Endpoint)) {
	ep, err := t.Endpoint(ctx, Looking)
	if err != nil {
		return
	}
	defer func() { _ = ep.Close() }()
	fn(ep)
}

// opened opens the target of a line that is being completed, if anything runs there that this machine knows of.
func opened(ctx context.Context, e *command.Env, fn func(context.Context, *Target)) {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	silent := *e
	silent.Stderr = io.Discard // what it says would stand in the line being completed
	t, err := Open(&silent)
	if err != nil {
		return
	}
	defer t.Close()
	if t.Config.Run == nil && t.Config.Remote == nil && !t.Config.Server.Explicit() && t.launch == nil {
		return
	}
	fn(ctx, t)
}
