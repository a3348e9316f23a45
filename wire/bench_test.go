package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cotal-go/cotal/wire"
)

var benchMe = wire.Principal{Owner: "u_g5mclrofwa6pirb3p4yeigemze", Actor: "ada"}

// benchMessage is a chat message of about 300 bytes.
func benchMessage() *wire.Message {
	return &wire.Message{
		ID: "kak6nvrsu3s7esjytwyvi3devv", TS: 1767225600123, Space: "main",
		From:    wire.EndpointRef{ID: benchMe.String(), Name: "ada", Role: "reviewer"},
		Channel: "team.backend",
		Parts:   []wire.Part{wire.Text("The build is green again after the last change; please take another look at the parser.\n")},
		ReplyTo: "3baqpwfxx5lx3r3kzzfoki3zr6",
	}
}

func encoded(tb testing.TB, m *wire.Message) []byte {
	tb.Helper()
	b, err := m.AppendJSON(nil)
	if err != nil {
		tb.Fatalf("AppendJSON: %v", err)
	}
	return b
}

func BenchmarkDecodeMessage(b *testing.B) {
	data := encoded(b, benchMessage())
	big := benchMessage()
	big.Parts = []wire.Part{wire.Text(strings.Repeat("All work and no play makes a dull agent. ", 5000))}
	cjk := benchMessage()
	cjk.Parts = []wire.Part{wire.Text(strings.Repeat("消息", 15000))}
	deep := benchMessage()
	deep.Parts = []wire.Part{{Kind: wire.PartData, Data: json.RawMessage(`{"a":[1,2,{"b":"c","d":null,"e":[true,false,1.5e3]}],"f":{"g":{}}}`)}}
	for _, c := range []struct {
		name string
		data []byte
	}{{"chat", data}, {"data", encoded(b, deep)}, {"text_200k", encoded(b, big)}, {"cjk_90k", encoded(b, cjk)}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.DecodeMessage(c.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecodeMessageStd decodes the same bytes with encoding/json and no check at all.
func BenchmarkDecodeMessageStd(b *testing.B) {
	data := encoded(b, benchMessage())
	type message wire.Message
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		var m message
		if err := json.Unmarshal(data, &m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	m := benchMessage()
	buf := encoded(b, m)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = m.AppendJSON(buf[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkChannelSubject(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.ChannelSubject("main", benchMe, "team.backend"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseSubject(b *testing.B) {
	subj, err := wire.LiveSubject("main", benchMe, "team.backend")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.ParseSubject(subj); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReceive(b *testing.B) {
	subj, err := wire.LiveSubject("main", benchMe, "team.backend")
	if err != nil {
		b.Fatal(err)
	}
	data := encoded(b, benchMessage())
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := wire.Receive(subj, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	r := fullRequest()
	r.Target, r.Bind, r.Correlation = nil, nil, nil
	data, err := r.AppendJSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			if buf, err = r.AppendJSON(buf[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.DecodeRequest(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode_by_reflection", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := wire.Decode(data, new(wire.Request), wire.MaxRequest); err != nil {
				b.Fatal(err)
			}
		}
	})
	sub := wire.RequestSubject{Space: "main", Rail: wire.RailOne, Endpoint: "delivery", Command: "history",
		Caller: wire.Lifecycle{Principal: ada, UID: uidA}, Nonce: nonce}
	text := must(b)(sub.Subject())
	b.Run("build_subject", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := sub.Subject(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse_subject", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.ParseRequestSubject(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkReply(b *testing.B) {
	r := &wire.Reply{V: 1, ID: "kak6nvrsu3s7esjytwyvi3devv", OK: true, Data: json.RawMessage(`{"channel":"general","messages":[],"remaining":0}`)}
	data, err := r.AppendJSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			if buf, err = r.AppendJSON(buf[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.DecodeReply(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
