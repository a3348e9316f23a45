package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cotal-go/cotal/wire"
)

// seed adds the inputs of some kinds of vectors. A fuzz target without seeds fails. Inputs made to reach a size limit are
// left out: they slow the fuzzer down, and TestDecoderAgreesWithOracle runs them.
func seed(f *testing.F, kinds ...string) {
	f.Helper()
	for _, in := range vectorInputs(f, kinds...) {
		if len(in) <= 8<<10 {
			f.Add(in)
		}
	}
}

// rebuilt fails unless a subject that was parsed is built again exactly.
func rebuilt(t *testing.T, in string, build func() (string, error)) {
	t.Helper()
	out, err := build()
	if err != nil || out != in {
		t.Fatalf("%q parses, and is built again as %q, %v", in, out, err)
	}
}

var everySubject = []string{"subject", "request-subject", "reply-subject", "event-subject", "session-subject", "presence-subject"}

func FuzzParseSubject(f *testing.F) {
	seed(f, everySubject...)
	f.Fuzz(func(t *testing.T, data []byte) {
		in := string(data)
		s, err := wire.ParseSubject(in)
		if err != nil {
			if wire.ReasonOf(err) != wire.ReasonSubject || s != (wire.Subject{}) {
				t.Fatalf("%q: %+v, %v without its reason", in, s, err)
			}
			return
		}
		if strings.ContainsAny(in, "*> \r\n\t") || wire.KindOf(in) != s.Kind {
			t.Fatalf("%q parses as %v, KindOf says %v", in, s.Kind, wire.KindOf(in))
		}
		if s.Surface() != nil {
			return
		}
		rebuilt(t, in, func() (string, error) {
			switch s.Kind {
			case wire.KindChannel:
				return wire.ChannelSubject(s.Space, s.Sender, s.Channel)
			case wire.KindLive:
				return wire.LiveSubject(s.Space, s.Sender, s.Channel)
			case wire.KindDirect:
				return wire.DirectSubject(s.Space, s.To, s.Sender)
			case wire.KindRole:
				return wire.RoleSubject(s.Space, s.Role, s.Sender)
			case wire.KindMention:
				return wire.MentionSubject(s.Space, wire.Lifecycle{Principal: s.To, UID: s.UID})
			}
			return "", fmt.Errorf("kind %v", s.Kind)
		})
	})
}

func FuzzParseRequestSubject(f *testing.F) {
	seed(f, everySubject...)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := wire.ParseRequestSubject(string(data))
		if err != nil {
			return
		}
		rebuilt(t, string(data), r.Subject)
		reply := r.Reply("i1", "e1")
		text, err := reply.Subject()
		if err != nil && len(data) < wire.MaxRailSubject-100 {
			t.Fatalf("%q has no reply subject: %v", data, err)
		}
		if back, err := wire.ParseReplySubject(text); text != "" && (err != nil || back != reply) {
			t.Fatalf("reply %q parses as %+v, %v", text, back, err)
		}
	})
}

func FuzzParseReplySubject(f *testing.F) {
	seed(f, everySubject...)
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := wire.ParseReplySubject(string(data)); err == nil {
			rebuilt(t, string(data), r.Subject)
		}
	})
}

func FuzzParseEventSubject(f *testing.F) {
	seed(f, everySubject...)
	f.Fuzz(func(t *testing.T, data []byte) {
		if e, err := wire.ParseEventSubject(string(data)); err == nil {
			rebuilt(t, string(data), e.Subject)
		}
	})
}

func FuzzParseSessionSubject(f *testing.F) {
	seed(f, everySubject...)
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := wire.ParseSessionSubject(string(data)); err == nil {
			rebuilt(t, string(data), s.Subject)
		}
	})
}

func FuzzDecodeSessionFrame(f *testing.F) {
	seed(f, "session-frame")
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := wire.DecodeSessionFrame(data)
		if err != nil {
			if wire.CodeOf(err) == wire.CodeInternal || got.Kind != 0 {
				t.Fatalf("%x: %+v, %v", data, got, err)
			}
			return
		}
		out, err := got.Append(nil)
		if err != nil {
			if len(data) > wire.MaxSessionData && wire.CodeOf(err) == wire.CodeResourceExhausted {
				return // a document may be written longer than it was
			}
			t.Fatalf("%x decodes and is not encoded again: %v", data, err)
		}
		again, err := wire.DecodeSessionFrame(out)
		if err != nil {
			t.Fatalf("%x is encoded as %x, which is none: %v", data, out, err)
		}
		switch got.Kind {
		case wire.FrameOpen, wire.FrameEnded, wire.FrameError:
			if diff := cmp.Diff(got, again, cmp.Comparer(func(a, b *wire.Error) bool { return a.Equal(b) }), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%x changes on its way:\n%s", data, diff)
			}
		default:
			if !bytes.Equal(out, data) {
				t.Fatalf("%x is encoded as %x", data, out)
			}
		}
	})
}

func FuzzParsePresenceSubject(f *testing.F) {
	seed(f, everySubject...)
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, p, err := wire.ParsePresenceSubject(string(data)); err == nil {
			rebuilt(t, string(data), func() (string, error) { return wire.PresenceSubject(s, p) })
		}
	})
}

func FuzzParsePrincipal(f *testing.F) {
	seed(f, "principal")
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := wire.ParsePrincipal(string(data))
		if err != nil {
			return
		}
		if p.String() != string(data) || p.Validate() != nil || strings.Count(p.Dash(), "-") != 1 {
			t.Fatalf("%q parses as %+v, dash form %q", data, p, p.Dash())
		}
	})
}

// channelRegexp says with a regular expression what a pattern takes in.
func channelRegexp(pattern string) *regexp.Regexp {
	segments := strings.Split(pattern, ".")
	for i, s := range segments {
		switch s {
		case "*":
			segments[i] = `[A-Za-z0-9_-]+`
		case ">":
			segments[i] = `[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*`
		default:
			segments[i] = regexp.QuoteMeta(s)
		}
	}
	return regexp.MustCompile(`^` + strings.Join(segments, `\.`) + `$`)
}

func FuzzPattern(f *testing.F) {
	for _, in := range vectorInputs(f, "pattern") {
		outer, inner, _ := strings.Cut(string(in), "\n")
		f.Add(outer, inner, inner)
		f.Add(">", outer, inner)
	}
	f.Fuzz(func(t *testing.T, outer, inner, channel string) {
		if wire.ValidateChannel(channel) == nil && wire.ValidatePattern(channel) != nil {
			t.Fatalf("channel %q is no pattern", channel)
		}
		want := wire.ValidatePattern(outer) == nil && wire.ValidateChannel(channel) == nil && channelRegexp(outer).MatchString(channel)
		if got := wire.PatternMatches(outer, channel); got != want {
			t.Fatalf("PatternMatches(%q, %q) = %t, the regular expression says %t", outer, channel, got, want)
		}
		if wire.ValidatePattern(outer) == nil && !wire.PatternCovers(outer, outer) {
			t.Fatalf("%q does not cover itself", outer)
		}
		if wire.PatternCovers(outer, inner) && wire.PatternMatches(inner, channel) && !wire.PatternMatches(outer, channel) {
			t.Fatalf("%q covers %q, which takes in %q, which the first does not", outer, inner, channel)
		}
		if filter, err := wire.LiveFilter("main", outer); (err == nil) != (wire.ValidatePattern(outer) == nil) {
			t.Fatalf("LiveFilter(%q) = %q, %v", outer, filter, err)
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	seed(f, "message", "reply", "request")
	f.Fuzz(func(t *testing.T, data []byte) {
		m := agree(t, data)
		if m == nil {
			return
		}
		if m.ID == "" { // accepted on receipt, never sent
			m.ID = "x"
		}
		out, err := m.AppendJSON(nil)
		if err != nil {
			if wire.CodeOf(err) == wire.CodeResourceExhausted { // escapes may take more room than they did
				return
			}
			t.Fatalf("%.500q is accepted and does not encode: %v", data, err)
		}
		again, err := wire.DecodeMessage(out)
		if err != nil {
			t.Fatalf("%.500q encodes as %.500q: %v", data, out, err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("%.500q (-first +again):\n%s", data, diff)
		}
		if !bytes.Equal(encoded(t, again), out) {
			t.Fatalf("%.500q encodes in two ways", out)
		}
	})
}

// FuzzDecode decodes into types of every shape. What is accepted keeps the rules as the oracle sees them, and survives.
func FuzzDecode(f *testing.F) {
	seed(f, "presence", "channel-config", "request", "reply", "message")
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, fresh := range []func() any{
			func() any { return new(document) }, func() any { return new(wire.Presence) }, func() any { return new(wire.Reply) },
			func() any { return new(wire.HistoryReply) }, func() any { return new(any) },
		} {
			v := fresh()
			if wire.Decode(data, v, wire.MaxReply) != nil {
				continue
			}
			if err := oracleStrict(data, wire.MaxReply, wire.MaxNestedDepth); err != nil {
				t.Fatalf("%.500q is accepted as %T: %v", data, v, err)
			}
			out, err := json.Marshal(v)
			if err != nil {
				continue // a raw number no Go type holds
			}
			again := fresh()
			if err := wire.Decode(out, again, 8*wire.MaxReply); err != nil {
				t.Fatalf("%.500q as %T encodes as %.500q: %v", data, v, out, err)
			}
			if twice, err := json.Marshal(again); err != nil || !bytes.Equal(out, twice) {
				t.Fatalf("%.500q as %T does not survive: %.500q, %.500q, %v", data, v, out, twice, err)
			}
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	seed(f, "request", "reply")
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := wire.DecodeRequest(data)
		slow := new(wire.Request)
		if slowErr := wire.Decode(data, slow, wire.MaxRequest); err == nil && slowErr != nil {
			t.Fatalf("%.500q: DecodeRequest accepts, Decode says %v", data, slowErr)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(slow, r); diff != "" {
			t.Fatalf("%.500q (-Decode +DecodeRequest):\n%s", data, diff)
		}
		out, err := r.AppendJSON(nil)
		if err != nil {
			if wire.CodeOf(err) == wire.CodeResourceExhausted {
				return
			}
			t.Fatalf("%.500q is accepted and does not encode: %v", data, err)
		}
		again, err := wire.DecodeRequest(out)
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Fatalf("%.500q: %v (-first +again):\n%s", out, err, diff)
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	seed(f, "reply", "request")
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := wire.DecodeReply(data)
		if err != nil {
			return
		}
		if err := oracleStrict(data, wire.MaxReply, wire.MaxNestedDepth); err != nil {
			t.Fatalf("%.500q is accepted: %v", data, err)
		}
		out, err := r.AppendJSON(nil)
		if err != nil {
			if wire.CodeOf(err) == wire.CodeResourceExhausted {
				return
			}
			t.Fatalf("%.500q is accepted and does not encode: %v", data, err)
		}
		again, err := wire.DecodeReply(out)
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Fatalf("%.500q: %v (-first +again):\n%s", out, err, diff)
		}
		if r.Error != nil && strings.ContainsAny(r.Error.Error(), "\r\n\x1b") {
			t.Fatalf("%.500q prints as %q", data, r.Error.Error())
		}
	})
}

func FuzzDecodePresence(f *testing.F) {
	for _, in := range vectorInputs(f, "presence") {
		key, record, _ := bytes.Cut(in, []byte("\n"))
		f.Add(string(key), record)
	}
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		p, err := wire.DecodePresence(key, data)
		if err != nil {
			return
		}
		if p.Card.ID != key {
			t.Fatalf("key %q holds the record of %q", key, p.Card.ID)
		}
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := wire.DecodePresence(key, out)
		if err != nil && len(out) <= wire.MaxPresence {
			t.Fatalf("%.500q: %v", out, err)
		}
		if err == nil {
			twice, err := json.Marshal(again)
			if err != nil || !bytes.Equal(out, twice) {
				t.Fatalf("%.500q becomes %.500q, %v", out, twice, err)
			}
		}
	})
}

func FuzzDecodeChannelConfig(f *testing.F) {
	seed(f, "channel-config")
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := wire.DecodeChannelConfig(data)
		if err != nil {
			return
		}
		if r := wire.ResolveChannel(c, nil); r.Window < 0 || r.Class != wire.ClassLive && r.Class != wire.ClassDurable {
			t.Fatalf("%.500q resolves to %+v", data, r)
		}
		out, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := wire.DecodeChannelConfig(out)
		if diff := cmp.Diff(c, again); len(out) <= wire.MaxChannelConfig && (err != nil || diff != "") {
			t.Fatalf("%.500q: %v (-first +again):\n%s", out, err, diff)
		}
	})
}

func FuzzReceive(f *testing.F) {
	for _, in := range vectorInputs(f, "delivery") {
		subject, payload, _ := bytes.Cut(in, []byte("\n"))
		f.Add(string(subject), payload)
	}
	f.Fuzz(func(t *testing.T, subject string, payload []byte) {
		sub, m, err := wire.Receive(subject, payload)
		if err != nil {
			if wire.ReasonOf(err) == "" || m != nil {
				t.Fatalf("%q %.500q: %v without a reason, message %v", subject, payload, err, m)
			}
			return
		}
		if m.From.ID != sub.Sender.String() || m.Space != sub.Space || !sub.Sender.OwnerKnown() {
			t.Fatalf("%q surfaced a message of %q in %q", subject, m.From.ID, m.Space)
		}
	})
}

func FuzzParseLink(f *testing.F) {
	seed(f, "link")
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := wire.ParseLink(string(data))
		if err != nil {
			return
		}
		again, err := wire.ParseLink(l.Reveal())
		if err != nil || !again.Equal(l) {
			t.Fatalf("%q becomes %q: %v", data, l.Reveal(), err)
		}
		shown, err := wire.ParseLink(l.String())
		if err != nil {
			t.Fatalf("%q shows as %q, which is no link: %v", data, l.String(), err)
		}
		if secret := shown.Token() + shown.Password(); secret != "" && secret != "***" {
			t.Fatalf("%q shows a secret: %q", data, l.String())
		}
	})
}
