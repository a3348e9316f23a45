package space

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const removeLong = `
Removes a space with everything in it: messages, grants, keys, connections. There is no way back. Without --force it
only says what would go, and ends with exit code 5. The other spaces of the mesh are not touched.
`

const removeExample = `
  cotal space rm lab
  cotal space rm lab --force
`

type remove struct {
	name  string
	force bool
}

func newRemove(t *command.Tree) *cobra.Command {
	r := &remove{}
	c := t.Add(command.Spec{
		Use: "rm <space> [flags]", Short: "Remove a space and everything in it", Long: removeLong, Example: removeExample,
		Args: command.One("space", &r.name), Complete: func(_ context.Context, _ *command.Env, args []string) []string {
			if len(args) > 0 {
				return nil
			}
			return t.Spaces()
		},
	}, r)
	c.Flags().BoolVar(&r.force, "force", false, "really remove it")
	return c
}

// Content is what a space holds.
type Content struct {
	ChannelMessages uint64 `json:"channelMessages"`
	DirectMessages  uint64 `json:"directMessages"`
	RoleMessages    uint64 `json:"roleMessages"`
	Grants          int    `json:"grants"`
	Bytes           uint64 `json:"bytes"`
}

func (c Content) String() string {
	return fmt.Sprintf("%s, %s, %s and %s", plural(c.ChannelMessages, "channel message"), plural(c.DirectMessages, "direct message"),
		plural(c.RoleMessages, "open role message"), plural(uint64(c.Grants), "grant"))
}

// Run counts, and removes when that was confirmed.
func (r *remove) Run(ctx context.Context, e *command.Env) error {
	s, err := wire.ParseSpace(r.name)
	if err != nil {
		return err
	}
	t, node, err := target.OpenNode(ctx, e, "space", "rm", r.name)
	if err != nil {
		return err
	}
	defer t.Close()
	content, err := count(ctx, node, s)
	if errors.Is(err, wire.ErrNotFound) {
		return command.Hint(wire.Errorf(wire.CodeNotFound, "no space %q in this mesh", r.name), "which spaces there are: cotal space list")
	}
	if err != nil {
		return t.Explain(err)
	}
	if !r.force {
		refusal := wire.Errorf(wire.CodeFailedPrecondition, "space %q holds %s; nothing was removed", r.name, content)
		refusal.Outcome, refusal.Details = wire.OutcomeNotExecuted, map[string]any{"content": content}
		return command.Hint(refusal, "to remove all of it for good: cotal space rm "+r.name+" --force")
	}
	e.Progress("removing space %s: %s", r.name, content)
	if err := node.RemoveSpace(ctx, r.name); err != nil {
		return t.Explain(err)
	}
	names, err := t.NoteSpaces(ctx, node)
	if err != nil {
		return err
	}
	res := ChangeResult{V: command.V1, Space: r.name, Done: "removed", Spaces: names, Removed: &content}
	return e.Print(res, func(p *command.Printer) {
		p.Line("removed space %s with %s", p.Bold(r.name), content)
	})
}

// count looks into the streams with a credential that may do no more than look and delete, for seconds.
func count(ctx context.Context, node *cotal.NodeClient, s wire.Space) (Content, error) {
	var c Content
	grants, err := node.Authority().List(ctx, s)
	if err != nil {
		return c, err
	}
	for _, g := range grants {
		if g.State != trust.GrantRetired {
			c.Grants++
		}
	}
	creds, err := node.Authority().ServiceCredential(ctx, s, trust.Teardown, 0)
	if err != nil {
		return c, err
	}
	nc, err := node.Dial(ctx, creds)
	if err != nil {
		return c, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return c, fmt.Errorf("open JetStream of space %q: %w", s, err)
	}
	for stream, into := range map[string]*uint64{
		wire.ChatStream(s): &c.ChannelMessages, wire.DirectStream(s): &c.DirectMessages, wire.RoleStream(s): &c.RoleMessages,
	} {
		st, err := js.Stream(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // half removed or half made; there is nothing to count
		}
		if err != nil {
			return c, wire.Errorf(wire.CodeUnavailable, "count messages of space %q: %v", s, err)
		}
		*into = st.CachedInfo().State.Msgs
		c.Bytes += st.CachedInfo().State.Bytes
	}
	return c, nil
}
