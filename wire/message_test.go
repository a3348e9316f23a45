package wire_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cotal-go/cotal/wire"
)

// fullMessage uses every field and every kind of part.
func fullMessage() *wire.Message {
	return &wire.Message{
		ID: wire.NewID(), TS: 1767225600123, Space: "main",
		From:    wire.EndpointRef{ID: ada.String(), Name: "Ada \"L\" é", Role: "lead"},
		Channel: "team.backend",
		Parts: []wire.Part{
			wire.Text("line one\nline two\t\"quoted\" \\ \x00\x1f\u2028 €😀"), wire.Text(""),
			{Kind: wire.PartData, Data: json.RawMessage(`{"b":[1,2.50,null],"a":"\u00e9"}`)},
			{Kind: wire.PartArtifact, Artifact: &wire.Artifact{Name: "r.html", MediaType: "text/html", Digest: "sha256:" + strings.Repeat("0f", 32), Size: 7}},
			{Kind: "com.acme.snapshot", Raw: json.RawMessage(`{"kind":"com.acme.snapshot", "x" : [1]}`)},
		},
		Mentions: []string{"bob", "carol ü"}, ReplyTo: "r", ContextID: "c",
	}
}

func TestMessageSurvives(t *testing.T) {
	for _, route := range []func(*wire.Message){
		func(*wire.Message) {},
		func(m *wire.Message) { m.Channel, m.To = "", bob.String() },
		func(m *wire.Message) { m.Channel, m.ToService = "", "reviewer" },
		func(m *wire.Message) { m.Parts = []wire.Part{} },
	} {
		m := fullMessage()
		route(m)
		prefix := []byte("prefix")
		data, err := m.AppendJSON(prefix)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(data), "prefix{") || !json.Valid(data[len(prefix):]) {
			t.Fatalf("AppendJSON gave %s", data)
		}
		got, err := wire.DecodeMessage(data[len(prefix):])
		if err != nil {
			t.Fatalf("DecodeMessage(%s): %v", data[len(prefix):], err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("(-sent +received):\n%s", diff)
		}
	}
}

func TestMessageText(t *testing.T) {
	m := &wire.Message{Parts: []wire.Part{wire.Text("a"), {Kind: "com.acme.x", Raw: json.RawMessage(`{"kind":"com.acme.x","text":"no"}`)}, wire.Text("b")}}
	if got, want := m.Text(), "a\nb"; got != want {
		t.Errorf("Text = %q, want %q", got, want)
	}
}

// Decoded messages share no memory with the buffer they came from: a client reuses it.
func TestDecodedMessageOwnsItsBytes(t *testing.T) {
	data := encoded(t, fullMessage())
	m, err := wire.DecodeMessage(data)
	if err != nil {
		t.Fatal(err)
	}
	before := encoded(t, m)
	for i := range data {
		data[i] = 'X'
	}
	if diff := cmp.Diff(string(before), string(encoded(t, m))); diff != "" {
		t.Errorf("changed with the buffer:\n%s", diff)
	}
}

func TestAppendJSONRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(*wire.Message)
		code   wire.Code
		reason wire.Reason
	}{
		"no id":              {func(m *wire.Message) { m.ID = "" }, wire.CodeBadRequest, wire.ReasonJSON},
		"newline in id":      {func(m *wire.Message) { m.ID = "a\nb" }, wire.CodeBadRequest, wire.ReasonJSON},
		"long id":            {func(m *wire.Message) { m.ID = strings.Repeat("i", 257) }, wire.CodeBadRequest, wire.ReasonJSON},
		"no space":           {func(m *wire.Message) { m.Space = "" }, wire.CodeBadRequest, wire.ReasonJSON},
		"negative ts":        {func(m *wire.Message) { m.TS = -1 }, wire.CodeBadRequest, wire.ReasonJSON},
		"no sender":          {func(m *wire.Message) { m.From.ID = "" }, wire.CodeSenderMismatch, wire.ReasonSender},
		"no name":            {func(m *wire.Message) { m.From.Name = "" }, wire.CodeBadRequest, wire.ReasonJSON},
		"invalid name":       {func(m *wire.Message) { m.From.Name = "\xff" }, wire.CodeBadRequest, wire.ReasonJSON},
		"no address":         {func(m *wire.Message) { m.Channel = "" }, wire.CodeBadRequest, wire.ReasonJSON},
		"two addresses":      {func(m *wire.Message) { m.To = "local.bob" }, wire.CodeBadRequest, wire.ReasonJSON},
		"wildcard":           {func(m *wire.Message) { m.Channel = "team.>" }, wire.CodeBadRequest, wire.ReasonJSON},
		"upper-case mention": {func(m *wire.Message) { m.Mentions = []string{"Bob"} }, wire.CodeBadRequest, wire.ReasonJSON},
		"invalid text":       {func(m *wire.Message) { m.Parts = []wire.Part{wire.Text("a\xc3")} }, wire.CodeBadRequest, wire.ReasonJSON},
		"no part kind":       {func(m *wire.Message) { m.Parts = []wire.Part{{}} }, wire.CodeBadRequest, wire.ReasonJSON},
		"data without data":  {func(m *wire.Message) { m.Parts = []wire.Part{{Kind: wire.PartData}} }, wire.CodeBadRequest, wire.ReasonJSON},
		"data of two values": {func(m *wire.Message) { m.Parts = []wire.Part{{Kind: wire.PartData, Data: json.RawMessage(`1,"x":2`)}} }, wire.CodeBadRequest, wire.ReasonJSON},
		"data with duplicate": {func(m *wire.Message) {
			m.Parts = []wire.Part{{Kind: wire.PartData, Data: json.RawMessage(`{"a":1,"a":2}`)}}
		}, wire.CodeBadRequest, wire.ReasonJSON},
		"data too deep": {func(m *wire.Message) {
			m.Parts = []wire.Part{{Kind: wire.PartData, Data: json.RawMessage(strings.Repeat("[", 30) + strings.Repeat("]", 30))}}
		}, wire.CodeBadRequest, wire.ReasonJSON},
		"artifact without artifact": {func(m *wire.Message) { m.Parts = []wire.Part{{Kind: wire.PartArtifact}} }, wire.CodeBadRequest, wire.ReasonJSON},
		"extension without raw":     {func(m *wire.Message) { m.Parts = []wire.Part{{Kind: "com.acme.x"}} }, wire.CodeBadRequest, wire.ReasonJSON},
		"extension of another kind": {func(m *wire.Message) {
			m.Parts = []wire.Part{{Kind: "com.acme.x", Raw: json.RawMessage(`{"kind":"text","text":"x"}`)}}
		}, wire.CodeBadRequest, wire.ReasonJSON},
		"extension breaking out": {func(m *wire.Message) {
			m.Parts = []wire.Part{{Kind: "com.acme.x", Raw: json.RawMessage(`{"kind":"com.acme.x"}],"id":"evil","parts":[{}`)}}
		}, wire.CodeBadRequest, wire.ReasonJSON},
		"too large": {func(m *wire.Message) { m.Parts = []wire.Part{wire.Text(strings.Repeat("a", wire.MaxMessage))} }, wire.CodeResourceExhausted, ""},
	} {
		m := fullMessage()
		c.spoil(m)
		dst := []byte("kept")
		got, err := m.AppendJSON(dst)
		if wire.CodeOf(err) != c.code || wire.ReasonOf(err) != c.reason || string(got) != "kept" {
			t.Errorf("%s: %q, %v (%s, %s); want %s, %s", name, got, err, wire.CodeOf(err), wire.ReasonOf(err), c.code, c.reason)
		}
	}
}

func TestDataPart(t *testing.T) {
	p, err := wire.Data(map[string]any{"html": "<b>&", "n": 1})
	if err != nil || string(p.Data) != `{"html":"<b>&","n":1}` || p.Kind != wire.PartData {
		t.Errorf("Data = %+v, %v", p, err)
	}
	for _, bad := range []any{math.NaN(), func() {}, json.RawMessage(`{"a":1,"a":2}`), json.RawMessage(`{`)} {
		if _, err := wire.Data(bad); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("Data(%T) = %v, want bad-request", bad, err)
		}
	}
}

// Messages and parts inside other documents keep their own rules.
func TestNestedInJSON(t *testing.T) {
	type page struct {
		Messages []*wire.Message `json:"messages"`
		Part     wire.Part       `json:"part"`
	}
	in := page{Messages: []*wire.Message{fullMessage()}, Part: wire.Text("x")}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out page
	if err := wire.Decode(data, &out, 1<<20); err != nil {
		t.Fatal(err)
	}
	in.Messages[0].Parts[2].Data = out.Messages[0].Parts[2].Data // encoding/json compacts what a Marshaler returns
	in.Messages[0].Parts[4].Raw = out.Messages[0].Parts[4].Raw
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("(-in +out):\n%s", diff)
	}
	for _, bad := range []string{
		`{"messages":[{"id":"a"}]}`,
		`{"messages":[{"ID":"a","ts":1,"space":"main","from":{"id":"local.ada","name":"ada"},"channel":"general","parts":[]}]}`,
		`{"part":{"kind":"image"}}`, `{"part":{"kind":"text","Text":"x","text":"x"}}`, `{"part":[]}`,
	} {
		if err := wire.Decode([]byte(bad), &page{}, 1<<20); wire.ReasonOf(err) != wire.ReasonJSON {
			t.Errorf("Decode(%s) = %v, want malformed-json", bad, err)
		}
	}
	if _, err := json.Marshal(wire.Part{Kind: "image"}); err == nil {
		t.Error("a part of a bare unknown kind encodes")
	}
}

// The deepest message still fits into a page inside a reply.
func TestDeepestMessageFitsReply(t *testing.T) {
	m := fullMessage()
	m.Parts = []wire.Part{{Kind: wire.PartData, Data: json.RawMessage(strings.Repeat("[", 29) + strings.Repeat("]", 29))}}
	page, err := json.Marshal(wire.HistoryReply{Channel: "general", Messages: []wire.HistoryMessage{{Message: encoded(t, m)}}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := (&wire.Reply{V: 1, ID: "r1", OK: true, Data: page}).AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.DecodeReply(data)
	if err != nil {
		t.Fatal(err)
	}
	var got wire.HistoryReply
	if err := wire.Decode(r.Data, &got, wire.MaxReply); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.DecodeMessage(got.Messages[0].Message); err != nil {
		t.Error(err)
	}
}
