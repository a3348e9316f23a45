package wire_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/wire"
)

var update = flag.Bool("update", false, "write what the code does into the vectors")

const vectorRoot = "testdata/vectors"

// readers maps a folder of vectors to what reads its inputs. The text is what follows "accepted".
var readers = map[string]func(in []byte) (string, error){
	"subject":          readSubject,
	"request-subject":  readRequestSubject,
	"reply-subject":    readReplySubject,
	"event-subject":    readEventSubject,
	"session-subject":  readSessionSubject,
	"session-frame":    readSessionFrame,
	"presence-subject": readPresenceSubject,
	"principal":        readPrincipal,
	"pattern":          readPattern,
	"message":          readMessage,
	"delivery":         readDelivery,
	"presence":         readPresence,
	"channel-config":   readChannelConfig,
	"request":          readRequest,
	"reply":            readReply,
	"link":             readLink,
}

func TestVectors(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(vectorRoot, "*", ""))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, folder := range folders {
		if filepath.Ext(folder) == ".md" {
			continue
		}
		kind := filepath.Base(folder)
		read, ok := readers[kind]
		if !ok {
			t.Errorf("folder %s: nothing reads it", folder)
			continue
		}
		found[kind] = true
		for _, file := range vectorFiles(t, kind) {
			t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runVectors(t, file, read) })
		}
	}
	for kind := range readers {
		if !found[kind] {
			t.Errorf("no vectors for %s", kind)
		}
	}
}

func runVectors(t *testing.T, file string, read func([]byte) (string, error)) {
	a := loadArchive(t, file)
	if len(a.cases) == 0 {
		t.Fatalf("%s holds no case", file)
	}
	for i := range a.cases {
		c := &a.cases[i]
		t.Run(c.name, func(t *testing.T) {
			text, err := read(c.input)
			got := verdict(text, err)
			if *update {
				c.want = got
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%.200q (-want +got):\n%s\nerror: %v", c.input, diff, err)
			}
		})
	}
	if *update {
		if err := os.WriteFile(file, a.format(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func verdict(text string, err error) string {
	if err != nil {
		return strings.TrimSpace(fmt.Sprintf("refused %s %s", wire.CodeOf(err), wire.ReasonOf(err)))
	}
	return strings.TrimSpace("accepted\n" + text)
}

// lines renders pairs of a name and a value, leaving out empty values.
func lines(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", pairs[i], pairs[i+1])
		}
	}
	return b.String()
}

func principalText(p wire.Principal) string {
	if p.IsZero() {
		return ""
	}
	return p.String()
}

func readSubject(in []byte) (string, error) {
	s, err := wire.ParseSubject(string(in))
	if err != nil {
		return "", err
	}
	surface := "yes"
	if err := s.Surface(); err != nil {
		surface = verdict("", err)
	}
	return lines("kind", s.Kind.String(), "space", string(s.Space), "sender", principalText(s.Sender), "to", principalText(s.To),
		"channel", s.Channel, "role", s.Role, "uid", string(s.UID), "surface", surface), nil
}

func readRequestSubject(in []byte) (string, error) {
	r, err := wire.ParseRequestSubject(string(in))
	return lines("space", string(r.Space), "rail", string(r.Rail), "endpoint", r.Endpoint, "instance", r.Instance, "command", r.Command,
		"mode", string(r.Mode), "target", strings.Join(r.Target, " "), "caller", r.Caller.String(), "nonce", r.Nonce), err
}

func readReplySubject(in []byte) (string, error) {
	r, err := wire.ParseReplySubject(string(in))
	return lines("space", string(r.Space), "endpoint", r.Endpoint, "instance", r.Instance, "epoch", r.Epoch,
		"caller", r.Caller.String(), "nonce", r.Nonce), err
}

func readEventSubject(in []byte) (string, error) {
	e, err := wire.ParseEventSubject(string(in))
	return lines("space", string(e.Space), "endpoint", e.Endpoint, "instance", e.Instance, "epoch", e.Epoch, "topic", e.Topic), err
}

func readSessionSubject(in []byte) (string, error) {
	s, err := wire.ParseSessionSubject(string(in))
	pairs := []string{"space", string(s.Space), "endpoint", s.Endpoint, "session", s.Session, "epoch", s.Epoch, "in", strconv.FormatBool(s.In)}
	if s.Mode != wire.ModeNone {
		pairs = append(pairs, "mode", string(s.Mode))
	}
	return lines(pairs...), err
}

func readPresenceSubject(in []byte) (string, error) {
	s, p, err := wire.ParsePresenceSubject(string(in))
	return lines("space", string(s), "principal", principalText(p)), err
}

func readPrincipal(in []byte) (string, error) {
	p, err := wire.ParsePrincipal(string(in))
	return lines("owner", p.Owner, "actor", p.Actor, "owner known", strconv.FormatBool(p.OwnerKnown())), err
}

func readPattern(in []byte) (string, error) {
	pattern, other, _ := strings.Cut(string(in), "\n")
	return lines("matches", strconv.FormatBool(wire.PatternMatches(pattern, other)),
		"covers", strconv.FormatBool(wire.PatternCovers(pattern, other))), wire.ValidatePattern(pattern)
}

func readMessage(in []byte) (string, error) {
	m, err := wire.DecodeMessage(in)
	if err != nil {
		return "", err
	}
	return short(canonical(m)), nil
}

// canonical encodes a decoded message; an empty id is encoded too, which a sender never does.
func canonical(m *wire.Message) []byte {
	c := *m
	if m.ID == "" {
		c.ID = "EMPTY"
	}
	b, err := c.AppendJSON(nil)
	if err != nil {
		return []byte("does not encode: " + err.Error())
	}
	if m.ID == "" {
		b = bytes.Replace(b, []byte(`"EMPTY"`), []byte(`""`), 1)
	}
	return b
}

func short(b []byte) string {
	if len(b) <= 2000 {
		return string(b)
	}
	return fmt.Sprintf("long: %d bytes, sha256 %x", len(b), sha256.Sum256(b))
}

func readDelivery(in []byte) (string, error) {
	subject, payload, _ := bytes.Cut(in, []byte("\n"))
	sub, _, err := wire.Receive(string(subject), payload)
	return lines("kind", sub.Kind.String(), "sender", principalText(sub.Sender)), err
}

func readPresence(in []byte) (string, error) {
	key, record, _ := bytes.Cut(in, []byte("\n"))
	p, err := wire.DecodePresence(string(key), record)
	if err != nil {
		return "", err
	}
	return lines("status", string(p.Status), "name", p.Card.Name, "kind", p.Card.Kind, "role", p.Card.Role,
		"skills", strconv.Itoa(len(p.Card.Skills)), "channel modes", strconv.Itoa(len(p.ChannelModes))), nil
}

func readChannelConfig(in []byte) (string, error) {
	c, err := wire.DecodeChannelConfig(in)
	if err != nil {
		return "", err
	}
	r := wire.ResolveChannel(c, nil)
	return lines("replay", strconv.FormatBool(r.Replay), "window", r.Window.String(), "class", string(r.Class)), nil
}

func readRequest(in []byte) (string, error) {
	r, err := wire.DecodeRequest(in)
	if err != nil {
		return "", err
	}
	b, err := r.AppendJSON(nil)
	return short(b), err
}

func readReply(in []byte) (string, error) {
	r, err := wire.DecodeReply(in)
	if err != nil {
		return "", err
	}
	b, err := r.AppendJSON(nil)
	return short(b), err
}

func readLink(in []byte) (string, error) {
	l, err := wire.ParseLink(string(in))
	if err != nil {
		return "", err
	}
	return lines("link", l.String(), "url", l.URL()), nil
}

// archive is one file of vectors.
type archive struct {
	head  string
	cases []vector
}

type vector struct {
	name  string
	kind  string // in or gen
	body  []byte // as written
	input []byte
	want  string
}

func vectorFiles(tb testing.TB, kind string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(vectorRoot, kind, "*.txt"))
	if err != nil {
		tb.Fatal(err)
	}
	if len(files) == 0 {
		tb.Fatalf("no vectors for %s", kind)
	}
	return files
}

func loadArchive(tb testing.TB, file string) *archive {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	head, sections := split(data)
	a := &archive{head: head}
	wants := make(map[string]string)
	for _, s := range sections {
		name, kind, _ := strings.Cut(s.name, ".")
		v := vector{name: name, kind: kind, body: s.body}
		switch kind {
		case "in":
			v.input = s.body
		case "gen":
			if v.input, err = generate(s.body); err != nil {
				tb.Fatalf("%s: %s: %v", file, s.name, err)
			}
		case "want":
			wants[name] = string(s.body)
			continue
		default:
			tb.Fatalf("%s: section %q is neither in, gen nor want", file, s.name)
		}
		a.cases = append(a.cases, v)
	}
	for i := range a.cases {
		a.cases[i].want = wants[a.cases[i].name]
		delete(wants, a.cases[i].name)
	}
	if len(wants) > 0 {
		tb.Fatalf("%s: want without input: %v", file, slices.Sorted(maps.Keys(wants)))
	}
	return a
}

type section struct {
	name string
	body []byte
}

// split reads a text archive: a head, then sections after lines "-- name --".
func split(data []byte) (head string, sections []section) {
	var b bytes.Buffer
	name := ""
	flush := func() {
		body := bytes.Clone(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
		b.Reset()
		if name == "" {
			head = string(body)
			return
		}
		sections = append(sections, section{name: name, body: body})
	}
	for line := range bytes.Lines(data) {
		mark, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("-- "))
		if ok {
			mark, ok = bytes.CutSuffix(mark, []byte(" --"))
		}
		if !ok {
			b.Write(line)
			continue
		}
		flush()
		name = string(mark)
	}
	flush()
	return head, sections
}

func (a *archive) format() []byte {
	var b bytes.Buffer
	b.WriteString(a.head + "\n")
	for _, c := range a.cases {
		fmt.Fprintf(&b, "-- %s.%s --\n%s\n-- %s.want --\n%s\n", c.name, c.kind, c.body, c.name, c.want)
	}
	return b.Bytes()
}

// generate puts an input together from its recipe.
func generate(recipe []byte) ([]byte, error) {
	var out []byte
	for line := range bytes.Lines(recipe) {
		verb, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch verb {
		case "text":
			out = append(out, rest...)
		case "hex":
			raw, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
			if err != nil {
				return nil, err
			}
			out = append(out, raw...)
		case "repeat":
			count, text, _ := strings.Cut(rest, " ")
			n, err := strconv.Atoi(count)
			if err != nil {
				return nil, err
			}
			out = append(out, strings.Repeat(text, n)...)
		default:
			return nil, fmt.Errorf("line %q starts with neither text, hex nor repeat", line)
		}
	}
	return out, nil
}
