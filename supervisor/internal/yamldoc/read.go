package yamldoc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cotal-go/cotal/internal/near"
)

// Keys are the keys that a map may have. Renamed maps keys of other systems to ours.
type Keys struct {
	Known   []string
	Renamed map[string]string
}

// Map returns the fields of a map by key. Unknown keys are told with the nearest known one, keys that are there twice with the
// line of the first. What names the map for a person, such as "agent file".
func (n *Node) Map(r *Report, what string, keys Keys) map[string]Field {
	if n == nil || n.Kind == Empty {
		return nil
	}
	if n.Kind != Map {
		r.Add(n.At, "write key: value lines", "%s is not a map", what)
		return nil
	}
	out := make(map[string]Field, len(n.Fields))
	for _, f := range n.Fields {
		first, twice := out[f.Key]
		switch {
		case twice:
			r.Add(f.At, "keep one of them", "key %q is there already, in line %d", Clip(f.Key), first.At.Line)
		case keys.Renamed[f.Key] != "":
			r.Add(f.At, "rename it to "+keys.Renamed[f.Key], "key %q is not ours", f.Key)
		case !slices.Contains(keys.Known, f.Key):
			fix := Suggest(f.Key, keys.Known)
			if fix == "" {
				fix = "there are " + strings.Join(keys.Known, ", ")
			}
			r.Add(f.At, fix, "unknown key %q", Clip(f.Key))
		default:
			out[f.Key] = f
		}
	}
	return out
}

// Names returns the fields of a map whose keys are free names, each once.
func (n *Node) Names(r *Report, what string) []Field {
	if n == nil || n.Kind == Empty {
		return nil
	}
	if n.Kind != Map {
		r.Add(n.At, "write name: value lines", "%s is not a map", what)
		return nil
	}
	var out []Field
	for _, f := range n.Fields {
		if i := slices.IndexFunc(out, func(o Field) bool { return o.Key == f.Key }); i >= 0 {
			r.Add(f.At, "keep one of them", "%q is there already, in line %d", Clip(f.Key), out[i].At.Line)
			continue
		}
		out = append(out, f)
	}
	return out
}

// Suggest asks whether the known word was meant that is nearest to key; "" when none is near.
func Suggest(key string, known []string) string {
	best, least := "", 4
	for _, k := range known {
		if strings.EqualFold(k, key) {
			return "did you mean " + k + "?"
		}
		if d := distance(strings.ToLower(key), strings.ToLower(k)); d < least && d <= len(k)/2 {
			best, least = k, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return ""
}

// distance is how far names are apart, or 9 for those that are far too long.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 9
	}
	return near.Distance(a, b)
}

// Text returns a scalar. Empty and nested values are told.
func (f Field) Text(r *Report) (string, bool) {
	switch f.Value.Kind {
	case Scalar:
		return f.Value.Text, true
	case Empty:
		r.Add(f.At, "give it one, or remove the key", "%s has no value", f.Key)
	default:
		r.Add(f.Value.At, "write one text", "%s is nested", f.Key)
	}
	return "", false
}

// Line returns a scalar of one line of 1 to limit characters without control characters and without spaces around it.
func (f Field) Line(r *Report, limit int) (string, bool) {
	s, ok := f.Text(r)
	if !ok {
		return "", false
	}
	return s, checkLine(r, f.Value.At, f.Key, s, limit)
}

func checkLine(r *Report, at Place, what, s string, limit int) bool {
	switch n := len([]rune(s)); {
	case n == 0:
		r.Add(at, "give it a value, or remove it", "%s is empty", what)
	case n > limit:
		r.Add(at, "shorten it", "%s has %d characters, want at most %d", what, n, limit)
	case strings.ContainsFunc(s, unicode.IsControl):
		r.Add(at, "write it in one line", "%s has a line end or another control character", what)
	case strings.TrimSpace(s) != s:
		r.Add(at, "remove them", "%s has spaces around it", what)
	default:
		return true
	}
	return false
}

// Lines returns a list of texts, each as [Field.Line] has them, without repetitions; a scalar is a list of one. The result is
// nil only after something was told; an empty list is not nil.
func (f Field) Lines(r *Report, most, limit int) []string {
	items := f.Value.Items
	switch f.Value.Kind {
	case Empty:
		r.Add(f.At, "write [] for none, or remove the key", "%s has no value", f.Key)
		return nil
	case Map:
		r.Add(f.Value.At, "write a list: ["+f.Key+", …]", "%s is nested", f.Key)
		return nil
	case Scalar:
		items = []*Node{f.Value}
	}
	if len(items) > most {
		r.Add(f.Value.At, "", "%s has %d entries, want at most %d", f.Key, len(items), most)
		return nil
	}
	out, good := []string{}, true
	for _, it := range items {
		if it.Kind != Scalar {
			r.Add(it.At, "write one text an entry", "an entry of %s is nested or empty", f.Key)
			good = false
			continue
		}
		good = checkLine(r, it.At, "an entry of "+f.Key, it.Text, limit) && good
		out = append(out, it.Text)
	}
	if !good {
		return nil
	}
	return out
}

// Set is [Field.Lines] where an entry may be there once, and check says what is wrong with one: the problem and the fix, or "".
func (f Field) Set(r *Report, most, limit int, check func(entry string) (problem, fix string)) []string {
	out := f.Lines(r, most, limit)
	for i, s := range out {
		at := f.Value.At
		if f.Value.Kind == List {
			at = f.Value.Items[i].At
		}
		if slices.Contains(out[:i], s) {
			r.Add(at, "remove it", "%q is in %s twice", Clip(s), f.Key)
			return nil
		}
		if check == nil {
			continue
		}
		if problem, fix := check(s); problem != "" {
			r.Add(at, fix, "%s: %s", f.Key, problem)
			return nil
		}
	}
	return out
}

// Texts returns a map of names to texts. Values may have several lines when limit allows; check is as in [Field.Set], for names.
func (f Field) Texts(r *Report, most, limit int, check func(name string) (problem, fix string)) map[string]string {
	fields := f.Value.Names(r, f.Key)
	if f.Value.Kind == Empty {
		r.Add(f.At, "write name: value lines below it, or remove the key", "%s has no value", f.Key)
		return nil
	}
	if len(fields) > most {
		r.Add(f.Value.At, "", "%s has %d entries, want at most %d", f.Key, len(fields), most)
		return nil
	}
	out := make(map[string]string, len(fields))
	for _, e := range fields {
		if problem, fix := check(e.Key); problem != "" {
			r.Add(e.At, fix, "%s: %s", f.Key, problem)
			continue
		}
		s, ok := Field{Key: f.Key + "." + e.Key, At: e.At, Value: e.Value}.Text(r)
		if !ok {
			continue
		}
		if len(s) > limit || strings.ContainsRune(s, 0) {
			r.Add(e.Value.At, "shorten it", "%s.%s has %d bytes, want at most %d", f.Key, Clip(e.Key), len(s), limit)
			continue
		}
		out[e.Key] = s
	}
	return out
}

// Bool returns true or false.
func (f Field) Bool(r *Report) (bool, bool) {
	s, ok := f.Text(r)
	switch {
	case !ok:
		return false, false
	case s == "true", s == "false":
		return s == "true", true
	}
	r.Add(f.Value.At, "write true or false", "%s is %q", f.Key, Clip(s))
	return false, false
}

// Int returns a whole number from least to most.
func (f Field) Int(r *Report, least, most int) (int, bool) {
	s, ok := f.Text(r)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		r.Add(f.Value.At, fmt.Sprintf("write a number from %d to %d", least, most), "%s is %q", f.Key, Clip(s))
		return 0, false
	}
	return n, true
}
