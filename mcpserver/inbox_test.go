package mcpserver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/mcpserver"
	"github.com/cotal-go/cotal/wire"
)

// Direct messages come first, then mentions, then channels; a page that is not acknowledged comes again, and one that is does not.
func TestInboxOrderAndAck(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	ada := newAgent(t, m, "ada", setup{opts: mcpserver.Options{Join: []string{"team"}}})
	post(t, bob, "team", endpoint.Text("for everybody"))
	named := endpoint.Text("for ada there")
	named.Mentions = []string{"ada"}
	post(t, bob, "team", named)
	named.ID, named.Parts = "", []wire.Part{wire.Text("for ada elsewhere")}
	post(t, bob, "other", named)
	direct(t, bob, ada.ep, endpoint.Text("for ada alone"))
	text := ada.has(t, "for everybody", "for ada there", "for ada elsewhere", "for ada alone")
	at := -1
	for _, want := range []string{"| for ada alone\n", "| for ada", "| for everybody\n"} {
		i := strings.Index(text, want)
		if i < at || i < 0 {
			t.Errorf("%q is out of order in\n%s", want, text)
		}
		at = i
	}
	if again := ada.call(t, "cotal_inbox", nil); !strings.Contains(again, "for ada alone") || pageOf(again) == pageOf(text) {
		t.Errorf("not shown again under another id:\n%s", again)
	}
	if out := ada.call(t, "cotal_inbox", args{"ack": pageOf(text)}); !strings.HasPrefix(out, "acknowledged 4 messages\n") || pageOf(out) != "" {
		t.Errorf("after the acknowledgement:\n%s", out)
	}
	ada.refuse(t, "not-found", "cotal_inbox", args{"ack": pageOf(text)})
	waiting, held, err := ada.ep.Waiting(t.Context())
	if err != nil || waiting != 0 || held != 0 {
		t.Errorf("waiting %d, held %d, %v", waiting, held, err)
	}
}

// TestC3TheInboxIsFull: more arrives than fits; what does not fit stays with the broker, is counted, is not handed out again and
// again, and comes when there is room.
func TestC3TheInboxIsFull(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	ada := newAgent(t, m, "ada", setup{})
	const all = 100
	for i := range all {
		direct(t, bob, ada.ep, endpoint.Text(fmt.Sprintf("number %d.", i)))
	}
	text := ada.has(t, "| number 31.\n", "68 direct messages more with the broker")
	if strings.Contains(text, "number 32.") {
		t.Error("more is held here than may be")
	}
	for seen := 0; seen < all; {
		n := strings.Count(text, "\n| number ")
		for i := range n {
			if !strings.Contains(text, fmt.Sprintf("| number %d.\n", seen+i)) {
				t.Fatalf("number %d is not in the page that begins with %d:\n%s", seen+i, seen, text)
			}
		}
		if seen += n; seen == all {
			break
		}
		ada.call(t, "cotal_inbox", args{"ack": pageOf(text)})
		text = ada.has(t, fmt.Sprintf("| number %d.\n", min(all-1, seen+31)))
	}
	if strings.Contains(text, "handed out before") {
		t.Error("messages were handed out again while they waited")
	}
}

// Ten megabytes wait before the agent begins: all of it is shown, in order, in bounded pages.
func TestTenMegabytesWait(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	creds := m.Credentials(t, "ada", nil)
	to := creds.Identity().Principal
	const size, all = 200_000, 52
	filler := strings.Repeat("0123456789abcdef\n", size/17)
	for i := range all {
		if _, err := bob.Direct(t.Context(), to, endpoint.Text(fmt.Sprintf("begin %d.\n%send %d.", i, filler, i))); err != nil {
			t.Fatal(err)
		}
	}
	ada := newAgent(t, m, "ada", setup{creds: creds})
	begun, ended, lines, pages := 0, 0, 0, 0
	for text := ada.has(t, "begin 0."); ; {
		pages++
		if n := utf8.RuneCountInString(text); n > mcpserver.PageChars {
			t.Fatalf("a page of %d characters", n)
		}
		for range strings.Count(text, "| begin ") {
			if !strings.Contains(text, fmt.Sprintf("| begin %d.\n", begun)) {
				t.Fatalf("page %d does not begin %d", pages, begun)
			}
			begun++
		}
		for range strings.Count(text, "end ") - strings.Count(text, "send ") {
			if strings.Contains(text, fmt.Sprintf("end %d.\n", ended)) {
				ended++
			}
		}
		lines += strings.Count(text, "f\n")
		if ended == all {
			break
		}
		id := pageOf(text)
		if id == "" {
			t.Fatalf("page %d names no id after %d of %d:\n%.2000s", pages, ended, all, text)
		}
		ada.call(t, "cotal_inbox", args{"ack": id})
		text = ada.until(t, "the next page", func(text string) bool { return pageOf(text) != "" })
	}
	if want := all * (size / 17); lines < want-all*5 || lines > want {
		t.Errorf("%d lines shown, want %d, less those that parts cut", lines, want)
	}
	t.Logf("%d pages", pages)
}

// An oversize message comes in parts, and no part is lost when a page is not acknowledged.
func TestOversizeComesInParts(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	ada := newAgent(t, m, "ada", setup{})
	var want strings.Builder
	for i := range 15_000 {
		fmt.Fprintf(&want, "%05d.", i)
	}
	direct(t, bob, ada.ep, endpoint.Text(want.String()))
	var got strings.Builder
	text := ada.has(t, "part: characters 1 to")
	first := bodyOf(text)
	if again := bodyOf(ada.call(t, "cotal_inbox", nil)); again != first {
		t.Error("the same part looks otherwise when it is shown again")
	}
	for {
		got.WriteString(bodyOf(text))
		last := strings.Contains(text, "last part")
		text = ada.call(t, "cotal_inbox", args{"ack": pageOf(text)})
		if last {
			break
		}
	}
	if got.String() != want.String() {
		t.Errorf("the parts make %d characters, want %d", got.Len(), want.Len())
	}
	if pageOf(text) != "" {
		t.Errorf("shown after its last part:\n%s", text)
	}
}

// bodyOf is the text of one message of one line.
func bodyOf(page string) string {
	var b strings.Builder
	for _, l := range strings.Split(page, "\n") {
		if s, ok := strings.CutPrefix(l, "| "); ok {
			b.WriteString(s)
		}
	}
	return b.String()
}

// What a page showed and was not acknowledged when the process died is shown by the next one.
func TestCrashBetweenPageAndAck(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	opts := mcpserver.Options{Join: []string{"team"}}
	ada := newAgent(t, m, "ada", setup{opts: opts})
	mention := endpoint.Draft{}
	mention.Mentions = []string{"ada"}
	send := func(s string) {
		direct(t, bob, ada.ep, endpoint.Text("direct "+s))
		post(t, bob, "team", endpoint.Text("channel "+s))
		mention.ID, mention.Parts = "", []wire.Part{wire.Text("mention " + s)}
		post(t, bob, "other", mention)
	}
	send("read")
	text := ada.has(t, "direct read", "channel read", "mention read")
	ada.call(t, "cotal_inbox", args{"ack": pageOf(text)})
	send("unread")
	old := pageOf(ada.has(t, "direct unread", "channel unread", "mention unread"))
	ada.kill()
	next := newAgent(t, m, "ada", setup{creds: ada.creds, opts: opts})
	text = next.until(t, "what was not acknowledged", func(text string) bool {
		return strings.Contains(text, "channel unread") && strings.Contains(text, "mention unread")
	})
	if strings.Contains(text, " read\n") {
		t.Errorf("shown again although it was acknowledged:\n%s", text)
	}
	next.refuse(t, "not-found", "cotal_inbox", args{"ack": old})
	next.call(t, "cotal_inbox", args{"ack": pageOf(text)})
}

// A process that ends in order gives its direct messages back at once.
func TestEndGivesBack(t *testing.T) {
	m := cotaltest.New(t, nil)
	bob := m.Endpoint(t, "bob", nil)
	ada := newAgent(t, m, "ada", setup{})
	direct(t, bob, ada.ep, endpoint.Text("not read"))
	ada.has(t, "not read")
	ada.stop()
	begun := time.Now()
	next := newAgent(t, m, "ada", setup{creds: ada.creds})
	text := next.has(t, "not read", "handed out before")
	t.Logf("shown again after %v", time.Since(begun))
	next.call(t, "cotal_inbox", args{"ack": pageOf(text)})
}
