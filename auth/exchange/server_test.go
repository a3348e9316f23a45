package exchange_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/auth/exchange"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

func open(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// TestHalfOpenRequestsAreClosed sends pieces of requests and then nothing (field case N14). Only the bound that a piece is about is
// short.
func TestHalfOpenRequestsAreClosed(t *testing.T) {
	t.Parallel()
	const short, long = 100 * time.Millisecond, time.Hour
	header := exchange.Limits{HeaderTimeout: short, Deadline: long, IdleTimeout: long}
	body := exchange.Limits{HeaderTimeout: long, Deadline: short, IdleTimeout: long}
	idle := exchange.Limits{HeaderTimeout: long, Deadline: long, IdleTimeout: short}
	for _, face := range faces() {
		const post = "POST /exchange HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer CAPABILITY\r\n"
		for name, c := range map[string]struct {
			limits exchange.Limits
			text   string
			status int // 0 for no answer
		}{
			"nothing":               {header, "", 0},
			"half a line":           {header, "POST /exch", 0},
			"half the headers":      {header, post, 0},
			"half the body":         {body, post + "Content-Length: 100\r\n\r\n{\"idp", 503},
			"half a chunk":          {body, post + "Transfer-Encoding: chunked\r\n\r\n50\r\n{\"idp", 503},
			"nothing after it":      {idle, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", 200},
			"nothing after a proof": {idle, post + "Content-Length: 2\r\n\r\n{}", 400},
		} {
			t.Run(string(face)+"/"+name, func(t *testing.T) {
				t.Parallel()
				k := newKit(t, func(o *exchange.Options) { o.Limits = c.limits })
				k.run(t)
				conn := open(t, map[exchange.Face]string{exchange.Loopback: k.LoopbackAddr(), exchange.Public: k.PublicAddr()}[face])
				send(t, conn, strings.Replace(c.text, "CAPABILITY", k.cap.Reveal(), 1))
				in := bufio.NewReader(conn)
				if c.status != 0 {
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatalf("read answer: %v", err)
					}
					body, err := io.ReadAll(resp.Body)
					if err != nil || resp.StatusCode != c.status || !json.Valid(body) {
						t.Errorf("answer = %d %q, %v, want %d", resp.StatusCode, body, err, c.status)
					}
				}
				rest, err := io.ReadAll(in)
				told := len(rest) > 0 && !strings.HasPrefix(string(rest), "HTTP/1.1 400 ") // net/http's own to half a line
				if errors.Is(err, os.ErrDeadlineExceeded) || c.status == 0 && told {
					t.Errorf("the connection is open, or said %q: %v", rest, err)
				}
			})
		}
	}
}

// TestHalfOfTooMuch: what is too large is read on until the deadline, so that the answer is not lost, and then refused.
func TestHalfOfTooMuch(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		k := newKit(t, func(o *exchange.Options) { o.Limits.Deadline = 7 * time.Second })
		for _, face := range faces() {
			c := k.pipe(t, face).dial(t, "127.0.0.1")
			began := time.Now()
			send(t, c, "POST /exchange HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer "+k.cap.Reveal()+
				"\r\nContent-Length: 10000000\r\n\r\n"+strings.Repeat("x", 70<<10))
			if got, took := status(t, c), time.Since(began); got != 413 || took != 7*time.Second {
				t.Errorf("%s: answer = %d after %s, want 413 after 7 s", face, got, took)
			}
			if _, err := io.ReadAll(c); err != nil {
				t.Errorf("%s: the connection is open: %v", face, err)
			}
		}
	})
}

// TestSlowBodiesKeepNobodyOut has one place for decisions and a dozen half bodies.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *exchange.Options) { o.Limits.InFlight = 2 })
	k.run(t)
	for range 12 {
		send(t, open(t, k.PublicAddr()), "POST /exchange HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	}
	k.dial(t, exchange.Public, ask{body: personBody(good, "")}).want(t, 200, "")
}

func TestOversizedHeaders(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.run(t)
	conn := open(t, k.PublicAddr())
	send(t, conn, "GET /health HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 40<<10)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answer = %v, %v, want 431", resp, err)
	}
}

// TestRunLeavesNothing follows the capability file and the listeners through a life.
func TestRunLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "exchange.json")
	if err := os.WriteFile(path, []byte("left by a crash, and readable to all"), 0o644); err != nil {
		t.Fatal(err)
	}
	k := newKit(t, func(o *exchange.Options) { o.CapabilityFile, o.Capability = path, exchange.Capability{} })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	<-k.Ready()
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Fatalf("capability file: mode %v, %v, want 0600", info.Mode(), err)
	}
	file, err := exchange.LoadCapabilityFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if file.URL != "http://"+k.LoopbackAddr() || file.PublicURL != "https://mesh.example" || file.PID != os.Getpid() || len(file.Capability.Reveal()) != 64 {
		t.Errorf("capability file = %+v", file)
	}
	k.cap = file.Capability
	k.dial(t, exchange.Loopback, ask{body: personBody(good, "")}).want(t, 200, "")
	if err := k.Run(ctx); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("a second Run = %v, want failed-precondition", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if c, err := net.Dial("tcp", k.LoopbackAddr()); err == nil {
		_ = c.Close()
		t.Error("the address still answers")
	}
	other := newKit(t, func(o *exchange.Options) { o.Capability = exchange.Capability{} })
	other.cap = file.Capability
	other.call(exchange.Loopback, ask{body: personBody(good, "")}).want(t, 401, "capability-missing")
}

// TestStopFinishesWhatRuns ends the server while a decision is being made.
func TestStopFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	k := newKit(t, nil)
	answer := blockUntil(release)
	k.office.person = func(ctx context.Context, req auth.PersonRequest) (auth.Admission, error) {
		close(entered)
		a, err := answer(ctx, req)
		if ctx.Err() != nil {
			t.Error("the stop cancelled a decision")
		}
		return a, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	<-k.Ready()
	got := make(chan *reply, 1)
	go func() { got <- k.dial(t, exchange.Public, ask{body: personBody(good, "")}) }()
	<-entered
	cancel()
	close(release)
	(<-got).want(t, 200, "")
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestNothingIsLeftWhenAnAddressIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	for name, change := range map[string]func(o *exchange.Options){
		"loopback": func(o *exchange.Options) { o.Loopback = taken.Addr().String() },
		"public":   func(o *exchange.Options) { o.Public = taken.Addr().String() },
		"file":     func(o *exchange.Options) { o.CapabilityFile = filepath.Join(dir, "no", "such", "folder") },
	} {
		k := newKit(t, func(o *exchange.Options) {
			o.CapabilityFile = filepath.Join(dir, "exchange.json")
			change(o)
		})
		if err := k.Run(t.Context()); !errors.Is(err, wire.ErrUnavailable) {
			t.Errorf("%s: Run = %v, want unavailable", name, err)
		}
		select {
		case <-k.Ready():
			t.Errorf("%s: it says that it is ready", name)
		default:
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s: left behind: %v, %v", name, left, err)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *exchange.Options){
		"space":                   func(o *exchange.Options) { o.Space = "a b" },
		"loopback everywhere":     func(o *exchange.Options) { o.Loopback = "0.0.0.0:1" },
		"loopback without host":   func(o *exchange.Options) { o.Loopback = ":1" },
		"public everywhere":       func(o *exchange.Options) { o.Public = "[::]:1" },
		"public by name":          func(o *exchange.Options) { o.Public = "mesh.example:443" },
		"public without port":     func(o *exchange.Options) { o.Public = "127.0.0.1" },
		"url in the clear":        func(o *exchange.Options) { o.PublicURL = "http://mesh.example" },
		"url of another kind":     func(o *exchange.Options) { o.PublicURL = "ftp://mesh.example" },
		"url with a query":        func(o *exchange.Options) { o.PublicURL = "https://mesh.example/?x=1" },
		"url with a user":         func(o *exchange.Options) { o.PublicURL = "https://u:p@mesh.example" },
		"url without host":        func(o *exchange.Options) { o.PublicURL = "https:///x" },
		"url that is none":        func(o *exchange.Options) { o.PublicURL = "https://[" },
		"url without public face": func(o *exchange.Options) { o.Public = "" },
		"proxy without face":      func(o *exchange.Options) { o.Public, o.PublicURL, o.TrustedProxy = "", "", true },
		"limit":                   func(o *exchange.Options) { o.Limits.Refusals = -1 },
		"large limit":             func(o *exchange.Options) { o.Limits.PerOwner = 1 << 20 },
		"deadline":                func(o *exchange.Options) { o.Limits.Deadline = -1 },
	} {
		var given exchange.Options
		newKit(t, func(o *exchange.Options) { given = *o })
		change(&given)
		if _, err := exchange.New(given); !errors.Is(err, wire.ErrBadRequest) {
			t.Errorf("%s: New = %v, want bad-request", name, err)
		}
	}
	k := newKit(t, func(o *exchange.Options) { o.PublicURL = "https://mesh.example/cotal/" })
	if got := k.URL(); got != "https://mesh.example/cotal" {
		t.Errorf("URL = %q", got)
	}
	alone := newKit(t, func(o *exchange.Options) { o.Public, o.PublicURL = "", "" })
	alone.run(t)
	if got := alone.PublicAddr(); got != "" || alone.URL() != "http://"+alone.LoopbackAddr() {
		t.Errorf("without a public face: address %q, URL %q", got, alone.URL())
	}
	if r := alone.call(exchange.Public, ask{method: "GET", path: "/health"}); r.status != 404 {
		t.Errorf("a public face that is none answers %d", r.status)
	}
	defer func() {
		if recover() == nil {
			t.Error("New without an authority did not panic")
		}
	}()
	_, _ = exchange.New(exchange.Options{Space: "main"})
}

func TestCapabilityFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "exchange.json")
	capability := func(pair string) exchange.Capability {
		c, err := exchange.NewCapability(strings.Repeat(pair, 32))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	mine := exchange.CapabilityFile{URL: "http://127.0.0.1:1", PID: 1, Capability: capability("ab")}
	other := exchange.CapabilityFile{URL: "http://127.0.0.1:2", PID: 2, Capability: capability("cd")}
	if _, err := exchange.LoadCapabilityFile(path); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("no file = %v, want not-found", err)
	}
	if err := mine.Remove(path); err != nil {
		t.Errorf("remove what is not there = %v", err)
	}
	if err := other.Write(path); err != nil {
		t.Fatal(err)
	}
	if err := mine.Remove(path); err != nil {
		t.Errorf("remove another's = %v", err)
	}
	if got, err := exchange.LoadCapabilityFile(path); err != nil || got.PID != 2 {
		t.Errorf("another process's file = %+v, %v: it must stay", got, err)
	}
	for name, text := range map[string]string{
		"no JSON":         "x",
		"another version": `{"ver":2,"url":"x","pid":1,"cap":"` + strings.Repeat("ab", 32) + `"}`,
		"no capability":   `{"ver":1,"url":"x","pid":1,"cap":""}`,
		"a short one":     `{"ver":1,"url":"x","pid":1,"cap":"abcd"}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := exchange.LoadCapabilityFile(path); !errors.Is(err, wire.ErrPrecondition) || strings.Contains(err.Error(), "abab") {
			t.Errorf("%s: %v, want failed-precondition", name, err)
		}
	}
	if err := mine.Write(path); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" {
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := exchange.LoadCapabilityFile(path); !errors.Is(err, wire.ErrPrecondition) {
			t.Errorf("a file that others may read = %v, want failed-precondition", err)
		}
	}
}

// TestCapabilityFileIsAtomic reads while the file is replaced over and over, and removed by the one that lost it.
func TestCapabilityFileIsAtomic(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "exchange.json")
	var files []exchange.CapabilityFile
	for _, pair := range []string{"ab", "cd"} {
		c, err := exchange.NewCapability(strings.Repeat(pair, 32))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, exchange.CapabilityFile{URL: "http://127.0.0.1:1", PID: len(files) + 1, Capability: c})
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := exchange.LoadCapabilityFile(path); err != nil && !errors.Is(err, wire.ErrNotFound) {
				t.Errorf("a reader saw a piece: %v", err)
				return
			}
		}
	})
	for range 40 {
		for _, f := range files {
			if err := f.Write(path); err != nil {
				t.Error(err)
			}
		}
		if err := files[0].Remove(path); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if got, err := exchange.LoadCapabilityFile(path); err != nil || got.PID != 2 {
		t.Errorf("the last one = %+v, %v", got, err)
	}
}

// TestManyAtOnce is for the race detector.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(o *exchange.Options) { o.Limits.PerActor, o.Limits.PerOwner = 50_000, 50_000 })
	k.run(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				face := faces()[(i+j)%2]
				switch (i + j) % 4 {
				case 0:
					k.dial(t, face, ask{body: personBody(good, "")}).want(t, 200, "")
				case 1:
					k.dial(t, face, ask{body: agentBody(agentToken, "")}).want(t, 200, "")
				case 2:
					k.dial(t, face, ask{body: personBody("forged", "")})
				case 3:
					k.dial(t, face, ask{method: "GET", path: "/.well-known/cotal-mesh"}).want(t, 200, "")
				}
			}
		})
	}
	wg.Wait()
}
