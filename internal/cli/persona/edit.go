package persona

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/cli/view"
	"github.com/cotal-go/cotal/supervisor/persona"
	"github.com/cotal-go/cotal/wire"
)

const editLong = `
Opens an agent file in your editor ($VISUAL, else $EDITOR, else vi) and takes the result if it is valid. If it is not, the file stays as
it was, your draft is kept, and everything that is wrong is told with its line; at a terminal you are asked whether to go on. A draft
is taken later with --from, which opens no editor. Without a terminal an editor that needs one is not opened.

When somebody else changed the file in between, it is left to them and your draft is kept.
`

const editExample = `
  cotal persona edit reviewer
  EDITOR="code --wait" cotal persona edit default
  cotal persona edit reviewer --from reviewer-draft.md
`

// edit changes a file.
type edit struct{ name, from string }

func newEdit(t *command.Tree) *cobra.Command {
	ed := &edit{}
	c := t.Add(command.Spec{
		Use: "edit <persona> [flags]", Short: "Change an agent file in your editor", Long: editLong, Example: editExample, Target: command.TargetNone,
		Args: command.One("persona", &ed.name), Complete: names,
	}, ed)
	c.Flags().StringVar(&ed.from, "from", "", "take this file as it is instead of opening an editor; - reads standard input")
	return c
}

// Run edits.
func (ed *edit) Run(ctx context.Context, e *command.Env) error {
	if err := own(e, "change", ed.name); err != nil {
		return err
	}
	s, err := store(e)
	if err != nil {
		return err
	}
	was, err := s.Source(ed.name)
	if err != nil {
		return unknown(s, ed.name, err, makeIt(ed.name))
	}
	if ed.from == "" {
		if err := onTerminal(e, ed.name, s.Path(ed.name)); err != nil {
			return err
		}
		d := &draft{env: e, store: s, name: ed.name, was: was}
		return d.edit(ctx)
	}
	data, err := source(e, ed.from)
	if err != nil {
		return err
	}
	if _, err := persona.Parse(ed.from, ed.name, data); err != nil {
		return view.Problems(err)
	}
	if err := s.Put(ed.name, data); err != nil {
		return view.Problems(err)
	}
	return written(e, s, ed.name, !bytes.Equal(was, data))
}

// onTerminal refuses an editor that would wait for keys which nobody can type.
func onTerminal(e *command.Env, name, path string) error {
	program := strings.TrimSuffix(strings.ToLower(filepath.Base(editor(e)[0])), ".exe")
	if e.Typed() || !slices.Contains([]string{"vi", "vim", "nvim", "nano", "pico", "micro", "hx", "helix", "kak", "joe", "ne", "mcedit"}, program) {
		return nil
	}
	err := wire.Errorf(wire.CodeFailedPrecondition, "edit agent file %q: %s needs a terminal, and standard input is none; nothing was done", name, program)
	err.Outcome = wire.OutcomeNotExecuted
	return command.Hint(err, "the file is "+path, "take another in its place: cotal persona edit "+command.Quote(name)+" --from <file>")
}

// editor is what opens a draft, with its arguments.
func editor(e *command.Env) []string {
	usual := "vi"
	if runtime.GOOS == "windows" {
		usual = "notepad"
	}
	return strings.Fields(cmp.Or(strings.TrimSpace(e.Getenv("VISUAL")), strings.TrimSpace(e.Getenv("EDITOR")), usual))
}

// draft is a file that somebody works at. It lies outside the project until it is valid.
type draft struct {
	env   *command.Env
	store *persona.Store
	name  string
	was   []byte // what the editor began with
	made  bool   // the file is new
	path  string
}

// edit opens the editor until the draft is valid, unchanged, or the person gives up.
func (d *draft) edit(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "cotal-edit-*")
	if err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "make a draft: %v", err)
	}
	d.path = filepath.Join(dir, d.name+".md")
	begun, err := d.begin()
	if err != nil {
		return errors.Join(wire.Errorf(wire.CodeFailedPrecondition, "make a draft: %v", err), os.RemoveAll(dir))
	}
	for {
		if err := d.open(ctx); err != nil {
			if data, unread := os.ReadFile(d.path); unread == nil && bytes.Equal(data, d.was) {
				_ = os.RemoveAll(dir)
				return command.Hint(err, "nothing was changed")
			}
			return d.keep(err)
		}
		data, err := source(d.env, d.path)
		if err != nil {
			return d.keep(err)
		}
		if bytes.Equal(data, d.was) && !d.made {
			_ = os.RemoveAll(dir)
			return written(d.env, d.store, d.name, false)
		}
		if d.made && d.untouched(begun) {
			_ = os.RemoveAll(dir)
			err := wire.Errorf(wire.CodeFailedPrecondition, "make agent file %q: the editor was left without saving; nothing was done", d.name)
			err.Outcome = wire.OutcomeNotExecuted
			return err
		}
		if _, err = persona.Parse(d.path, d.name, data); err == nil {
			return d.take(dir, data)
		}
		refused := d.keep(view.Problems(err))
		if d.env.JSON || !d.env.Interactive() {
			return refused
		}
		for _, p := range persona.ProblemsOf(err) {
			d.env.Note("%s", command.Safe(p.String()))
		}
		if d.env.Confirm(ctx, refused, "open the editor again") != nil {
			return refused
		}
	}
}

// begin writes what the editor begins with, as a file of some time ago.
func (d *draft) begin() (fs.FileInfo, error) {
	if err := os.WriteFile(d.path, d.was, 0o600); err != nil {
		return nil, err
	}
	ago := time.Now().Add(-time.Minute)
	if err := os.Chtimes(d.path, ago, ago); err != nil {
		return nil, err
	}
	return os.Stat(d.path)
}

// untouched reports whether nobody saved the draft since: who saves it as it is wants it so.
func (d *draft) untouched(begun fs.FileInfo) bool {
	now, err := os.Stat(d.path)
	return err == nil && os.SameFile(begun, now) && now.ModTime().Equal(begun.ModTime())
}

// take puts the draft in place of the file, unless that changed meanwhile.
func (d *draft) take(dir string, data []byte) error {
	if d.made {
		if err := d.store.Import(d.name, data); err != nil {
			return d.keep(err)
		}
	} else {
		now, err := d.store.Source(d.name)
		if err != nil {
			return d.keep(err)
		}
		if !bytes.Equal(now, d.was) {
			return d.keep(wire.Errorf(wire.CodeConflict, "change agent file %q: somebody else changed it meanwhile", d.name))
		}
		if err := d.store.Put(d.name, data); err != nil {
			return d.keep(err)
		}
	}
	_ = os.RemoveAll(dir)
	return written(d.env, d.store, d.name, true)
}

// keep adds to an error where the draft is.
func (d *draft) keep(err error) error {
	verb := "edit"
	if d.made {
		verb = "new"
	}
	return command.Hint(err, "nothing was changed; your draft is "+d.path, "take it when it is right: cotal persona "+verb+" "+d.name+" --from "+command.Quote(d.path))
}

// open runs the editor and waits for it.
func (d *draft) open(ctx context.Context) error {
	words := editor(d.env)
	path, err := exec.LookPath(words[0])
	if err != nil {
		return command.Hint(wire.Errorf(wire.CodeFailedPrecondition, "open editor %q: there is no such program", words[0]), "name one: EDITOR=vi cotal persona edit "+d.name)
	}
	cmd := exec.CommandContext(ctx, path, append(words[1:], d.path)...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = d.env.Dir, d.env.Stdin, d.env.Stdout, d.env.Stderr
	if d.env.JSON {
		cmd.Stdout = d.env.Stderr // standard output holds the result alone
	}
	if err := cmd.Run(); err != nil {
		return wire.Errorf(wire.CodeFailedPrecondition, "edit with %q: %v", strings.Join(words, " "), err)
	}
	return nil
}
