// Package doctor is `cotal doctor`: what is wrong, and how it is repaired.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/target"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/internal/config"
	"github.com/cotal-go/cotal/trust"
	"github.com/cotal-go/cotal/wire"
)

const groupLong = `
Looks at what something stands on and says of each part whether it is well, what is wrong, and the command that repairs it.
`

// New adds `cotal doctor`.
func New(t *command.Tree) *cobra.Command {
	return t.Group("doctor", "See what is wrong, and repair it", groupLong, newAuth(t))
}

const authLong = `
Looks at everything that trust in a space stands on: records, seeds and who may read their files; whether the broker holds the accounts of the
records; changes of grants that were left half done, and grants beyond what those above them hold; credentials of daemons; in a space of people
the identity provider, its keys and its clock, the secrets of the space, and whether people can sign in at this moment; and the session of this
machine. Without a running mesh it looks at the rest.

With --fix it repairs what needs no decision of a person, and says what it did. It never shows a secret. Exit code 0 says that nothing fails,
5 that something does; warnings do not count.
`

const authExample = `
  cotal doctor auth
  cotal doctor auth --fix --json
`

// patience bounds the whole of it.
const patience = 2 * time.Minute

// doctor looks at trust.
type doctor struct{ fix bool }

func newAuth(t *command.Tree) *cobra.Command {
	d := &doctor{}
	c := t.Add(command.Spec{Use: "auth [flags]", Short: "Look at what trust in a space stands on", Long: authLong, Example: authExample}, d)
	c.Flags().BoolVar(&d.fix, "fix", false, "repair what needs no decision")
	return c
}

// The checks besides those of package auth.
const (
	checkPlace    = "place"    // the mesh was started in this folder
	checkFiles    = "files"    // nobody else can read what is secret
	checkCallout  = "callout"  // somebody answers the broker about who may come in
	checkExchange = "exchange" // somebody gives tokens
	checkSession  = "session"  // the person of this machine is signed in
)

// Result is what `cotal doctor auth --json` prints.
type Result struct {
	command.V
	Space string `json:"space"`
	Root  string `json:"root,omitempty"`
	// OK says that nothing fails.
	OK     bool           `json:"ok"`
	Checks []auth.Finding `json:"checks"`
}

// examination is one run.
type examination struct {
	fix bool
	e   *command.Env
	t   *target.Target
	out []auth.Finding
	// open says that files which the store therefore refuses are told and still so.
	open bool
}

func (x *examination) add(status auth.FindingStatus, check, repair, format string, args ...any) {
	x.out = append(x.out, auth.Finding{Check: check, Status: status, Repair: repair, Text: fmt.Sprintf(format, args...)})
}

// Run looks, and with --fix repairs.
func (d *doctor) Run(ctx context.Context, e *command.Env) error {
	e.Changes = d.fix
	t, err := target.Open(e)
	if err != nil {
		return err
	}
	defer t.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	x := &examination{fix: d.fix, e: e, t: t}
	res := Result{V: command.V1, Space: string(t.Space())}
	if t.Config.Remote == nil {
		if t.Config.Open || t.Config.Project == nil || !t.Config.Project.Trusted() && !remains(t.Config.Project) {
			_, err := t.Store() // says why there is nothing to look at
			return err
		}
		res.Root = t.Config.Project.Root
		if from := target.Moved(t.Config); from != "" {
			x.add(auth.FindingFail, checkPlace, target.StartHere, "the mesh was started in %s, which was moved since, and still writes there", from)
		}
		if t.Config.Project.Trusted() {
			x.records(ctx)
		} else {
			x.files()
			x.add(auth.FindingFail, auth.CheckRecords, "restore the folder from a backup; without one the mesh can only be made anew, with nothing and nobody of before",
				"%s is missing or cannot be reached, and records that belong to it are there", filepath.Join(t.Config.Project.Dir, filepath.FromSlash(trust.BrokerKey)))
		}
	}
	x.person(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	res.Checks, res.OK = x.out, !auth.Failed(x.out)
	if err := e.Print(res, res.human); err != nil {
		return err
	}
	return res.err()
}

// remains reports whether a project without a record of its broker holds records all the same: they are not to be made anew.
func remains(p *config.Project) bool {
	entries, err := os.ReadDir(filepath.Join(p.Dir, "auth"))
	return len(entries) > 0 || errors.Is(err, fs.ErrPermission)
}

func (r Result) count(s auth.FindingStatus) int {
	n := 0
	for _, f := range r.Checks {
		if f.Status == s {
			n++
		}
	}
	return n
}

func (r Result) err() error {
	if r.OK {
		return nil
	}
	all, failed := map[string]bool{}, map[string]bool{}
	for _, f := range r.Checks { // one check may have several findings
		all[f.Check] = true
		if f.Status == auth.FindingFail {
			failed[f.Check] = true
		}
	}
	verb := "fail"
	if len(failed) == 1 {
		verb = "fails"
	}
	e := wire.Errorf(wire.CodeFailedPrecondition, "%d of %s %s", len(failed), view.Plural(uint64(len(all)), "check"), verb)
	e.Details = map[string]any{"failed": len(failed)}
	return e
}

func (r Result) human(p *command.Printer) {
	p.Line("trust in space %s%s", p.Bold(command.Safe(r.Space)), at(r.Root))
	for _, f := range r.Checks {
		word := word(f)
		if padded := fmt.Sprintf("%-5s", word); f.Status == auth.FindingFail {
			word = p.Bold(padded)
		} else {
			word = padded
		}
		about := f.Check
		if f.Subject != "" {
			about += " " + f.Subject
		}
		p.Line("  %s %s: %s", word, command.Safe(about), command.SafeBody(f.Text, "          "))
		if f.Repair != "" {
			p.Line("        → %s", command.SafeBody(f.Repair, "          "))
		}
	}
	if warn := r.count(auth.FindingWarn); r.OK && warn > 0 {
		p.Line("nothing fails; %s", view.Plural(uint64(warn), "warning"))
	} else if r.OK {
		p.Line("all well")
	}
}

func word(f auth.Finding) string {
	switch {
	case f.Fixed:
		return "fixed"
	case f.Status == auth.FindingFail:
		return "FAIL"
	}
	return string(f.Status)
}

func at(root string) string {
	if root == "" {
		return ""
	}
	return " of " + command.Safe(root)
}
