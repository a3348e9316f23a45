package connector

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/cotal-go/cotal/internal/launch"
	"github.com/cotal-go/cotal/wire"
)

// Bounds of operands that become one argument or one variable, in bytes. Linux takes 131072 with the rest of it.
const (
	maxPrompt  = wire.MaxPrompt
	maxPersona = wire.MaxPersonaText
	maxModel   = 256
)

// check refuses what no host could take, and then what the host of info cannot.
func (r Request) check(info Info) error {
	for _, p := range []struct{ what, path string }{
		{"folder", r.Dir}, {"program", r.Program}, {"launch file", r.LaunchFile}, {"working folder", r.Cwd},
	} {
		if !filepath.IsAbs(p.path) {
			return wire.Errorf(wire.CodeBadRequest, "start %s: the %s %q is not an absolute path", info.Title, p.what, p.path)
		}
	}
	for _, o := range []struct {
		what, text string
		limit      int
	}{
		{"name", r.Name, maxModel}, {"role", r.Role, maxModel}, {"model", r.Model, maxModel}, {"variant", r.Variant, maxModel},
		{"prompt", r.Prompt, maxPrompt}, {"persona", r.PersonaText, maxPersona},
	} {
		if len(o.text) > o.limit {
			return wire.Errorf(wire.CodeBadRequest, "start %s: the %s has %d bytes, at most %d", info.Title, o.what, len(o.text), o.limit)
		}
		if strings.ContainsRune(o.text, 0) {
			return wire.Errorf(wire.CodeBadRequest, "start %s: the %s has a zero byte, which no argument can hold", info.Title, o.what)
		}
	}
	if strings.HasPrefix(r.Model, "-") || strings.ContainsAny(r.Model, " \t\r\n") {
		return wire.Errorf(wire.CodeBadRequest, "start %s: model %q has a leading dash or a space: name a model", info.Title, r.Model)
	}
	return r.checkOptions(info)
}

// checkOptions refuses the options that the host cannot take.
func (r Request) checkOptions(info Info) error {
	refuse := func(what, instead string) error {
		return wire.Errorf(wire.CodeUnimplemented, "start %s: it takes no %s: %s", info.Title, what, instead)
	}
	switch {
	case r.Model != "" && !info.Model:
		return refuse("model", "leave the model out")
	case r.Variant != "" && info.Variants == nil:
		return refuse("variant", "leave the variant out, or choose a model that is one")
	case r.Variant != "" && !info.hasVariant(r.Variant):
		return wire.Errorf(wire.CodeUnimplemented, "start %s: there is no variant %q: take one of %s", info.Title, r.Variant,
			strings.Join(info.Variants, ", "))
	case r.Prompt != "" && !info.Prompt:
		return refuse("prompt", "give the task among the arguments of the command, or with cotal input")
	case r.PersonaText != "" && !info.Persona:
		return refuse("persona", "leave the text of the agent file empty")
	case len(r.Command) > 0 && info.Name != commandName:
		return refuse("command", "use the connector command for a program of your own")
	}
	return nil
}

// find returns the absolute path of the host's program.
func (r Request) find(info Info) (string, error) {
	path, err := r.lookPath(info.Program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		e := wire.Errorf(wire.CodeNotFound, "start %s: there is no program %q in PATH: install it: %s", info.Title, info.Program, info.Install)
		e.Details = map[string]any{"program": info.Program}
		return "", e
	}
	return path, nil
}

// begin makes the checks that every host needs and returns its program and a launch with what all have.
func (r Request) begin(info Info) (program string, l Launch, err error) {
	if err := r.check(info); err != nil {
		return "", Launch{}, err
	}
	if !filepath.IsAbs(r.home()) {
		return "", Launch{}, wire.Errorf(wire.CodeFailedPrecondition, "start %s: the supervisor's user has no home folder %q: set HOME", info.Title, r.home())
	}
	program, err = r.find(info)
	if err != nil {
		return "", Launch{}, err
	}
	return program, Launch{Env: r.env(), Model: r.Model, Wakes: true, Joins: true, Slow: slowHost}, nil
}

// env is the part of the environment that all agents have: a path, by which the agent and what it starts are known.
func (r Request) env() map[string]string { return map[string]string{launch.Env: r.LaunchFile} }

// file returns a file below the agent's folder.
func (r Request) file(rel string, data []byte) File {
	return File{Path: filepath.Join(r.Dir, rel), Data: data}
}

// share adds links, in the folder rel below the agent's, to those of the names that there are in the user's folder.
func (r Request) share(files []File, rel, user string, names []string) []File {
	for _, name := range names {
		at := filepath.Join(user, name)
		if _, err := os.Stat(at); err == nil {
			files = append(files, File{Path: filepath.Join(r.Dir, rel, name), Link: at, Keep: true})
		}
	}
	return files
}

// hook returns the shell command that tells the agent's tools of an event of the host.
func (r Request) hook(connector, event string) string {
	return shellQuote(r.Program) + " hook " + connector + " " + event
}

// shellQuote quotes a word for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// sessionID is a UUID that is the agent's alone and the same at each of its starts: its folder stands for its life.
func (r Request) sessionID() string {
	h := sha256.Sum256([]byte("session of " + r.Dir))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8: of our own making
	x := hex.EncodeToString(h[:16])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

// encode returns JSON of plain values. It panics for others: a mistake of this package.
func encode(v any) []byte {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}

// object is a JSON object.
type object = map[string]any

// merged returns the entries of several environments, later ones first in rank.
func merged(envs ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, e := range envs {
		maps.Copy(out, e)
	}
	return out
}

// ran reports whether a host has kept a conversation: a file of that pattern below dir. Resuming one that is not there fails.
func ran(dir string, pattern ...string) bool {
	found, err := filepath.Glob(filepath.Join(append([]string{globQuote(dir)}, pattern...)...))
	return err == nil && len(found) > 0
}

// home is the user's home folder.
func (r Request) home() string {
	if h := r.getenv("HOME"); h != "" {
		return h
	}
	return r.getenv("USERPROFILE")
}
