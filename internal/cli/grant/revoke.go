package grant

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const revokeLong = `
Ends a name: its grant, every credential that was ever minted for it, its live connections and its queues of direct
messages. When the command returns, the broker refuses all of it, also after a restart. Others are not touched. The
name can be granted again; it is then a new identity that inherits nothing.

With --key one credential is ended by its public key (U…), and the name stays granted.
`

const revokeExample = `
  cotal revoke nova
  cotal revoke --key UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4
`

// revoke ends a name or one credential.
type revoke struct {
	name string
	key  string
}

// NewRevoke adds `cotal revoke`.
func NewRevoke(t *command.Tree) *cobra.Command {
	r := &revoke{}
	c := t.Add(command.Spec{
		Use: "revoke <name> [flags]", Short: "End a name and everything minted for it", Long: revokeLong, Example: revokeExample,
		Args: command.Maybe("name", &r.name), Complete: command.First(target.CompleteGranted),
	}, r)
	c.Flags().StringVar(&r.key, "key", "", "end one credential by its public user key")
	return c
}

// RevokeResult is what `cotal revoke --json` prints.
type RevokeResult struct {
	command.V
	Space     wire.Space `json:"space"`
	Principal string     `json:"principal,omitempty"`
	Key       string     `json:"key,omitempty"`
	Keys      int        `json:"keys"`              // credentials that are refused from now on
	Kicked    int        `json:"kicked"`            // live connections that were ended besides
	Waiting   uint64     `json:"waiting,omitempty"` // direct messages that it did not handle
	File      string     `json:"file,omitempty"`
}

func (r RevokeResult) human(p *command.Printer) {
	if r.Key != "" {
		p.Line("revoked credential %s in space %s", r.Key, r.Space)
		return
	}
	p.Line("revoked %s in space %s: %s refused from now on", p.Bold(r.Principal), r.Space, plural(r.Keys, "credential"))
	if r.Waiting > 0 {
		p.Line("  %s that waited for it will not be delivered", plural(int(min(r.Waiting, math.MaxInt32)), "direct message"))
	}
	if r.File != "" {
		p.Line("  removed its credential file %s", r.File)
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Run revokes.
func (r *revoke) Run(ctx context.Context, e *command.Env) error {
	if (r.name == "") == (r.key == "") {
		return command.Usagef("want a name or --key, one of them")
	}
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Own("revoke", r.operands()...); err != nil {
		return err
	}
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	res := RevokeResult{V: command.V1, Space: t.Space(), Key: r.key, Keys: 1}
	if r.key != "" {
		if err := node.Authority().RevokeKey(ctx, t.Space(), r.key); err != nil {
			return t.Explain(err)
		}
		return e.Print(res, res.human)
	}
	p, err := Principal(r.name)
	if err != nil {
		return err
	}
	done, err := node.Authority().Revoke(ctx, t.Space(), p)
	if errors.Is(err, wire.ErrNotFound) {
		return command.Hint(err, "which names are granted: cotal grants")
	}
	if err != nil {
		return t.Explain(t.ExplainSilence(ctx, err))
	}
	res.Principal, res.Keys, res.Kicked, res.Waiting = p.String(), done.Keys, done.Kicked, done.Waiting
	res.File = r.removeFile(ctx, t, p)
	return e.Print(res, res.human)
}

// operands repeats what was named.
func (r *revoke) operands() []string {
	if r.key != "" {
		return []string{"--key", r.key}
	}
	return []string{r.name}
}

// removeFile removes the file that mint wrote for the name: it opens nothing any more. Another file under that name
// stays.
func (r *revoke) removeFile(ctx context.Context, t *target.Target, p wire.Principal) string {
	store, err := t.Store()
	if err != nil {
		return ""
	}
	key := t.Config.Project.CredsKey(t.Config.Space.Value, p.Actor)
	data, err := store.Get(ctx, key)
	if err != nil {
		return ""
	}
	creds, err := trust.ParseCredentials(data)
	if err != nil || creds.Identity().Principal != p || creds.Identity().Space != t.Space() {
		return ""
	}
	if err := store.Delete(ctx, key); err != nil && !errors.Is(err, secret.ErrNotFound) {
		return ""
	}
	return t.Config.Project.CredsFile(t.Config.Space.Value, p.Actor)
}

// Principal reads "actor" or "owner.actor".
func Principal(s string) (wire.Principal, error) {
	if strings.Contains(s, ".") {
		return wire.ParsePrincipal(s)
	}
	return wire.Principal{Owner: wire.LocalOwner, Actor: s}, target.CheckActor(s)
}
