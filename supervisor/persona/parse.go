package persona

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cotal-go/cotal/supervisor/internal/yamldoc"
	"github.com/cotal-go/cotal/wire"
)

const fence = "---"

// Parse reads an agent file. File is how errors name it, name what the persona is called. One mark of byte order before the text, as some
// editors put it there, means nothing.
//
// Errors: bad-request, with [ProblemsOf].
func Parse(file, name string, data []byte) (Persona, error) {
	r := &yamldoc.Report{}
	p := parse(r, file, name, data)
	if err := r.Err(); err != nil {
		return Persona{}, err
	}
	return p, nil
}

func parse(r *yamldoc.Report, file, name string, data []byte) Persona {
	p := Persona{Name: name}
	start := yamldoc.Place{File: file, Line: 1, Column: 1}
	if readme(name) {
		r.Add(yamldoc.Place{File: file}, "rename it", "a README is for people, and no agent file")
	}
	if !nameOK(name) {
		r.Add(yamldoc.Place{File: file}, fmt.Sprintf("rename it: letters, digits, _ and -, at most %d", maxName), "the name of the file is no name of an agent")
	}
	if len(data) > MaxFile {
		r.Add(start, "shorten it", "the file has more than %d bytes", MaxFile)
		return p
	}
	front, text, line, ok := split(r, start, normal(data))
	if !ok {
		return p
	}
	p.Text = checkText(r, yamldoc.Place{File: file, Line: line, Column: 1}, text)
	doc := yamldoc.Parse(file, front, 2, r)
	if doc == nil {
		if !r.OK() {
			return p
		}
		doc = &yamldoc.Node{At: start}
	}
	f := doc.Map(r, "the front matter", yamldoc.Keys{Known: keys(), Renamed: renamed()})
	readCard(r, &p, f)
	readProgram(r, &p, f)
	readAccess(r, &p, f)
	return p
}

// keys are all there are, in the order that Render writes them.
func keys() []string {
	return []string{
		"name", "role", "description", "tags", "agent", "model", "variant", "command", "cwd", "env", "subscribe", "allowSubscribe",
		"allowPublish", "capabilities", "skills", "restart", "meta", "owner",
	}
}

// renamed are keys that other systems write for one of ours.
func renamed() map[string]string {
	return map[string]string{
		"channels": "subscribe", "publish": "allowPublish", "read": "allowSubscribe", "post": "allowPublish", "connector": "agent",
		"harness": "agent", "workdir": "cwd", "title": "description",
	}
}

// TrimMark takes the mark of byte order away with which some editors begin a file. It is no part of the text.
func TrimMark(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// normal takes the mark of byte order and carriage returns away.
func normal(data []byte) []byte {
	return bytes.ReplaceAll(TrimMark(data), []byte("\r\n"), []byte("\n"))
}

// split finds the front matter and the text; line is the first of the text.
func split(r *yamldoc.Report, at yamldoc.Place, data []byte) (front, text []byte, line int, ok bool) {
	const fix = "begin the file with a line ---, the keys, and another line ---"
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	if string(bytes.TrimRight(first, " \t")) != fence {
		r.Add(at, fix, "no front matter")
		return nil, nil, 0, false
	}
	line = 1
	for size := 0; ; {
		head, tail, more := bytes.Cut(rest[size:], []byte("\n"))
		line++
		if string(bytes.TrimRight(head, " \t")) == fence {
			return rest[:size], tail, line + 1, true
		}
		if size += len(head) + 1; !more || size > MaxFrontMatter {
			break
		}
	}
	if len(rest) > MaxFrontMatter {
		r.Add(at, fix, "no line --- ends the front matter within %d bytes", MaxFrontMatter)
	} else {
		r.Add(at, fix, "no line --- ends the front matter")
	}
	return nil, nil, 0, false
}

// checkText takes the blank lines around a text away and refuses what no agent can be told.
func checkText(r *yamldoc.Report, at yamldoc.Place, text []byte) string {
	s := trimText(string(text))
	switch {
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unfit):
		r.Add(at, "save the file as UTF-8 text", "the text has a control character, or is not UTF-8")
	case len(s) > wire.MaxPersonaText:
		r.Add(at, "shorten it", "the text has %d bytes, want at most %d", len(s), wire.MaxPersonaText)
	}
	return s
}

func trimText(s string) string {
	for {
		head, tail, more := strings.Cut(s, "\n")
		if !more || strings.TrimSpace(head) != "" {
			break
		}
		s = tail
	}
	return strings.TrimRight(s, " \t\n")
}

// unfit are the control characters that no text has: a file with them is something else.
func unfit(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0
}

func readCard(r *yamldoc.Report, p *Persona, f map[string]yamldoc.Field) {
	if n, ok := f["name"]; ok {
		if s, good := n.Line(r, maxName); good && s != p.Name {
			r.Add(n.Value.At, "rename the file, or remove the key", "name is %q and the file is called %s.md", s, p.Name)
		}
	}
	if n, ok := f["role"]; ok {
		if s, good := n.Line(r, wire.MaxToken); good {
			if p.Role = s; wire.ValidateRole(s) != nil {
				r.Add(n.Value.At, "write letters, digits, _ and -", "role %q is no role", s)
			}
		}
	}
	if n, ok := f["description"]; ok {
		p.Description, _ = n.Line(r, wire.MaxDescription)
	}
	if n, ok := f["tags"]; ok {
		p.Tags = n.Set(r, maxEntries, maxWord, nil)
	}
	if n, ok := f["skills"]; ok {
		p.Skills = n.Set(r, maxEntries, maxWord, nil)
	}
	if n, ok := f["meta"]; ok {
		p.Meta = n.Texts(r, maxEntries, maxValue, func(name string) (string, string) {
			if !nameOK(name) {
				return fmt.Sprintf("%q is no name", yamldoc.Clip(name)), "write letters, digits, _ and -"
			}
			return "", ""
		})
	}
	if n, ok := f["owner"]; ok {
		s, _ := n.Line(r, 2*wire.MaxToken+1)
		if who, err := wire.ParsePrincipal(s); s != "" && (err != nil || !who.OwnerKnown()) {
			r.Add(n.Value.At, "remove the key: it is set for who defines an agent through the mesh", "owner %q is no principal", yamldoc.Clip(s))
		}
		p.Owner = s
	}
}

func readProgram(r *yamldoc.Report, p *Persona, f map[string]yamldoc.Field) {
	for key, into := range map[string]*string{"agent": &p.Agent, "model": &p.Model, "variant": &p.Variant} {
		n, ok := f[key]
		if !ok {
			continue
		}
		s, good := n.Line(r, maxWord)
		*into = s
		if good && strings.HasPrefix(s, "-") {
			r.Add(n.Value.At, "remove the dash", "%s %q would be read as a flag", key, s)
		}
		if good && key == "agent" && !nameOK(s) {
			r.Add(n.Value.At, "write claude, codex, opencode, gemini, command or script", "agent %q is no connector", s)
		}
	}
	if n, ok := f["cwd"]; ok {
		p.Cwd, _ = n.Line(r, maxPath)
	}
	if n, ok := f["env"]; ok {
		p.Env = n.Texts(r, maxEntries, maxValue, envName)
	}
	if n, ok := f["restart"]; ok {
		s, good := n.Line(r, maxWord)
		if p.Restart = s; good && ValidateRestart(s) != nil {
			r.Add(n.Value.At, "write never, on-failure or always", "restart is %q", s)
		}
	}
	n, ok := f["command"]
	if ok {
		p.Command = n.Lines(r, maxEntries, maxValue)
		if s := n.Value; s.Kind == yamldoc.Scalar && strings.ContainsAny(s.Text, " \t") {
			r.Add(s.At, "write a list: ["+strings.Join(strings.Fields(yamldoc.Clip(s.Text)), ", ")+"]", "command is one text, and no shell takes it apart")
		}
	}
	switch is := p.Agent == ConnectorCommand; {
	case ok && !is:
		r.Add(n.At, "write agent: command, or remove it", "command is for the connector command alone")
	case ok && len(p.Command) == 0 && n.Value.Kind == yamldoc.List && len(n.Value.Items) == 0:
		r.Add(n.At, "name the program and its arguments", "command is empty")
	case is && !ok:
		r.Add(f["agent"].At, "add command: [program, argument, …]", "agent command needs a command")
	}
}

// envName says what is wrong with the name of a variable.
func envName(name string) (problem, fix string) {
	word := wire.ValidateActor(name) == nil && (name[0] < '0' || name[0] > '9')
	switch {
	case !word:
		return fmt.Sprintf("%q is no name of a variable", yamldoc.Clip(name)), "write letters, digits and _"
	case strings.HasPrefix(strings.ToUpper(name), "COTAL_"):
		return fmt.Sprintf("%q is set by the supervisor", name), "remove it"
	}
	return "", ""
}

// ValidateEnvName reports whether a file may set the variable: [A-Za-z_][A-Za-z0-9_]{0,63}, and none of ours (COTAL_…). Its error has
// code bad-request.
func ValidateEnvName(name string) error {
	if problem, _ := envName(name); problem != "" {
		return wire.Errorf(wire.CodeBadRequest, "check variable: %s", problem)
	}
	return nil
}

// ValidateRestart reports whether s says when an agent is started again. Its error has code bad-request.
func ValidateRestart(s string) error {
	if s == RestartNever || s == RestartOnFailure || s == RestartAlways {
		return nil
	}
	return wire.Errorf(wire.CodeBadRequest, "check restart %q: not never, on-failure or always", yamldoc.Clip(s))
}
