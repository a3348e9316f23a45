package persona

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cotal-go/cotal/supervisor/internal/yamldoc"
)

// Render writes an agent file that [Parse] reads as p. What is the default is left out, and the name is, which is that of the file.
func Render(p Persona) []byte {
	w := &writer{}
	w.b.WriteString(fence + "\n")
	w.word("role", p.Role)
	w.word("description", p.Description)
	w.list("tags", p.Tags)
	w.word("agent", p.Agent)
	w.word("model", p.Model)
	w.word("variant", p.Variant)
	w.list("command", p.Command)
	w.word("cwd", p.Cwd)
	w.texts("env", p.Env)
	w.access(p)
	w.list("capabilities", p.Capabilities)
	w.list("skills", p.Skills)
	w.word("restart", p.Restart)
	w.texts("meta", p.Meta)
	w.word("owner", p.Owner)
	w.b.WriteString(fence + "\n")
	if p.Text != "" {
		w.b.WriteString("\n" + p.Text + "\n")
	}
	return w.b.Bytes()
}

type writer struct{ b bytes.Buffer }

func (w *writer) word(key, value string) {
	if value != "" {
		w.b.WriteString(key + ": " + quote(value) + "\n")
	}
}

func (w *writer) list(key string, entries []string) {
	if len(entries) > 0 {
		w.always(key, entries)
	}
}

func (w *writer) always(key string, entries []string) {
	quoted := make([]string, len(entries))
	for i, e := range entries {
		quoted[i] = quote(e)
	}
	w.b.WriteString(key + ": [" + strings.Join(quoted, ", ") + "]\n")
}

func (w *writer) texts(key string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	w.b.WriteString(key + ":\n")
	for _, name := range slices.Sorted(maps.Keys(m)) {
		w.b.WriteString("  " + quote(name) + ": " + quote(m[name]) + "\n")
	}
}

// access writes the channel lists that are not what their absence means.
func (w *writer) access(p Persona) {
	s, a := defaults(nil, false, nil, false)
	if !slices.Equal(s, p.Subscribe) {
		w.always("subscribe", p.Subscribe)
		a = p.Subscribe
	}
	if !slices.Equal(a, p.AllowSubscribe) {
		w.always("allowSubscribe", p.AllowSubscribe)
	}
	w.list("allowPublish", p.AllowPublish)
}

// quote writes a text as one scalar of YAML, plain where nothing can take it for something else.
func quote(s string) string {
	if plain(s) {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

func plain(s string) bool {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "nan", "inf":
		return false
	}
	return regexp.MustCompile(`^[A-Za-z_/]([A-Za-z0-9_./+()' -]*[A-Za-z0-9_.)+-])?$`).MatchString(s)
}

// Patch changes the text and the model of a file as little as it can: comments and the order of keys stay. What it returns says
// exactly what the file said, with that change; if that cannot be done in place, the file is written anew.
func Patch(file, name string, data []byte, text, model string) ([]byte, error) {
	p, err := Parse(file, name, data)
	if err != nil {
		return nil, err
	}
	p.Text, p.Model = trimText(text), model
	if out := patched(file, name, normal(data), p); out != nil {
		return out, nil
	}
	out := Render(p)
	again, err := Parse(file, name, out)
	if err != nil {
		return nil, err
	}
	if !again.Equal(p) {
		r := &yamldoc.Report{}
		r.Add(yamldoc.Place{File: file}, "", "the change cannot be written as an agent file")
		return nil, r.Err()
	}
	return out, nil
}

// patched changes the lines of the file, or returns nil where the result would not say what p says.
func patched(file, name string, data []byte, p Persona) []byte {
	r := &yamldoc.Report{}
	front, _, _, ok := split(r, yamldoc.Place{File: file, Line: 1}, data)
	if !ok {
		return nil
	}
	var lines []string
	had := false
	for line := range strings.Lines(string(front)) {
		if strings.HasPrefix(line, "model:") {
			had = true
			if p.Model == "" {
				continue
			}
			line = "model: " + quote(p.Model) + "\n"
		}
		lines = append(lines, line)
	}
	if !had && p.Model != "" {
		lines = append(lines, "model: "+quote(p.Model)+"\n")
	}
	out := fence + "\n" + strings.Join(lines, "") + fence + "\n"
	if p.Text != "" {
		out += "\n" + p.Text + "\n"
	}
	if again, err := Parse(file, name, []byte(out)); err != nil || !again.Equal(p) {
		return nil
	}
	return []byte(out)
}
