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

// CompleteRoles proposes the roles that are granted or that something waits for, or, without the records of a project, those of
// the peers that are there.
func CompleteRoles(ctx context.Context, e *command.Env) []string {
	roles := map[string]bool{}
	opened(ctx, e, func(ctx context.Context, t *Target) {
		if t.Foreign() || !t.trusted() {
			t.asking(ctx, func(ep *endpoint.Endpoint) {
				r, _ := ep.Roster(ctx)
				for _, en := range r.Entries {
					roles[en.Presence.Card.Role] = true
				}
			})
			return
		}
		node, err := t.Node(ctx)
		if err != nil {
			return
		}
		grants, _ := node.Authority().List(ctx, t.Space())
		for _, g := range grants {
			roles[g.Role] = g.State == trust.GrantActive || roles[g.Role]
		}
		work, _ := node.Authority().Work(ctx, t.Space())
		for role := range work {
			roles[role] = true
		}
	})
	delete(roles, "")
	return slices.Sorted(maps.Keys(roles))
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
	if t.Config.Run == nil && !t.Config.Server.Explicit() {
		return
	}
	fn(ctx, t)
}
