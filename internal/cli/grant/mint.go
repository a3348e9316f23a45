package grant

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal"
	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/secret"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const mintLong = `
Grants a name in the space and writes its credential to a file that only you can read. The holder of the file speaks
as local.<name>, with the rights given here and until it expires; the broker enforces both.

A channel pattern is a name such as team.backend, with * for one level and > for everything below. Nothing is allowed
that is not listed: without --allow-subscribe the holder reads no channel, without --allow-publish it posts to none.
Direct messages to and from the holder always work. That is an agent; an observer receives every channel and says
nothing, an admin also reads inboxes, an operator posts to every channel and receives nothing. The history that these
read is that of --allow-subscribe.

With --capability spawn the holder asks supervisors for agents and commands those that were started under it; what it starts holds
nothing beyond it, and is refused while the holder is an observer or admin. An agent that is to take messages of a role needs
--capability role:<role> in whoever starts it.

A name that is granted already is refused. With --renew it gets a later credential and keeps its identity, its
direct messages and the rights that are not named again; a running endpoint takes the new file up by itself. When that
takes nothing away, the credentials before it work until they expire. When it does, or is of another profile, they are
refused from then on and their connections end; what runs under another profile has to be started again.
`

const mintExample = `
  cotal mint nova --allow-subscribe 'team.>' --allow-publish team.backend
  cotal mint reviewer1 --role reviewer --ttl 8h --out ./reviewer1.creds
  cotal mint lead --allow-subscribe 'team.>' --allow-publish 'team.>' --capability spawn,role:reviewer
  cotal mint nova --renew
`

// profiles that can be asked for; the others belong to the roles of the mesh itself.
var profiles = []trust.Profile{trust.Agent, trust.Observer, trust.Admin, trust.Operator}

// mint grants a name and writes its credential.
type mint struct {
	name      string
	profile   string
	role      string
	subscribe []string
	publish   []string
	commands  []string
	able      []string // capabilities
	label     string
	ttl       time.Duration
	out       string
	renew     bool
	force     bool
}

// NewMint adds `cotal mint`.
func NewMint(t *command.Tree) *cobra.Command {
	m := &mint{}
	c := t.Add(command.Spec{
		Use: "mint <name> [flags]", Short: "Grant a name and write its credential", Long: mintLong, Example: mintExample,
		Args: command.One("name", &m.name), Changes: true,
	}, m)
	f := c.Flags()
	f.StringVar(&m.profile, "profile", "", "agent, observer (receives all channels), admin (also inboxes) or operator (posts everywhere) (default agent, or with --renew what it was)")
	f.StringVar(&m.role, "role", "", "role whose messages the holder takes, one holder each")
	f.StringSliceVar(&m.subscribe, "allow-subscribe", nil, "channel patterns the holder may read")
	f.StringSliceVar(&m.publish, "allow-publish", nil, "channel patterns the holder may post to")
	f.StringSliceVar(&m.commands, "allow-command", nil, "further control commands, <endpoint>.<command>")
	f.StringSliceVar(&m.able, "capability", nil, "spawn (start agents), role:<role> (hand the role on to them)")
	f.StringVar(&m.label, "label", "", "free text kept with the grant")
	f.Var(command.DurationFlag(&m.ttl), "ttl", "life of the credential, such as 8h or 30d (default: the profile's, 24h for agents)")
	f.StringVarP(&m.out, "out", "o", "", "file to write, - for standard output (default .cotal/auth/creds/space.<hex>/<name>.creds)")
	f.BoolVar(&m.renew, "renew", false, "a later credential of a name that is granted; replaces the file")
	f.BoolVar(&m.force, "force", false, "replace a file that exists")
	_ = c.RegisterFlagCompletionFunc("profile", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return profileNames(), cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

func profileNames() []string {
	out := make([]string, len(profiles))
	for i, p := range profiles {
		out[i] = string(p)
	}
	return out
}

// MintResult is what `cotal mint --json` prints. It never holds the credential itself.
type MintResult struct {
	command.V
	Space     wire.Space `json:"space"`
	Principal string     `json:"principal"`
	UID       wire.UID   `json:"uid"`
	Profile   string     `json:"profile"`
	Role      string     `json:"role,omitempty"`
	Subscribe []string   `json:"allowSubscribe"`
	Publish   []string   `json:"allowPublish"`
	Commands  []string   `json:"commands"`
	Spawns    bool       `json:"spawns"` // it may start agents
	Reads     []string   `json:"reads"`  // channels it receives, by its profile and lists
	Posts     []string   `json:"posts"`  // channels it may post to, likewise
	UserKey   string     `json:"userKey"`
	Expires   time.Time  `json:"expires"`
	File      string     `json:"file,omitempty"`
	// Refused says what became of the credentials before it, when it took rights away or is of another profile.
	Refused *auth.Refusal `json:"refused,omitempty"`
}

func (r MintResult) human(p *command.Printer) {
	p.Line("minted %s in space %s, profile %s, until %s", p.Bold(r.Principal), r.Space, r.Profile, r.Expires.Local().Format(time.DateTime))
	if r.Role != "" {
		p.Line("  takes messages of role: %s", r.Role)
	}
	for _, line := range r.rights() {
		p.Line("  %s", line)
	}
	if len(r.Commands) > 0 {
		p.Line("  commands: %s", list(r.Commands))
	}
	if r.Spawns {
		p.Line("  starts agents, and commands those that it started")
	}
	p.Line("  credential: %s", r.File)
	if r.Refused != nil {
		p.Line("  what was minted before is refused from now on: %s", plural(r.Refused.Keys, "credential"))
		for _, a := range r.Refused.Exceeding {
			p.Line("  an agent under it is refused with it, until it fits there again: %s", a)
		}
	}
}

// rights says what the credential can do, in which the profile may go beyond the lists.
func (r MintResult) rights() []string {
	switch trust.Profile(r.Profile) {
	case trust.Observer, trust.Admin:
		return []string{"reads channels: all, as messages come", r.history(), "posts to channels: none; no direct messages"}
	case trust.Operator:
		return []string{"reads channels: none as messages come", r.history(), "posts to channels: all; sends direct messages, receives none"}
	}
	return []string{"reads channels: " + list(r.Subscribe), "posts to channels: " + list(r.Publish)}
}

func (r MintResult) history() string {
	if len(r.Subscribe) == 0 {
		return "reads history of: none; to change that: --allow-subscribe <pattern>"
	}
	return "reads history of: " + list(r.Subscribe)
}

func list(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// Run grants, mints, writes.
func (m *mint) Run(ctx context.Context, e *command.Env) error {
	if m.profile != "" && !slices.Contains(profileNames(), m.profile) {
		return command.Usagef("--profile %q: want one of %s", m.profile, strings.Join(profileNames(), ", "))
	}
	if m.ttl < 0 {
		return command.Usagef("--ttl %s: must not be negative", m.ttl)
	}
	if m.out == "-" && e.JSON {
		return command.Usagef("--out - writes the credential to standard output, where --json writes its result")
	}
	if err := target.CheckActor(m.name); err != nil {
		return err
	}
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	node, err := t.Node(ctx)
	if err != nil {
		return err
	}
	f, err := m.file(ctx, e, t)
	if err != nil {
		return m.refused(ctx, node, t.Space(), err)
	}
	creds, done, err := m.issue(ctx, node.Authority(), t.Space())
	if err != nil {
		return m.explain(t.Space(), t.ExplainSilence(ctx, err))
	}
	if err := f.write(ctx, creds.Reveal()); err != nil {
		return command.Hint(err, "the name is granted; write its credential elsewhere: cotal mint "+m.name+" --renew --out <file>")
	}
	return m.print(e, creds.Identity(), done, f.path)
}

func (m *mint) issue(ctx context.Context, a *auth.Authority, s wire.Space) (creds *trust.Credentials, done auth.Refusal, err error) {
	req := auth.Request{
		Space: s, Actor: m.name, Profile: trust.Profile(m.profile), Role: m.role, Subscribe: m.subscribe,
		Publish: m.publish, Commands: m.commands, Capabilities: m.able, Label: m.label, TTL: m.ttl,
	}
	if m.renew {
		return a.Renew(ctx, req)
	}
	creds, err = a.Issue(ctx, req)
	return creds, done, err
}

func (m *mint) print(e *command.Env, id trust.Identity, done auth.Refusal, path string) error {
	r := MintResult{
		V: command.V1, Space: id.Space, Principal: id.Principal.String(), UID: id.UID, Profile: string(id.Profile), Role: id.Role,
		Subscribe: orEmpty(id.Subscribe), Publish: orEmpty(id.Publish), Commands: orEmpty(id.Commands), Spawns: id.Spawns, UserKey: id.UserKey, Expires: id.Expires, File: path,
	}
	r.Reads, r.Posts = view.Rights(id)
	if done.Narrowed {
		r.Refused = &done
	}
	if path == "" {
		e.Note("minted %s in space %s until %s", r.Principal, r.Space, r.Expires.Local().Format(time.DateTime))
		if done.Narrowed {
			e.Note("what was minted before is refused from now on: %s", plural(done.Keys, "credential"))
		}
		return nil
	}
	if err := e.Print(r, r.human); err != nil {
		return err
	}
	if id.Profile == trust.Agent && len(id.Subscribe)+len(id.Publish) == 0 {
		e.Note("note: %s reads and posts to no channel; to change that: cotal mint %s --renew%s --allow-subscribe <pattern> --allow-publish <pattern>", m.name, m.name, m.where())
	}
	return nil
}

func (m *mint) explain(s wire.Space, err error) error {
	switch {
	case trust.ReasonOf(err) == trust.ReasonUserMode:
		refusal := trust.Deny(wire.CodeFailedPrecondition, trust.ReasonUserMode, "space %q signs people in and hands out no credential files", s)
		return command.Hint(refusal, "a person runs cotal login, which shows the line that grants them something",
			"whoever has not signed in yet is granted by their subject at the identity provider: cotal actor grant "+m.name+" --sub SUBJECT --full")
	case errors.Is(err, wire.ErrExists) && m.renew: // it is no grant of a credential file
		return command.Hint(err, "only a name that cotal mint granted is renewed so: an agent's supervisor renews its, and the commands of a person their own; see cotal grants")
	case errors.Is(err, wire.ErrExists):
		return command.Hint(err, "a later credential of the same identity: cotal mint "+m.name+" --renew"+m.where(), "end that identity first: cotal revoke "+m.name)
	case errors.Is(err, wire.ErrConflict):
		return command.Hint(err, "somebody changed the grant at the same time: run it again")
	case errors.Is(err, wire.ErrNotFound):
		return command.Hint(err, "grant the name first, without --renew: cotal mint "+m.name, "which names are granted: cotal grants")
	}
	return err
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// file is where a credential goes.
type file struct {
	path  string // empty: standard output
	write func(ctx context.Context, data []byte) error
}

// file decides where the credential goes and refuses before anything is granted when it could not go there.
func (m *mint) file(ctx context.Context, e *command.Env, t *target.Target) (file, error) {
	if m.out == "-" {
		return file{write: func(_ context.Context, data []byte) error {
			_, err := e.Stdout.Write(data)
			return command.Unwritten(err)
		}}, nil
	}
	replace := m.renew || m.force
	if m.out != "" {
		path := m.out
		if !filepath.IsAbs(path) {
			path = filepath.Join(e.Dir, path)
		}
		return m.outside(path, m.force || m.renew && isCreds(path))
	}
	store, err := t.Store()
	if err != nil {
		return file{}, err
	}
	key := t.Config.Project.CredsKey(t.Config.Space.Value, m.name)
	path := t.Config.Project.CredsFile(t.Config.Space.Value, m.name)
	if !replace {
		if _, err := store.Get(ctx, key); err == nil {
			return file{}, m.exists(path)
		} else if !errors.Is(err, secret.ErrNotFound) {
			return file{}, wire.Errorf(wire.CodeFailedPrecondition, "look for credential %q: %v", path, err)
		}
	}
	return file{path: path, write: func(ctx context.Context, data []byte) error {
		if replace {
			return m.storeError(path, store.Put(ctx, key, data))
		}
		return m.storeError(path, store.Create(ctx, key, data))
	}}, nil
}

// outside is a file that the person named.
func (m *mint) outside(path string, replace bool) (file, error) {
	if _, err := os.Lstat(path); err == nil && !replace {
		return file{}, m.exists(path)
	}
	return file{path: path, write: func(_ context.Context, data []byte) error {
		return config.WritePrivate(path, data, replace)
	}}, nil
}

// isCreds reports whether the file holds a credential, so that a renewal may replace it.
func isCreds(path string) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	_, err = trust.ParseCredentials(data)
	return err == nil
}

func (m *mint) exists(path string) error {
	return wire.Errorf(wire.CodeAlreadyExists, "credential file %q exists and is not replaced; nothing was granted", path)
}

// where repeats the file that was named.
func (m *mint) where() string {
	if m.out == "" {
		return ""
	}
	return " --out " + command.Quote(m.out)
}

// refused adds to the refusal of a file what works: a granted name is renewed, any other is granted anew in a file that is
// replaced or another one.
func (m *mint) refused(ctx context.Context, node *cotal.NodeClient, s wire.Space, err error) error {
	if !errors.Is(err, wire.ErrExists) {
		return err
	}
	elsewhere := "or write elsewhere with --out <file>"
	if m.renew {
		return command.Hint(err, "it holds no credential; to replace it all the same, repeat the command with --force", elsewhere)
	}
	all, lerr := node.Authority().List(ctx, s)
	if lerr != nil {
		return err
	}
	active := slices.ContainsFunc(all, func(g trust.Grant) bool {
		return g.State == trust.GrantActive && g.Principal() == wire.Principal{Owner: wire.LocalOwner, Actor: m.name}
	})
	if active {
		return command.Hint(err, "a later credential of the same identity: cotal mint "+m.name+" --renew"+m.where(), elsewhere+" besides")
	}
	return command.Hint(err, "grant "+m.name+" and replace the file: repeat the command with --force", elsewhere)
}

func (m *mint) storeError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, secret.ErrExists):
		return m.exists(path)
	}
	return wire.Errorf(wire.CodeFailedPrecondition, "write credential %q: %v", path, err)
}
