package script_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/endpoint"
	"github.com/cotal-go/cotal/internal/script"
	"github.com/cotal-go/cotal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// player runs a script until the test ends.
type player struct {
	t    *testing.T
	ep   *endpoint.Endpoint
	out  chan string
	done chan int
}

func play(t *testing.T, m *cotaltest.Mesh, name, text string, p *cotaltest.Peer, o script.Options) *player {
	t.Helper()
	prog, err := script.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	a := &player{t: t, ep: m.Endpoint(t, name, p), out: make(chan string, 1000), done: make(chan int, 1)}
	o.Name, o.Print = name, func(line string) { a.out <- line }
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		code, err := script.Run(ctx, a.ep, prog, o)
		if err != nil {
			t.Errorf("run %s: %v", name, err)
		}
		a.done <- code
		close(a.done)
	}()
	t.Cleanup(func() { cancel(); <-a.done })
	return a
}

// until waits for a line with some text.
func (a *player) until(want string) {
	a.t.Helper()
	var seen []string
	timeout := time.After(time.Minute)
	for {
		select {
		case line := <-a.out:
			if seen = append(seen, line); strings.Contains(line, want) {
				return
			}
		case <-timeout:
			a.t.Fatalf("no line with %q: %q", want, seen)
		}
	}
}

// ear collects the direct messages and posts that somebody gets.
type ear struct {
	mu  sync.Mutex
	got []string
	hit chan string
}

func listen(t *testing.T, ep *endpoint.Endpoint, channels ...string) *ear {
	t.Helper()
	e := &ear{hit: make(chan string, 1000)}
	take := func(d *endpoint.Delivery) {
		text := d.Sender.Actor + ": " + d.Message.Text()
		e.mu.Lock()
		e.got = append(e.got, text)
		e.mu.Unlock()
		if d.Kind != wire.KindChannel {
			if err := d.Ack(t.Context()); err != nil {
				t.Error(err)
			}
		}
		e.hit <- text
	}
	for _, ch := range channels {
		if _, err := ep.Join(t.Context(), ch, take, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := ep.HandleDirect(t.Context(), take); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *ear) until(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case text := <-e.hit:
			if text == want {
				return
			}
		case <-timeout:
			e.mu.Lock()
			defer e.mu.Unlock()
			t.Fatalf("never heard %q: %q", want, e.got)
		}
	}
}

// TestEcho is an agent without a script: it greets, and answers direct messages, mentions and those to its role.
func TestEcho(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := m.Endpoint(t, "ada", nil)
	e := listen(t, ada, "general")
	bot := play(t, m, "bot", "You echo.", &cotaltest.Peer{Role: "scribe"}, script.Options{Subscribe: []string{"general"}})
	e.until(t, "bot: hello from bot")
	if _, err := ada.Direct(t.Context(), bot.ep.Principal(), endpoint.Text("one")); err != nil {
		t.Fatal(err)
	}
	e.until(t, "bot: one")
	d := endpoint.Text("two @bot")
	d.Mentions = []string{"bot"}
	if _, err := ada.Post(t.Context(), "general", d); err != nil {
		t.Fatal(err)
	}
	e.until(t, "bot: two @bot")
	if _, err := ada.Ask(t.Context(), "scribe", endpoint.Text("three")); err != nil {
		t.Fatal(err)
	}
	e.until(t, "bot: three")
}

// TestEchoesDoNotAnswerEachOther starts an exchange between two echoes: it ends with the first answer.
func TestEchoesDoNotAnswerEachOther(t *testing.T) {
	m := cotaltest.New(t, nil)
	one := play(t, m, "one", "", nil, script.Options{})
	two := play(t, m, "two", "", nil, script.Options{})
	one.until("> #general")
	two.until("> #general")
	if _, err := one.ep.Direct(t.Context(), two.ep.Principal(), endpoint.Text("hello")); err != nil {
		t.Fatal(err)
	}
	two.until("> local.one: hello")
	one.until("< (direct) local.two: hello")
	// Whatever it would answer comes before the answer to what is sent next.
	ada := m.Endpoint(t, "ada", nil)
	e := listen(t, ada)
	if _, err := ada.Direct(t.Context(), one.ep.Principal(), endpoint.Text("still there?")); err != nil {
		t.Fatal(err)
	}
	e.until(t, "one: still there?")
	var rest []string
	for len(one.out) > 0 {
		rest = append(rest, <-one.out)
	}
	if slices.ContainsFunc(rest, func(l string) bool { return strings.HasPrefix(l, "> local.two") }) {
		t.Errorf("an answer was answered: %q", rest)
	}
}

func TestScript(t *testing.T) {
	m := cotaltest.New(t, nil)
	ada := m.Endpoint(t, "ada", nil)
	e := listen(t, ada, "general", "team")
	in, keys := io.Pipe()
	t.Cleanup(func() { _ = keys.Close() })
	text := fenced("print begun\nstatus working on it\nsay team ready\non channel team say general heard {text} of {from}\non dm exit 7")
	bot := play(t, m, "bot", text, nil, script.Options{Subscribe: []string{"general"}, Terminal: in})
	bot.until("begun")
	bot.until("= working on it")
	e.until(t, "bot: ready")
	if _, err := ada.Post(t.Context(), "team", endpoint.Text("go")); err != nil {
		t.Fatal(err)
	}
	e.until(t, "bot: heard go of local.ada")
	if _, err := io.WriteString(keys, "typed by hand\n"); err != nil {
		t.Fatal(err)
	}
	e.until(t, "bot: typed by hand")
	if _, err := ada.Direct(t.Context(), bot.ep.Principal(), endpoint.Text("end")); err != nil {
		t.Fatal(err)
	}
	if code := <-bot.done; code != 7 {
		t.Errorf("exit code = %d, want 7", code)
	}
}

// TestStatementThatFails goes on with the next.
func TestStatementThatFails(t *testing.T) {
	m := cotaltest.New(t, nil)
	bot := play(t, m, "bot", fenced("say other hi\nspawn scribe\nprint still here"), &cotaltest.Peer{Publish: []string{}}, script.Options{})
	bot.until("! say: ")
	bot.until("! spawn: ")
	bot.until("still here")
}
