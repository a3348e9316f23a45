// Package actor is `cotal actor`: what the people and agents of a space may do, and who is above and below them.
package actor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
In a space of people everybody signs in at the identity provider, and an actor is a name that somebody may act under: its owner
is the person, and its grant says what it may read, post to and start. These commands grant, show and take away.

An owner is written u_ and 26 characters. It stands for one subject of the identity provider in this space; --sub takes the subject
itself. Where a name alone is enough, --owner may also be the beginning of an owner.
`

// New adds `cotal actor`.
func New(t *command.Tree) *cobra.Command {
	return t.Group("actor", "Grant, show and take away what actors may do", groupLong, newGrant(t), newList(t), newShow(t), newRevoke(t))
}

// Row is one grant.
type Row struct {
	Name      string   `json:"name"`
	Owner     string   `json:"owner"`
	UID       wire.UID `json:"uid"`
	Epoch     uint64   `json:"epoch"`
	Kind      string   `json:"kind"`
	State     string   `json:"state"`
	Scope     []string `json:"scope"`
	Subscribe []string `json:"allowSubscribe"`
	Publish   []string `json:"allowPublish"`
	Role      string   `json:"role,omitempty"`
	Label     string   `json:"label,omitempty"`
	// Parent is the principal that it is held under.
	Parent  string     `json:"parent,omitempty"`
	Expires *time.Time `json:"expires,omitempty"` // the end of the grant; absent for none
	Created time.Time  `json:"created"`
	By      string     `json:"by"`
	// Unfinished says that rights were taken away and what was open under them may still be.
	Unfinished bool `json:"unfinished,omitempty"`
	// Refused says that it is of before people signed in at the space: it lets nobody in any more.
	Refused bool `json:"refused,omitempty"`
}

func rowOf(g trust.Grant) Row {
	return Row{
		Name: g.Actor, Owner: g.Owner, UID: g.UID, Epoch: g.Epoch, Kind: string(g.Kind), State: string(g.State), Scope: orEmpty(g.Scope),
		Subscribe: orEmpty(g.AllowSubscribe), Publish: orEmpty(g.AllowPublish), Role: g.Role, Label: g.Label, Parent: g.Parent,
		Expires: g.ExpiresAt, Created: g.CreatedAt, By: g.By, Unfinished: g.Refusing != 0,
	}
}

// state is the state as a person reads it.
func (r Row) state() string {
	if r.Refused {
		return "refused"
	}
	if r.State == string(trust.GrantActive) && r.Expires != nil && !time.Now().Before(*r.Expires) {
		return "expired"
	}
	return r.State
}

func (r Row) expires() string {
	if r.Expires == nil {
		return "never"
	}
	return view.When(*r.Expires)
}

// who names the actor for a person.
func (r Row) who() string { return r.Name + " of " + r.Owner }

// short is an owner that is still told from others.
func short(owner string) string {
	const shown = 10
	if len(owner) <= shown {
		return owner
	}
	return owner[:shown] + "…"
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func dash(s string) string { return cmp.Or(s, "-") }

func list(s []string) string { return dash(strings.Join(s, ",")) }

// whose are the flags that choose an owner.
type whose struct{ sub, owner string }

func (w *whose) flags(t *command.Tree, c *cobra.Command) {
	c.Flags().StringVar(&w.sub, "sub", "", "whose, by the subject at the identity provider")
	c.Flags().StringVar(&w.owner, "owner", "", "whose, by the owner (u_…)")
	completeOwners(t, c)
}

func (w *whose) check() error {
	if w.sub != "" && w.owner != "" {
		return command.Usagef("--sub and --owner exclude each other")
	}
	return nil
}

// named reports whether an owner was named.
func (w *whose) named() bool { return w.sub != "" || w.owner != "" }

// ownerOf returns the owner that a text stands for: an owner, or the beginning of one that has a grant.
//
// Errors: bad-request for what is neither; conflict when several begin so.
func ownerOf(all []trust.Grant, given string) (string, error) {
	if given == wire.LocalOwner || trust.ValidateOwner(given) == nil {
		return given, nil
	}
	start := strings.TrimSuffix(given, "…")
	var fits []string
	for _, g := range all {
		if len(start) > len("u_") && strings.HasPrefix(g.Owner, start) && !slices.Contains(fits, g.Owner) {
			fits = append(fits, g.Owner)
		}
	}
	switch len(fits) {
	case 0:
		err := command.Usagef("owner %q: neither u_ and 26 characters nor the beginning of an owner that has a grant", given)
		return "", command.Hint(err, "which there are, each with its beginning: cotal actor list --all")
	case 1:
		return fits[0], nil
	}
	slices.Sort(fits)
	return "", wire.Errorf(wire.CodeConflict, "owner %q may be %s", given, strings.Join(fits, " or "))
}

// find returns the grant of a name: of an owner if one is named, else of the only one who has it. Of several those that were not
// revoked come first.
//
// Errors: not-found; conflict when several owners have the name, with the command for each.
func find(all []trust.Grant, name, owner, verb string) (trust.Grant, error) {
	var fits []trust.Grant
	for _, g := range all {
		if g.Actor == name && (owner == "" || g.Owner == owner) {
			fits = append(fits, g)
		}
	}
	if alive := slices.DeleteFunc(slices.Clone(fits), func(g trust.Grant) bool { return g.State == trust.GrantRetired }); len(alive) > 0 {
		fits = alive
	}
	switch {
	case len(fits) == 1:
		return fits[0], nil
	case len(fits) == 0 && owner != "":
		return trust.Grant{}, command.Hint(wire.Errorf(wire.CodeNotFound, "nobody granted %q of owner %s anything", name, owner), unknown(all, name)...)
	case len(fits) == 0:
		return trust.Grant{}, command.Hint(wire.Errorf(wire.CodeNotFound, "nobody granted %q anything", name), unknown(all, name)...)
	}
	var owners, hints []string
	for _, g := range fits {
		owners = append(owners, g.Owner)
		hints = append(hints, "cotal actor "+verb+" "+name+" --owner "+g.Owner)
	}
	return trust.Grant{}, command.Hint(wire.Errorf(wire.CodeConflict, "%q is a name of several owners: %s", name, strings.Join(owners, ", ")), hints...)
}

// unknown says what to do about a name that has no grant.
func unknown(all []trust.Grant, name string) []string {
	var active []string
	for _, g := range all {
		if g.State == trust.GrantActive {
			active = append(active, g.Actor)
		}
	}
	hints := []string{"which names there are: cotal actor list"}
	if meant := command.Meant(name, active); meant != "" {
		hints = append(hints, meant)
	}
	return hints
}

// checkName refuses what cannot be the name of an actor; "owner.name" is taken apart.
func checkName(name string, w *whose) (string, error) {
	if owner, actor, ok := strings.Cut(name, "."); ok && !w.named() {
		w.owner, name = owner, actor
	}
	if err := w.check(); err != nil {
		return "", err
	}
	return name, target.CheckActor(name)
}
