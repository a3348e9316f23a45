package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/wire"
)

// oracleDecode decodes a message the slow way: encoding/json for the grammar, and one plain check for each rule it lacks.
// It shares no code with the decoder but Message.Validate.
func oracleDecode(data []byte) (*wire.Message, error) {
	if err := oracleStrict(data, wire.MaxMessage, wire.MaxDepth); err != nil {
		return nil, err
	}
	top, err := oracleObject(data, "id", "ts", "space", "from", "channel", "to", "toService", "parts", "mentions", "replyTo", "contextId")
	if err != nil {
		return nil, err
	}
	m := new(wire.Message)
	for name, into := range map[string]*string{"id": &m.ID, "channel": &m.Channel, "to": &m.To, "toService": &m.ToService,
		"replyTo": &m.ReplyTo, "contextId": &m.ContextID, "space": (*string)(&m.Space)} {
		required := name == "id" || name == "space"
		address := name == "channel" || name == "to" || name == "toService"
		if err := oracleText(top, name, required, into); err != nil {
			return nil, err
		}
		if address && top[name] != nil && *into == "" {
			return nil, errors.New("empty address")
		}
	}
	if m.TS, err = oracleInteger(top["ts"]); err != nil {
		return nil, err
	}
	from, err := oracleObject(top["from"], "id", "name", "role")
	if err != nil {
		return nil, err
	}
	for name, into := range map[string]*string{"id": &m.From.ID, "name": &m.From.Name, "role": &m.From.Role} {
		if err := oracleText(from, name, name != "role", into); err != nil {
			return nil, err
		}
	}
	if m.Parts, err = oracleParts(top["parts"]); err != nil {
		return nil, err
	}
	if raw := top["mentions"]; raw != nil {
		var names []json.RawMessage
		if err := json.Unmarshal(raw, &names); err != nil || raw[0] != '[' {
			return nil, errors.New("mentions")
		}
		for _, n := range names {
			var s string
			if n[0] != '"' || json.Unmarshal(n, &s) != nil {
				return nil, errors.New("mention")
			}
			m.Mentions = append(m.Mentions, s)
		}
	}
	return m, m.Validate()
}

func oracleParts(raw json.RawMessage) ([]wire.Part, error) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, errors.New("parts")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	parts := make([]wire.Part, 0, len(list))
	for _, one := range list {
		p, err := oraclePart(one)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func oraclePart(raw json.RawMessage) (p wire.Part, err error) {
	obj, err := oracleObject(raw, "kind")
	if err != nil {
		return p, err
	}
	if err := oracleText(obj, "kind", true, &p.Kind); err != nil {
		return p, err
	}
	if p.Kind != "text" && p.Kind != "data" && p.Kind != "artifact" {
		p.Raw = raw
		return p, nil
	}
	if obj, err = oracleObject(raw, "kind", "text", "data", "name", "mediaType", "digest", "size"); err != nil {
		return p, err
	}
	switch p.Kind {
	case "text":
		err = oracleText(obj, "text", true, &p.Text)
	case "data":
		p.Data = obj["data"]
	case "artifact":
		p.Artifact = new(wire.Artifact)
		err = errors.Join(oracleText(obj, "name", true, &p.Artifact.Name), oracleText(obj, "mediaType", true, &p.Artifact.MediaType),
			oracleText(obj, "digest", true, &p.Artifact.Digest))
		if err == nil {
			p.Artifact.Size, err = oracleInteger(obj["size"])
		}
	}
	return p, err
}

// oracleObject splits an object and refuses keys that are a known name in another case.
func oracleObject(raw []byte, known ...string) (map[string]json.RawMessage, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("no object")
	}
	var obj map[string]json.RawMessage
	if err := json.Unmarshal(raw, &obj); err != nil {
		return nil, err
	}
	for key := range obj {
		for _, k := range known {
			if key != k && strings.EqualFold(key, k) {
				return nil, errors.New("wrong case")
			}
		}
	}
	return obj, nil
}

func oracleText(obj map[string]json.RawMessage, name string, required bool, into *string) error {
	raw := obj[name]
	if raw == nil && !required {
		return nil
	}
	if len(raw) == 0 || raw[0] != '"' {
		return errors.New("no string for " + name)
	}
	return json.Unmarshal(raw, into)
}

func oracleInteger(raw json.RawMessage) (int64, error) {
	n, err := strconv.ParseUint(string(raw), 10, 53)
	return int64(n), err
}

// oracleStrict refuses what encoding/json lets through: size, bad UTF-8, lone surrogates, depth and duplicate keys.
func oracleStrict(data []byte, limit, depth int) error {
	if len(data) > limit || !utf8.Valid(data) || !json.Valid(data) || oracleLoneSurrogate(data) {
		return errors.New("size, encoding or grammar")
	}
	type level struct {
		object bool
		key    bool
		seen   map[string]bool
	}
	var stack []level
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if d, ok := tok.(json.Delim); ok && (d == '}' || d == ']') {
			stack = stack[:len(stack)-1]
			continue
		}
		if len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.object {
				if top.key {
					if top.seen[tok.(string)] {
						return errors.New("duplicate key")
					}
					top.seen[tok.(string)] = true
				}
				top.key = !top.key
				if !top.key {
					continue
				}
			}
		}
		if d, ok := tok.(json.Delim); ok {
			stack = append(stack, level{object: d == '{', key: d == '{', seen: make(map[string]bool)})
			if len(stack) > depth {
				return errors.New("depth")
			}
		}
	}
}

var (
	escape    = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)
	surrogate = regexp.MustCompile(`^\\u[dD][89a-fA-F]`)
	high      = regexp.MustCompile(`^\\u[dD][89abAB]`)
	low       = regexp.MustCompile(`^\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
)

// oracleLoneSurrogate looks at every escape of a valid document, which all stand in strings.
func oracleLoneSurrogate(data []byte) bool {
	for len(data) > 0 {
		at := escape.FindIndex(data)
		if at == nil {
			return false
		}
		esc := data[at[0]:at[1]]
		data = data[at[1]:]
		if !surrogate.Match(esc) {
			continue
		}
		if !high.Match(esc) || !low.Match(data) {
			return true
		}
		data = data[6:]
	}
	return false
}

// agree decodes both ways and reports a difference.
func agree(tb testing.TB, data []byte) *wire.Message {
	tb.Helper()
	got, err := wire.DecodeMessage(data)
	want, wantErr := oracleDecode(data)
	if (err == nil) != (wantErr == nil) {
		tb.Fatalf("%.500q: DecodeMessage says %v, the oracle %v", data, err, wantErr)
	}
	if err != nil {
		if wire.ReasonOf(err) == "" {
			tb.Fatalf("%.500q: refused without a reason: %v", data, err)
		}
		return nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("%.500q (-oracle +DecodeMessage):\n%s", data, diff)
	}
	return got
}

// The vectors, and the vectors damaged in thousands of small ways, come out of both decoders alike.
func TestDecoderAgreesWithOracle(t *testing.T) {
	const perVector = 60
	rng := rand.New(rand.NewPCG(1, 2))
	tokens := []string{`"`, `\`, `{`, `}`, `[`, `]`, `,`, `:`, ` `, `0`, `-`, `e`, `.`, `null`, `true`, `"id"`, `"ID"`, `"kind":"text"`, `"a":1,`,
		`\u0061`, `\ud83d`, `\ude00`, "\xff", "é", "\x00", `{}`, `[]`, `{"a":1}`, `"channel":"x"`, `,"zeta":{}`}
	accepted := 0
	for _, in := range vectorInputs(t, "message") {
		agree(t, in)
		if len(in) == 0 || len(in) > 4096 {
			continue
		}
		for range perVector {
			data := bytes.Clone(in)
			for range 1 + rng.IntN(3) {
				i := rng.IntN(len(data) + 1)
				switch rng.IntN(3) {
				case 0:
					data = append(data[:i:i], append([]byte(tokens[rng.IntN(len(tokens))]), data[i:]...)...)
				case 1:
					j := min(len(data), i+1+rng.IntN(4))
					data = append(data[:i:i], data[j:]...)
				case 2:
					if i < len(data) {
						data[i] = tokens[rng.IntN(len(tokens))][0]
					}
				}
			}
			if agree(t, data) != nil {
				accepted++
			}
		}
	}
	if accepted < 100 {
		t.Errorf("only %d damaged vectors were accepted: the test tests refusals alone", accepted)
	}
}

// vectorInputs returns every input of some kinds of vectors, and fails when there is none.
func vectorInputs(tb testing.TB, kinds ...string) [][]byte {
	tb.Helper()
	var all [][]byte
	for _, kind := range kinds {
		for _, file := range vectorFiles(tb, kind) {
			for _, c := range loadArchive(tb, file).cases {
				all = append(all, c.input)
			}
		}
	}
	if len(all) == 0 {
		tb.Fatalf("no seeds in the vectors of %v", kinds)
	}
	return all
}
